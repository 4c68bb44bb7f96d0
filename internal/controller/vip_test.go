package controller_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

const aaps = "ovn.kubernetes.io/aaps"

func (w *world) vip(name, uid string, spec v1.VipSpec) {
	w.set(object.Key{Kind: object.KindVip, Name: name}, &v1.Vip{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Generation: 1}, Spec: spec})
}

// vipSays waits until a Vip's status says this: its addresses, and conditions.
func (w *world) vipSays(t *testing.T, name, want string) {
	t.Helper()
	got := ""
	require.Eventually(t, func() bool {
		o, ok := lister[*v1.Vip]{w, object.KindVip}.Get("", name)
		if !ok {
			return false
		}
		got = o.Status.V4ip + " " + o.Status.V6ip
		for _, c := range o.Status.Conditions {
			got += " " + c.Status + c.Message
		}
		return got == want
	}, patience, tick, "Vip %s: wanted %q, have %s", name, want, lately{&got})
}

// lately prints what a text is when it is printed.
type lately struct{ text *string }

func (l lately) String() string { return *l.text }

// TestVips: a Vip has an address that nobody else gets, whoever leads and whatever
// becomes of the database; pods that may share it send from it; it goes when they have
// given it up.
func TestVips(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/29,fd20::/112", Default: true})
	w.vip("v", "1", v1.VipSpec{Subnet: "web", Namespace: "ns", V4ip: "10.20.0.3", MacAddress: "0a:00:00:00:00:07", Selector: []string{"app: web"}})
	first := lead(t, "one", w, db)
	w.vipSays(t, "v", "10.20.0.3 fd20::2 True False")
	w.labelled("a", "a", "web")
	w.change("a", aaps, "v")
	w.ip(t, "a")
	security := func(pod, more string) {
		t.Helper()
		want := `["` + w.notes(pod)["ovn.kubernetes.io/mac_address"] + " " + w.ip(t, pod) + more + `"]`
		require.Eventually(t, func() bool {
			got := db.Get("Logical_Switch_Port", pod+".ns", "port_security")
			return got == spaced(want)
		}, patience, tick, "%s of %s", want, pod)
	}
	security("a", " 10.20.0.3 fd20::2")

	// Who may not share it is told, and sends from its own address alone.
	w.labelled("b", "b", "other")
	w.change("b", aaps, "v")
	w.ip(t, "b")
	security("b", "")
	require.Eventually(t, func() bool { return len(w.warned(podKey("b"))) == 1 }, patience, tick)
	require.Equal(t, "VipNotShared: interface b.ns may not send from the addresses of Vip v: the pod's labels are not those of its spec.selector", w.warned(podKey("b"))[0])

	// Another leader, who finds the row, and one who finds the object alone.
	first.stop()
	db.Nbctl("lsp-del", logical.VipPort("v"))
	second := lead(t, "two", w, db)
	require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", logical.VipPort("v"), "type") == "virtual" }, patience, tick)
	second.stop()
	w.vip("late", "2", v1.VipSpec{Subnet: "web", V4ip: "10.20.0.3", Type: "switch_lb_vip"})
	lead(t, "three", w, db)
	w.vipSays(t, "late", `  Falseaddress in Subnet web: 10.20.0.3 is held by pod / (vip/v) Truespec.type: switch_lb_vip (the address is kept, and that is all)`)
	w.counts(t, "web", "3", "10.20.0.2-10.20.0.4", "2", "10.20.0.5-10.20.0.6")

	// It goes: its pods give it up, and then who waits for it has it.
	w.set(object.Key{Kind: object.KindVip, Name: "v"}, nil)
	w.vipSays(t, "late", `10.20.0.3 fd20::5 True Truespec.type: switch_lb_vip (the address is kept, and that is all)`)
	security("a", "")
	w.vip("late", "2", v1.VipSpec{Subnet: "web", V4ip: "10.20.0.6"})
	w.vipSays(t, "late", "10.20.0.6 fd20::6 True False")
	w.set(object.Key{Kind: object.KindVip, Name: "late"}, nil)
	require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", logical.VipPort("late"), "type") == "" }, patience, tick)
	w.vip("bad", "3", v1.VipSpec{Subnet: "none"})
	w.vipSays(t, "bad", "  Falsespec.subnet: Subnet none: it is not in force False")
}

