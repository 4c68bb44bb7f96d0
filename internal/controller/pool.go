package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/ippool"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// nic is an interface of a pod whose addresses the controller gives.
type nic struct {
	*core.NIC
	pool ippool.Pool // of which it gets them; the zero value for all of the Subnet
	// names are the objects that the pod names for it.
	names  annotation.Objects
	ifName string // in the pod
	lent   bool   // a plugin makes the interface, and asks for its addresses
	// declared is the network where only a declaration names it.
	declared string
}

// pool tells an IPPool's object what came of it, and how many of its addresses are
// in use.
func (t *term) pool(ctx context.Context, k object.Key) error {
	t.rouse(waitsFor(k.Name))
	obj, ok := t.Pools.Get("", k.Name)
	if !ok {
		return nil
	}
	pool, fault, inForce := t.nets.Pools().Get(k.Name)
	net, _, served := t.nets.Get(pool.Subnet)
	want := v1.IPPoolStatus{}
	if inForce && served {
		want = status.Pool(t.book.Allocator, net.Subnet, pool.Ranges, pool.Spare)
	}
	var refused error
	if fault != "" {
		refused = errors.New(fault)
	}
	conditions, changed := status.Merge(obj.Status.Conditions, status.Conditions(obj.Generation, refused, status.UndonePool(obj.Spec)))
	want.Conditions = conditions
	if !changed && status.SamePool(obj.Status, want) {
		return nil
	}
	return gone(t.PoolStatus(ctx, object.Object{Key: k, UID: string(obj.UID)}, want))
}

// waitsFor is what a pod needs that names an IPPool.
func waitsFor(pool string) string { return "ippool/" + pool }

// absentError tells that a pod names an IPPool or a Vip that is not in force.
type absentError struct {
	needs string // waitsFor, or logical.VipPort
	error
}

// Unwrap makes errors.Is see why.
func (e *absentError) Unwrap() error { return e.error }

// needsOf is what a failed pod waits for, "" where that has no name.
func needsOf(err error) string {
	if e := (*absentError)(nil); errors.As(err, &e) {
		return e.needs
	}
	return ""
}

// unpooled are a pod's annotations with Subnets in the place of IPPools: of those
// that they name, and of the one to which its namespace's pods come; and with addresses
// in the place of Vips.
func (t *term) unpooled(p object.Pod) map[string]string {
	notes, pools := map[string]string{}, t.nets.Pools()
	maps.Copy(notes, p.Annotations)
	fill := func(key, subnet string) {
		if notes[key] == "" {
			notes[key] = subnet
		}
	}
	for key, value := range p.Annotations {
		if annotation.IsObject(key) {
			delete(notes, key) // pooled reads it
			t.vipped(notes, p, key, value)
		}
		if !strings.Contains(key, v1.ProviderSuffix+v1.FieldIPPool) || !annotation.IsPool(value) {
			continue
		}
		delete(notes, key)
		if pool, _, ok := pools.Get(strings.TrimSpace(value)); ok {
			fill(strings.Replace(key, v1.FieldIPPool, v1.FieldSubnet, 1), pool.Subnet)
		}
	}
	at := v1.DefaultProvider + v1.ProviderSuffix
	if pool, ok := pools.For("", p.Namespace); ok && p.Annotations[at+v1.FieldIP] == "" && p.Annotations[at+v1.FieldIPPool] == "" {
		fill(at+v1.FieldSubnet, pool.Subnet)
	}
	return notes
}

