package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// restore makes the book of what the database gives away, and then, for what it
// lost or never had, of claims, of IP objects, of what pods were told, which a tenant
// may have written, and of what pods have that were there first.
func (t *term) restore(ctx context.Context) error {
	ports, err := t.DB.Ports()
	if err != nil {
		return err
	}
	if err := t.restoreSwitches(); err != nil {
		return err
	}
	r := book.Gathering{}
	slices.SortStableFunc(ports, func(a, b ovn.Port) int { return cmp.Compare(vipOf(a.Owner), vipOf(b.Owner)) }) // what a pod has of a Vip is the pod's
	for _, p := range ports {
		k, _ := object.KeyOf(p.Owner)
		if k.Kind == object.KindSubnet && len(p.Networks) > 0 {
			t.nets.Formerly(k.Name, logical.VpcOf(k.Name, p.Name), p.Networks)
		}
		l := t.fromPort(p)
		if len(l.IPs) == 0 {
			continue
		}
		if k.Kind == object.KindPod {
			t.nets.Came(l.Subnet, logical.Prefix(l.Owner.Pod, p.Name))
		}
		if by, ok := r.Add(l); !ok && !lentOf(&r, l) {
			t.Log.Error("two logical ports have one address; the first keeps it", "port", p.Name, "keeps", by.Key.IfName)
		}
	}
	t.restoreRouter(&r)
	t.restoreClaims(&r)
	t.restoreTold(&r)
	t.restoreVips(&r)
	t.restoreBefore(ctx, &r)
	return t.book.Restore(r.Leases)
}

// lentOf tells that a pod has a Vip's lease.
func lentOf(r *book.Gathering, vip core.Lease) bool {
	return strings.HasPrefix(vip.Owner.Key.IfName, logical.VipPort("")) &&
		slices.ContainsFunc(r.Leases, func(by core.Lease) bool { return borrowed(by, vip) })
}

// vipOf is the Vip that an owner of rows is, "" for none.
func vipOf(owner string) string {
	if k, ok := object.KeyOf(owner); ok && k.Kind == object.KindVip {
		return k.Name
	}
	return ""
}

