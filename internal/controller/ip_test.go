package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

func ipKey(name string) object.Key {
	return object.Key{Kind: object.KindIP, Name: name}
}

// replica declares a pod of StatefulSet db.
func (w *world) replica(name, uid, set string, notes ...string) {
	p := declared(name, uid, notes...)
	p.Node, p.Owner = "n1", object.Owner{Kind: "StatefulSet", Name: "db", UID: set}
	w.set(podKey(name), p)
}

// sized declares StatefulSet db.
func (w *world) sized(uid string, replicas int) {
	w.set(object.Key{Kind: object.KindSet, Namespace: "ns", Name: "db"}, object.StatefulSet{Namespace: "ns", Name: "db", UID: uid, Replicas: replicas})
}

// object waits for an IP object of which fits is true.
func (w *world) object(t *testing.T, name string, fits func(*v1.IP) bool) (o *v1.IP) {
	t.Helper()
	require.Eventually(t, func() bool {
		var ok bool
		o, ok = lister[*v1.IP]{w, object.KindIP}.Get("", name)
		return ok && fits(o)
	}, patience, tick, "IP %s: %+v", name, o)
	return o
}

func (w *world) noObject(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, ok := lister[*v1.IP]{w, object.KindIP}.Get("", name)
		return !ok
	}, patience, tick, name)
}

// TestIPObjects: each address has an object while somebody has it, made once the
// pod has a node, and made again when somebody deletes it.
func TestIPObjects(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24,fd20::/112", Default: true})
	w.pod("a", "1")
	lead(t, "one", w, db)
	w.ip(t, "a")
	mac := w.notes("a")["ovn.kubernetes.io/mac_address"]
	w.noObject(t, "a.ns")
	p, _ := lister[object.Pod]{w, object.KindPod}.Get("ns", "a")
	p.Node = "n1"
	w.set(podKey("a"), p)
	whole := func(o *v1.IP) bool { return o.Spec.NodeName == "n1" }
	got := w.object(t, "a.ns", whole)
	require.Equal(t, v1.IPSpec{
		PodName: "a", Namespace: "ns", Subnet: "web", NodeName: "n1", IPAddress: "10.20.0.2,fd20::2", V4IPAddress: "10.20.0.2", V6IPAddress: "fd20::2", MacAddress: mac,
	}, got.Spec)
	require.Equal(t, map[string]string{"ovn.kubernetes.io/subnet": "web", "ovn.kubernetes.io/node-name": "n1", "ovn.kubernetes.io/ip_reserved": "false", "web": ""}, got.Labels)
	require.Empty(t, got.Finalizers)
	w.set(ipKey("a.ns"), nil)
	w.object(t, "a.ns", whole)

	w.set(podKey("a"), nil)
	w.noObject(t, "a.ns")
}

// TestReservationOfRunningPod: what becomes of a reservation for another interface of a running
// pod, whose Subnet goes or to which the pod's wish does not fit, is nothing to what it has.
func TestReservationOfRunningPod(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/30", Default: true})
	w.subnet("lan", v1.SubnetSpec{CIDRBlock: "10.30.0.0/24", Provider: "nad.ns.ovn"})
	w.set(object.Key{Kind: object.KindNAD, Namespace: "ns", Name: "nad"}, resolve.NAD{
		Namespace: "ns", Name: "nad", Config: `{"cniVersion":"1.0.0","type":"kube-ovn","provider":"nad.ns.ovn"}`,
	})
	w.pod("a", "1")
	w.set(ipKey("a.ns.nad.ns.ovn"), &v1.IP{
		ObjectMeta: metav1.ObjectMeta{Name: "a.ns.nad.ns.ovn"},
		Spec:       v1.IPSpec{Subnet: "lan", PodName: "a", Namespace: "ns", V4IPAddress: "10.30.0.11"},
	})
	l := lead(t, "one", w, db)
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	w.object(t, "a.ns.nad.ns.ovn", func(o *v1.IP) bool { return o.Labels["ovn.kubernetes.io/ip_reserved"] == "true" })
	w.pod("b", "2") // the Subnet is full
	require.Eventually(t, func() bool { return len(w.warned(podKey("b"))) > 0 }, patience, tick)
	l.rests(t)
	row := db.Get("Logical_Switch_Port", "a.ns", "_uuid")

	w.change("a", networks, "nad", "nad.ns.ovn.kubernetes.io/ip_address", "10.30.0.12")
	require.Eventually(t, func() bool {
		return w.notes("a")["nad.ns.ovn.kubernetes.io/ip_address"] == "10.30.0.12" && w.notes("a")["nad.ns.ovn.kubernetes.io/allocated"] == "true"
	}, patience, tick)
	require.Equal(t, row, db.Get("Logical_Switch_Port", "a.ns", "_uuid"))
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	require.Empty(t, w.notes("b")["ovn.kubernetes.io/ip_address"])
}

