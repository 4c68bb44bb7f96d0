package query

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Marks of IP objects, as the controller and the reference write them.
const (
	noteOwner     = "fairlead.io/owner-uid"
	noteKeeper    = "fairlead.io/keeper"
	labelReserved = "ovn.kubernetes.io/ip_reserved"
	finalizerOVN  = "kubeovn.io/kube-ovn-controller"
)

// record is an IP object with what stands behind it.
type record struct {
	Object
	spec  v1.IPSpec
	ips   []netip.Addr
	state string // agent.IPHeld and others; "" is not known
	by    string // the StatefulSet that keeps it
}

// ours tells that a controller made the object, and not a user who reserves.
func (r record) ours() bool {
	return r.Metadata.Annotations[noteOwner] != "" || slices.Contains(r.Metadata.Finalizers, finalizerOVN)
}

// ofNode tells that it is the object of a node's address.
func (r record) ofNode() bool {
	return r.spec.Namespace == "" && r.Metadata.Name == core.NodePort(r.spec.NodeName)
}

func readRecord(o Object) record {
	r := record{Object: o}
	if Read(o.Spec, &r.spec) != nil {
		return r // one of no address
	}
	texts := strings.Split(r.spec.IPAddress, ",")
	if r.spec.IPAddress == "" {
		texts = []string{r.spec.V4IPAddress, r.spec.V6IPAddress}
	}
	for i := range texts {
		texts[i] = strings.TrimSpace(texts[i])
	}
	r.ips = addresses(texts)
	return r
}

// holding is a pod as far as it has addresses.
type holding struct {
	pod
	unrecorded []netip.Addr // what its annotations say
}

// census is who has addresses: what IP objects and pods say.
type census struct {
	records []record
	pods    map[string]holding // namespace/name
	sets    map[string]Object  // StatefulSets, namespace/name
	nodes   map[string]bool
	// What could be seen: without it nothing that depends on it is said.
	knowsRecords, knowsSets, knowsNodes bool
}

// census asks once for all kinds. Pods are what it cannot do without. Objects come
// before pods: one that was made in between has its pod.
func (c *Client) census(ctx context.Context) (census, error) {
	out := census{pods: map[string]holding{}, sets: map[string]Object{}, nodes: map[string]bool{}}
	err := c.Each(ctx, IPs, Scope{}, func(o Object) { out.records = append(out.records, readRecord(o)) })
	if out.knowsRecords, err = c.Lacking(err, "IP objects are not looked at"); err != nil {
		return out, err
	}
	err = each(ctx, c, question{Kind: pods}, func(p pod) {
		out.pods[p.Metadata.Namespace+"/"+p.Metadata.Name] = holding{pod: p, unrecorded: told(p)}
	})
	if err != nil {
		return out, err
	}
	err = c.Each(ctx, StatefulSets, Scope{}, func(o Object) { out.sets[o.Metadata.Namespace+"/"+o.Metadata.Name] = o })
	if out.knowsSets, err = c.Lacking(err, "StatefulSets are not looked at, so that an address which one keeps is not told"); err != nil {
		return out, err
	}
	err = c.Each(ctx, Nodes, Scope{}, func(o Object) { out.nodes[o.Metadata.Name] = true })
	if out.knowsNodes, err = c.Lacking(err, "nodes are not looked at"); err != nil {
		return out, err
	}
	for i := range out.records {
		out.judge(&out.records[i])
	}
	return out, nil
}

// told are the addresses that a controller gave a pod, by its annotations.
func told(p pod) []netip.Addr {
	if p.Spec.HostNetwork || p.over() || p.Metadata.Annotations[v1.DefaultProvider+v1.ProviderSuffix+v1.FieldAllocated] != "true" {
		return nil
	}
	return addresses(strings.Split(p.Metadata.Annotations[v1.DefaultProvider+v1.ProviderSuffix+v1.FieldIP], ","))
}

// over tells that a pod's containers have ended for good.
func (p pod) over() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

// judge says what an IP object is for. What cannot be seen is no proof: the state
// stays "" then.
func (c census) judge(r *record) {
	p, there := c.pods[r.spec.Namespace+"/"+r.spec.PodName]
	owner := r.Metadata.Annotations[noteOwner]
	switch {
	case there && !p.over() && (owner == "" || owner == p.Metadata.UID):
		r.state = agent.IPHeld
	case !r.ours() || r.Metadata.Labels[labelReserved] == "true":
		r.state = agent.IPReserved
	case r.ofNode():
		r.state = c.ofNode(r.spec.NodeName)
	case r.spec.Namespace == "" || r.spec.PodName == "":
		r.state = agent.IPReserved // of something else than a pod
	default:
		c.judgeKept(r)
	}
}

