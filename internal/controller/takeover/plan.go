// Package takeover looks at a cluster whose network Kube-OVN makes, and says what
// Fairlead would do with it: what is there, how it is installed with the same
// networks, what changes for its users, and what stands in the way. It reads the
// Kubernetes API, and changes nothing.
package takeover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// Plan is the answer, as -o json has it.
type Plan struct {
	Parts   []Part   `json:"parts"`   // programs of Kube-OVN that run
	Objects []Count  `json:"objects"` // of its kinds, and pods that it has told their addresses
	Values  []Value  `json:"values"`  // for `fairlead install --set`
	Changes []string `json:"changes"` // what users see that is not as it was
	Blocks  []Block  `json:"blocks"`  // what has no counterpart
	Unseen  []string `json:"unseen"`  // what the user may not see: of that nothing is known
}

// Clear tells that all was seen, and nothing stands in the way.
func (p *Plan) Clear() bool { return len(p.Blocks) == 0 && len(p.Unseen) == 0 }

// Part is a workload of Kube-OVN.
type Part struct {
	Kind      string   `json:"kind"` // Deployment or DaemonSet
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Image     string   `json:"image"`
	Args      []string `json:"args,omitempty"`
}

// Count is how many objects there are of a kind.
type Count struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// Value is a value of Fairlead's chart.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // the flag that says so today
}

// Block is something that Fairlead does not carry out.
type Block struct {
	What string `json:"what"` // "Subnet web", "kube-ovn-controller"
	Why  string `json:"why"`
}

// block adds a reason for each that is given.
func (p *Plan) block(what string, why ...string) {
	for _, w := range why {
		p.Blocks = append(p.Blocks, Block{what, w})
	}
}

func (p *Plan) change(format string, args ...any) {
	p.Changes = append(p.Changes, fmt.Sprintf(format, args...))
}

// kind is one of Kube-OVN's, and how its objects are looked at.
type kind struct {
	name string
	query.Kind
	look func(p *Plan, what string, o query.Object) error
}

// reads makes the look of a kind of which undone says what has no counterpart.
func reads[T any](undone func(name string, spec T) []string) func(*Plan, string, query.Object) error {
	return func(p *Plan, what string, o query.Object) error {
		var spec T
		if err := query.Read(o.Spec, &spec); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		p.block(what, undone(o.Metadata.Name, spec)...)
		return nil
	}
}

// whole is the look of a kind that has no counterpart.
func whole(why string) func(*Plan, string, query.Object) error {
	return func(p *Plan, what string, _ query.Object) error {
		p.block(what, why)
		return nil
	}
}

// nobody is why objects of some kinds have no counterpart.
const nobody = "objects of this kind are stored, and nobody carries them out"

// kinds are all of Kube-OVN's.
func kinds() []kind {
	out := []kind{
		{"Vpc", query.KubeOVN("vpcs", false), reads(vpc)},
		{"Subnet", query.Subnets, reads(func(_ string, s v1.SubnetSpec) []string { return status.UndoneSubnet(s) })},
		{"IPPool", query.Pools, reads(func(_ string, s v1.IPPoolSpec) []string { return status.UndonePool(s) })},
		{"IP", query.IPs, reads(func(_ string, s v1.IPSpec) []string { return status.UndoneIP(s) })},
		{"Vip", query.KubeOVN("vips", false), reads(func(_ string, s v1.VipSpec) []string { return status.UndoneVip(s) })},
		{"SecurityGroup", query.KubeOVN("security-groups", false), reads(securityGroup)},
		{"QoSPolicy", query.KubeOVN("qos-policies", false), whole(status.UndoneQoSPolicy)},
		{"Vlan", query.KubeOVN("vlans", false), reads(func(string, v1.VlanSpec) []string { return nil })},
		{"ProviderNetwork", query.KubeOVN("provider-networks", false), reads(func(string, v1.ProviderNetworkSpec) []string { return nil })},
	}
	for _, k := range v1.Later() {
		out = append(out, kind{k.Kind, query.KubeOVN(k.Plural, k.Namespaced), whole(nobody)})
	}
	return out
}

func vpc(name string, spec v1.VpcSpec) []string {
	v, undone, err := logical.ReadVpc(name, spec)
	if err = errors.Join(err, v.Refused); err != nil {
		undone = append(undone, strings.Split(err.Error(), "\n")...)
	}
	return undone
}

func securityGroup(name string, spec v1.SecurityGroupSpec) []string {
	_, faults, undone := logical.Guard(name, spec, func(string) bool { return true }, nil)
	return append(faults, undone...)
}

// order has the same cluster give the same answer.
func (p *Plan) order() {
	slices.SortFunc(p.Parts, func(a, b Part) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) })
	slices.SortStableFunc(p.Values, func(a, b Value) int { return cmp.Compare(a.Name, b.Name) })
	p.Values = slices.CompactFunc(p.Values, func(a, b Value) bool { return a.Name == b.Name && a.Value == b.Value })
	for i, v := range p.Values {
		if i > 0 && p.Values[i-1].Name == v.Name {
			p.block(v.From, fmt.Sprintf("it says %q of %s, and %s says %q", v.Value, v.Name, p.Values[i-1].From, p.Values[i-1].Value))
		}
	}
}