// TestReservedForNoPort: an object that reserves for a pod and is not called as a port of it
// says so, and reserves nothing; it does under the right name, of any of the pod's networks.
func TestReservedForNoPort(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	reserve := func(name, ip, pod, namespace string) {
		w.set(ipKey(name), &v1.IP{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-" + types.UID(name), Generation: 1}, Spec: v1.IPSpec{Subnet: "web", IPAddress: ip, PodName: pod, Namespace: namespace}})
	}
	reserve("mine", "10.20.0.9", "a", "ns")
	reserve("bare", "10.20.0.10", "a", "")
	reserve("a.ns.nad.ns.ovn", "10.20.0.11", "a", "ns")
	reserve("node-x", "10.20.0.12", "node-x", "")
	reserve("any", "10.20.0.13", "", "")
	lead(t, "one", w, db)
	says := func(name, want string) {
		t.Helper()
		w.object(t, name, func(o *v1.IP) bool {
			return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionReady && c.Status+" "+c.Message == want })
		})
	}
	says("mine", "False metadata.name: pod ns/a never has it: call the object a.ns, or a.ns.PROVIDER for an interface of another network")
	says("bare", "False spec.podName: a is a pod of some namespace, and spec.namespace is missing")
	for _, name := range []string{"a.ns.nad.ns.ovn", "node-x", "any"} {
		says(name, "True ")
	}
	w.pod("b", "1", "ovn.kubernetes.io/ip_address", "10.20.0.9")
	require.Equal(t, "10.20.0.9", w.ip(t, "b"), "it is not reserved")
	reserve("any", "10.20.0.13", "a", "ns") // it was good
	says("any", "False metadata.name: pod ns/a never has it: call the object a.ns, or a.ns.PROVIDER for an interface of another network")
	w.pod("c", "2", "ovn.kubernetes.io/ip_address", "10.20.0.13")
	require.Equal(t, "10.20.0.13", w.ip(t, "c"))
}

// TestStatefulSetKeepsAddresses: a replica's address and MAC are nobody else's while
// the StatefulSet wants the replica, whoever leads, and whatever becomes of the
// database; they are free when it does not.
func TestStatefulSetKeepsAddresses(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("tiny", v1.SubnetSpec{CIDRBlock: "10.21.0.0/30", Default: true})
	w.sized("s1", 1)
	w.replica("db-0", "1", "s1")
	first := lead(t, "one", w, db)
	require.Equal(t, "10.21.0.2", w.ip(t, "db-0"))
	mac := w.notes("db-0")["ovn.kubernetes.io/mac_address"]
	w.object(t, "db-0.ns", func(o *v1.IP) bool { return o.Spec.PodType == "StatefulSet" })

	// It goes, and somebody else asks.
	w.set(podKey("db-0"), nil)
	w.pod("other", "2")
	waits := func(count int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(w.warned(podKey("other"))) == count }, patience, tick)
		require.Contains(t, w.warned(podKey("other"))[count-1], "is full")
	}
	waits(1)
	first.stop()
	first = lead(t, "two", w, db)
	waits(2)
	w.counts(t, "tiny", "1", "10.21.0.2", "0", "")
	w.replica("db-0", "3", "s1")
	require.Equal(t, "10.21.0.2", w.ip(t, "db-0"))
	require.Equal(t, mac, w.notes("db-0")["ovn.kubernetes.io/mac_address"])
	require.Equal(t, `["`+mac+` 10.21.0.2"]`, db.Get("Logical_Switch_Port", "db-0.ns", "addresses"))

	// The database is lost while there is no pod.
	w.set(podKey("db-0"), nil)
	require.Eventually(t, func() bool { return len(w.notes("db-0")) == 0 }, patience, tick)
	first.stop()
	anew := database(t)
	lead(t, "three", w, anew)
	waits(3)
	require.Eventually(t, func() bool {
		return anew.Get("Logical_Switch_Port", "db-0.ns", "addresses") == `["`+mac+` 10.21.0.2"]`
	}, patience, tick)

	// Scaled down, it is free; of another StatefulSet of the name too.
	w.sized("s1", 0)
	require.Equal(t, "10.21.0.2", w.ip(t, "other"))
	w.noObject(t, "db-0.ns")
	w.set(podKey("other"), nil)
	w.sized("s1", 1)
	w.replica("db-0", "4", "s1")
	w.ip(t, "db-0")
	w.set(podKey("db-0"), nil)
	w.sized("s2", 1)
	w.pod("other", "5")
	require.Equal(t, "10.21.0.2", w.ip(t, "other"))

	// It is free of a StatefulSet that is being deleted, although that has replicas.
	w.set(podKey("other"), nil)
	w.replica("db-0", "6", "s2")
	w.ip(t, "db-0")
	w.set(podKey("db-0"), nil)
	w.pod("other", "7")
	require.Eventually(t, func() bool { return strings.Contains(strings.Join(w.warned(podKey("other")), " "), "is full") }, patience, tick)
	w.set(object.Key{Kind: object.KindSet, Namespace: "ns", Name: "db"}, object.StatefulSet{Namespace: "ns", Name: "db", UID: "s2", Replicas: 1, Ending: true})
	require.Equal(t, "10.21.0.2", w.ip(t, "other"))
}