func (c census) ofNode(name string) string {
	switch {
	case c.nodes[name]:
		return agent.IPHeld
	case c.knowsNodes:
		return agent.IPLeft
	}
	return ""
}

// judgeKept is judge for an object whose pod is not there.
func (c census) judgeKept(r *record) {
	kind, rest, _ := strings.Cut(r.Metadata.Annotations[noteKeeper], "/")
	name, uid, _ := strings.Cut(rest, "/")
	set, there := c.sets[r.spec.Namespace+"/"+name]
	switch {
	case kind == "StatefulSet" && there && keeps(set, uid, r.spec.PodName):
		r.state, r.by = agent.IPKept, name
	case kind == "" || kind == "StatefulSet" && c.knowsSets:
		r.state = agent.IPLeft
	}
}

// keeps tells that a StatefulSet is the one of that UID and will make a pod of that
// name again.
func keeps(set Object, uid, pod string) bool {
	spec := struct {
		Replicas *int `json:"replicas"`
		Ordinals struct {
			Start int `json:"start"`
		} `json:"ordinals"`
	}{}
	at, numbered := resolve.Ordinal(pod)
	if Read(set.Spec, &spec) != nil {
		return true // nobody knows
	}
	n := 1
	if spec.Replicas != nil {
		n = *spec.Replicas
	}
	return set.Metadata.UID == uid && set.Metadata.Deleted == nil && numbered && at >= spec.Ordinals.Start && at < spec.Ordinals.Start+n
}

// shown is an object's address in the operator's form.
func (r record) shown(ip netip.Addr) agent.IP {
	out := agent.IP{
		Address: ip, Subnet: r.spec.Subnet, State: r.state, Namespace: r.spec.Namespace, Pod: r.spec.PodName,
		Node: r.spec.NodeName, MAC: r.spec.MacAddress, Object: r.Metadata.Name, Keeper: r.by,
	}
	if r.spec.Namespace == "" {
		out.Pod = ""
	}
	return out
}

// known tells that an IP object of the default network has what a pod was told.
func (c census) known(h holding) bool {
	return slices.ContainsFunc(c.records, func(r record) bool {
		return r.spec.Namespace == h.Metadata.Namespace && r.spec.PodName == h.Metadata.Name &&
			!slices.ContainsFunc(h.unrecorded, func(ip netip.Addr) bool { return !slices.Contains(r.ips, ip) })
	})
}

// holders are all that have addresses: IP objects, and pods without. The objects'
// Subnet is what they say, the others' the one that has the address.
func (c *Client) holders(s census, pools []core.Subnet) (out []agent.IP) {
	seen := map[netip.Addr][]string{}
	for _, r := range s.records {
		for _, ip := range r.ips {
			out = append(out, r.shown(ip))
			seen[ip] = append(seen[ip], r.spec.Namespace+"/"+r.spec.PodName)
		}
	}
	for name, h := range s.pods {
		if h.over() {
			continue
		}
		held := c.held(h.pod, func(netip.Addr) bool { return true })
		for _, ip := range h.unrecorded {
			held = append(held, agent.IP{Address: ip, State: agent.IPHeld, Namespace: h.Metadata.Namespace, Pod: h.Metadata.Name, Node: h.Spec.NodeName})
		}
		for _, i := range held {
			if slices.Contains(seen[i.Address], name) {
				continue
			}
			seen[i.Address] = append(seen[i.Address], name)
			if in := containing(pools, i.Address); in != nil {
				i.Subnet = in.Name
			}
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b agent.IP) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return out
}

// recorded are the IP objects of an address, for who asks about one that no pod's
// network-status has.
func (c *Client) recorded(ctx context.Context, addr netip.Addr) (out []agent.IP, err error) {
	found := false
	err = c.Each(ctx, IPs, Scope{}, func(o Object) { found = found || slices.Contains(readRecord(o).ips, addr) })
	if known, err := c.Lacking(err, "IP objects are not looked at"); err != nil || !known || !found {
		return nil, err
	}
	s, err := c.census(ctx)
	if known, err := c.lacking(err, "who has its IP object is not told"); err != nil || !known {
		return nil, err
	}
	for _, r := range s.records {
		if slices.Contains(r.ips, addr) {
			out = append(out, r.shown(addr))
		}
	}
	return out, nil
}
