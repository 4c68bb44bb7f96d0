package view

import (
	"io"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
)

// GC writes what a collection removed, or would remove.
func GC(w io.Writer, r agent.GCResult) error {
	p, removed, count := &page{}, "removed", "removed"
	if r.DryRun {
		removed, count = "would remove", "to be removed"
	}
	for _, a := range r.Removed {
		p.line("%s %s: %s", removed, ref(a.AttachmentRef), a.Reason)
		for _, i := range a.Interfaces {
			p.line("    %s", heldBy(i))
		}
	}
	for _, s := range r.Strays {
		of := "no attachment"
		if s.Container != "" {
			of = short(s.Container) + "/" + s.IfName + ", which is no attachment"
		}
		p.line("%s %s %s of %s", removed, s.Kind, s.Name, of)
	}
	for _, f := range r.Failed {
		p.line("failed  %s: %s", ref(f.AttachmentRef), f.Error)
	}
	if r.Unswept != "" {
		p.line("ports and links of no attachment were not looked for: %s", r.Unswept)
	}
	strays := ""
	if len(r.Strays) > 0 {
		strays = ", " + some(len(r.Strays), "stray")
	}
	p.line("%d %s%s, %d failed, %d kept", len(r.Removed), count, strays, len(r.Failed), r.Kept)
	return p.end(w)
}

// heldBy is what goes with an interface.
func heldBy(i agent.Interface) string {
	parts := []string{i.Name + " of network " + i.Network}
	if i.HostIf != "" {
		parts = append(parts, "port "+i.HostIf)
	}
	if len(i.Plugins) > 0 {
		parts = append(parts, "what "+strings.Join(i.Plugins, ", ")+" made")
	}
	for _, a := range i.Addresses {
		parts = append(parts, "address "+a.Addr().String())
	}
	for _, h := range i.HostPorts {
		parts = append(parts, "host port "+strconv.Itoa(int(h.HostPort))+"/"+h.Protocol)
	}
	return strings.Join(parts, ", ")
}
