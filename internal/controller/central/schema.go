package central

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// convert brings both databases to the schemas that this member's OVN was installed
// with, where they are served by older ones: of clusters that began under an earlier
// OVN, and of an old backup. A database never goes back to an older schema, which would
// lose what that has no columns for.
func (m *member) convert(ctx context.Context) error {
	for _, d := range []database{north, south} {
		if err := m.convertOne(ctx, d); err != nil {
			return err
		}
	}
	m.converted.Store(true)
	return nil
}

// convertOne may run on several members at once: a conversion to the schema that another
// has just brought changes nothing.
func (m *member) convertOne(ctx context.Context, d database) error {
	if _, err := m.state(ctx, d); err != nil {
		return err
	}
	client := append([]string{"ovsdb-client", "--timeout=15"}, m.keys(fileCentral)...)
	// Who leads is asked: another one may not have heard yet of a newer schema.
	served, err := m.call(ctx, append(slices.Clip(client), "get-schema-version", m.endpoints(d), d.name)...)
	if err != nil {
		return err
	}
	installed, err := m.call(ctx, "ovsdb-tool", "schema-version", d.schema)
	if err != nil {
		return err
	}
	switch order, err := compare(served, installed); {
	case err != nil:
		return fmt.Errorf("%s: %w", d.name, err)
	case order > 0:
		m.Log.Warn("a newer OVN has converted this database: it keeps its schema", "database", d.name, "served", served, "installed", installed)
		return nil
	case order == 0:
		return nil
	}
	if _, err := m.call(ctx, append(slices.Clip(client), "convert", m.endpoints(d), d.schema)...); err != nil {
		return fmt.Errorf("%s: conversion of schema %s to %s: %w", d.name, served, installed, err)
	}
	m.Log.Info("database converted to the schema of a newer OVN", "database", d.name, "from", served, "to", installed)
	return nil
}

// compare is negative where version a, of numbers with dots between, is older than b,
// and 0 where they are the same.
func compare(a, b string) (int, error) {
	var numbers [2][]int
	for i, text := range []string{a, b} {
		for part := range strings.SplitSeq(text, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return 0, fmt.Errorf("%q is no version of a schema", text)
			}
			numbers[i] = append(numbers[i], n)
		}
	}
	return slices.Compare(numbers[0], numbers[1]), nil
}
