// Package gateway decides by which nodes the pods of centralized Subnets leave the
// cluster: from objects to rows and to what Subnets are told. A node that takes over
// keeps what it took, so that a gateway that comes back moves no connection. The package
// must not know who writes the rows, nor where objects come from.
package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Node is one that may be a gateway.
type Node struct {
	Name    string
	Chassis string       // "" while it is none
	IPs     []netip.Addr // in the nodes' Subnet
	Labels  map[string]string
	Down    string // why it should be no gateway now, "" for a good one
}

// Subnet is one of the default Vpc that OVN carries.
type Subnet struct {
	core.Subnet
	By  declare.Gateway
	Was string // the gateway that its status names
	Now string // the one by which pods leave now, "" where that is none or several
}

// Verdict is what there is to say of a centralized Subnet.
type Verdict struct {
	Active string   // the gateway's node; of several, with ECMP, or for none ""
	Ready  []string // the gateways that are well
	Faults []string // what is wrong with others
}

// Event is news of a Subnet.
type Event struct {
	Subnet, Reason, Message string
	Good                    bool // nothing is wrong
}

// Reasons of events; the first two are the reference's.
const (
	ReasonType = "SubnetGatewayTypeChanged"
	ReasonNode = "SubnetGatewayNodeChanged"
	ReasonNone = "NoGatewayNode"
)

// Plan is what should be.
type Plan struct {
	Rows    *ovn.Set
	Events  []Event
	Changed []string // Subnets of which there is something else to say

	is memory
}

// memory is what a Keeper knows of Subnets, by name. What a Subnet was goes with it:
// another one of the name is new.
type memory struct {
	said  map[string]Verdict
	last  map[string]string // node that was active last
	types map[string]string
}

// Keeper remembers which gateway is active. It is safe for concurrent use.
type Keeper struct {
	mu sync.Mutex
	memory
	untold []Event // that could not be recorded
}

// New makes a Keeper that knows nothing.
func New() *Keeper { return &Keeper{} }

// Verdict is that of a Subnet as its rows were written last, false for one that is not
// centralized.
func (k *Keeper) Verdict(subnet string) (Verdict, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.said[subnet]
	return v, ok
}

// Status is what a Subnet's status should say: its active gateway, and what there is of
// condition GatewayReady. Until the first plan is written that is what it says: a new
// leader goes on with it.
func (k *Keeper) Status(o *v1.Subnet) (active string, conditions []v1.Condition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.said == nil {
		return o.Status.ActivateGateway, nil
	}
	v, centralized := k.said[o.Name]
	return v.Active, status.Gateway(o, centralized, len(v.Ready) > 0, v.Why())
}

// Plan looks at all Subnets and nodes, and compares with what was written last.
func (k *Keeper) Plan(subnets []Subnet, nodes []Node) (p Plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.is = memory{map[string]Verdict{}, map[string]string{}, map[string]string{}}
	var all []leave
	first := map[string]string{} // the gateways that status names, as long as nothing was written
	for _, s := range subnets {
		if k.said == nil {
			first[s.Name] = s.Was
		}
		p.Events = append(p.Events, p.typed(s, k.types[s.Name])...)
		if !s.By.Centralized {
			continue
		}
		members, faults := candidates(s, nodes)
		via := choose(s, members, cmp.Or(s.Now, k.last[s.Name], s.Was))
		p.is.last[s.Name] = k.last[s.Name]
		if !s.By.ECMP && len(via) > 0 {
			p.is.last[s.Name] = via[0].Name
		}
		out := leave{Subnet: s.Subnet, via: via}
		if s.By.ECMP {
			out.homes = members
		}
		all = append(all, out)
		p.is.said[s.Name] = verdict(s, members, via, faults)
	}
	p.tell(k.said, p.is.said, first)
	p.Rows = rows(all)
	return p
}

// Written tells that a plan's rows are in the database. Until then the next plan is
// compared with what was written before, and tells its events again.
func (k *Keeper) Written(p Plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.memory = p.is
}

// choose are the nodes by which a Subnet's pods leave: with ECMP all good ones, else the
// one that was active if it is good, or the first good one. Where none is good it takes
// those for good that are only said to be bad, and where none of them answers all.
func choose(s Subnet, members []Node, was string) []Node {
	good := slices.DeleteFunc(slices.Clone(members), func(n Node) bool { return n.Down != "" })
	if len(good) == 0 {
		good = slices.DeleteFunc(slices.Clone(members), func(n Node) bool { return n.Down == Silence })
	}
	if len(good) == 0 {
		good = members
	}
	if s.By.ECMP || len(good) == 0 {
		return good
	}
	i := max(0, slices.IndexFunc(good, func(n Node) bool { return n.Name == was }))
	return good[i : i+1]
}

