package node

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes a report for people; verb is what was done, or would be.
func (r Report) Text(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) } // errors of w come again at Flush
	p("%s at %s", r.Runtime.Name, r.Runtime.Socket)
	p("  configurations in %s, plugins in %s", r.Runtime.Dir, strings.Join(r.Runtime.BinDirs, ", "))
	p("  pods got %s", r.Before)
	head := "would be done"
	if r.Done {
		head = "done"
	}
	if len(r.Files) > 0 {
		p("%s", head)
	}
	for _, f := range r.Files {
		p("  %s\t%s\t%s", f.Action, f.Path, f.Note)
	}
	for _, b := range r.Blocks {
		p("✗ %s", b.What)
		p("    next: %s", b.Next)
	}
	for _, n := range r.Notes {
		p("! %s", n)
	}
	if r.OK() {
		p("%s: %s", map[bool]string{true: "now", false: "then"}[r.Done], r.After.Why)
	}
	if r.Done {
		p("%s", r.condition())
	}
	if r.Proven {
		p("✓ a pod was attached, and detached again")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (r Report) condition() string {
	if r.Runtime.Ready {
		return "✓ the runtime reports NetworkReady"
	}
	return "✗ the runtime reports NetworkReady=false: " + r.Runtime.Reason
}