// restoreTold adds what IP objects say, and what pods and nodes were told, whose
// rows were lost.
func (t *term) restoreTold(r *book.Gathering) {
	for _, o := range t.IPs.List() {
		l, ok := t.fromIP(o)
		if !ok {
			continue
		}
		if by, ok := r.Add(l); !ok && by.Key.IfName != o.Name {
			t.Log.Error("an IP object has an address that another has", "object", o.Name, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
	for _, p := range t.Pods.List() {
		for _, l := range t.fromNotes(p) {
			if by, ok := r.Add(l); !ok && by.Key != l.Owner.Key {
				t.Log.Error("a pod was told an address that another has", "pod", p.Pod, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
			}
		}
	}
	t.restoreNodes(r)
}

// restoreNodes adds what nodes were told whose rows were lost.
func (t *term) restoreNodes(r *book.Gathering) {
	for _, n := range t.Nodes.List() {
		l, ok := t.leased(n.Annotations, v1.DefaultProvider)
		if l.Owner = nodeOwner(n.Name); !ok || l.Subnet != logical.JoinSubnet || l.MAC == nil || !t.possible(l) {
			continue
		}
		if by, ok := r.Add(l); !ok && by.Key != l.Owner.Key {
			t.Log.Error("a node was told an address that another has", "node", n.Name, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
}

// restoreVips adds the addresses of Vips whose rows were lost.
func (t *term) restoreVips(r *book.Gathering) {
	for _, o := range t.Vips.List() {
		l := vipOfStatus(o)
		if !t.possible(l) {
			continue
		}
		if by, ok := r.Add(l); !ok && by.Key.IfName != l.Owner.Key.IfName && !lentOf(r, l) {
			t.Log.Error("a Vip has an address that another has", "vip", o.Name, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
}

// restoreSwitches notes which Subnets have rows.
func (t *term) restoreSwitches() error {
	owners, err := t.DB.Owners()
	for _, o := range owners {
		k, ok := object.KeyOf(o)
		if !ok {
			t.Log.Warn("rows of an owner of another version stay, and nobody gets their addresses", "owner", o)
		}
		if k.Kind == object.KindSubnet {
			t.switches[k.Name] = anyVpc
		}
	}
	return err
}

// fromPort is the lease that a logical port shows.
func (t *term) fromPort(p ovn.Port) core.Lease {
	l := core.Lease{Subnet: p.Switch, MAC: p.MAC, IPs: p.IPs}
	k, _ := object.KeyOf(p.Owner)
	switch k.Kind {
	case object.KindPod:
		pod := core.Pod{Namespace: k.Namespace, Name: k.Name, UID: p.ExternalIDs[logical.KeyUID]}
		if live, ok := t.Pods.Get(k.Namespace, k.Name); ok && pod.UID == "" {
			pod.UID = live.UID // the row does not say
		}
		l.Owner = owner(pod, pod.UID, p.Name)
		t.keptBy(pod, object.ReadOwner(p.ExternalIDs[logical.KeyKeeper]))
	case object.KindNode:
		l.Owner = nodeOwner(k.Name)
	case object.KindVip:
		return vipOfPort(p)
	default: // somebody else's, which nobody else may have
		l.Owner = owner(core.Pod{Name: p.Name}, p.Owner, p.Name)
	}
	return l
}

// fromNotes are the leases that a pod's annotations show.
func (t *term) fromNotes(p object.Pod) (out []core.Lease) {
	if p.Done || p.Host {
		return nil
	}
	for key, value := range p.Annotations {
		prefix, ok := strings.CutSuffix(key, v1.ProviderSuffix+v1.FieldAllocated)
		if !ok || value != "true" {
			continue
		}
		if l, ok := t.fromNote(p, prefix); ok {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b core.Lease) int { return cmp.Compare(a.Owner.Key.IfName, b.Owner.Key.IfName) })
	return out
}

// fromNote is the lease that the annotations with a prefix show.
func (t *term) fromNote(p object.Pod, prefix string) (l core.Lease, ok bool) {
	l, ok = t.leased(p.Annotations, prefix)
	port := p.Name + "." + p.Namespace
	if prefix != v1.DefaultProvider {
		port += "." + prefix
	}
	l.Owner = owner(p.Pod, p.UID, port)
	net, _, _ := t.nets.Get(l.Subnet)
	return l, ok && len(l.IPs) > 0 && (l.MAC != nil || claim.Needed(net.Subnet)) // a plugin's has its own
}

// leased is what annotations with a prefix say, of nobody; false where their Subnet is not
// in force.
func (t *term) leased(notes map[string]string, prefix string) (l core.Lease, ok bool) {
	at := prefix + v1.ProviderSuffix
	net, _, ok := t.nets.Get(notes[at+v1.FieldSubnet])
	if !ok {
		return l, false
	}
	l = core.Lease{Subnet: net.Name, IPs: book.Given(net.Subnet, notes[at+v1.FieldIP])}
	if err := l.MAC.UnmarshalText([]byte(notes[at+v1.FieldMAC])); err != nil || len(l.MAC) != 6 {
		l.MAC = nil
	}
	return l, true
}

// owner is who has the address of a logical port. uid is that of a pod or node.
func owner(pod core.Pod, uid, port string) core.Owner {
	return core.Owner{Key: core.Key{Container: uid, IfName: port}, Pod: pod}
}

// nodeOwner has the address of a node.
func nodeOwner(name string) core.Owner { return owner(core.Pod{}, "", core.NodePort(name)) }

// nodeAt is the node that has a port, "" if there is none.
func (t *term) nodeAt(port string) string {
	for _, n := range t.Nodes.List() {
		if core.NodePort(n.Name) == port {
			return n.Name
		}
	}
	return ""
}
