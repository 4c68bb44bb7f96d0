package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
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

// PodNetworks lists each interface that PodNetworks declare, with each pod that has it.
func PodNetworks(w io.Writer, list agent.PodNetworkList, o Options) error {
	t := newTable(w, o, []string{"NAMESPACE", "NAME", "INTERFACE", "NETWORK", "ADDRESS", "POD", "NODE", "STATE"}, []string{"STATEFULSET", "WHY"})
	for _, n := range list.Items {
		for _, i := range n.Interfaces {
			cells := []string{n.Namespace, n.Name, i.Name, i.Network, i.Address}
			for _, p := range n.Pods {
				t.row(o, append(slices.Clone(cells), p.Name, p.Node, p.Reason), []string{n.StatefulSet, p.Message})
			}
			if len(n.Pods) == 0 {
				t.row(o, append(cells, "", "", ""), []string{n.StatefulSet, ""})
			}
		}
	}
	return t.end()
}

// PodNetwork writes all that is known of one.
func PodNetwork(w io.Writer, n agent.PodNetwork, o Options) error {
	p := &page{}
	p.field(0, "PodNetwork", n.Namespace+"/"+n.Name)
	p.field(0, "Pods of", prefixed("StatefulSet ", n.StatefulSet != "", n.StatefulSet))
	for _, i := range n.Interfaces {
		p.heading("%s", i.Name)
		for _, name := range slices.Sorted(maps.Keys(i.Fields)) {
			p.line("  %-16s %s", name, i.Fields[name])
		}
	}
	if len(n.Pods) > 0 {
		p.heading("Pods")
	}
	for _, pod := range n.Pods {
		p.line("  %s on %s: %s", pod.Name, cmp.Or(pod.Node, "this node"), strings.TrimSuffix(pod.Reason+": "+pod.Message, ": "))
	}
	p.conditions(n.Conditions, o)
	return p.end(w)
}