// TestStatefulSetHoldsSubnet: what a Subnet was stays, under the next leader too, while a
// StatefulSet keeps an address that it would no longer have, and is given up with it.
func TestStatefulSetHoldsSubnet(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.85.0.0/24", Default: true})
	w.sized("s1", 1)
	w.replica("db-0", "1", "s1")
	first := lead(t, "one", w, db)
	require.Equal(t, "10.85.0.2", w.ip(t, "db-0"))
	w.set(podKey("db-0"), nil)
	require.Eventually(t, func() bool {
		return strings.Contains(db.Get("Logical_Switch_Port", "db-0.ns", "addresses"), "10.85.0.2")
	}, patience, tick)
	first.rests(t)
	first.stop()
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.86.0.0/24", Default: true})
	lead(t, "two", w, db)
	w.replica("db-0", "2", "s1")
	require.Equal(t, "10.85.0.2", w.ip(t, "db-0"))
	w.set(podKey("db-0"), nil)
	w.sized("s1", 0)
	require.Eventually(t, func() bool { return ports(db)["db-0.ns"] == "" }, patience, tick)
	require.Eventually(t, func() bool { // who asks in between has an address of the former network, as the Subnet has
		return strings.Contains(db.Get("Logical_Router_Port", "ovn-cluster-web", "networks"), "10.86.0.1/24")
	}, patience, tick)
	w.pod("other", "3")
	require.Equal(t, "10.86.0.2", w.ip(t, "other"))
	w.counts(t, "web", "1", "10.86.0.2", "252", "10.86.0.3-10.86.0.254")
}

// TestStatefulSetAsksForAnother: what a replica asks for anew counts more than what
// it had, which is free then.
func TestStatefulSetAsksForAnother(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Default: true})
	w.sized("s1", 1)
	w.replica("db-0", "1", "s1")
	lead(t, "one", w, db)
	require.Equal(t, "10.22.0.2", w.ip(t, "db-0"))
	w.set(podKey("db-0"), nil)
	w.counts(t, "web", "1", "10.22.0.2", "252", "10.22.0.3-10.22.0.254")
	w.set(podKey("db-0"), object.Pod{
		Pod: core.Pod{Namespace: "ns", Name: "db-0", UID: "2"}, Annotations: map[string]string{"ovn.kubernetes.io/ip_address": "10.22.0.77"},
		Owner: object.Owner{Kind: "StatefulSet", Name: "db", UID: "s1"},
	})
	require.Equal(t, "10.22.0.77", w.ip(t, "db-0"))
	w.counts(t, "web", "1", "10.22.0.77", "252", "10.22.0.2-10.22.0.76,10.22.0.78-10.22.0.254")
}

