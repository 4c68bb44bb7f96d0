package gateway_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/alive"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// TestUnderlayHasNoGateways: what pods of a VLAN send leaves by its physical gateway,
// whatever gatewayType says: no node is their gateway, unless OVN's router is.
func TestUnderlayHasNoGateways(t *testing.T) {
	t.Parallel()
	subnets, force := objecttest.Shelf[*v1.Subnet]{}, map[string]*logical.Subnet{}
	for _, s := range []core.Subnet{
		{Name: "overlay"}, {Name: "vlan", Underlay: "net1"}, {Name: "joined", Underlay: "net1", Interconnected: true}, {Name: "logical", Underlay: "net1", LogicalGateway: true},
	} {
		s.Vpc, s.Provider, s.Centralized = v1.DefaultVpc, v1.DefaultProvider, true
		subnets["/"+s.Name] = subnet(s.Name, v1.SubnetSpec{GatewayType: v1.GatewayCentralized, GatewayNode: "n1"})
		force[s.Name] = &logical.Subnet{Subnet: s, Gateway: declare.ReadGateway(subnets["/"+s.Name].Spec)}
	}
	nodes := objecttest.Shelf[object.Node]{"/n1": {Name: "n1", Annotations: map[string]string{v1.AnnChassis: "c1"}}}
	at := func(string) (core.Lease, bool) {
		return core.Lease{IPs: []netip.Addr{netip.MustParseAddr("100.64.0.2")}}, true
	}
	k := gateway.New()
	k.Written(k.Look(object.Readers{Nodes: nodes, Subnets: subnets}, force, at, gateway.Seen{}))
	for name, gateways := range map[string]string{"overlay": "n1", "vlan": "", "joined": "", "logical": "n1"} {
		v, _ := k.Verdict(name)
		require.Equal(t, gateways, v.Active, name)
	}
}

// counted counts looks at all objects.
type counted[T any] struct {
	objecttest.Shelf[T]
	looks *int
}

func (c counted[T]) List() []T {
	*c.looks++
	return c.Shelf.List()
}

// TestNodesAreNobodysMatter: without centralized Subnets one more Subnet is not dearer for
// the nodes there are.
func TestNodesAreNobodysMatter(t *testing.T) {
	t.Parallel()
	looks := 0
	web := subnet("web", v1.SubnetSpec{})
	from := object.Readers{Nodes: counted[object.Node]{objecttest.Shelf[object.Node]{"/n1": {Name: "n1"}}, &looks}, Subnets: objecttest.Shelf[*v1.Subnet]{"/web": web}}
	look := func() int {
		force := map[string]*logical.Subnet{"web": {Subnet: core.Subnet{Name: "web", Vpc: v1.DefaultVpc, Provider: v1.DefaultProvider}, Gateway: declare.ReadGateway(web.Spec)}}
		looks = 0
		gateway.New().Look(from, force, func(string) (core.Lease, bool) { return core.Lease{}, false }, gateway.Seen{})
		return looks
	}
	require.Zero(t, look())
	web.Spec.GatewayType = v1.GatewayCentralized
	require.Equal(t, 1, look())
}

// TestWhom: gateways are asked by their tunnels where this machine has one, and below,
// this machine itself never, and a few others and machines beside as witnesses.
func TestWhom(t *testing.T) {
	t.Parallel()
	ip := netip.MustParseAddr
	nodes := objecttest.Shelf[object.Node]{}
	for i, name := range []string{"n7", "n6", "n5", "n4", "n3", "n2", "n1"} {
		n := object.Node{Name: name, Labels: map[string]string{"edge": name}, IPs: []netip.Addr{ip("fd00::" + name[1:]), ip("192.0.2." + name[1:])},
			Annotations: map[string]string{v1.AnnChassis: name, "ovn.kubernetes.io/ip_address": "100.64.0." + name[1:] + ",fd00:100:64::" + name[1:]}}
		if i == 3 {
			n.Down = "its condition Ready is Unknown"
		}
		nodes["/"+name] = n
	}
	web := subnet("web", v1.SubnetSpec{})
	from := object.Readers{Nodes: nodes, Subnets: objecttest.Shelf[*v1.Subnet]{"/web": web}}
	db, router := ip("192.0.2.1"), ip("192.0.2.254")
	require.Empty(t, gateway.Whom(from, nil, []netip.Addr{router}))

	web.Spec = v1.SubnetSpec{GatewayType: v1.GatewayCentralized, GatewayNode: "n2", GatewayNodeSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"edge": "n1"}}}}
	node := func(name string, witness bool) alive.Node {
		return alive.Node{Name: name, Tunnel: ip("100.64.0." + name[1:]), Below: ip("192.0.2." + name[1:]), Witness: witness}
	}
	beside := alive.Node{Name: router.String(), Below: router, Witness: true}
	want := []alive.Node{node("n1", false), node("n3", true), node("n5", true), node("n6", true), beside}
	require.Equal(t, want, gateway.Whom(from, []netip.Addr{ip("127.0.0.1"), ip("100.64.0.2"), ip("192.0.2.2")}, []netip.Addr{db, router, ip("192.0.2.2")}), "on n2")

	// A machine that is no node has no tunnel.
	out := gateway.Whom(from, nil, nil)
	require.Len(t, out, 5)
	require.Equal(t, alive.Node{Name: "n1", Below: ip("192.0.2.1")}, out[0])
}