// TestPodHasVip: an interface's own address is a Vip's that its pod names; another pod
// gets it when the first has gone, and then the Vip has it again. It is free at no moment,
// whoever leads.
func TestPodHasVip(t *testing.T) {
	t.Parallel()
	const own = "ovn.kubernetes.io/vip"
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/28,fd20::/112", Default: true})
	w.subnet("more", v1.SubnetSpec{CIDRBlock: "10.30.0.0/28"})
	one := lead(t, "one", w, db)
	said := func(pod, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return slices.Contains(w.warned(podKey(pod)), want) }, patience, tick, "%s of %s, not %s", want, pod, saidOf{w, pod})
	}

	// It is not there yet, or another's.
	w.pod("a", "a", own, "v")
	said("a", `ValidatePodNetworkFailed: annotation ovn.kubernetes.io/vip: "v" is no Vip whose address the interface can have: it does not exist`)
	w.vip("v", "1", v1.VipSpec{Subnet: "more", Namespace: "ns", V4ip: "10.30.0.9", MacAddress: "0a:00:00:00:00:07", Selector: []string{"app: web"}})
	said("a", `ValidatePodNetworkFailed: annotation ovn.kubernetes.io/vip: "v" is no Vip whose address the interface can have: the pod's labels are not those of its spec.selector`)
	w.set(podKey("a"), nil)
	w.labelled("a", "a", "web")
	require.Equal(t, "10.20.0.2,fd20::2", w.ip(t, "a"))
	told := len(w.warned(podKey("a")))
	w.change("a", own, "v") // what it has it keeps
	require.Never(t, func() bool { return len(w.warned(podKey("a"))) > told || w.ip(t, "a") != "10.20.0.2,fd20::2" }, 20*tick, tick, "%s", saidOf{w, "a"})
	w.change("a", aaps, "v") // and that it may not share is told, not tried for ever
	idle := 0
	require.Eventually(t, func() bool {
		if n, leads := one.Pending(); n > 0 || !leads {
			idle = 0
		}
		idle++
		return idle > 50
	}, patience, tick)
	w.set(podKey("a"), nil)

	w.set(podKey("s"), object.Pod{Pod: core.Pod{Namespace: "ns", Name: "s", UID: "s"}, Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{aaps: "v", "ovn.kubernetes.io/ip_address": "10.30.0.2", "ovn.kubernetes.io/mac_address": "0a:00:00:00:00:02", "ovn.kubernetes.io/logical_switch": "more"}})
	require.Equal(t, "10.30.0.2", w.ip(t, "s"))
	first := &object.Pod{Pod: core.Pod{Namespace: "ns", Name: "a", UID: "b"}, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{own: "v"}}
	w.set(podKey("a"), *first)
	require.Equal(t, "10.30.0.9", w.ip(t, "a"))
	require.Equal(t, "0a:00:00:00:00:07", w.notes("a")["ovn.kubernetes.io/mac_address"])
	require.Equal(t, "more", w.notes("a")["ovn.kubernetes.io/logical_switch"])
	// Who shared it may not send from it any more, and may again when it is the Vip's.
	shared := func(want string) {
		t.Helper()
		got := ""
		require.Eventually(t, func() bool {
			got = db.Get("Logical_Switch_Port", "s.ns", "port_security")
			return got == want
		}, patience, 20*tick, "%s, not %s; told: %s", want, lately{&got}, saidOf{w, "s"})
	}
	next := *first
	next.Pod = core.Pod{Namespace: "ns", Name: "c", UID: "c"}
	shared(`["0a:00:00:00:00:02 10.30.0.2"]`)
	w.set(podKey("c"), next)
	said("c", "AcquireAddressFailed: address in Subnet more: 10.30.0.9 is held by pod ns/a (a.ns)")
	w.vipSays(t, "v", "10.30.0.9  True False")
	w.counts(t, "more", "2", "10.30.0.2,10.30.0.9", "11", "10.30.0.3-10.30.0.8,10.30.0.10-10.30.0.14")

	// What a pod says later is no other's matter: the address is the Vip's, and comes back.
	notes := maps.Clone(w.notes("a"))
	delete(notes, own)
	first.Annotations = notes
	w.set(podKey("a"), *first)
	one.stop()
	two := lead(t, "two", w, db)
	w.vip("late", "2", v1.VipSpec{Subnet: "more", V4ip: "10.30.0.9"})
	w.vipSays(t, "late", "  Falseaddress in Subnet more: 10.30.0.9 is held by pod ns/a (a.ns) False")
	w.vipSays(t, "v", "10.30.0.9  True False")
	w.set(podKey("a"), nil)
	require.Equal(t, "10.30.0.9", w.ip(t, "c"))
	two.stop()
	w.set(podKey("c"), nil)
	lead(t, "three", w, db)
	w.vip("late", "2", v1.VipSpec{Subnet: "more", V4ip: "10.30.0.9"})
	w.vipSays(t, "late", "  Falseaddress in Subnet more: 10.30.0.9 is held by pod / (vip/v) False")
	w.counts(t, "more", "2", "10.30.0.2,10.30.0.9", "11", "10.30.0.3-10.30.0.8,10.30.0.10-10.30.0.14")
	shared(`["0a:00:00:00:00:02 10.30.0.2 10.30.0.9"]`)
}

