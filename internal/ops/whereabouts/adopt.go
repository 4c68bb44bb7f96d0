package whereabouts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// imported is one run.
type imported struct {
	api    *query.Client
	leases *cluster.Client
	apply  bool

	nads  []resolve.Ranged
	boots map[string]string // by node, "" for one that is not there
}

// pod is what is known of a pod.
type pod struct {
	core.Pod

	node string
	has  map[string][]string // addresses by interface, as network-status says; nil: it says nothing
}

// run looks at all that the program has given, and adopts it where it is to.
func (i *imported) run(ctx context.Context) ([]Given, error) {
	i.boots = map[string]string{}
	err := i.api.Each(ctx, query.NADs, query.Scope{}, func(o query.Object) {
		var spec struct {
			Config string `json:"config"`
		}
		if query.Read(o.Spec, &spec) == nil {
			i.nads = append(i.nads, resolve.RangesOf(resolve.NAD{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Config: spec.Config, Annotations: o.Metadata.Annotations}))
		}
	})
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		return nil, err
	}
	var pools []query.Object
	err = i.api.Each(ctx, query.Ranges, query.Scope{}, func(o query.Object) { pools = append(pools, o) })
	if errors.Is(err, core.ErrNotFound) {
		return nil, fmt.Errorf("this cluster has no IPPools of whereabouts: %w", err)
	}
	if err != nil {
		return nil, err
	}
	out := []Given{}
	for _, o := range pools {
		some, err := i.pool(ctx, o)
		out = append(out, some...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// pool is what the program's book of one range says.
func (i *imported) pool(ctx context.Context, o query.Object) (out []Given, err error) {
	of := Given{Pool: o.Metadata.Namespace + "/" + o.Metadata.Name, State: StateBroken}
	var p whereabouts.Pool
	err = query.Read(o.Spec, &p)
	cidr, network, unknown := p.Of(o.Metadata.Name)
	if err = errors.Join(err, unknown); err != nil {
		if of.Why = err.Error(); len(p.Allocations) == 0 {
			return nil, nil // there is nothing to adopt
		}
		return []Given{of}, nil
	}
	domains := i.domains(cidr, network)
	for _, offset := range slices.Sorted(maps.Keys(p.Allocations)) {
		a := p.Allocations[offset]
		g := of
		g.Pod, g.Interface = a.Pod, a.IfName
		addr, err := p.Addr(offset)
		if err != nil {
			g.Why = err.Error()
			out = append(out, g)
			continue
		}
		g.Address = addr.String()
		h, state, why, err := i.holder(ctx, &g, a)
		if err != nil {
			return out, err
		}
		if state != StateFound {
			g.State, g.Why = state, why
			out = append(out, g)
			continue
		}
		for _, domain := range domains {
			one, err := i.one(ctx, g, h, core.Claim{Domain: domain, Addr: addr})
			if err != nil {
				return out, err
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// domains are those in which agents lease addresses of a range: as the networks that have it
// say, else as one would that says nothing else.
func (i *imported) domains(cidr netip.Prefix, network string) []string {
	all := map[string]bool{}
	for _, n := range i.nads {
		if d, ok := n.Domains[cidr]; ok && n.Network == network {
			all[d] = true
		}
	}
	if len(all) == 0 {
		all[whereabouts.CommonDomain(network)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// holder is who has an allocation; state is StateFound where they live and have it.
func (i *imported) holder(ctx context.Context, g *Given, a whereabouts.Allocation) (h lease.Holder, state, why string, err error) {
	ns, name, ok := strings.Cut(a.Pod, "/")
	if !ok || a.Container == "" {
		return h, StateBroken, "the allocation does not say which pod and container has it", nil
	}
	p, why, err := i.living(ctx, ns, name)
	if err != nil || why != "" {
		return h, StateGone, why, err
	}
	if p.has != nil {
		on := slices.DeleteFunc(slices.Sorted(maps.Keys(p.has)), func(ifName string) bool {
			return !slices.Contains(p.has[ifName], g.Address) || a.IfName != "" && a.IfName != ifName
		})
		if len(on) == 0 {
			return h, StateStale, "the pod's network-status has it on no such interface", nil
		}
		g.Interface = on[0]
	}
	boot, err := i.boot(ctx, p.node)
	if err != nil {
		return h, "", "", err
	}
	if boot == "" {
		return h, StateBroken, "node " + p.node + " is not there, or has not said in which boot it is", nil
	}
	return lease.Holder{Pod: p.Pod, Key: core.Key{Container: a.Container, IfName: g.Interface}, Node: p.node, BootID: boot}, StateFound, "", nil
}

// living is a pod that runs on a node, or why there is none.
func (i *imported) living(ctx context.Context, namespace, name string) (p pod, why string, err error) {
	o, err := i.api.Get(ctx, query.Pods, namespace, name)
	if errors.Is(err, core.ErrNotFound) {
		return p, "there is no such pod", nil
	}
	if err != nil {
		return p, "", err
	}
	var spec struct {
		Node string `json:"nodeName"`
	}
	var status struct {
		Phase string `json:"phase"`
	}
	err = errors.Join(query.Read(o.Spec, &spec), query.Read(o.Status, &status))
	switch {
	case err != nil:
		return p, "", fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	case status.Phase == "Succeeded" || status.Phase == "Failed":
		return p, "the pod has ended", nil
	case spec.Node == "":
		return p, "the pod is on no node: it is a new one", nil
	}
	p = pod{Pod: core.Pod{Namespace: namespace, Name: name, UID: o.Metadata.UID}, node: spec.Node}
	var nets []agent.NetworkStatus
	if raw := o.Metadata.Annotations[v1.AnnStatus]; raw != "" && json.Unmarshal([]byte(raw), &nets) == nil {
		p.has = map[string][]string{}
		for _, n := range nets {
			p.has[n.Interface] = append(p.has[n.Interface], n.IPs...)
		}
	}
	return p, "", nil
}

func (i *imported) boot(ctx context.Context, node string) (string, error) {
	if id, known := i.boots[node]; known {
		return id, nil
	}
	o, err := i.api.Get(ctx, query.Nodes, "", node)
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		return "", err
	}
	var status struct {
		Info struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	}
	if err == nil {
		if err := query.Read(o.Status, &status); err != nil {
			return "", fmt.Errorf("node %s: %w", node, err)
		}
	}
	i.boots[node] = status.Info.BootID
	return status.Info.BootID, nil
}

// one adopts one address in one domain, or says what would become of it.
func (i *imported) one(ctx context.Context, g Given, h lease.Holder, c core.Claim) (Given, error) {
	g.Lease, g.State = lease.Name(c), StateFound
	if i.apply {
		done, err := i.leases.Adopt(ctx, h, c)
		if done || err != nil {
			g.State = StateAdopted
			return g, err
		}
	}
	r, there, err := i.leases.Now(ctx, g.Lease)
	switch {
	case err != nil || !there:
	case r.Holder.Pod == h.Pod:
		g.State = StateAdopted
	case r.Holder.IsZero() && r.Claim.Declared == "":
		g.State, g.Why = StateHeld, "an agent gave it to a pod that is no more, and deletes the lease soon: run it again"
	default:
		g.State, g.Why = StateHeld, "the lease is for pod "+r.Owner.String()
	}
	return g, err
}
