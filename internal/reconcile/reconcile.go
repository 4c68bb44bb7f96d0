// Package reconcile makes what is there equal to what is wanted: it adds and
// changes first, deletes last, and goes on past failures. It knows neither what
// the things are nor where they live; a Target tells.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Target is a set of named things that can be listed and changed. List gives
// only what carries the owner's mark, so that nothing of anybody else is ever
// deleted. Put adds or replaces; Delete of what is gone succeeds. Both may be
// repeated.
type Target[K cmp.Ordered, V comparable] interface {
	List(ctx context.Context) (map[K]V, error)
	Put(ctx context.Context, k K, v V) error
	Delete(ctx context.Context, k K) error
}

// Once makes t equal to want, in the order of the keys. What is equal already
// is not touched. It adds before it deletes, so that traffic always has a way,
// goes on past failures and returns them all. Without a list nothing is done;
// once ctx has ended nothing more is begun.
func Once[K cmp.Ordered, V comparable](ctx context.Context, t Target[K, V], want map[K]V) error {
	have, err := t.List(ctx)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	var errs []error
	do := func(verb string, k K, change func() error) {
		err := context.Cause(ctx)
		if err == nil {
			err = change()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %v: %w", verb, k, err))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := have[k]; !ok || v != want[k] {
			do("put", k, func() error { return t.Put(ctx, k, want[k]) })
		}
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[k]; !ok {
			do("delete", k, func() error { return t.Delete(ctx, k) })
		}
	}
	return errors.Join(errs...)
}
