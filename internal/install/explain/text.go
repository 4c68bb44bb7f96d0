package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes choices for people; wide with what follows from each change.
func Text(w io.Writer, all []Choice, wide bool) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, c := range all {
		if i > 0 {
			_, _ = fmt.Fprintln(out)
		}
		c.text(out, wide)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the explanation: %w", err)
	}
	return nil
}

// text ends each block of columns with a line that has none, so that blocks do
// not widen each other. Errors of w come again at Flush.
func (c Choice) text(w io.Writer, wide bool) {
	mark := "✗"
	if c.Ready {
		mark = "✓"
	}
	_, _ = fmt.Fprintf(w, "%s %s: %s\n", mark, c.Runtime, c.Why)
	_, _ = fmt.Fprintf(w, "  configurations in %s, plugins in %s\n", c.Dir, strings.Join(c.BinDirs, ", "))
	for _, f := range c.Files {
		_, _ = fmt.Fprintf(w, "    %s\t%s\t%s\n", f.Name, f.Fate, f.Why)
	}
	for _, n := range c.Networks {
		_, _ = fmt.Fprintf(w, "  %s\n", n.line())
		for _, p := range n.Problems {
			_, _ = fmt.Fprintf(w, "    ! %s\n", p)
		}
	}
	if !wide {
		c.deaf(w)
		return
	}
	_, _ = fmt.Fprintln(w, "  a file that is")
	for _, ch := range c.Changes {
		heard := "not heard"
		if ch.Heard {
			heard = "heard"
		}
		_, _ = fmt.Fprintf(w, "    %s\t%s\t%s\n", ch.What, heard, ch.Then)
	}
}

// deaf is what surprises about changes, in one line.
func (c Choice) deaf(w io.Writer) {
	var all []string
	for _, ch := range c.Changes {
		if !ch.Heard && ch.What != Installed {
			all = append(all, ch.What)
		}
	}
	if len(all) > 0 {
		_, _ = fmt.Fprintf(w, "  not heard of: a file that is %s\n", strings.Join(all, "; "))
	}
}

// line is a network in words: what a pod gets, by which plugins.
func (n Network) line() string {
	var chain []string
	for _, p := range n.Plugins {
		word := p.Type
		if len(p.Names) > 0 {
			word += " (" + strings.Join(p.Names, ", ") + ")"
		}
		chain = append(chain, word)
	}
	head := "a pod gets " + n.IfName + " of network " + fmt.Sprintf("%q", n.Name)
	if n.IfName == "" {
		head = fmt.Sprintf("by name only: network %q", n.Name)
	}
	if n.CNIVersion != "" {
		head += ", CNI " + n.CNIVersion
	}
	return head + ": " + strings.Join(chain, " -> ")
}
