package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

const ipPool = "ovn.kubernetes.io/ip_pool"

func poolKey(name string) object.Key {
	return object.Key{Kind: object.KindPool, Name: name}
}

// pool declares an IPPool that is as many seconds old as age says.
func (w *world) ippool(name string, age int, spec v1.IPPoolSpec) {
	w.set(poolKey(name), &v1.IPPool{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(1e9-int64(age), 0)),
	}, Spec: spec})
}

// pooled waits until an IPPool's status says this: its IPv4 addresses, and Ready.
func (w *world) pooled(t *testing.T, name, used, usedRange, free, freeRange, ready string) {
	t.Helper()
	want, got := [5]string{used, usedRange, free, freeRange, ready}, [5]string{}
	require.Eventually(t, func() bool {
		o, ok := lister[*v1.IPPool]{w, object.KindPool}.Get("", name)
		if !ok {
			return false
		}
		s := o.Status
		got = [5]string{string(s.V4UsingIPs), s.V4UsingIPRange, string(s.V4AvailableIPs), s.V4AvailableIPRange}
		for _, c := range s.Conditions {
			if c.Type == v1.ConditionReady {
				got[4] = c.Status + " " + c.Message
			}
		}
		return got == want
	}, patience, tick, "IPPool %s: wanted %v, have %v", name, want, &got)
}

