package controller_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// TestVlanConflict: of two Vlans with one id of one provider network the later is in
// conflict, until the other goes; each names its Subnets, and what keeps them away.
func TestVlanConflict(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	key := func(name string) object.Key { return object.Key{Kind: object.KindVlan, Name: name} }
	vlan := func(name string, age int, spec v1.VlanSpec) {
		w.set(key(name), &v1.Vlan{ObjectMeta: metav1.ObjectMeta{
			Name: name, Generation: 3, CreationTimestamp: metav1.NewTime(time.Unix(1e9-int64(age), 0)),
		}, Spec: spec})
	}
	says := func(name, want string) {
		t.Helper()
		got := ""
		require.Eventually(t, func() bool {
			o, ok := lister[*v1.Vlan]{w, object.KindVlan}.Get("", name)
			if !ok || len(o.Status.Conditions) != 3 {
				return false
			}
			c, ready, undone := o.Status.Conditions[0], o.Status.Conditions[1], o.Status.Conditions[2]
			require.Equal(t, o.Status.Conflict, c.Status == "True")
			require.EqualValues(t, 3, c.ObservedGeneration)
			require.Equal(t, v1.ConditionNotImplemented+" False", undone.Type+" "+undone.Status)
			got = c.Type + " " + c.Status + ", " + ready.Type + " " + ready.Status + " " + ready.Message
			return got == want
		}, patience, tick, "Vlan %s: wanted %q, have %q", name, want, &got)
	}
	refuses := func(subnet, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", subnet)
			return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
				return c.Type == v1.ConditionReady && c.Status == "False" && c.Message == why
			})
		}, patience, tick, "Subnet %s is refused: %s", subnet, why)
	}
	const same = "spec.id: Vlan old has id 100 of provider network net already"
	network := object.Key{Kind: object.KindProvider, Name: "net"}
	w.set(network, &v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	vlan("old", 9, v1.VlanSpec{ID: 100, Provider: "net"})
	vlan("new", 1, v1.VlanSpec{OldID: 100, OldProvider: "net"})
	vlan("far", 0, v1.VlanSpec{ID: 100, Provider: "far"})
	vlan("none", 0, v1.VlanSpec{ID: 100})
	vlan("none2", 0, v1.VlanSpec{ID: 100})
	vlan("beyond", 0, v1.VlanSpec{ID: 4095, Provider: "net"})
	vlan("bare", 0, v1.VlanSpec{Provider: "net"})
	w.subnet("under", v1.SubnetSpec{CIDRBlock: "10.33.0.0/24", Vlan: "old"})
	w.subnet("late", v1.SubnetSpec{CIDRBlock: "10.34.0.0/24", Vlan: "new"})
	w.subnet("nowhere", v1.SubnetSpec{CIDRBlock: "10.35.0.0/24", Vlan: "missing"})
	w.subnet("untagged", v1.SubnetSpec{CIDRBlock: "10.36.0.0/24", Vlan: "bare"})
	lead(t, "one", w, db)
	for name, want := range map[string]string{
		"old": "False, Ready True ", "new": "True, Ready False " + same, "far": "False, Ready False spec.provider: there is no ProviderNetwork far",
		"none": "False, Ready False spec.provider: it names no provider network", "none2": "False, Ready False spec.provider: it names no provider network",
		"beyond": "False, Ready False spec.id: 4095 is not an 802.1Q id from 0 to 4094", "bare": "False, Ready True ",
	} {
		says(name, "Conflict "+want)
	}
	o, _ := lister[*v1.Vlan]{w, object.KindVlan}.Get("", "old")
	require.Equal(t, []string{"under"}, o.Status.Subnets)
	require.Equal(t, []string{controller.ReasonVlan + ": " + same}, w.warned(key("new")))
	for name, why := range map[string]string{"late": "spec.vlan: Vlan new: " + same, "nowhere": `spec.vlan: there is no Vlan "missing"`} {
		refuses(name, why)
		require.Contains(t, w.warned(subnetKey(name)), controller.ReasonSubnet+": "+why)
	}
	tag := func(subnet string) string { return db.Get("Logical_Switch_Port", "localnet."+subnet, "tag") }
	require.Eventually(t, func() bool { return tag("under") == "100" && tag("untagged") == "[]" }, patience, tick)

	// What is in force stays so when its provider network goes, and is told.
	w.set(network, nil)
	refuses("under", "spec.vlan: Vlan old: spec.provider: there is no ProviderNetwork net")
	require.Equal(t, "100", tag("under"))
	w.set(network, &v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	w.set(key("old"), nil)
	says("new", "Conflict False, Ready True ")
	require.Eventually(t, func() bool { return tag("late") == "100" }, patience, tick)
}

// TestProviderNetworks: one tells on which nodes it is, as these say it, and which Vlans
// it has; each news changes that.
func TestProviderNetworks(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	const key = "net1.provider-network.kubernetes.io/"
	w.set(object.KindProvider.Named("", "net1"), &v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net1", Generation: 1}})
	w.set(object.KindNode.Named("", "a"), object.Node{Name: "a", UID: "a"})
	says := func(ready bool, on, not, vlans []string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, ok := lister[*v1.ProviderNetwork]{w, object.KindProvider}.Get("", "net1")
			return ok && o.Status.Ready == ready && slices.Equal(o.Status.ReadyNodes, on) && slices.Equal(o.Status.NotReadyNodes, not) && slices.Equal(o.Status.Vlans, vlans)
		}, patience, tick)
	}
	lead(t, "one", w, db)
	says(false, nil, []string{"a"}, nil)
	w.set(object.KindNode.Named("", "a"), object.Node{Name: "a", UID: "a", Uplinks: map[string]string{key + "ready": "true"}})
	says(true, []string{"a"}, nil, nil)
	w.set(object.KindVlan.Named("", "v"), &v1.Vlan{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.VlanSpec{ID: 7, Provider: "net1"}})
	says(true, []string{"a"}, nil, []string{"v"})
	w.set(object.KindNode.Named("", "a"), object.Node{Name: "a", UID: "a", Annotations: map[string]string{key + "err_mesg": "no link"}})
	says(false, nil, []string{"a"}, []string{"v"})
}