// typed remembers a Subnet's gatewayType, and tells that it is another than before.
func (p *Plan) typed(s Subnet, was string) []Event {
	now := "distributed"
	if s.By.Centralized {
		now = v1.GatewayCentralized
	}
	p.is.types[s.Name] = now
	if was == "" || was == now {
		return nil
	}
	return []Event{{Subnet: s.Name, Reason: ReasonType, Message: fmt.Sprintf("subnet gateway type changes from %q to %q", was, now), Good: true}}
}

// candidates are the nodes that a Subnet names, in its order, and then those that its
// selectors fit, by name.
func candidates(s Subnet, nodes []Node) (out []Node, faults []string) {
	exits, bad := declare.Exits(s.By.Nodes)
	for _, f := range bad {
		faults = append(faults, f.String())
	}
	add := func(n Node) {
		switch {
		case slices.ContainsFunc(out, func(o Node) bool { return o.Name == n.Name }):
		case n.Chassis == "" || len(n.IPs) == 0:
			faults = append(faults, "node "+n.Name+" is no chassis of OVN yet")
		default:
			out = append(out, n)
		}
	}
	for _, e := range exits {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == e.Node })
		if i < 0 {
			faults = append(faults, "spec.gatewayNode: there is no node "+e.Node)
			continue
		}
		add(nodes[i])
	}
	for i, by := range s.By.Selectors {
		fit, err := fitting(by, nodes)
		if err != nil {
			faults = append(faults, fmt.Sprintf("spec.gatewayNodeSelectors[%d]: %s", i, err))
		}
		for _, n := range fit {
			add(n)
		}
	}
	if len(exits)+len(bad)+len(s.By.Selectors) == 0 {
		faults = append(faults, "spec.gatewayNode and gatewayNodeSelectors name no node")
	}
	return out, faults
}

// fitting are the nodes that a selector fits, by name; an empty one fits none.
func fitting(by metav1.LabelSelector, nodes []Node) (out []Node, err error) {
	fits, err := metav1.LabelSelectorAsSelector(&by)
	if err != nil || fits.Empty() {
		return nil, err
	}
	for _, n := range nodes {
		if fits.Matches(labels.Set(n.Labels)) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// verdict is what there is to say of a Subnet with these gateways.
func verdict(s Subnet, members, via []Node, faults []string) (v Verdict) {
	v.Faults = faults
	for _, m := range members {
		if m.Down == "" {
			v.Ready = append(v.Ready, m.Name)
		} else {
			v.Faults = append(v.Faults, "node "+m.Name+": "+m.Down)
		}
	}
	if !s.By.ECMP && len(via) > 0 && via[0].Down == "" {
		v.Active = via[0].Name
	}
	return v
}

// tell adds what is new in verdicts; first are the gateways of Subnets that before lacks.
func (p *Plan) tell(before, now map[string]Verdict, first map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, known := before[name]
		is := now[name]
		if known && was.Active == is.Active && slices.Equal(was.Ready, is.Ready) && slices.Equal(was.Faults, is.Faults) {
			continue
		}
		p.Changed = append(p.Changed, name)
		if !known {
			was.Active = first[name]
		}
		p.report(name, was, is, known)
	}
	for name := range before {
		if _, still := now[name]; !still {
			p.Changed = append(p.Changed, name)
		}
	}
}

// report adds the event of a Subnet whose verdict is new.
func (p *Plan) report(name string, was, is Verdict, known bool) {
	from, to := was.via(), is.via()
	switch {
	case len(is.Ready) == 0 && (!known || len(was.Ready) > 0):
		p.Events = append(p.Events, Event{Subnet: name, Reason: ReasonNone, Message: is.Why()})
	case (known || from != "") && from != to && to != "":
		p.Events = append(p.Events, Event{Subnet: name, Reason: ReasonNode, Message: fmt.Sprintf("gateway node changes from %q to %q", from, to), Good: true})
	}
}

// via are the nodes by which pods leave now.
func (v Verdict) via() string {
	if v.Active != "" {
		return v.Active
	}
	return strings.Join(v.Ready, ",")
}

// Why says what is wrong, "" for nothing.
func (v Verdict) Why() string {
	text := strings.Join(v.Faults, "; ")
	if len(v.Ready) == 0 {
		text = "pods do not get out of the cluster, since no gateway is ready: " + text
	}
	return text
}
