package controller_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

func nodeKey(name string) object.Key { return object.Key{Kind: object.KindNode, Name: name} }

// node declares a node with addresses of its own.
func (w *world) node(name string, ips ...string) {
	n := object.Node{Name: name, UID: "uid-" + name}
	for _, ip := range ips {
		n.IPs = append(n.IPs, netip.MustParseAddr(ip))
	}
	w.set(nodeKey(name), n)
}

// joined waits until a node was told these addresses and networks.
func (w *world) joined(t *testing.T, name, ips, cidrs string) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, _ := lister[object.Node]{w, object.KindNode}.Get("", name)
		return n.Annotations["ovn.kubernetes.io/ip_address"] == ips && n.Annotations["ovn.kubernetes.io/cidr"] == cidrs
	}, patience, tick, "node %s: wanted %s %s", name, ips, cidrs)
}

// ready waits until a Subnet's condition Ready says this: "True", or "False" and a part of
// the message.
func (w *world) ready(t *testing.T, name, status, message string) {
	t.Helper()
	require.Eventually(t, func() bool {
		o, ok := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", name)
		for _, c := range o.Status.Conditions {
			if ok && c.Type == v1.ConditionReady {
				return c.Status == status && strings.Contains(c.Message, message)
			}
		}
		return false
	}, patience, tick, "Subnet %s: wanted %s %s", name, status, message)
}

// TestSubnetOverNodes: a Subnet that holds a node's address is refused, also by its other
// family; one that is in force when such a node comes goes on, under the next leader
// too, and its condition names the node. Addresses of
// other Vpcs, and of providers that only lend theirs, are their own.
func TestSubnetOverNodes(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.node("n1", "10.0.0.5", "fd00:a::5", "10.9.0.5")
	w.set(object.Key{Kind: object.KindVpc, Name: "red"}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: "red"}})
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("over", v1.SubnetSpec{CIDRBlock: "10.0.0.0/24"})
	w.subnet("over6", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24,fd00:a::/64"})
	w.subnet("red", v1.SubnetSpec{CIDRBlock: "10.0.0.0/16", Vpc: "red"})
	w.subnet("lan", v1.SubnetSpec{CIDRBlock: "10.9.0.0/24", Provider: "lan.default"})
	w.pod("a", "1")
	first := lead(t, "one", w, db)
	w.ready(t, "over", "False", "spec.cidrBlock: 10.0.0.0/24 holds 10.0.0.5, the address of node n1")
	w.ready(t, "over6", "False", "spec.cidrBlock: fd00:a::/64 holds fd00:a::5, the address of node n1")
	w.ready(t, "red", "True", "")
	w.ready(t, "lan", "True", "")
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	require.Empty(t, db.Get("Logical_Switch", "over", "name"))

	w.node("n2", "10.20.0.77")
	w.ready(t, "web", "False", "10.20.0.0/24 holds 10.20.0.77, the address of node n2")
	told := func(name string) string {
		n, _ := lister[object.Node]{w, object.KindNode}.Get("", name)
		return n.Annotations[v1.AnnNodeIPs]
	}
	w.node("n3", "192.0.2.3", "10.20.0.78") // whose route to pods others must not lose
	require.Eventually(t, func() bool { return told("n3") == "192.0.2.3" }, patience, tick)
	require.Equal(t, "10.0.0.5,fd00:a::5,10.9.0.5", told("n1"))
	w.pod("b", "2")
	require.Equal(t, "10.20.0.3", w.ip(t, "b"))
	first.stop()
	second := lead(t, "two", w, db)
	w.pod("c", "3")
	require.Equal(t, "10.20.0.4", w.ip(t, "c"))

	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24,fd00:a::/96", Default: true})
	w.ready(t, "web", "False", "fd00:a::/96 holds fd00:a::5, the address of node n1")
	second.stop()
	lead(t, "three", w, db) // who knows what was in force from the database
	w.pod("e", "5")
	require.Equal(t, "10.20.0.5", w.ip(t, "e"))
	w.set(nodeKey("n1"), nil)
	w.ready(t, "over", "True", "")
	w.pod("d", "4")
	require.Equal(t, "10.20.0.6,fd00:a::2", w.ip(t, "d"))
	w.set(nodeKey("n2"), nil)
	w.set(nodeKey("n3"), nil)
	w.ready(t, "web", "True", "")
}

// TestJoinStays: nodes keep their network while they have addresses of it, whatever the
// next leader is told and an object says, and get addresses of a family that comes.
func TestJoinStays(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.node("n1", "192.0.2.1")
	first := lead(t, "one", w, db)
	w.joined(t, "n1", "100.64.0.2", "100.64.0.0/16")
	first.stop()

	gateways := func() string { return db.Get("Logical_Router_Port", "ovn-cluster-join", "networks") }
	second := leadWith(t, "two", w, db, "100.96.0.0/16")
	require.Eventually(t, func() bool { return len(w.warned(nodeKey("n1"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(nodeKey("n1"))[0], "JoinNetworkKept: Subnet join stays what it was: spec: node-n1 has 100.64.0.2")
	w.node("n2", "192.0.2.2")
	w.joined(t, "n2", "100.64.0.3", "100.64.0.0/16")
	w.joined(t, "n1", "100.64.0.2", "100.64.0.0/16")
	require.Equal(t, `["100.64.0.1/16"]`, gateways())
	second.stop()

	w.subnet("join", v1.SubnetSpec{CIDRBlock: "100.97.0.0/16"})
	third := lead(t, "three", w, db)
	w.ready(t, "join", "False", "node-n1 has 100.64.0.2")
	w.node("n3", "192.0.2.3")
	w.joined(t, "n3", "100.64.0.4", "100.64.0.0/16")
	third.stop()

	w.set(subnetKey("join"), nil)
	w.set(nodeKey("n3"), nil)
	leadWith(t, "four", w, db, "100.64.0.0/16", "fd00:100:64::/112")
	for name, ip := range map[string]string{"n1": "100.64.0.2", "n2": "100.64.0.3"} {
		require.Eventually(t, func() bool {
			n, _ := lister[object.Node]{w, object.KindNode}.Get("", name)
			return strings.HasPrefix(n.Annotations["ovn.kubernetes.io/ip_address"], ip+",fd00:100:64::")
		}, patience, tick)
	}
	require.Contains(t, db.Get("Logical_Switch_Port", "node-n1", "addresses"), "100.64.0.2 fd00:100:64::")

	// A node whose own address is one of the network gets none of it.
	w.node("n4", "100.64.3.3")
	require.Eventually(t, func() bool { return len(w.warned(nodeKey("n4"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(nodeKey("n4"))[0], "the node's own address 100.64.3.3 is in the Subnet join")
}
