package controller_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

func policyKey(name string) object.Key {
	return object.Key{Kind: object.KindPolicy, Namespace: "ns", Name: name}
}

// policy declares a NetworkPolicy of namespace ns that lets pods with label
// app=from reach those with app=to.
func (w *world) policy(name, to, from string) {
	spec := networking.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": to}}}
	spec.Ingress = []networking.NetworkPolicyIngressRule{{From: []networking.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": from}},
	}}}}
	w.set(policyKey(name), object.NetworkPolicy{Namespace: "ns", Name: name, UID: "uid-" + name, Spec: spec})
}

// labelled declares a pod of namespace ns, and keeps its annotations.
func (w *world) labelled(name, uid, app string) {
	w.set(podKey(name), object.Pod{
		Pod: core.Pod{Namespace: "ns", Name: name, UID: uid}, Labels: map[string]string{"app": app}, Annotations: w.notes(name),
	})
}

func (w *world) space(team string) {
	w.set(object.Key{Kind: object.KindNamespace, Name: "ns"}, object.Namespace{Name: "ns", Labels: map[string]string{"team": team}})
}

// group waits until a policy's group holds so many ports.
func group(t *testing.T, db *bed.Central, name string, ports int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return len(strings.Fields(db.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name="+logical.GroupOf("ns", name)))) == ports
	}, patience, tick, "%s: wanted %d", name, ports)
}

// peers waits until the first rule of a policy lets these addresses in.
func peers(t *testing.T, db *bed.Central, name, addresses string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got := db.Nbctl("--bare", "--columns=addresses", "find", "Address_Set", "name="+logical.GroupOf("ns", name)+".in0.ip4")
		return strings.TrimSpace(got) == addresses
	}, patience, tick, "%s: wanted %q", name, addresses)
}

// TestNetworkPolicy: groups and address sets follow policies, pods' labels,
// namespaces' labels and pods that go, also under a leader who comes later; what
// no policy is about has none of their rows looked at.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.space("a")
	w.labelled("server", "1", "web")
	first := lead(t, "one", w, db)
	w.ip(t, "server")
	w.policy("p", "web", "client")
	group(t, db, "p", 1)
	peers(t, db, "p", "")
	require.Equal(t, 7, db.Count("ACL"), "drop, replies, nodes, the pod itself by a Service and a rule for each family")

	w.labelled("a", "2", "client")
	w.labelled("b", "3", "other")
	a := w.ip(t, "a")
	peers(t, db, "p", a)
	w.labelled("b", "3", "client")
	require.Eventually(t, func() bool {
		return strings.Contains(db.Nbctl("--columns=addresses", "find", "Address_Set"), w.ip(t, "b"))
	}, patience, tick)
	w.set(podKey("b"), nil)
	peers(t, db, "p", a)
	w.space("b")
	peers(t, db, "p", "")
	w.space("a")
	peers(t, db, "p", a)

	w.labelled("server", "1", "other")
	group(t, db, "p", 0)
	w.labelled("server", "1", "web")
	group(t, db, "p", 1)
	w.policy("q", "web", "nobody")
	group(t, db, "q", 1)
	w.policy("p", "other", "client")
	group(t, db, "p", 0)
	w.policy("p", "web", "client")
	group(t, db, "p", 1)

	// What none of them is about.
	first.rests(t)
	before := first.rules.Load()
	w.labelled("plain", "6", "plain")
	w.service("plain", "10.96.0.9", 0)
	w.slice("plain", "plain", w.ip(t, "plain"))
	vips(t, db, "plain", "10.96.0.9:80="+w.ip(t, "plain")+":8080")
	w.set(podKey("plain"), nil)
	require.Eventually(t, func() bool { return ports(db)["plain.ns"] == "" }, patience, tick)
	first.rests(t)
	require.Equal(t, before, first.rules.Load(), "a pod and a Service that no policy is about had rows of policies looked at")

	// What was changed while nobody led.
	first.stop()
	w.set(policyKey("q"), nil)
	w.labelled("server2", "5", "web")
	lead(t, "two", w, db)
	w.ip(t, "server2")
	group(t, db, "p", 2)
	require.Eventually(t, func() bool { return db.Count("Port_Group") == 1 }, patience, tick)
	peers(t, db, "p", a)

	// Somebody takes the group away.
	db.Nbctl("destroy", "Port_Group", logical.GroupOf("ns", "p"))
	group(t, db, "p", 2)
	w.set(policyKey("p"), nil)
	for _, table := range []string{"Port_Group", "ACL", "Address_Set"} {
		require.Eventually(t, func() bool { return db.Count(table) == 0 }, patience, tick, table)
	}
}

// TestPolicyBeforePod: a pod's row has never been outside of its groups: it
// comes with them in one transaction, after the group's rules.
func TestPolicyBeforePod(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.policy("p", "web", "client")
	for _, name := range []string{"a", "b", "c"} {
		w.labelled(name, name, "web")
	}
	lead(t, "one", w, db)
	for _, name := range []string{"a", "b", "c"} {
		w.ip(t, name)
	}
	// The pod was told after its transaction: there was no later one.
	require.Len(t, strings.Fields(db.Get("Port_Group", logical.GroupOf("ns", "p"), "ports")), 3)
}