// TestPodKeepsVip: a Vip whose address a pod has is told that on, and has it afterwards, where
// another leader finds a database without rows, whose switches are yet to be made, and where
// the Subnet is not in force for a while.
func TestPodKeepsVip(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	good := v1.SubnetSpec{CIDRBlock: "10.20.0.0/28"}
	w.subnet(slow, good)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.21.0.0/28", Default: true})
	one := lead(t, "one", w, db)
	w.vip("v", "1", v1.VipSpec{Subnet: slow, Namespace: "ns"})
	w.vipSays(t, "v", "10.20.0.2  True False")
	w.pod("a", "a", "ovn.kubernetes.io/vip", "v")
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	one.stop()

	db = database(t)
	two := lead(t, "two", w, db)
	require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", logical.VipPort("v"), "type") == "virtual" }, patience, tick)
	two.rests(t)
	w.vipSays(t, "v", "10.20.0.2  True False")
	two.stop()

	w.subnet(slow, v1.SubnetSpec{CIDRBlock: good.CIDRBlock, Gateway: "10.99.0.1"})
	three := lead(t, "three", w, db)
	w.vipSays(t, "v", `10.20.0.2  Falsespec.subnet: Subnet slow: spec.gateway: 10.99.0.1 lies outside of cidrBlock "10.20.0.0/28" False`)
	w.subnet(slow, good)
	w.vipSays(t, "v", "10.20.0.2  True False")
	three.rests(t)
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	w.set(podKey("a"), nil)
	w.vip("late", "2", v1.VipSpec{Subnet: slow, V4ip: "10.20.0.2"})
	w.vipSays(t, "late", "  Falseaddress in Subnet slow: 10.20.0.2 is held by pod / (vip/v) False")
}

// spaced writes annotation lists as OVN has them.
func spaced(s string) string {
	out := []rune(s)
	for i, c := range out {
		if c == ',' {
			out[i] = ' '
		}
	}
	return string(out)
}

// saidOf prints what a pod was told when it is printed.
type saidOf struct {
	w   *world
	pod string
}

func (s saidOf) String() string { return strings.Join(s.w.warned(podKey(s.pod)), "; ") }
