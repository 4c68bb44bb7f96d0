package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// Output formats.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
)

// format is the value of -o: one of a command's formats.
type format struct {
	value   string
	allowed []string
}

// outputFlag adds -o; the first format is the default.
func outputFlag(cmd *cobra.Command, allowed ...string) *format {
	f := &format{value: allowed[0], allowed: allowed}
	cmd.Flags().VarP(f, "output", "o", strings.Join(allowed, "|"))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return f
}

// String, Set and Type make format a flag.
func (f *format) String() string { return f.value }

// Set refuses what the command cannot write.
func (f *format) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("must be one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = s
	return nil
}

// Type names the value in the help text.
func (f *format) Type() string { return "format" }

// print writes v as JSON or YAML, or has text write it for people.
func (f *format) print(w io.Writer, v any, text func(io.Writer, view.Options) error) error {
	switch f.value {
	case asJSON:
		return writeJSON(w, v)
	case asYAML:
		return writeYAML(w, v)
	}
	var b bytes.Buffer
	err := text(&b, view.Options{Wide: f.value == asWide, Now: time.Now()})
	_, written := io.WriteString(w, usage.Shell().In(b.String()))
	return errors.Join(err, written)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

func writeYAML(w io.Writer, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = io.Copy(w, bytes.NewReader(b))
	return err
}
