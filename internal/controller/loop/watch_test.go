package loop

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
)

// TestMembers: the northbound database's members that have addresses are asked too.
func TestMembers(t *testing.T) {
	t.Parallel()
	c := &Config{NB: "ssl:192.0.2.1:6641,ssl:[fd00::1]:6641,ssl:db.example:6641,unix:/run/nb.sock"}
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}, c.members())
	require.Contains(t, own(), netip.MustParseAddr("127.0.0.1"))
}

// TestAskedAnew: what changes with every pod, or by itself, has nobody look at all nodes for
// whom to ask.
func TestAskedAnew(t *testing.T) {
	t.Parallel()
	nodes, subnets := objecttest.Shelf[object.Node]{"/n": {Name: "n"}}, objecttest.Shelf[*v1.Subnet]{"/s": {}}
	looks := 0
	news := askedAnew(object.Readers{Nodes: nodes, Subnets: subnets}, func() { looks++ })
	all := func() int {
		looks = 0
		for _, of := range []object.Key{object.KindNode.Named("", "n"), object.KindSubnet.Named("", "s"), object.KindPod.Named("ns", "p")} {
			news(of)
		}
		return looks
	}
	require.Equal(t, 2, all(), "their first news")
	nodes["/n"] = object.Node{Name: "n", Gives: []string{"s"}}
	subnets["/s"] = &v1.Subnet{Spec: v1.SubnetSpec{CIDRBlock: "10.0.0.0/16"}, Status: v1.SubnetStatus{V4UsingIPs: []byte("7")}}
	require.Zero(t, all())
	nodes["/n"] = object.Node{Name: "n", Labels: map[string]string{"edge": "true"}}
	subnets["/s"] = &v1.Subnet{Spec: v1.SubnetSpec{GatewayType: v1.GatewayCentralized, GatewayNode: "n"}}
	require.Equal(t, 2, all())
	nodes["/n"] = object.Node{Name: "n", Labels: map[string]string{"edge": "true"}, Down: "its condition Ready is Unknown"}
	subnets["/s"] = &v1.Subnet{Spec: v1.SubnetSpec{GatewayType: v1.GatewayCentralized, GatewayNode: "n,m"}}
	require.Equal(t, 2, all())
	delete(nodes, "/n")
	delete(subnets, "/s")
	require.Equal(t, 2, all())
}
