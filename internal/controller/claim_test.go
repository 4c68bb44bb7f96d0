package controller_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

const (
	networks = "k8s.v1.cni.cncf.io/networks"
	instead  = "v1.multus-cni.io/default-network"
	uplink   = "uplink.ns.kubernetes.io/"
)

// elsewhere declares a network of macvlan interfaces whose addresses are a Subnet's.
func (w *world) elsewhere(cidr string) {
	w.set(object.Key{Kind: object.KindNAD, Namespace: "ns", Name: "uplink"}, resolve.NAD{
		Namespace: "ns", Name: "uplink", Config: `{"cniVersion":"1.0.0","type":"macvlan","master":"eth0","ipam":{"type":"fairlead","provider":"uplink.ns"}}`,
	})
	w.subnet("uplink", v1.SubnetSpec{CIDRBlock: cidr, Provider: "uplink.ns"})
}

// given waits until a pod was told its address of the Subnet uplink.
func (w *world) given(t testing.TB, name string) string {
	t.Helper()
	require.Eventually(t, func() bool { return w.notes(name)[uplink+"allocated"] == "true" }, patience, tick, "pod %s has no address", name)
	return w.notes(name)[uplink+"ip_address"]
}

// claims are the AddressLeases: whose each address is.
func (w *world) claims() map[string]string {
	out := map[string]string{}
	for _, c := range (lister[*fairlead.AddressLease]{w, object.KindClaim}).List() {
		out[c.Name] = c.Spec.Owner.Name + " " + c.Spec.Owner.UID
	}
	return out
}

func (w *world) claimed(t testing.TB, want map[string]string) {
	t.Helper()
	require.Eventually(t, func() bool { return maps.Equal(w.claims(), want) }, patience, tick, "wanted %v, have %v", want, w.claims())
}

