package controller_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	names "github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Declared implements resolve.Declarer.
func (w *world) Declared(context.Context) (*names.Index, error) {
	return names.NewIndex(lister[*v1alpha1.PodNetwork]{w, object.KindNetwork}.List(), nil, "", nil), nil
}

// declare has a PodNetwork for a pod of namespace ns; without interfaces it goes.
func (w *world) declare(name string, interfaces ...v1alpha1.PodInterface) {
	k := object.KindNetwork.Named("ns", name)
	if len(interfaces) == 0 {
		w.set(k, nil)
		return
	}
	w.set(k, &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1alpha1.PodNetworkSpec{Interfaces: interfaces}})
}

func eth0(ip string) v1alpha1.PodInterface {
	return v1alpha1.PodInterface{Name: "eth0", IPs: []string{ip}}
}

// warnedOf waits for an event of a pod that says all of some texts.
func (w *world) warnedOf(t *testing.T, k object.Key, texts ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		all := strings.Join(w.warned(k), "\n")
		for _, text := range texts {
			if !strings.Contains(all, text) {
				return false
			}
		}
		return true
	}, patience, tick, "%v", w.warned(k))
}

// TestDeclaredAddresses: a pod gets the addresses that are declared of it by its name, and
// nobody else does; what is declared later is for the pod that comes next.
func TestDeclaredAddresses(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/29", Default: true}) // six addresses, one of them the gateway's
	w.declare("a", eth0("10.20.0.2"))
	w.declare("b", eth0("10.20.0.3/29"), v1alpha1.PodInterface{Name: "net1", Network: "ns/absent"})
	l := lead(t, "one", w, db)
	for _, name := range []string{"x", "y", "z"} { // the other three
		w.pod(name, "1")
		require.NotContains(t, []string{"10.20.0.2", "10.20.0.3"}, w.ip(t, name))
	}
	w.pod("thief", "1", "ovn.kubernetes.io/ip_address", "10.20.0.2")
	w.warnedOf(t, podKey("thief"), "AddressHeld", "PodNetwork ns/a")
	w.set(object.Key{Kind: object.KindVip, Name: "v"}, &v1.Vip{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.VipSpec{Subnet: "web", V4ip: "10.20.0.2"}})
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Vip]{w, object.KindVip}.Get("", "v")
		return len(o.Status.Conditions) > 0 && strings.Contains(o.Status.Conditions[0].Message+o.Status.Conditions[len(o.Status.Conditions)-1].Message, "AddressHeld")
	}, patience, tick)
	w.pod("a", "1")
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	w.pod("b", "1")
	w.warnedOf(t, podKey("b"), "ns/absent")
	w.declare("b", eth0("10.20.0.3"))
	require.Equal(t, "10.20.0.3", w.ip(t, "b"), "once what is declared is right")

	w.declare("a", eth0("10.20.0.9"))
	w.declare("y", eth0("10.20.0.2")) // of pods that have others
	require.Eventually(t, func() bool { n, leads := l.Pending(); return leads && n == 0 }, patience, tick)
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	require.Len(t, w.warned(podKey("a")), 0, "a pod that has an address is served, whatever is declared")
	w.set(podKey("a"), nil)
	require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", "a.ns", "name") == "" }, patience, tick)
	w.pod("a", "2")
	w.warnedOf(t, podKey("a"), "AddressOutsideSubnet", "10.20.0.9")
	w.declare("a")
	w.set(podKey("y"), nil)
	w.pod("y", "2")
	require.Equal(t, "10.20.0.2", w.ip(t, "y"))
	require.NotEmpty(t, w.ip(t, "a"))
}

// TestDeclaredNetwork: a network that only a declaration names is the pod's until it goes,
// also when the declaration is gone and another controller leads; and a pod that runs gets
// none by a declaration that comes later.
func TestDeclaredNetwork(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("db", v1.SubnetSpec{CIDRBlock: "10.9.0.0/29", Provider: "db.ns.ovn"})
	for _, name := range []string{"db", "too"} {
		w.set(object.Key{Kind: object.KindNAD, Namespace: "ns", Name: name}, resolve.NAD{
			Namespace: "ns", Name: name, Config: `{"cniVersion":"1.0.0","type":"fairlead","provider":"db.ns.ovn"}`,
		})
	}
	net1 := v1alpha1.PodInterface{Name: "net1", Network: "ns/db", IPs: []string{"10.9.0.5"}}
	w.declare("a", net1)
	first := lead(t, "one", w, db)
	w.pod("runs", "1")
	w.ip(t, "runs")
	runs := declared("runs", "1")
	runs.Annotations, runs.IPs = w.notes("runs"), logical.Addrs(w.notes("runs")["ovn.kubernetes.io/ip_address"], ",")
	w.set(podKey("runs"), runs)
	w.declare("runs", v1alpha1.PodInterface{Name: "net1", Network: "ns/db", IPs: []string{"10.9.0.6"}})

	w.pod("a", "1")
	w.ip(t, "a")
	at := "db.ns.ovn.kubernetes.io/"
	has := func(name string) bool {
		return w.notes(name)[at+"ip_address"] == "10.9.0.5" && w.notes(name)[at+"declared"] == "ns/db@net1" && db.Get("Logical_Switch_Port", name+".ns.db.ns.ovn", "name") != ""
	}
	require.True(t, has("a"), "%v", w.notes("a"))
	w.declare("a")
	require.Eventually(t, func() bool { n, leads := first.Pending(); return leads && n == 0 }, patience, tick)
	require.True(t, has("a"))
	first.stop()
	second := lead(t, "two", w, db)
	w.pod("b", "1", "k8s.v1.cni.cncf.io/networks", "db")
	require.NotEqual(t, "10.9.0.5", func() string { w.ip(t, "b"); return w.notes("b")[at+"ip_address"] }())
	require.Eventually(t, func() bool { n, leads := second.Pending(); return leads && n == 0 }, patience, tick)
	require.True(t, has("a"))
	require.Empty(t, w.notes("runs")[at+"ip_address"])
	w.set(podKey("a"), nil)
	require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", "a.ns.db.ns.ovn", "name") == "" }, patience, tick)

	// The same beside networks that the pod asks for itself, in either form.
	for i, own := range []string{"db", `[{"name":"db"}]`} {
		name := []string{"c", "d"}[i]
		w.declare(name, v1alpha1.PodInterface{Name: "more", Network: "ns/too"})
		w.pod(name, "1", "k8s.v1.cni.cncf.io/networks", own)
		w.ip(t, name)
		w.declare(name)
		require.Eventually(t, func() bool { n, leads := second.Pending(); return leads && n == 0 }, patience, tick)
		require.NotEmpty(t, db.Get("Logical_Switch_Port", name+".ns.db.ns.ovn.more", "name"), "%v", w.notes(name))
		w.set(podKey(name), nil)
		require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", name+".ns.db.ns.ovn.more", "name") == "" }, patience, tick)
	}
}