// TestAnnotationsNotCarriedOut: what annotations of pods and nodes ask for and nobody
// does is an Event, once, and the pod is served.
func TestAnnotationsNotCarriedOut(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	node := object.Key{Kind: object.KindNode, Name: "n"}
	w.set(node, object.Node{Name: "n", UID: "n", Annotations: map[string]string{"ovn.kubernetes.io/egress_rate": "10", "ovn.kubernetes.io/ingress_rate": "10M", "ovn.kubernetes.io/node_networks": "{}"}})
	w.pod("a", "1", "ovn.kubernetes.io/eip", "192.0.2.1", "ovn.kubernetes.io/bgp", "false", "ovn.kubernetes.io/mirror", "true",
		"nad.ns.ovn.kubernetes.io/dhcp-v4-options.net1", "x", "macvlan.ns.kubernetes.io/snat", "theirs")
	lead(t, "one", w, db)
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	is := func(k object.Key, want ...string) {
		t.Helper()
		told := func() []string { // what else it had to wait for at first is not meant
			return slices.DeleteFunc(w.warned(k), func(e string) bool { return !strings.HasPrefix(e, "FieldsNotImplemented") })
		}
		require.Eventually(t, func() bool { return len(told()) >= len(want) }, patience, tick)
		require.Equal(t, want, told())
	}
	eip := "ovn.kubernetes.io/eip: pods have no floating address by an annotation"
	first := "FieldsNotImplemented: not carried out: nad.ns.ovn.kubernetes.io/dhcp-v4-options.net1: no pod is answered by DHCP, " + eip
	is(podKey("a"), first)
	is(node, "FieldsNotImplemented: not carried out: ovn.kubernetes.io/node_networks: tunnels have one address of each node, "+
		`annotation ovn.kubernetes.io/ingress_rate: "10M" is not a whole number of Mbit/s from 0 to 1000000: the node's gateway has no rate`)
	w.change("a", "nad.ns.ovn.kubernetes.io/dhcp-v4-options.net1", "")
	is(podKey("a"), first, "FieldsNotImplemented: not carried out: "+eip)
}

