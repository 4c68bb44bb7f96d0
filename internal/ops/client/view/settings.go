package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
)

// PodSettings writes what is declared of a pod.
func PodSettings(w io.Writer, s agent.PodSettings, _ Options) error {
	p := &page{}
	p.field(0, "Pod", s.Namespace+"/"+s.Name+map[bool]string{false: " (not there yet)"}[s.Known])
	p.field(0, "Declared by", cmp.Or(strings.Join(s.Sources, "; "), "nobody"))
	for _, i := range s.Interfaces {
		p.heading("%s on %s", i.Name, i.Network)
		for _, f := range i.Fields {
			p.line("  %-16s %-24s %s", f.Field, f.Value, f.Source)
			for _, l := range f.Lost {
				p.line("  %-16s %-24s %s", "", fmt.Sprintf("not %s", l.Value), l.Source)
			}
		}
	}
	if r := s.Refusal; r != nil {
		p.heading("Refused (code %d): %s", r.Code, r.Message)
	}
	for _, n := range s.Notes {
		p.line("cannot tell: %s", n)
	}
	return p.end(w)
}
