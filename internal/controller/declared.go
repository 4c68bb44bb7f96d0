package controller

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/networks"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

// Redeclared has pods looked at of which something else may be declared than before.
func (c *Controller) Redeclared() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		c.now.queue.Add(object.Key{Kind: object.KindNetwork})
	}
}

// redeclared has those looked at that wait for an address, and those that do not run yet of
// which something is declared. Pods that run keep what they have.
func (t *term) redeclared(ctx context.Context) error {
	if t.Declared == nil {
		return nil
	}
	all, err := t.Declared.Declared(ctx)
	if err != nil {
		return err
	}
	for _, p := range t.Pods.List() {
		if len(p.IPs) == 0 && !p.Done && all.About(p.Pod) {
			t.queue.Add(object.KindPod.Named(p.Namespace, p.Name))
		}
	}
	t.rouse("")
	return nil
}

// resolved are the networks of a pod that has leases. What is declared of it, and wrong,
// keeps a pod that has addresses from nothing.
func (t *term) resolved(ctx context.Context, p object.Pod, held []core.Lease) ([]core.Want, error) {
	notes := t.unpooled(p)
	has := map[string]bool{}
	for _, l := range held {
		prefix := logical.Prefix(p.Pod, l.Owner.Key.IfName)
		pin(notes, prefix, l)
		has[prefix+v1.ProviderSuffix+v1.FieldIP] = true
		also(notes, p.Namespace, prefix)
	}
	src := networks.Source{Networks: t.nets, Of: resolve.Pod{Pod: p.Pod, Annotations: notes, Controller: p.Owner.Kind}}
	in := resolve.Input{
		Request: core.Request{
			Op: core.Add, Key: core.Key{Container: p.UID, IfName: "eth0"}, Pod: p.Pod,
			Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead"},
		},
		Devices: src, Rank: t.rank(p), Has: func(key string) bool { return has[key] }, Log: t.Log,
	}
	if len(p.IPs) == 0 {
		in.Declared = t.Declared
	}
	wants, err := resolve.Resolve(ctx, src, in)
	if err != nil && len(held) > 0 && in.Declared != nil {
		in.Declared = nil
		wants, err = resolve.Resolve(ctx, src, in)
	}
	return wants, err
}

// also has the networks of a pod's annotations name the one that its interface was given
// by a declaration: it stays the pod's whatever is declared since.
func also(notes map[string]string, namespace, prefix string) {
	given := notes[prefix+v1.ProviderSuffix+v1.FieldDeclared]
	network, ifName, ok := strings.Cut(given, "@")
	asked, err := element.Parse(v1.AnnNetworks, notes[v1.AnnNetworks], namespace)
	if !ok || err != nil || slices.ContainsFunc(asked, func(e element.Element) bool { return e.IfName == ifName }) {
		return
	}
	text := notes[v1.AnnNetworks]
	if !strings.ContainsAny(text, "[{") {
		notes[v1.AnnNetworks] = strings.TrimLeft(text+","+given, " ,")
		return
	}
	var list []json.RawMessage
	if json.Unmarshal([]byte(text), &list) != nil {
		return
	}
	ns, name, _ := strings.Cut(network, "/")
	one, err := json.Marshal(map[string]string{"namespace": ns, "name": name, "interface": ifName})
	if err != nil {
		return
	}
	if out, err := json.Marshal(append(list, one)); err == nil {
		notes[v1.AnnNetworks] = string(out)
	}
}

// declaredNotes are the annotations about an interface of a network that only a
// declaration names.
func declaredNotes(at string, n nic) map[string]string {
	out := map[string]string{}
	if n.declared != "" {
		out[at+v1.FieldDeclared] = n.declared + "@" + n.ifName
	}
	return out
}

// kept is a Subnet of which nobody is given an address that is declared for a pod.
// AddressHeld (11): one of those that somebody who is no pod asks for is.
func (t *term) kept(ctx context.Context, s core.Subnet, ips []netip.Addr) (core.Subnet, error) {
	if t.Declared == nil {
		return s, nil
	}
	all, err := t.Declared.Declared(ctx)
	if err != nil {
		return s, err
	}
	kept := all.Within(s, "")
	s.Exclude = slices.Clone(s.Exclude)
	for _, k := range kept {
		s.Exclude = append(s.Exclude, k.AddrRange)
	}
	for _, ip := range ips {
		if err := declared.Held(kept, core.Pod{}, ip); err != nil {
			return s, err
		}
	}
	return s, nil
}
