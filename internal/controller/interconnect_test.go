package controller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// TestInterconnection: of an interconnected underlay Subnet the router has an address that
// nobody else gets, through a change of leaders; pods are told it as their gateway, and
// what they send beyond goes to the physical one.
func TestInterconnection(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.set(object.Key{Kind: object.KindProvider, Name: "net"}, &v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	w.set(object.Key{Kind: object.KindVlan, Name: "v"}, &v1.Vlan{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.VlanSpec{ID: 7, Provider: "net"}})
	spec := v1.SubnetSpec{CIDRBlock: "10.50.0.0/29", Default: true, Vlan: "v", U2OInterconnection: true, EnableDHCP: true}
	w.subnet("under", spec)
	w.pod("a", "1")
	one := lead(t, "one", w, db)
	status := func() v1.SubnetStatus {
		o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", "under")
		return o.Status
	}
	require.Equal(t, "10.50.0.3", w.ip(t, "a"))
	require.Eventually(t, func() bool {
		return status().U2OInterconnectionIP == "10.50.0.2" && status().U2OInterconnectionVPC == "ovn-cluster"
	}, patience, tick)
	require.Equal(t, "10.50.0.2", w.notes("a")["ovn.kubernetes.io/gateway"])
	networks := func() string { return db.Get("Logical_Router_Port", "ovn-cluster-under", "networks") }
	require.Equal(t, `["10.50.0.2/29"]`, networks())
	policies := func() string { return db.Nbctl("lr-policy-list", "ovn-cluster") }
	require.Regexp(t, `30500\s+ip4.src == 10.50.0.0/29\s+reroute\s+10.50.0.1`, policies())
	require.Regexp(t, `29400\s+ip4.dst == 10.50.0.0/29\s+allow`, policies())

	require.Contains(t, db.Nbctl("--bare", "--columns=options", "list", "DHCP_Options"), "router=10.50.0.2", "as pods' annotations say")

	one.stop()
	lead(t, "two", w, db)
	w.pod("b", "2")
	require.Equal(t, "10.50.0.4", w.ip(t, "b"))
	require.Equal(t, `["10.50.0.2/29"]`, networks())

	// The router's own address becomes the physical gateway's: the router has another.
	spec.Gateway = "10.50.0.2"
	w.subnet("under", spec)
	require.Eventually(t, func() bool { return networks() == `["10.50.0.1/29"]` && status().U2OInterconnectionIP == "10.50.0.1" }, patience, tick)
	require.Eventually(t, func() bool { return w.notes("b")["ovn.kubernetes.io/gateway"] == "10.50.0.1" }, patience, tick)
	require.Regexp(t, `30500\s+ip4.src == 10.50.0.0/29\s+reroute\s+10.50.0.2`, policies())
	spec.Gateway = ""

	// Another address, and none.
	spec.U2OInterconnectionIP = "10.50.0.6"
	w.subnet("under", spec)
	require.Eventually(t, func() bool { return networks() == `["10.50.0.6/29"]` && status().U2OInterconnectionIP == "10.50.0.6" }, patience, tick)
	require.Eventually(t, func() bool { return w.notes("a")["ovn.kubernetes.io/gateway"] == "10.50.0.6" }, patience, tick)

	// One that a pod has is refused, and the router keeps its own.
	spec.U2OInterconnectionIP = "10.50.0.3"
	w.subnet("under", spec)
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", "under")
		return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
			return c.Status == "False" && strings.Contains(c.Message, "10.50.0.3 is held by")
		})
	}, patience, tick)
	require.Equal(t, `["10.50.0.6/29"]`, networks())
	w.pod("c", "3")
	require.Equal(t, "10.50.0.5", w.ip(t, "c"))
	require.Equal(t, "10.50.0.6", status().U2OInterconnectionIP)

	// A family more: the router gets an address of it, too, and then pods.
	spec.U2OInterconnectionIP, spec.CIDRBlock, spec.Gateway = "", "10.50.0.0/29,fd50::/120", "10.50.0.1,fd50::1"
	w.subnet("under", spec)
	require.Eventually(t, func() bool { return networks() == `["10.50.0.6/29", "fd50::2/120"]` }, patience, tick)
	w.pod("d", "4")
	require.Equal(t, "10.50.0.2,fd50::3", w.ip(t, "d"), "the first is what the router had once")
	require.Eventually(t, func() bool { return w.notes("d")["ovn.kubernetes.io/gateway"] == "10.50.0.6,fd50::2" }, patience, tick)

	spec.U2OInterconnection = false
	w.subnet("under", spec)
	require.Eventually(t, func() bool { return networks() == "" && status().U2OInterconnectionIP == "" }, patience, tick)
	require.Eventually(t, func() bool { return w.notes("a")["ovn.kubernetes.io/gateway"] == "10.50.0.1" }, patience, tick)
	require.NotContains(t, policies(), "10.50.0.0/29")
}

// TestRefusedRows: what neither the kind nor the reader of objects refuses, and the book or
// the database does, is told by condition and Event, and served once it is right.
func TestRefusedRows(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.set(object.Key{Kind: object.KindProvider, Name: "net"}, &v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	w.set(object.Key{Kind: object.KindVlan, Name: "v"}, &v1.Vlan{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.VlanSpec{ID: 7, Provider: "net"}})
	under := v1.SubnetSpec{CIDRBlock: "10.50.0.0/24", Vlan: "v", U2OInterconnection: true, U2OInterconnectionIP: "10.50.0.0"}
	open := v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true, Acls: []v1.ACL{{Direction: "to-lport", Priority: 1001, Match: "ip4", Action: "permit"}}}
	w.subnet("under", under)
	w.subnet("open", open)
	lead(t, "one", w, db)
	ready := func(subnet, status, message string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", subnet)
			return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
				return c.Type == v1.ConditionReady && c.Status == status && strings.Contains(c.Message, message)
			})
		}, patience, tick)
	}
	for subnet, message := range map[string]string{"under": "10.50.0.0", "open": "permit"} {
		ready(subnet, "False", message)
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(w.warned(subnetKey(subnet)), func(e string) bool { return strings.Contains(e, message) })
		}, patience, tick)
	}
	under.U2OInterconnectionIP, open.Acls[0].Action = "10.50.0.9", "allow"
	w.subnet("under", under)
	w.subnet("open", open)
	ready("under", "True", "")
	ready("open", "True", "")
	require.Equal(t, `["10.50.0.9/24"]`, db.Get("Logical_Router_Port", "ovn-cluster-under", "networks"))
}