// TestIPPool: its addresses only those pods get that name it, or are of its
// namespaces; others get none of them, and it tells how many are free. Full, it is
// full although its Subnet is not.
func TestIPPool(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.24.0.0/24,fd24::/112", Default: true, ExcludeIps: []string{"10.24.0.4"}})
	w.subnet("other", v1.SubnetSpec{CIDRBlock: "10.25.0.0/24"})
	w.ippool("gold", 2, v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.24.0.1..10.24.0.4", "10.24.0.9", "10.24.0.10"}})
	w.ippool("theirs", 1, v1.IPPoolSpec{Subnet: "other", IPs: []v1.AddressRange{"10.25.0.16/30"}, Namespaces: []string{"ns-b"}})
	first := lead(t, "one", w, db)
	w.pooled(t, "gold", "0", "", "4", "10.24.0.2-10.24.0.3,10.24.0.9-10.24.0.10", "True ")
	w.pod("plain", "1")
	require.Equal(t, "10.24.0.5,fd24::2", w.ip(t, "plain"))
	w.pod("a", "2", ipPool, "gold")
	require.Equal(t, "10.24.0.2,fd24::3", w.ip(t, "a"))
	w.pooled(t, "gold", "1", "10.24.0.2", "3", "10.24.0.3,10.24.0.9-10.24.0.10", "True ")
	w.counts(t, "web", "2", "10.24.0.2,10.24.0.5", "247", "10.24.0.6-10.24.0.8,10.24.0.11-10.24.0.254")

	// By namespace, without a word on the pod; a fixed address counts more.
	far := object.Key{Kind: object.KindPod, Namespace: "ns-b", Name: "c"}
	p, _ := lister[object.Pod]{w, object.KindPod}.Get("ns", "a")
	p.Namespace, p.Name, p.UID, p.Annotations = "ns-b", "c", "3", nil
	w.set(far, p)
	w.pooled(t, "theirs", "1", "10.25.0.16", "3", "10.25.0.17-10.25.0.19", "True ")
	p.Name, p.UID, p.Annotations = "d", "4", map[string]string{"ovn.kubernetes.io/ip_address": "10.24.0.77"}
	w.set(object.Key{Kind: object.KindPod, Namespace: "ns-b", Name: "d"}, p)
	require.Eventually(t, func() bool {
		got, _ := lister[object.Pod]{w, object.KindPod}.Get("ns-b", "d")
		return got.Annotations["ovn.kubernetes.io/logical_switch"] == "web"
	}, patience, tick)

	// Another leader knows it all, and the last ones go.
	first.stop()
	lead(t, "two", w, db)
	for _, name := range []string{"e", "f", "g"} {
		w.pod(name, "uid-"+name, ipPool, "gold")
		w.ip(t, name)
	}
	w.pooled(t, "gold", "4", "10.24.0.2-10.24.0.3,10.24.0.9-10.24.0.10", "0", "", "True ")
	w.pod("late", "9", ipPool, "gold")
	require.Eventually(t, func() bool { return len(w.warned(podKey("late"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("late"))[0], "AcquireAddressFailed: pod left without an address: IPPool gold of Subnet web has none free (in use: 10.24.0.2-10.24.0.3,10.24.0.9-10.24.0.10)")
	w.set(podKey("a"), nil)
	require.Regexp(t, "^10.24.0.2,", w.ip(t, "late"))
}

// TestBadIPPool: what cannot be is refused with the field's name; what was good
// stays in force until something good replaces it.
func TestBadIPPool(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.26.0.0/24", Default: true, ExcludeIps: []string{"10.26.0.100..10.26.0.120"}})
	w.ippool("old", 9, v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.26.0.8..10.26.0.9"}})
	lead(t, "one", w, db)
	w.pooled(t, "old", "0", "", "2", "10.26.0.8-10.26.0.9", "True ")
	for name, c := range map[string]struct {
		says string
		v1.IPPoolSpec
	}{
		"far":      {"spec.ips: 10.27.0.1 lies outside of Subnet web [10.26.0.0/24]", v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.27.0.1"}}},
		"overlaps": {"spec.ips: 10.26.0.9..10.26.0.12 overlaps IPPool old", v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.26.0.9..10.26.0.12"}}},
		"nowhere":  {"spec.subnet: Subnet none is not in force, or not for pods", v1.IPPoolSpec{Subnet: "none", IPs: []v1.AddressRange{"10.26.0.30"}}},
		"kept":     {"spec.ips: none of its IPv4 addresses may be given: they are excluded by Subnet web, or are the network's or a gateway's", v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.26.0.1", "10.26.0.110"}}},
		"backward": {`spec.ips[0]: "10.26.0.9..10.26.0.5" does not go upwards`, v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.26.0.9..10.26.0.5"}}},
	} {
		w.ippool(name, 1, c.IPPoolSpec)
		w.pooled(t, name, "", "", "", "", "False "+c.says)
	}
	w.ippool("old", 9, v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.28.0.8"}})
	w.pooled(t, "old", "0", "", "2", "10.26.0.8-10.26.0.9", "False spec.ips: 10.28.0.8 lies outside of Subnet web [10.26.0.0/24]")
	w.pod("a", "1", ipPool, "old")
	require.Equal(t, "10.26.0.8", w.ip(t, "a"))

	// Who names one that is not there waits for it.
	w.pod("b", "2", ipPool, "new")
	w.pod("c", "3", ipPool, "far")
	w.pod("d", "4", ipPool, "old", "ovn.kubernetes.io/logical_switch", "ovn-default")
	w.pod("e", "5", ipPool, "old", "ovn.kubernetes.io/ip_family", "IPv6")
	for name, says := range map[string]string{
		"b": `ip_pool: "new" names an IPPool that does not exist`,
		"c": `ip_pool: "far" names an IPPool that is not in force: spec.ips: 10.27.0.1 lies outside`,
	} {
		require.Eventually(t, func() bool { return len(w.warned(podKey(name))) > 0 }, patience, tick)
		require.Contains(t, w.warned(podKey(name))[0], says)
	}
	w.subnet("ovn-default", v1.SubnetSpec{CIDRBlock: "10.29.0.0/24"})
	require.Eventually(t, func() bool {
		list := w.warned(podKey("d"))
		return len(list) > 0 && strings.Contains(list[len(list)-1], "is an IPPool of Subnet web, and the interface is asked to be in ovn-default")
	}, patience, tick)

	// A Subnet that stands at another place of the same interface counts as well.
	w.subnet("two", v1.SubnetSpec{CIDRBlock: "10.31.0.0/24", Provider: "two.ns.ovn"})
	w.subnet("secret", v1.SubnetSpec{CIDRBlock: "10.32.0.0/24", Provider: "secret.ns.ovn"})
	w.ippool("secret", 0, v1.IPPoolSpec{Subnet: "secret", IPs: []v1.AddressRange{"10.32.0.7"}})
	w.set(object.Key{Kind: object.KindNAD, Namespace: "ns", Name: "two"}, resolve.NAD{
		Namespace: "ns", Name: "two", Config: `{"cniVersion":"1.0.0","type":"kube-ovn","provider":"two.ns.ovn"}`,
	})
	w.pod("g", "7", "k8s.v1.cni.cncf.io/networks", "two", "two.ns.ovn.kubernetes.io/logical_switch", "two", "two.ns.ovn.net1.kubernetes.io/ip_pool", "secret")
	require.Eventually(t, func() bool {
		list := w.warned(podKey("g"))
		return len(list) > 0 && strings.Contains(list[len(list)-1], "is an IPPool of Subnet secret, and the interface is asked to be in two")
	}, patience, tick, w.warned(podKey("g")))
	w.ippool("new", 0, v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.26.0.40"}})
	require.Equal(t, "10.26.0.40", w.ip(t, "b"))

	// One that goes leaves its addresses to the Subnet, or to the next that wants them,
	// and pods theirs.
	w.set(poolKey("old"), nil)
	w.set(podKey("c"), nil)
	w.pod("f", "6", "ovn.kubernetes.io/logical_switch", "web")
	w.ip(t, "f")
	w.pooled(t, "overlaps", "0", "", "4", "10.26.0.9-10.26.0.12", "True ")
	w.counts(t, "web", "3", "10.26.0.2,10.26.0.8,10.26.0.40", "225", "10.26.0.3-10.26.0.7,10.26.0.13-10.26.0.39,10.26.0.41-10.26.0.99,10.26.0.121-10.26.0.254")
}

// TestReplicaOfAnIPPool: a StatefulSet's replica keeps the address that an IPPool
// gave it, until it asks for another one.
func TestReplicaOfAnIPPool(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.30.0.0/24", Default: true})
	w.ippool("gold", 1, v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.30.0.50..10.30.0.51"}})
	w.sized("s1", 1)
	lead(t, "one", w, db)
	replica := func(uid, value string) {
		w.replica("db-0", uid, "s1", ipPool, value)
	}
	w.pod("first", "1", ipPool, "gold")
	require.Equal(t, "10.30.0.50", w.ip(t, "first"))
	replica("2", "gold")
	require.Equal(t, "10.30.0.51", w.ip(t, "db-0"))
	w.set(podKey("first"), nil)
	w.set(podKey("db-0"), nil)
	w.pooled(t, "gold", "1", "10.30.0.51", "1", "10.30.0.50", "True ")
	replica("3", "gold")
	require.Equal(t, "10.30.0.51", w.ip(t, "db-0"))
	w.set(podKey("db-0"), nil)
	w.ippool("silver", 0, v1.IPPoolSpec{Subnet: "web", IPs: []v1.AddressRange{"10.30.0.60"}})
	w.pooled(t, "silver", "0", "", "1", "10.30.0.60", "True ")
	replica("4", "silver")
	require.Equal(t, "10.30.0.60", w.ip(t, "db-0"))
	w.pooled(t, "gold", "0", "", "2", "10.30.0.50-10.30.0.51", "True ")
}

// TestNamespaceOfSeveralSubnets: pods come to the first that has room, to the one that has
// the address that they name, and back to the one where a StatefulSet keeps theirs; who
// waits for all of them is served when one has room.
func TestNamespaceOfSeveralSubnets(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("a", v1.SubnetSpec{CIDRBlock: "10.40.0.0/29", Namespaces: []string{"ns"}, ExcludeIps: []string{"10.40.0.3..10.40.0.6"}})
	w.subnet("b", v1.SubnetSpec{CIDRBlock: "10.41.0.0/29", Namespaces: []string{"ns"}, ExcludeIps: []string{"10.41.0.4..10.41.0.6"}})
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	is := func(name, ip, subnet string) {
		t.Helper()
		require.Equal(t, ip, w.ip(t, name))
		require.Equal(t, subnet, w.notes(name)["ovn.kubernetes.io/logical_switch"])
	}
	w.sized("set", 1)
	w.pod("p", "1")
	first := lead(t, "one", w, db)
	is("p", "10.40.0.2", "a")
	w.replica("db-0", "2", "set")
	is("db-0", "10.41.0.2", "b")
	w.pod("fixed", "3", "ovn.kubernetes.io/ip_address", "10.41.0.5")
	is("fixed", "10.41.0.5", "b")
	w.pod("listed", "4", "ovn.kubernetes.io/ip_pool", "10.41.0.6;10.41.0.4")
	is("listed", "10.41.0.6", "b")
	w.pod("last", "5")
	is("last", "10.41.0.3", "b")

	w.pod("waits", "6")
	require.Eventually(t, func() bool { return len(w.warned(podKey("waits"))) == 1 }, patience, tick)
	w.set(podKey("last"), nil)
	is("waits", "10.41.0.3", "b")

	// The first Subnet has room again: what is kept in the other one stays there.
	w.set(podKey("p"), nil)
	w.counts(t, "a", "0", "", "1", "10.40.0.2")
	w.set(podKey("db-0"), nil)
	w.replica("db-0", "7", "set")
	is("db-0", "10.41.0.2", "b")
	first.stop()

	// So does what a pod has that ran before anybody told it anything.
	w.runs("old", "10.41.0.4", `[{"interface":"eth0","ips":["10.41.0.4"],"mac":"02:00:00:00:00:09"}]`)
	lead(t, "two", w, db)
	is("old", "10.41.0.4", "b")
	w.pod("next", "9")
	is("next", "10.40.0.2", "a")
}

// TestListOfLaterOrdinals: with another first ordinal than 0 (spec.ordinals.start), too, a
// replica has the element of its ordinal of a list, and one behind the list's end none.
func TestListOfLaterOrdinals(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.42.0.0/24", Default: true})
	w.set(object.Key{Kind: object.KindSet, Namespace: "ns", Name: "db"}, object.StatefulSet{Namespace: "ns", Name: "db", UID: "set", First: 2, Replicas: 2})
	lead(t, "one", w, database(t))
	const list = "10.42.0.20;10.42.0.21;10.42.0.22"
	w.replica("db-2", "1", "set", ipPool, list)
	require.Equal(t, "10.42.0.22", w.ip(t, "db-2"))
	w.replica("db-3", "2", "set", ipPool, list)
	require.Eventually(t, func() bool { return len(w.warned(podKey("db-3"))) > 0 }, patience, tick)
	require.Contains(t, w.warned(podKey("db-3"))[0], "has 3 elements, and none for replica 3")
}