// TestClaims: a Subnet that OVN does not carry gives addresses to interfaces of other
// plugins: each has an object before the pod is told, no row, and is freed like any
// other; the next leader knows it.
func TestClaims(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.elsewhere("10.77.0.0/29,fd77::/125")
	w.pod("a", "1", networks, "uplink")
	first := lead(t, "one", w, db)
	require.Equal(t, "10.77.0.2,fd77::2", w.given(t, "a"))
	require.Equal(t, "10.20.0.2", w.ip(t, "a"))
	notes := w.notes("a")
	require.Equal(t, "10.77.0.0/29,fd77::/125 10.77.0.1,fd77::1 uplink", notes[uplink+"cidr"]+" "+notes[uplink+"gateway"]+" "+notes[uplink+"logical_switch"])
	require.Empty(t, notes[uplink+"mac_address"]+notes[uplink+"routed"], "who makes the interface chooses its MAC")
	w.claimed(t, map[string]string{"uplink.10.77.0.2": "a 1", "uplink.fd77-0000-0000-0000-0000-0000-0000-0002": "a 1"})
	require.Equal(t, "", db.Get("Logical_Switch", "uplink", "name"))
	require.Equal(t, []string{"a.ns"}, slices.Collect(maps.Keys(ports(db))))
	w.counts(t, "uplink", "1", "10.77.0.2", "4", "10.77.0.3-10.77.0.6")
	p, _ := lister[object.Pod]{w, object.KindPod}.Get("ns", "a")
	p.Node = "n1"
	w.set(podKey("a"), p)
	w.object(t, "a.ns.uplink.ns", func(o *v1.IP) bool { return o.Spec.IPAddress == "10.77.0.2,fd77::2" && o.Spec.NodeName == "n1" })

	// Fixed, held by another, attached twice, and of a Subnet that cannot be.
	w.pod("b", "2", networks, "uplink", uplink+"ip_address", "10.77.0.2,fd77::2")
	require.Eventually(t, func() bool { return len(w.warned(podKey("b"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("b"))[0], "AcquireAddressFailed: address in Subnet uplink: 10.77.0.2 is held by pod ns/a")
	w.pod("twice", "3", networks, "uplink@x1,uplink@x2")
	require.Eventually(t, func() bool { return w.notes("twice")["uplink.ns.x2.kubernetes.io/ip_address"] == "10.77.0.4,fd77::4" }, patience, tick)
	w.pod("wrong", "4", "ovn.kubernetes.io/logical_switch", "uplink")
	require.Eventually(t, func() bool { return len(w.warned(podKey("wrong"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("wrong"))[0], "ValidatePodNetworkFailed: network fairlead: Subnet uplink is of provider uplink.ns: OVN does not carry it")

	first.stop()
	before := w.notes("a")
	lead(t, "two", w, db)
	w.set(podKey("twice"), nil)
	w.counts(t, "uplink", "1", "10.77.0.2", "4", "10.77.0.3-10.77.0.6")
	require.Equal(t, before, w.notes("a"))
	w.set(podKey("a"), nil)
	require.Equal(t, "10.77.0.2,fd77::2", w.given(t, "b"))
	w.claimed(t, map[string]string{"uplink.10.77.0.2": "b 2", "uplink.fd77-0000-0000-0000-0000-0000-0000-0002": "b 2"})
	w.noObject(t, "a.ns.uplink.ns")
	w.set(podKey("b"), nil)
	w.claimed(t, nil)
}

// TestHeldOnANode: an address that a node holds for a pod which is no more is not given,
// by the next leader neither, until the node holds it no more or is gone.
func TestHeldOnANode(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.elsewhere("10.79.0.0/29")
	node := object.Key{Kind: object.KindNode, Name: "n1"}
	holding := func(ips ...string) object.Node {
		n := object.Node{Name: "n1", UID: "n1", Holds: map[string][]netip.Addr{}}
		for _, ip := range ips {
			n.Holds["uplink"] = append(n.Holds["uplink"], netip.MustParseAddr(ip))
		}
		return n
	}
	w.set(node, holding("10.79.0.2", "10.79.0.3"))
	first := lead(t, "one", w, db)
	w.pod("a", "1", instead, "ns/uplink")
	require.Equal(t, "10.79.0.4", w.given(t, "a"))
	w.pod("wants", "2", instead, "ns/uplink", uplink+"ip_address", "10.79.0.2")
	require.Eventually(t, func() bool { return len(w.warned(podKey("wants"))) == 1 }, patience, tick)
	first.stop()
	second := lead(t, "two", w, db)
	w.pod("b", "3", instead, "ns/uplink")
	require.Equal(t, "10.79.0.5", w.given(t, "b"))
	require.NotEqual(t, "true", w.notes("wants")[uplink+"allocated"])

	w.set(node, holding("10.79.0.3"))
	require.Equal(t, "10.79.0.2", w.given(t, "wants"))
	w.pod("last", "4", instead, "ns/uplink", uplink+"ip_address", "10.79.0.3")
	require.Eventually(t, func() bool { return len(w.warned(podKey("last"))) == 1 }, patience, tick)
	w.set(node, nil)
	require.Equal(t, "10.79.0.3", w.given(t, "last"))
	second.stop()
}

// TestHeldBeforeItsSubnet: what a node holds is kept from being given also where its Subnet
// comes after the node said so.
func TestHeldBeforeItsSubnet(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.set(object.Key{Kind: object.KindNode, Name: "n1"}, object.Node{Name: "n1", UID: "n1", Holds: map[string][]netip.Addr{
		"uplink": {netip.MustParseAddr("10.79.0.2"), netip.MustParseAddr("10.79.0.3")}, "never": {netip.MustParseAddr("10.80.0.2")},
	}})
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.pod("a", "1", networks, "uplink")
	lead(t, "one", w, db)
	require.Eventually(t, func() bool { return len(w.warned(podKey("a"))) > 0 }, patience, tick)
	w.elsewhere("10.79.0.0/29")
	require.Equal(t, "10.79.0.4", w.given(t, "a"))
	w.set(object.Key{Kind: object.KindNode, Name: "n1"}, object.Node{Name: "n1", UID: "n1"})
	w.pod("b", "2", networks, "uplink", uplink+"ip_address", "10.79.0.3")
	require.Equal(t, "10.79.0.3", w.given(t, "b"))
}

// TestClaimsOfTwoLeaders: two controllers of which no fence stops either, each with a
// database of its own, give no address twice, and tell no pod two.
func TestClaimsOfTwoLeaders(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.elsewhere("10.78.0.0/24")
	pod := func(i int) string { return fmt.Sprintf("p%d", i) }
	for i := range 30 {
		w.pod(pod(i), pod(i), instead, "ns/uplink")
	}
	lead(t, "one", w, database(t))
	lead(t, "two", w, database(t))
	told := map[string]string{}
	for i := range 90 {
		if i >= 30 {
			w.pod(pod(i), pod(i), instead, "ns/uplink")
		}
		if i%3 == 0 {
			told[pod(i)] = w.given(t, pod(i))
		}
	}
	for i := range 20 { // their addresses go to others
		w.set(podKey(pod(i)), nil)
		w.pod(pod(100+i), pod(100+i), instead, "ns/uplink")
	}
	want := map[string]string{}
	for i := 20; i < 120; i++ {
		if i >= 90 && i < 100 {
			continue
		}
		ip := w.given(t, pod(i))
		require.Empty(t, want["uplink."+ip], "%s and %s have %s", pod(i), want["uplink."+ip], ip)
		want["uplink."+ip] = pod(i) + " " + pod(i)
		if told[pod(i)] != "" {
			require.Equal(t, told[pod(i)], ip, "what a pod was told stays")
		}
	}
	w.claimed(t, want)
}

// TestClaimOfAnother: an address that somebody has claimed of whom this controller does
// not know is not given; of one who is gone it is free; what a pod was told and
// claimed by another controller is its address, and what no claim proves is not.
func TestClaimOfAnother(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.elsewhere("10.79.0.0/29")
	claim := func(ip, pod, uid string) {
		w.set(object.Key{Kind: object.KindClaim, Name: "uplink." + ip}, theirs(ip, pod, uid))
	}
	claim("10.79.0.2", "gone", "0")
	vip := theirs("10.79.0.3", "v", "")
	vip.Spec.Owner.Kind = "Vip"
	w.set(object.Key{Kind: object.KindClaim, Name: vip.Name}, vip)
	lead(t, "one", w, db)
	w.claimed(t, map[string]string{"uplink.10.79.0.3": "v "})
	w.counts(t, "uplink", "1", "10.79.0.3", "4", "10.79.0.2,10.79.0.4-10.79.0.6")
	w.pod("a", "1", instead, "ns/uplink")
	first := w.given(t, "a")
	require.NotEqual(t, "10.79.0.3", first)

	rewritten := func(ip string) object.Pod {
		p, _ := lister[object.Pod]{w, object.KindPod}.Get("ns", "a")
		p.Annotations = maps.Clone(p.Annotations)
		p.Annotations[uplink+"ip_address"] = ip
		return p
	}
	w.set(podKey("a"), rewritten("10.79.0.6")) // by a tenant
	require.Eventually(t, func() bool { return w.notes("a")[uplink+"ip_address"] == first }, patience, tick)
	claim("10.79.0.5", "a", "1")
	w.claimed(t, map[string]string{"uplink.10.79.0.3": "v ", "uplink." + first: "a 1"})
	// By another controller, at once: it tells a pod on the condition that nobody did
	// since it claimed.
	p := rewritten("10.79.0.5")
	w.mu.Lock()
	w.put(object.Key{Kind: object.KindClaim, Name: "uplink.10.79.0.5"}, theirs("10.79.0.5", "a", "1"))
	w.put(podKey("a"), p)
	w.unlock()
	w.claimed(t, map[string]string{"uplink.10.79.0.3": "v ", "uplink.10.79.0.5": "a 1"})
	require.Equal(t, "10.79.0.5", w.notes("a")[uplink+"ip_address"])
	w.counts(t, "uplink", "2", "10.79.0.3,10.79.0.5", "3", "10.79.0.2,10.79.0.4,10.79.0.6")
}

// TestHalfAClaim: a pod of which a controller that was killed had claimed the address of
// one family, and which was told nothing, has both of the next one.
func TestHalfAClaim(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.elsewhere("10.81.0.0/29,fd81::/125")
	for name, ip := range map[string]string{"both": "10.81.0.2", "one": "10.81.0.3", "fixed": "10.81.0.4"} {
		w.set(object.Key{Kind: object.KindClaim, Name: "uplink." + ip}, theirs(ip, name, name))
	}
	w.pod("both", "both", instead, "ns/uplink")
	w.pod("one", "one", instead, "ns/uplink", uplink+"ip_family", "ipv4")
	w.pod("fixed", "fixed", instead, "ns/uplink", uplink+"ip_address", "10.81.0.4,fd81::4")
	l := lead(t, "a", w, db)
	require.Contains(t, w.given(t, "both"), ",fd81::")
	require.NotContains(t, w.given(t, "one"), ",")
	require.Equal(t, "10.81.0.4,fd81::4", w.given(t, "fixed"))
	require.Eventually(t, func() bool { n, leads := l.Pending(); return leads && n == 0 }, patience, tick)
	require.Len(t, w.claims(), 5)
}

// TestHalfAClaimOfSlowNews: what it freed is claimed anew, though the watch shows it as it
// was, and is not kept from its own pod for what the watch shows.
func TestHalfAClaimOfSlowNews(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.lingering = map[string]*fairlead.AddressLease{}
	w.elsewhere("10.84.0.0/27,fd84::/123")
	const pods = 16
	for i := range pods {
		name, four := fmt.Sprint("fixed-", i), fmt.Sprint("10.84.0.", i+4)
		w.set(object.Key{Kind: object.KindClaim, Name: "uplink." + four}, theirs(four, name, name))
		w.pod(name, name, instead, "ns/uplink", uplink+"ip_address", fmt.Sprintf("%s,fd84::%x", four, i+4))
	}
	l := lead(t, "a", w, db)
	for i := range pods {
		require.Equal(t, fmt.Sprintf("10.84.0.%d,fd84::%x", i+4, i+4), w.given(t, fmt.Sprint("fixed-", i)))
	}
	l.rests(t)
	require.Len(t, w.claims(), 2*pods)
	for i := range pods {
		require.Empty(t, w.warned(podKey(fmt.Sprint("fixed-", i))))
	}
}

// TestOwnClaimOfSlowNews: a pod that gave back what it had claimed, before a watch told of the
// claim, is not kept from that by it.
func TestOwnClaimOfSlowNews(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	its := object.Key{Kind: object.KindClaim, Name: "uplink.10.87.0.4"}
	w.elsewhere("10.87.0.0/24")
	w.subnet("lost", v1.SubnetSpec{CIDRBlock: "10.41.0.0/24", Vpc: "none", Default: true})
	l := lead(t, "one", w, db)
	l.rests(t)
	w.lag(its, true)
	w.pod("p", "1", "ovn.kubernetes.io/logical_switch", "lost", networks, "uplink", uplink+"ip_address", "10.87.0.4")
	require.Eventually(t, func() bool { return len(w.warned(podKey("p"))) > 0 }, patience, tick)
	w.lag(its, false)
	l.rests(t)
	require.Empty(t, w.claims())
	w.set(object.Key{Kind: object.KindVpc, Name: "none"}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: "none"}})
	require.Equal(t, "10.87.0.4", w.given(t, "p"))
	require.Len(t, w.warned(podKey("p")), 1)
}

// TestHalfAClaimOfASlowSubnet: both families it has, too, where its Subnet is heard of last.
func TestHalfAClaimOfASlowSubnet(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	six := theirs("fd85::2", "both", "1")
	w.set(object.Key{Kind: object.KindClaim, Name: six.Name}, six)
	w.pod("both", "1", instead, "ns/uplink")
	l := lead(t, "a", w, db)
	require.Eventually(t, func() bool { n, leads := l.Pending(); return leads && n == 0 }, patience, tick)
	w.elsewhere("10.85.0.0/29,fd85::/125")
	require.Contains(t, w.given(t, "both"), "10.85.0.2,fd85::")
	require.Eventually(t, func() bool { return len(w.claims()) == 2 }, patience, tick)
}

// TestClaimsWithoutDatabase: addresses that have no rows are given and freed while
// the database is away.
func TestClaimsWithoutDatabase(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.elsewhere("10.80.0.0/30")
	w.pod("a", "1", instead, "ns/uplink")
	lead(t, "one", w, db)
	require.Equal(t, "10.80.0.2", w.given(t, "a"))
	db.KillNB()
	w.pod("b", "2", instead, "ns/uplink")
	require.Eventually(t, func() bool { return len(w.warned(podKey("b"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("b"))[0], "Subnet uplink is full (IPv4: 1 in use of 1)")
	w.set(podKey("a"), nil)
	require.Equal(t, "10.80.0.2", w.given(t, "b"))
	w.claimed(t, map[string]string{"uplink.10.80.0.2": "b 2"})
}

func theirs(ip, pod, uid string) *fairlead.AddressLease {
	c := &fairlead.AddressLease{Spec: fairlead.AddressLeaseSpec{
		Subnet: "uplink", Address: ip, Owner: fairlead.Owner{Kind: "Pod", Namespace: "ns", Name: pod, UID: uid},
	}}
	c.Name, c.UID, c.ResourceVersion = fairlead.LeaseName("uplink", netip.MustParseAddr(ip)), types.UID(rand.Text()), "theirs"
	c.Annotations = map[string]string{"fairlead.io/port": pod + ".ns.uplink.ns"}
	return c
}

// TestClaimsOfMACs: a MAC that pods ask for is claimed like their addresses: of pods
// that ask for one, whichever controller serves them, one has it.
func TestClaimsOfMACs(t *testing.T) {
	t.Parallel()
	const mac, of = "0a:00:00:00:00:07", "uplink.fe80-0000-0000-0000-0800-00ff-fe00-0007"
	w := newWorld()
	w.elsewhere("10.83.0.0/24")
	l := lead(t, "one", w, database(t))
	l.rests(t)

	// One that another controller serves, of whom this one has not heard.
	w.lag(podKey("q"), true)
	w.pod("q", "q", instead, "ns/uplink", uplink+"mac_address", mac, uplink+"ip_address", "10.83.0.9", uplink+"logical_switch", "uplink", uplink+"allocated", "true")
	its, macs := theirs("10.83.0.9", "q", "q"), theirs("10.83.0.9", "q", "q")
	its.Spec.MAC, macs.Spec.MAC = mac, mac
	macs.Name, macs.Spec.Address = of, "fe80::800:ff:fe00:7"
	w.set(object.Key{Kind: object.KindClaim, Name: its.Name}, its)
	w.set(object.Key{Kind: object.KindClaim, Name: macs.Name}, macs)
	l.rests(t)
	for _, name := range []string{"p0", "p1", "p2", "p3"} {
		w.pod(name, name, instead, "ns/uplink", uplink+"mac_address", mac)
		require.Eventually(t, func() bool { return len(w.warned(podKey(name))) > 0 || w.notes(name)[uplink+"allocated"] != "" }, patience, tick)
		require.Empty(t, w.notes(name)[uplink+"allocated"], name)
	}
	require.Contains(t, w.warned(podKey("p0"))[0], "AcquireAddressFailed: address in Subnet uplink: MAC "+mac+" is held by pod ns/q (AddressLease "+of+")")
	w.claimed(t, map[string]string{"uplink.10.83.0.9": "q q", of: "q q"})

	w.lag(podKey("q"), false)
	require.Equal(t, "10.83.0.9", w.given(t, "q"))
	w.set(podKey("q"), nil)
	has := func() string {
		var all []string
		for _, name := range []string{"p0", "p1", "p2", "p3"} {
			if notes := w.notes(name); notes[uplink+"allocated"] == "true" {
				require.Equal(t, mac, notes[uplink+"mac_address"])
				all = append(all, name)
			}
		}
		require.LessOrEqual(t, len(all), 1, "%v", all)
		return strings.Join(all, "")
	}
	lead(t, "two", w, database(t))
	for range 4 {
		require.Eventually(t, func() bool { return has() != "" }, patience, tick)
		name := has()
		w.claimed(t, map[string]string{"uplink." + w.notes(name)[uplink+"ip_address"]: name + " " + name, of: name + " " + name})
		w.set(podKey(name), nil)
	}
	w.claimed(t, nil)
}

// TestPortsOfOneName: names of pods and of networks have dots, so that the ports of two pods
// may have one name. The first has it; the other is told, and served when the first is gone.
func TestPortsOfOneName(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.elsewhere("10.77.0.0/24")
	first := object.Key{Kind: object.KindPod, Namespace: "v", Name: "x"} // x.v.uplink.ns
	put := func(labels map[string]string) {
		w.set(first, object.Pod{Pod: core.Pod{Namespace: "v", Name: "x", UID: "1"}, Labels: labels, Annotations: map[string]string{networks: "ns/uplink"}})
	}
	put(nil)
	lead(t, "one", w, db)
	require.Eventually(t, func() bool { return len(w.claims()) == 1 }, patience, tick)
	w.pod("x.v.uplink", "2") // x.v.uplink.ns, too
	second := podKey("x.v.uplink")
	require.Eventually(t, func() bool { return len(w.warned(second)) > 0 }, patience, tick)
	require.Contains(t, w.warned(second)[0], "AcquireAddressFailed: address in Subnet web: logical port x.v.uplink.ns is held by pod v/x")
	put(map[string]string{"looked": "at again"})
	w.pod("a", "3")
	w.ip(t, "a")
	require.Len(t, w.claims(), 1)
	require.Empty(t, db.Get("Logical_Switch_Port", "x.v.uplink.ns", "name"))
	w.set(first, nil)
	w.ip(t, "x.v.uplink")
	require.Empty(t, w.claims())
	require.NotEmpty(t, db.Get("Logical_Switch_Port", "x.v.uplink.ns", "name"))
}

// TestProviderInUse: a Subnet stays with what carries it while somebody has an address of
// it, under this leader and under the next: OVN's, whose rows of running pods would go, and
// another's, whose interfaces would get rows.
func TestProviderInUse(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("lan", v1.SubnetSpec{CIDRBlock: "10.30.0.0/24"})
	w.elsewhere("10.77.0.0/24")
	w.pod("a", "1", "ovn.kubernetes.io/logical_switch", "lan", networks, "uplink")
	first := lead(t, "one", w, db)
	require.Equal(t, "10.30.0.2 10.77.0.2", w.ip(t, "a")+" "+w.given(t, "a"))
	row, notes := ports(db)["a.ns"], w.notes("a")
	says := func(subnet, want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", subnet)
			return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
				return c.Type == v1.ConditionReady && c.ObservedGeneration == o.Generation && c.Status+" "+c.Message == want
			})
		}, patience, tick, want)
	}
	change := func() {
		w.subnet("lan", v1.SubnetSpec{CIDRBlock: "10.30.0.0/24", Provider: "lan.prod"})
		w.subnet("uplink", v1.SubnetSpec{CIDRBlock: "10.77.0.0/24", Provider: "ovn"})
	}
	refused := func() {
		t.Helper()
		says("lan", "False spec.provider: a.ns has 10.30.0.2 of provider ovn, which cannot become lan.prod before it is given back; what is in force stays until then")
		says("uplink", "False spec.provider: a.ns.uplink.ns has 10.77.0.2 of provider uplink.ns, which cannot become ovn before it is given back; what is in force stays until then")
		require.Equal(t, row, ports(db)["a.ns"])
		require.Equal(t, "lan", db.Get("Logical_Switch", "lan", "name"))
		require.Equal(t, "", db.Get("Logical_Switch", "uplink", "name"))
		w.claimed(t, map[string]string{"uplink.10.77.0.2": "a 1"})
		require.Equal(t, notes, w.notes("a"))
	}
	change()
	refused()
	w.pod("b", "2", "ovn.kubernetes.io/logical_switch", "lan")
	require.Equal(t, "10.30.0.3", w.ip(t, "b"), "what is in force serves on")
	w.set(podKey("b"), nil)
	w.counts(t, "lan", "1", "10.30.0.2", "252", "10.30.0.3-10.30.0.254")
	first.stop()
	change() // without a status
	lead(t, "two", w, db)
	refused()

	w.set(podKey("a"), nil)
	says("lan", "True ")
	says("uplink", "True ")
	require.Eventually(t, func() bool {
		return db.Get("Logical_Switch", "lan", "name") == "" && db.Get("Logical_Switch", "uplink", "name") == "uplink"
	}, patience, tick)
	w.pod("c", "3", "ovn.kubernetes.io/logical_switch", "uplink")
	require.Equal(t, "10.77.0.3", w.ip(t, "c"))
}