// TestNamespacesAreTold: a namespace's annotations say to which Subnets its pods come,
// and to which IPPool. Nobody reads them: a user's are overwritten and move no pod.
func TestNamespacesAreTold(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	is := func(name, subnets, cidrs, excluded, pool string) {
		t.Helper()
		want, got := fmt.Sprint(subnets, " ", cidrs, " ", excluded, " ", pool), ""
		require.Eventually(t, func() bool {
			o, _ := lister[object.Namespace]{w, object.KindNamespace}.Get("", name)
			has := func(field string) string { return o.Annotations["ovn.kubernetes.io/"+field] }
			got = fmt.Sprint(has("logical_switch"), " ", has("cidr"), " ", has("exclude_ips"), " ", has("ip_pool"))
			return got == want
		}, patience, tick, "namespace %s: wanted %q, have %v", name, want, lately{&got})
	}
	for _, name := range []string{"ns", "red"} {
		w.set(object.Key{Kind: object.KindNamespace, Name: name}, object.Namespace{Name: name, UID: name, Annotations: map[string]string{
			"ovn.kubernetes.io/logical_switch": "b", "ovn.kubernetes.io/ip_pool": "none",
		}})
	}
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24,fd20::/112", Default: true, ExcludeIps: []string{"10.20.0.5..10.20.0.9", "10.20.0.20"}})
	w.subnet("a", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	w.subnet("b", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24"})
	l := lead(t, "one", w, db)
	is("ns", "web", "10.20.0.0/24,fd20::/112", "10.20.0.1,fd20::1,10.20.0.5..10.20.0.9,10.20.0.20", "")
	w.pod("p", "1")
	w.ip(t, "p")
	require.Equal(t, "web", w.notes("p")["ovn.kubernetes.io/logical_switch"])

	w.subnet("a", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24", Namespaces: []string{"ns"}})
	w.subnet("b", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Namespaces: []string{"ns"}})
	is("ns", "a,b", "10.21.0.0/24;10.22.0.0/24", "10.21.0.1;10.22.0.1", "")
	w.ippool("gold", 1, v1.IPPoolSpec{Subnet: "b", IPs: []v1.AddressRange{"10.22.0.8"}, Namespaces: []string{"ns"}})
	is("ns", "b", "10.22.0.0/24", "10.22.0.1", "gold")
	l.rests(t)
	looks := l.spaces.Load()
	w.pod("q", "2")
	require.Equal(t, "10.22.0.8", w.ip(t, "q"))
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.IPPool]{w, object.KindPool}.Get("", "gold")
		return string(o.Status.V4UsingIPs) == "1"
	}, patience, tick)
	l.rests(t)
	require.Equal(t, looks, l.spaces.Load(), "a pool's counts send no pod elsewhere")
	w.set(podKey("q"), nil)
	w.set(poolKey("gold"), nil)
	is("ns", "a,b", "10.21.0.0/24;10.22.0.0/24", "10.21.0.1;10.22.0.1", "")

	// A Vpc without a Subnet for it; what somebody writes is put right.
	is("red", "web", "10.20.0.0/24,fd20::/112", "10.20.0.1,fd20::1,10.20.0.5..10.20.0.9,10.20.0.20", "")
	w.set(object.Key{Kind: object.KindVpc, Name: "red"}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: "red"}, Spec: v1.VpcSpec{Namespaces: []string{"red"}}})
	is("red", "", "", "", "")
	w.set(object.Key{Kind: object.KindNamespace, Name: "red"}, object.Namespace{Name: "red", UID: "red", Annotations: map[string]string{"ovn.kubernetes.io/cidr": "x"}})
	is("red", "", "", "", "")
}