// TestWrongPolicy: what cannot be carried out is told, and lets nothing pass.
func TestWrongPolicy(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	spec := networking.NetworkPolicySpec{Ingress: []networking.NetworkPolicyIngressRule{{From: []networking.NetworkPolicyPeer{
		{IPBlock: &networking.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"x"}}},
	}}}}
	w.set(policyKey("p"), object.NetworkPolicy{Namespace: "ns", Name: "p", UID: "1", Spec: spec})
	lead(t, "one", w, db)
	require.Eventually(t, func() bool { return len(w.warned(policyKey("p"))) == 1 }, patience, tick)
	require.Equal(t, `NetworkPolicyNotCarriedOut: spec.ingress[0].from[0].ipBlock.except[0]: "x" is no network in CIDR form: nothing of 10.0.0.0/8 passes`,
		w.warned(policyKey("p"))[0])
	peers(t, db, "p", "")
}

// TestCollidingNames: policies, and Subnets, whose names give the same once they are
// joined or cleaned keep rows of their own in the database, and one that goes leaves the
// others theirs.
func TestCollidingNames(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("a-b", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	w.subnet("a.b", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24"})
	lead(t, "one", w, db)
	names := [][2]string{{"a-b", "c"}, {"a.b", "c"}, {"a", "b-c"}, {"a", "b.c"}}
	key := func(n [2]string) object.Key {
		return object.Key{Kind: object.KindPolicy, Namespace: n[0], Name: n[1]}
	}
	for _, n := range names {
		w.set(object.Key{Kind: object.KindNamespace, Name: n[0]}, object.Namespace{Name: n[0]})
		w.set(object.Key{Kind: object.KindPod, Namespace: n[0], Name: n[1]}, object.Pod{Pod: core.Pod{Namespace: n[0], Name: n[1], UID: n[0] + n[1]}})
		w.set(key(n), object.NetworkPolicy{Namespace: n[0], Name: n[1], UID: n[0] + n[1]})
	}
	groups := func() map[string]string { // the ports of each policy's group
		out := map[string]string{}
		for _, n := range names {
			out[n[0]+" "+n[1]] = strings.TrimSpace(db.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name="+logical.GroupOf(n[0], n[1])))
		}
		return out
	}
	require.Eventually(t, func() bool { // each policy is about its namespace's pods: of "a" there are two
		g := groups()
		return len(strings.Fields(g["a-b c"])) == 1 && len(strings.Fields(g["a.b c"])) == 1 && g["a-b c"] != g["a.b c"] &&
			len(strings.Fields(g["a b-c"])) == 2 && g["a b-c"] == g["a b.c"]
	}, patience, tick, "%v", groups())
	for _, subnet := range []string{"a-b", "a.b"} {
		require.Equal(t, subnet, db.Get("Logical_Switch", subnet, "name"))
	}
	before := groups()
	w.set(key(names[1]), nil)
	w.set(object.Key{Kind: object.KindSubnet, Name: "a.b"}, nil)
	require.Eventually(t, func() bool { return groups()["a.b c"] == "" && db.Get("Logical_Switch", "a.b", "name") == "" }, patience, tick)
	delete(before, "a.b c")
	after := groups()
	delete(after, "a.b c")
	require.Equal(t, before, after)
	require.Equal(t, "a-b", db.Get("Logical_Switch", "a-b", "name"))
}

// TestPolicyOfAVpc: a policy lets in pods of the Vpc that its own pods are in, not those of
// another that has the same addresses, also under the next leader; pods of Vpcs with links
// count, and what a Subnet's move to another Vpc changes.
func TestPolicyOfAVpc(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	vpc := func(name string, peers ...v1.VpcPeering) {
		w.set(object.Key{Kind: object.KindVpc, Name: name}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.VpcSpec{VpcPeerings: peers}})
	}
	in := func(name, uid, app, subnet, ip string) {
		w.set(podKey(name), object.Pod{Pod: core.Pod{Namespace: "ns", Name: name, UID: uid}, Labels: map[string]string{"app": app},
			Annotations: map[string]string{"ovn.kubernetes.io/logical_switch": subnet, "ovn.kubernetes.io/ip_address": ip}})
	}
	for _, name := range []string{"blue", "red", "green"} {
		vpc(name)
	}
	w.subnet("blue", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Vpc: "blue"})
	w.subnet("red", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Vpc: "red"})
	w.subnet("green", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Vpc: "green"})
	w.space("a")
	w.policy("p", "web", "client")
	in("server", "1", "web", "blue", "10.20.0.9")
	in("mine", "2", "client", "blue", "10.20.0.2")
	in("theirs", "3", "client", "red", "10.20.0.3")
	in("third", "4", "client", "green", "10.22.0.4")
	first := lead(t, "one", w, db)
	for _, name := range []string{"server", "mine", "theirs", "third"} {
		w.ip(t, name)
	}
	peers(t, db, "p", "10.20.0.2")
	first.stop()
	lead(t, "two", w, db)
	in("more", "5", "client", "red", "10.20.0.5")
	w.ip(t, "more")
	peers(t, db, "p", "10.20.0.2")
	vpc("blue", v1.VpcPeering{RemoteVpc: "green", LocalConnectIP: "169.254.0.1/30"})
	vpc("green", v1.VpcPeering{RemoteVpc: "blue", LocalConnectIP: "169.254.0.2/30"})
	peers(t, db, "p", "10.20.0.2 10.22.0.4")
	w.subnet("green", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Vpc: "red"})
	peers(t, db, "p", "10.20.0.2")
	in("server2", "6", "web", "red", "10.20.0.9")
	peers(t, db, "p", "10.20.0.2 10.20.0.3 10.20.0.5 10.22.0.4")
}