// poolOf is the IPPool that gives an interface its addresses: the one that the pod
// names for it, else its namespace's.
func (t *term) poolOf(p object.Pod, ifName string, n *core.NIC) (ippool.Pool, error) {
	if len(n.IPs) > 0 || len(n.Pool) > 0 {
		return ippool.Pool{}, nil
	}
	notes := annotation.Notes{All: p.Annotations, Provider: n.Provider, IfName: ifName}
	key, name := notes.IPPool()
	if name == "" {
		pool, _ := t.nets.Pools().For(n.Subnet.Name, p.Namespace)
		return pool, nil
	}
	pool, fault, ok := t.nets.Pools().Get(name)
	// The pod's own word, wherever it stands: policies about requests went by it.
	asked := strings.TrimSpace(p.Annotations[notes.Key(v1.FieldSubnet)])
	switch {
	case !ok && fault == "":
		return pool, &absentError{waitsFor(name), annotation.Refused(core.CodeValue, key, name, "names an IPPool that does not exist")}
	case !ok:
		return pool, &absentError{waitsFor(name), annotation.Refused(core.CodeValue, key, name, "names an IPPool that is not in force: %s", fault)}
	case asked != "" && pool.Subnet != asked, pool.Subnet != n.Subnet.Name:
		return pool, annotation.Refused(core.CodeConflict, key, name, "is an IPPool of Subnet %s, and the interface is asked to be in %s", pool.Subnet, cmp.Or(asked, n.Subnet.Name))
	case !pool.Gives(n.Families()):
		return pool, annotation.Refused(core.CodeConflict, key, name, "is an IPPool without an address of the families %v, which are asked for", n.Families())
	}
	return pool, nil
}

// served refuses an interface of ours in a Subnet that OVN does not carry, and
// addresses for a plugin's that would be those of the pod's default network.
func served(w core.Want, n *core.NIC, lent bool) error {
	switch {
	case !lent && claim.Needed(n.Subnet):
		return core.Errorf(core.CodeConflict, "network %s: Subnet %s is of provider %s: OVN does not carry it, it gives addresses to interfaces of other plugins only",
			w.Network, n.Subnet.Name, n.Subnet.Provider)
	case lent && n.Provider == v1.DefaultProvider && !w.Default:
		return core.Errorf(core.CodeConfig, "network %s: ipam.provider is missing: it names the provider of the Subnet that gives interface %s its addresses, NAME.NAMESPACE",
			w.Network, w.IfName)
	}
	return nil
}

// asked is one interface with the objects that the pod names for it.
func (t *term) asked(p object.Pod, w core.Want, n *core.NIC, lent bool) (nic, error) {
	if err := served(w, n, lent); err != nil {
		return nic{}, err
	}
	pool, err := t.poolOf(p, w.IfName, n)
	if err != nil {
		return nic{}, err
	}
	notes := annotation.Notes{All: p.Annotations, Provider: n.Provider, IfName: w.IfName}
	names, err := notes.Objects()
	if err == nil {
		err = t.owned(p, n, notes.Key(v1.FieldVip), names.Vip)
	}
	switch {
	case err != nil:
		return nic{}, err
	case claim.Needed(n.Subnet) && len(names.AAPs) > 0:
		return nic{}, annotation.Refused(core.CodeValue, notes.Key(v1.FieldAAPs), strings.Join(names.AAPs, ","),
			"names Vips to share, and OVN does not carry Subnet %s", n.Subnet.Name)
	case claim.Needed(n.Subnet) && len(names.SecurityGroups) > 0:
		return nic{}, annotation.Refused(core.CodeValue, notes.Key(v1.FieldSecurityGroups), strings.Join(names.SecurityGroups, ","),
			"names SecurityGroups, and OVN does not carry Subnet %s", n.Subnet.Name)
	}
	out := nic{NIC: n, pool: pool, names: names, ifName: w.IfName, lent: lent}
	if w.Unasked {
		out.declared = w.Network
	}
	return out, nil
}

// pooled adds to interfaces which IPPools give them their addresses, and what other
// objects the pod names.
func (t *term) pooled(p object.Pod, wants []core.Want) (out []nic, err error) {
	for _, w := range wants {
		for _, s := range w.Steps {
			n := cmp.Or(s.NIC, s.Lent)
			if n == nil || s.NIC != nil && !v1.Routed(n.Provider) || s.Lent != nil && !t.Claims.Claims() {
				continue
			}
			one, err := t.asked(p, w, n, s.Lent != nil)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
	}
	return slices.Clip(out), nil
}