// TestNamespacesOfAVpc: pods of a Vpc's namespaces come to its default Subnet, and to
// no other while there is none; kube-system stays where it is. The Vpc's status names
// its Subnets.
func TestNamespacesOfAVpc(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	red := object.Key{Kind: object.KindVpc, Name: "red"}
	vpc := func(spec v1.VpcSpec) {
		w.set(red, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "uid-red"}, Spec: spec})
	}
	is := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Vpc]{w, object.KindVpc}.Get("", "red")
			i := slices.IndexFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionReady })
			return i >= 0 && fmt.Sprintf("%s %s %v %t %s", o.Status.Conditions[i].Status, o.Status.DefaultLogicalSwitch, o.Status.Subnets, o.Status.Standby, o.Status.Conditions[i].Message) == want
		}, patience, tick, want)
	}
	subnetOf := func(name string) string {
		t.Helper()
		w.ip(t, name)
		return w.notes(name)["ovn.kubernetes.io/logical_switch"]
	}
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	vpc(v1.VpcSpec{Namespaces: []string{"ns", "kube-system"}})
	lead(t, "one", w, db)
	is("False  [] true spec.namespaces: pods of namespace ns have no Subnet: name one of this Vpc in spec.defaultSubnet, or the namespace in a Subnet's")
	w.pod("a", "1")
	require.Eventually(t, func() bool { return len(w.warned(podKey("a"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("a"))[0], "ValidatePodNetworkFailed: namespace ns is Vpc red's, which has no Subnet for its pods: ")
	w.pod("chosen", "2", "ovn.kubernetes.io/logical_switch", "web")
	require.Equal(t, "web", subnetOf("chosen"), "who names a Subnet has it")
	system := object.Key{Kind: object.KindPod, Namespace: "kube-system", Name: "dns"}
	w.set(system, object.Pod{Pod: core.Pod{Namespace: "kube-system", Name: "dns", UID: "9"}})
	require.Eventually(t, func() bool {
		p, _ := lister[object.Pod]{w, object.KindPod}.Get("kube-system", "dns")
		return p.Annotations["ovn.kubernetes.io/logical_switch"] == "web"
	}, patience, tick)

	w.subnet("r1", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Vpc: "red", Default: true})
	require.Equal(t, "r1", subnetOf("a"), "it comes by itself")
	is("True r1 [r1] true ")
	w.subnet("r2", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24", Vpc: "red", Namespaces: []string{"ns"}})
	w.pod("b", "3")
	require.Equal(t, "r2", subnetOf("b"), "a Subnet that names the namespace comes before the default one")
	w.subnet("r3", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Vpc: "red"})
	vpc(v1.VpcSpec{Namespaces: []string{"ns"}, DefaultSubnet: "r3"})
	is("True r3 [r1 r2 r3] true ")
	w.pod("c", "4")
	require.Equal(t, "r3", subnetOf("c"), "and after the one that the Vpc names")
	vpc(v1.VpcSpec{Namespaces: []string{"ns"}, DefaultSubnet: "web"})
	is("False r1 [r1 r2 r3] true spec.defaultSubnet: Subnet web is not there, is of another Vpc or provider, or its condition says why it is not in force")
	require.Equal(t, "r1", subnetOf("a"), "whoever has an address keeps it")
}

// TestContradictingVpc: of entries of a Vpc that contradict each other the first is
// carried out, and all the rest; the condition names the others. A default route to the
// nodes that the Vpc says itself is there once.
func TestContradictingVpc(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	key := object.Key{Kind: object.KindVpc, Name: v1.DefaultVpc}
	w.set(key, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: v1.DefaultVpc, UID: "uid"}, Spec: v1.VpcSpec{
		StaticRoutes: []v1.StaticRoute{
			{CIDR: "0.0.0.0/0", NextHopIP: "100.64.0.1"},
			{CIDR: "10.1.0.0/16", NextHopIP: "10.20.0.9"}, {CIDR: "10.1.0.0/16", NextHopIP: "10.20.0.9", ECMPMode: "ecmp_symmetric_reply"},
		},
		PolicyRoutes: []v1.PolicyRoute{
			{Priority: 7, Match: "ip4.dst == 10.2.0.0/16", Action: v1.RouteDrop}, {Priority: 7, Match: "ip4.dst == 10.2.0.0/16", Action: v1.RouteAllow},
			{Priority: 8, Match: "ip4.dst == 10.3.0.0/16", Action: v1.RouteReroute, NextHopIP: "10.20.0.9, 10.20.0.9"},
		},
		VpcPeerings: []v1.VpcPeering{{RemoteVpc: "red", LocalConnectIP: "169.254.0.1/30,169.254.0.1/30"}, {RemoteVpc: "red", LocalConnectIP: "169.254.0.5/30"}},
	}})
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.pod("a", "1")
	lead(t, "one", w, db)
	w.ip(t, "a")
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Vpc]{w, object.KindVpc}.Get("", v1.DefaultVpc)
		i := slices.IndexFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionReady })
		if i < 0 || o.Status.Conditions[i].Status != "False" {
			return false
		}
		for _, path := range []string{"spec.staticRoutes[2].ecmpMode: ", "spec.policyRoutes[1]: ", "spec.vpcPeerings[1].localConnectIP: "} {
			require.Contains(t, o.Status.Conditions[i].Message, path)
		}
		return true
	}, patience, tick)
	rows := func(table, columns string) []string {
		return strings.Fields(db.Nbctl("--bare", "--format=csv", "--columns="+columns, "list", table))
	}
	require.ElementsMatch(t, []string{"0.0.0.0/0,100.64.0.1", "10.1.0.0/16,10.20.0.9"}, rows("Logical_Router_Static_Route", "ip_prefix,nexthop"))
	require.Subset(t, rows("Logical_Router_Policy", "priority,action"), []string{"7,drop", "8,reroute"})
	require.NotContains(t, rows("Logical_Router_Policy", "priority,action"), "7,allow")
	require.Equal(t, `["169.254.0.1/30"]`, db.Get("Logical_Router_Port", "ovn-cluster/peer/red", "networks"))
}