// TestReservedByObject: an IP object that a user makes keeps its address for the
// pod of its name, before and after there is one, until it is deleted.
func TestReservedByObject(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("tiny", v1.SubnetSpec{CIDRBlock: "10.23.0.0/30", Default: true})
	w.set(ipKey("a.ns"), &v1.IP{ObjectMeta: metav1.ObjectMeta{Name: "a.ns", UID: "u1"}, Spec: v1.IPSpec{
		PodName: "a", Namespace: "ns", Subnet: "tiny", V4IPAddress: "10.23.0.2", MacAddress: "0a:00:00:00:23:02",
		AttachSubnets: []string{"web"}, AttachIPs: []string{"10.24.0.2"}, AttachMacs: []string{"0a:00:00:00:24:02"},
	}})
	says := func(name, want string) {
		t.Helper()
		w.object(t, name, func(o *v1.IP) bool {
			var got []string
			for _, c := range o.Status.Conditions {
				got = append(got, c.Type+" "+c.Status+" "+c.Message)
			}
			return strings.HasPrefix(strings.Join(got, "; "), want)
		})
	}
	w.elsewhere("10.84.0.0/30")
	w.pod("full", "0", instead, "ns/uplink")
	first := lead(t, "one", w, db)
	w.given(t, "full")
	reserved := func(o *v1.IP) bool { return o.Labels["ovn.kubernetes.io/ip_reserved"] == "true" }
	w.object(t, "a.ns", reserved)
	w.pod("b", "1")
	require.Eventually(t, func() bool { return len(w.warned(podKey("b"))) == 1 }, patience, tick)
	w.pod("a", "2", networks, "uplink") // of which none is free
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(w.warned(podKey("a")), " "), "Subnet uplink is full")
	}, patience, tick)
	w.change("b", "test/look", "again")
	first.rests(t)
	require.Empty(t, w.notes("b")["ovn.kubernetes.io/ip_address"], "it is kept although the pod has not all that it asks for")
	w.change("a", networks, "")
	require.Equal(t, "10.23.0.2", w.ip(t, "a"))
	require.Equal(t, "0a:00:00:00:23:02", w.notes("a")["ovn.kubernetes.io/mac_address"])
	says("a.ns", "Ready True ; NotImplemented True spec.attachSubnets, spec.attachIps, spec.attachMacs")
	w.set(podKey("a"), nil)
	first.stop()
	told := w.warned(podKey("b"))
	lead(t, "two", w, db)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Greater(c, len(w.warned(podKey("b"))), len(told), "%q", told)
	}, patience, tick)
	w.counts(t, "tiny", "1", "10.23.0.2", "0", "")
	w.object(t, "a.ns", reserved)
	w.set(ipKey("a.ns"), nil)
	require.Equal(t, "10.23.0.2", w.ip(t, "b"))

	// One that cannot be kept says why, and has it when it is free.
	w.set(ipKey("c.ns"), &v1.IP{ObjectMeta: metav1.ObjectMeta{Name: "c.ns", UID: "u2"}, Spec: v1.IPSpec{
		PodName: "c", Namespace: "ns", Subnet: "tiny", V4IPAddress: "10.23.0.2",
	}})
	require.Eventually(t, func() bool { return len(w.warned(ipKey("c.ns"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(ipKey("c.ns"))[0], "ReserveAddressFailed: 10.23.0.2 is held by pod ns/b")
	says("c.ns", "Ready False 10.23.0.2 is held by pod ns/b")
	w.set(podKey("b"), nil)
	w.object(t, "c.ns", reserved)
	says("c.ns", "Ready True ; NotImplemented False ")
}

// TestPodsBeforeRecords: IP objects that an API server takes no more keep no pod
// from its address.
func TestPodsBeforeRecords(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.hold = make(chan struct{})
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	lead(t, "one", w, db)
	for wave := range 2 { // each of more pods than there are workers
		for i := range 20 {
			name := fmt.Sprint("p", wave, "-", i)
			w.set(podKey(name), scheduled(name))
		}
		for i := range 20 {
			w.ip(t, fmt.Sprint("p", wave, "-", i))
		}
	}
	require.Empty(t, lister[*v1.IP]{w, object.KindIP}.List())
	close(w.hold)
	require.Eventually(t, func() bool { return len(lister[*v1.IP]{w, object.KindIP}.List()) == 40 }, patience, tick)
}

// scheduled is a pod that has a node.
func scheduled(name string) object.Pod {
	p := declared(name, "uid-"+name)
	p.Node = "n"
	return p
}
