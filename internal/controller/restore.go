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

// restoring collects leases of which no two have an address or a port.
type restoring struct {
	leases []core.Lease
	taken  map[string]core.Owner // by Subnet and address or MAC, and by port
}

// borrowed tells that a pod has a Vip's lease.
func (r *restoring) borrowed(vip core.Lease) bool {
	return strings.HasPrefix(vip.Owner.Key.IfName, logical.VipPort("")) &&
		slices.ContainsFunc(r.leases, func(by core.Lease) bool { return borrowed(by, vip) })
}

// add takes a lease in; of one that claims what another has it gives that
// other.
func (r *restoring) add(l core.Lease) (by core.Owner, ok bool) {
	keys := []string{"port " + l.Owner.Key.IfName}
	for _, ip := range l.IPs {
		keys = append(keys, l.Subnet+" "+ip.String())
	}
	if len(l.MAC) > 0 {
		keys = append(keys, l.Subnet+" "+l.MAC.String())
	}
	for _, k := range keys {
		if by, has := r.taken[k]; has {
			return by, false
		}
	}
	for _, k := range keys {
		r.taken[k] = l.Owner
	}
	r.leases = append(r.leases, l)
	return core.Owner{}, true
}

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
	r := restoring{taken: map[string]core.Owner{}}
	slices.SortStableFunc(ports, func(a, b ovn.Port) int { return cmp.Compare(vipOf(a.Owner), vipOf(b.Owner)) }) // what a pod has of a Vip is the pod's
	for _, p := range ports {
		l := t.fromPort(p)
		if len(l.IPs) == 0 {
			continue
		}
		if by, ok := r.add(l); !ok && !r.borrowed(l) {
			t.Log.Error("two logical ports have one address; the first keeps it", "port", p.Name, "keeps", by.Key.IfName)
		}
	}
	t.restoreClaims(&r)
	t.restoreTold(&r)
	t.restoreVips(&r)
	t.restoreBefore(ctx, &r)
	return t.book.Restore(r.leases)
}

// vipOf is the Vip that an owner of rows is, "" for none.
func vipOf(owner string) string {
	if k, ok := keyOf(owner); ok && k.Kind == object.KindVip {
		return k.Name
	}
	return ""
}

// restoreTold adds what IP objects say, and what pods and nodes were told, whose
// rows were lost.
func (t *term) restoreTold(r *restoring) {
	for _, o := range t.IPs.List() {
		l, ok := t.fromIP(o)
		if !ok {
			continue
		}
		if by, ok := r.add(l); !ok && by.Key.IfName != o.Name {
			t.Log.Error("an IP object has an address that another has", "object", o.Name, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
	for _, p := range t.Pods.List() {
		for _, l := range t.fromNotes(p) {
			if by, ok := r.add(l); !ok && by.Key != l.Owner.Key {
				t.Log.Error("a pod was told an address that another has", "pod", p.Pod, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
			}
		}
	}
	t.restoreNodes(r)
}

// restoreNodes adds what nodes were told whose rows were lost.
func (t *term) restoreNodes(r *restoring) {
	for _, n := range t.Nodes.List() {
		l, ok := t.noted(n.Annotations, v1.DefaultProvider)
		if l.Owner = nodeOwner(n.Name); !ok || l.Subnet != logical.JoinSubnet || l.MAC == nil || !t.possible(l) {
			continue
		}
		if by, ok := r.add(l); !ok && by.Key != l.Owner.Key {
			t.Log.Error("a node was told an address that another has", "node", n.Name, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
}

// restoreVips adds the addresses of Vips whose rows were lost.
func (t *term) restoreVips(r *restoring) {
	for _, o := range t.Vips.List() {
		l := vipOfStatus(o)
		if !t.possible(l) {
			continue
		}
		if by, ok := r.add(l); !ok && by.Key.IfName != l.Owner.Key.IfName && !r.borrowed(l) {
			t.Log.Error("a Vip has an address that another has", "vip", o.Name, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
}

// restoreSwitches notes which Subnets have rows.
func (t *term) restoreSwitches() error {
	owners, err := t.DB.Owners()
	for _, o := range owners {
		if k, ok := keyOf(o); ok && k.Kind == object.KindSubnet {
			t.switches[k.Name] = anyVpc
		}
	}
	return err
}

// fromPort is the lease that a logical port shows.
func (t *term) fromPort(p ovn.Port) core.Lease {
	l := core.Lease{Subnet: p.Switch, MAC: p.MAC, IPs: p.IPs}
	k, _ := keyOf(p.Owner)
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
	l, ok = t.noted(p.Annotations, prefix)
	port := p.Name + "." + p.Namespace
	if prefix != v1.DefaultProvider {
		port += "." + prefix
	}
	l.Owner = owner(p.Pod, p.UID, port)
	net, _, _ := t.nets.Get(l.Subnet)
	return l, ok && len(l.IPs) > 0 && (l.MAC != nil || claim.Needed(net.Subnet)) // a plugin's has its own
}

// noted is what annotations with a prefix say, of nobody; false where their Subnet is not
// in force.
func (t *term) noted(notes map[string]string, prefix string) (l core.Lease, ok bool) {
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