// TestToldAgain: an object that is deleted and made again with the same fault is told of it
// again: nobody sees the events of the one before.
func TestToldAgain(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.pod("a", "1")
	lead(t, "one", w, db)
	a := w.ip(t, "a")
	ip := object.Key{Kind: object.KindIP, Name: "z.ns"}
	for i := range 2 {
		w.set(subnetKey("worse"), &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: "worse", UID: types.UID(strconv.Itoa(i))}, Spec: v1.SubnetSpec{CIDRBlock: "10.20.0.0/25"}})
		w.set(ip, &v1.IP{ObjectMeta: metav1.ObjectMeta{Name: "z.ns", UID: types.UID(strconv.Itoa(i))}, Spec: v1.IPSpec{PodName: "z", Namespace: "ns", Subnet: "web", V4IPAddress: a, IPAddress: a}})
		for _, k := range []object.Key{subnetKey("worse"), ip} {
			require.Eventually(t, func() bool { return len(w.warned(k)) == i+1 }, patience, tick, "%s: %v", k, w.warned(k))
		}
		w.set(subnetKey("worse"), nil)
		w.set(ip, nil)
	}
}

// TestReservedName: a pod of which the port would have the name of a Subnet's port to its
// provider network is refused, and the Subnet is carried out.
func TestReservedName(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.pod("localnet", "1") // of namespace ns
	lead(t, "one", w, db)
	require.Eventually(t, func() bool { return len(w.warned(podKey("localnet"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("localnet"))[0], "ValidatePodNetworkFailed: pod name localnet")
	w.set(object.Key{Kind: object.KindProvider, Name: "net"}, &v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	w.set(object.Key{Kind: object.KindVlan, Name: "v"}, &v1.Vlan{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.VlanSpec{ID: 7, Provider: "net"}})
	w.subnet("ns", v1.SubnetSpec{CIDRBlock: "10.30.0.0/24", Vlan: "v"})
	require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", "localnet.ns", "type") == "localnet" }, patience, tick)
}
