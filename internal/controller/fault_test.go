package controller_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// ports are the addresses of the pods' and nodes' rows, by name of the port.
func ports(db *bed.Central) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(db.Nbctl("--format=csv", "--data=bare", "--no-headings", "--columns=name,type,addresses", "list", "Logical_Switch_Port")) {
		f := strings.SplitN(strings.TrimSpace(line), ",", 3)
		if len(f) == 3 && f[1] == "" {
			out[f[0]] = strings.Trim(f[2], `"`)
		}
	}
	return out
}

// TestTwoLeaders: of two controllers that both believe they lead only the one
// that took the database last gives addresses; the other ends, and tells no pod
// anything.
func TestTwoLeaders(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Default: true})
	for i := range 20 {
		w.pod(fmt.Sprintf("a%d", i), fmt.Sprintf("a%d", i))
	}
	one := lead(t, "one", w, db)
	w.ip(t, "a0")
	two := lead(t, "two", w, db)
	for i := range 20 {
		w.pod(fmt.Sprintf("b%d", i), fmt.Sprintf("b%d", i))
	}
	require.ErrorIs(t, <-one.end, ovn.ErrFenced)
	for i := range 20 {
		w.pod(fmt.Sprintf("c%d", i), fmt.Sprintf("c%d", i))
	}
	seen := map[string]string{}
	for _, group := range []string{"a", "b", "c"} {
		for i := range 20 {
			name := fmt.Sprintf("%s%d", group, i)
			ip := w.ip(t, name)
			require.Empty(t, seen[ip], "%s and %s have %s", name, seen[ip], ip)
			seen[ip] = name
			require.Equal(t, w.notes(name)["ovn.kubernetes.io/mac_address"]+" "+ip, ports(db)[name+".ns"], name)
			if group == "c" {
				require.Equal(t, "two ", w.notes(name)[writers], name)
			}
		}
	}
	require.Empty(t, two.end)
}

// TestRestart: the next leader knows who has which address, changes nothing of
// it, and takes back what went meanwhile.
func TestRestart(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.23.0.0/24,fd23::/112", Default: true})
	w.set(object.Key{Kind: object.KindNode, Name: "n1"}, object.Node{Name: "n1", UID: "n"})
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, name)
	}
	one := lead(t, "one", w, db)
	var before []string
	for _, name := range []string{"a", "b", "c"} {
		before = append(before, w.ip(t, name))
	}
	require.Eventually(t, func() bool { return len(ports(db)) == 4 }, patience, tick)
	rows := ports(db)
	one.stop()
	w.set(podKey("b"), nil)
	w.pod("d", "d", "ovn.kubernetes.io/ip_address", before[0]) // which a has
	w.pod("e", "e")
	lead(t, "two", w, db)
	w.ip(t, "e")
	require.Eventually(t, func() bool { return ports(db)["b.ns"] == "" }, patience, tick)
	require.Eventually(t, func() bool { return len(w.warned(podKey("d"))) > 0 }, patience, tick)
	require.Contains(t, w.warned(podKey("d"))[0], "AcquireAddressFailed: address in Subnet web: "+strings.Split(before[0], ",")[0]+" is held by pod ns/a")
	now := ports(db)
	for _, name := range []string{"a.ns", "c.ns", "node-n1"} {
		require.Equal(t, rows[name], now[name], name)
	}
	require.Equal(t, "one ", w.notes("a")[writers], "a pod that has all is not written again")

	// The one that waits is served when the holder goes.
	w.set(podKey("a"), nil)
	require.Equal(t, before[0], w.ip(t, "d"))
}

// TestLostRows: pods keep the addresses that they were told when the database
// is lost as a whole.
func TestLostRows(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.24.0.0/24", Default: true})
	for i := range 5 {
		w.pod(fmt.Sprintf("a%d", i), fmt.Sprint(i))
	}
	w.set(object.Key{Kind: object.KindNode, Name: "n1"}, object.Node{Name: "n1", UID: "n1"})
	one := lead(t, "one", w, db)
	told := map[string]string{}
	require.Eventually(t, func() bool { told["node-n1"] = ports(db)["node-n1"]; return told["node-n1"] != "" }, patience, tick)
	require.Eventually(t, func() bool { return len(lister[*v1.IP]{w, object.KindIP}.List()) == 1 }, patience, tick)
	for i := range 5 {
		name := fmt.Sprintf("a%d", i)
		told[name+".ns"] = w.ip(t, name)
		told[name+".ns"] = w.notes(name)["ovn.kubernetes.io/mac_address"] + " " + told[name+".ns"]
	}
	one.stop()
	w.set(object.Key{Kind: object.KindIP, Name: "node-n1"}, nil) // its annotations tell, too
	fresh := database(t)
	w.set(object.Key{Kind: object.KindNode, Name: "a-first"}, object.Node{Name: "a-first", UID: "a"})
	w.pod("A-first", "9") // in order before the others
	lead(t, "two", w, fresh)
	w.ip(t, "A-first")
	require.Eventually(t, func() bool { return len(ports(fresh)) == 8 }, patience, tick)
	now := ports(fresh)
	delete(now, "A-first.ns")
	delete(now, "node-a-first")
	require.Equal(t, told, now)
}

// TestFixed: fixed addresses and MACs, lists, and what cannot be given.
func TestFixed(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.25.0.0/24,fd25::/112", Default: true})
	w.pod("a", "1", "ovn.kubernetes.io/ip_address", "10.25.0.9,fd25::9", "ovn.kubernetes.io/mac_address", "0a:00:00:00:00:09")
	w.pod("gw", "3", "ovn.kubernetes.io/ip_address", "10.25.0.1")
	lead(t, "one", w, db)
	require.Equal(t, "10.25.0.9,fd25::9", w.ip(t, "a"))
	w.pod("b", "2", "ovn.kubernetes.io/ip_pool", "10.25.0.9,fd25::9;10.25.0.10,fd25::10")
	require.Equal(t, "0a:00:00:00:00:09 10.25.0.9 fd25::9", ports(db)["a.ns"])
	require.Eventually(t, func() bool { return len(w.warned(podKey("gw"))) > 0 }, patience, tick)
	require.Contains(t, w.warned(podKey("gw"))[0], "is the gateway of subnet web")
	w.ip(t, "b")

	w.pod("mac", "4", "ovn.kubernetes.io/mac_address", "0a:00:00:00:00:09")
	require.Eventually(t, func() bool { return len(w.warned(podKey("mac"))) > 0 }, patience, tick)
	require.Contains(t, w.warned(podKey("mac"))[0], "MAC 0a:00:00:00:00:09 is held by pod ns/a")

	w.pod("second", "5", "ovn.kubernetes.io/ip_address", "10.25.0.9,fd25::9")
	w.pod("gw6", "6", "ovn.kubernetes.io/ip_address", "fd25::1")
	web := core.Subnet{Name: "web", Gateways: []netip.Addr{netip.MustParseAddr("10.25.0.1"), netip.MustParseAddr("fd25::1")}}
	w.pod("gwmac", "7", "ovn.kubernetes.io/mac_address", web.GatewayMAC().String())
	for name, want := range map[string]string{
		"second": "AcquireAddressFailed: address in Subnet web: 10.25.0.9 is held by pod ns/a",
		"gw6":    "ValidatePodNetworkFailed: ",
		"gwmac":  "AcquireAddressFailed: address in Subnet web: MAC " + web.GatewayMAC().String() + " is that of its gateway",
	} {
		require.Eventually(t, func() bool { return len(w.warned(podKey(name))) > 0 }, patience, tick)
		require.Contains(t, w.warned(podKey(name))[0], want)
	}

	// What a tenant writes over what was told is put right.
	p := w.notes("a")
	w.pod("a", "1", "ovn.kubernetes.io/ip_address", "10.25.0.77", "ovn.kubernetes.io/mac_address", "0a:00:00:00:00:77")
	require.Eventually(t, func() bool {
		now := w.notes("a")
		return now["ovn.kubernetes.io/ip_address"] == p["ovn.kubernetes.io/ip_address"] && now["ovn.kubernetes.io/mac_address"] == p["ovn.kubernetes.io/mac_address"]
	}, patience, tick)
	require.Equal(t, "0a:00:00:00:00:09 10.25.0.9 fd25::9", ports(db)["a.ns"])

	// Who waits for a fixed address has it as soon as its holder is gone.
	w.set(podKey("a"), nil)
	require.Equal(t, "10.25.0.9,fd25::9", w.ip(t, "second"))
	require.Len(t, w.warned(podKey("second")), 1, "an event is told once")
}

// TestFixedIsFree: who waits for a fixed address is served when its holder is gone, by
// that event: its next look of its own would be later than the bound.
func TestFixedIsFree(t *testing.T) {
	t.Parallel()
	const (
		looks = 8               // in vain: the pauses between them double, from 50 ms
		next  = 6 * time.Second // until the one after
		bound = 4 * time.Second // twice what is promised (docs/cluster.md)
	)
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.25.0.0/24,fd25::/112", Default: true})
	w.pod("a", "1", "ovn.kubernetes.io/ip_address", "10.25.0.9,fd25::9")
	l := lead(t, "one", w, db)
	w.ip(t, "a")
	before := l.looks.Load()
	w.pod("b", "2", "ovn.kubernetes.io/ip_address", "10.25.0.9,fd25::9")
	require.Eventually(t, func() bool { return l.looks.Load() >= before+looks }, patience, tick)
	gone := time.Now()
	w.set(podKey("a"), nil)
	require.Equal(t, "10.25.0.9,fd25::9", w.ip(t, "b"))
	took := time.Since(gone)
	t.Logf("served %s after its holder was gone", took.Round(time.Millisecond))
	require.Less(t, took, bound, "it looked again by itself, %s after its last look", next)
}

// TestNodeWithoutAPort: a node whose port somebody else has is told so, and has its
// address when that one is gone.
func TestNodeWithoutAPort(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	k := object.Key{Kind: object.KindNode, Name: "n1"}
	db.Nbctl("ls-add", "foreign")
	db.Nbctl("lsp-add", "foreign", "node-n1")
	w.set(k, object.Node{Name: "n1", UID: "n1"})
	lead(t, "one", w, db)
	require.Eventually(t, func() bool { return len(w.warned(k)) == 1 }, patience, tick)
	require.Contains(t, w.warned(k)[0], "CreateOVNPortFailed: ")
	db.Nbctl("lsp-del", "node-n1")
	require.Eventually(t, func() bool {
		n, _ := lister[object.Node]{w, object.KindNode}.Get("", "n1")
		return n.Annotations["ovn.kubernetes.io/allocated"] == "true"
	}, patience, tick)
}

// TestNodeIPs: agents are told a node's addresses as they are, also when it has none
// any more.
func TestNodeIPs(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	k := object.Key{Kind: object.KindNode, Name: "n1"}
	told := func() map[string]string {
		n, _ := lister[object.Node]{w, object.KindNode}.Get("", "n1")
		return n.Annotations
	}
	n := object.Node{Name: "n1", UID: "n1"}
	w.set(k, n)
	lead(t, "one", w, db)
	require.Eventually(t, func() bool { return told()["ovn.kubernetes.io/allocated"] == "true" }, patience, tick)
	require.NotContains(t, told(), v1.AnnNodeIPs)
	for _, ips := range []string{"192.0.2.1,fd00:2::1", "192.0.2.9", ""} {
		n.IPs, n.Annotations = nil, maps.Clone(told())
		for _, ip := range strings.FieldsFunc(ips, func(r rune) bool { return r == ',' }) {
			n.IPs = append(n.IPs, netip.MustParseAddr(ip))
		}
		w.set(k, n)
		require.Eventually(t, func() bool { return told()[v1.AnnNodeIPs] == ips }, patience, tick, ips)
	}
}

// TestCountsAreARecount: whatever pods, Subnets and leaders come and go, a Subnet's
// status says what its rows say, counted again.
func TestCountsAreARecount(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	w, db := newWorld(), database(t)
	const size = 13 // of a /28 without network, broadcast and gateway
	subnets := []string{"s0", "s1"}
	for i, name := range subnets {
		w.subnet(name, v1.SubnetSpec{CIDRBlock: fmt.Sprintf("10.30.%d.0/28", i), Default: i == 0})
	}
	l := lead(t, "leader-0", w, db)
	for round := range 12 {
		for range 1 + r.IntN(12) {
			name := fmt.Sprint("p", r.IntN(24))
			switch subnet := subnets[r.IntN(2)]; r.IntN(6) {
			case 0, 1:
				w.set(podKey(name), nil)
			case 2:
				w.pod(name, fmt.Sprint(round, r.Int()), "ovn.kubernetes.io/logical_switch", subnet,
					"ovn.kubernetes.io/ip_address", fmt.Sprintf("10.30.%s.%d", subnet[1:], 1+r.IntN(14)))
			default:
				w.pod(name, fmt.Sprint(round, r.Int()), "ovn.kubernetes.io/logical_switch", subnet)
			}
		}
		if round%4 == 3 {
			l.stop()
			l = lead(t, fmt.Sprint("leader-", round), w, db)
		}
		require.Eventually(t, func() bool { n, leads := l.Pending(); return leads && n == 0 }, patience, tick)
		require.Eventually(t, func() bool {
			have := map[string]int{}
			for _, row := range ports(db) {
				for i, name := range subnets {
					if strings.Contains(row, fmt.Sprintf(" 10.30.%d.", i)) {
						have[name]++
					}
				}
			}
			for _, name := range subnets {
				o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", name)
				if string(o.Status.V4UsingIPs) != fmt.Sprint(have[name]) || string(o.Status.V4AvailableIPs) != fmt.Sprint(size-have[name]) {
					return false
				}
			}
			return true
		}, patience, 10*tick, "round %d: %v", round, ports(db))
	}
}

// TestSameNameAgain: a pod of the same name and another UID has nothing of the
// earlier one's row, and may have its fixed address.
func TestSameNameAgain(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.26.0.0/24", Default: true})
	w.pod("a", "1", "ovn.kubernetes.io/ip_address", "10.26.0.9")
	lead(t, "one", w, db)
	w.ip(t, "a")
	w.pod("a", "2", "ovn.kubernetes.io/ip_address", "10.26.0.9")
	require.Equal(t, "10.26.0.9", w.ip(t, "a"))
	require.Equal(t, "2", db.Get("Logical_Switch_Port", "a.ns", "external_ids:fairlead-pod-uid"))
	w.pod("a", "3", "ovn.kubernetes.io/ip_address", "10.26.0.10")
	require.Equal(t, "10.26.0.10", w.ip(t, "a"))
	w.pod("b", "4", "ovn.kubernetes.io/ip_address", "10.26.0.9")
	require.Equal(t, "10.26.0.9", w.ip(t, "b"), "a changed fixed address frees the old one")
	w.counts(t, "web", "2", "10.26.0.9-10.26.0.10", "251", "10.26.0.2-10.26.0.8,10.26.0.11-10.26.0.254")
}

// TestDeletedInEveryOrder: pod, Subnet and Vpc go in any order, also while
// nobody leads, and leave no row; a pod keeps its row as long as it is there.
func TestDeletedInEveryOrder(t *testing.T) {
	t.Parallel()
	vpc := object.Key{Kind: object.KindVpc, Name: "red"}
	all := []object.Key{podKey("a"), subnetKey("web"), vpc}
	w, db := newWorld(), database(t)
	led := lead(t, "one", w, db)
	for n, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, asleep := range []bool{false, true} {
			w.pod("a", fmt.Sprint(n, asleep), "ovn.kubernetes.io/logical_switch", "web")
			w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.27.0.0/24", Vpc: "red"})
			w.set(vpc, &v1.Vpc{})
			w.named(vpc)
			w.ip(t, "a")
			if asleep {
				led.stop()
			}
			for i, at := range order {
				w.set(all[at], nil)
				if asleep && i == 1 { // a leader comes between
					led = lead(t, "next", w, db)
				}
				if !slices.Contains(order[:i+1], 0) && !asleep {
					require.NotEmpty(t, ports(db)["a.ns"], "order %v", order)
				}
			}
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				gone := ports(db)["a.ns"] == "" && db.Count("Logical_Switch") == 2 && db.Count("Logical_Router") == 1 && db.Count("Logical_Router_Port") == 2
				assert.True(c, gone, "order %v asleep %v: %s", order, asleep, db.Nbctl("show"))
			}, patience, tick)
		}
	}
}

// TestRefusedWrites: a pod that could not be told is told later, with the same
// address.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.refuse = errors.New("the server is away")
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.28.0.0/24", Default: true})
	w.pod("a", "1")
	lead(t, "one", w, db)
	require.Eventually(t, func() bool { return ports(db)["a.ns"] != "" }, patience, tick)
	row := ports(db)["a.ns"]
	w.mu.Lock()
	w.refuse = nil
	w.mu.Unlock()
	ip := w.ip(t, "a")
	require.Equal(t, row, w.notes("a")["ovn.kubernetes.io/mac_address"]+" "+ip)
	require.Equal(t, row, ports(db)["a.ns"])
	w.counts(t, "web", "1", ip, "252", "10.28.0.3-10.28.0.254")
}

// TestRunningPodKeepsItsRow: a Subnet whose object goes keeps its rows and
// addresses while a pod has one of them, also through a change of leaders, and
// gives no more.
func TestRunningPodKeepsItsRow(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.29.0.0/24", Vpc: "red"})
	w.set(object.Key{Kind: object.KindVpc, Name: "red"}, &v1.Vpc{})
	w.named(object.Key{Kind: object.KindVpc, Name: "red"})
	w.pod("a", "1", "ovn.kubernetes.io/logical_switch", "web")
	one := lead(t, "one", w, db)
	w.ip(t, "a")
	row := ports(db)["a.ns"]
	w.set(subnetKey("web"), nil)
	w.set(object.Key{Kind: object.KindVpc, Name: "red"}, nil)
	for i := range 3 { // each is looked at after the Subnet was
		name := fmt.Sprintf("late%d", i)
		w.pod(name, name, "ovn.kubernetes.io/logical_switch", "web")
		require.Eventually(t, func() bool { return len(w.warned(podKey(name))) > 0 }, patience, tick)
		require.Contains(t, w.warned(podKey(name))[0], "ValidatePodNetworkFailed")
		require.Equal(t, row, ports(db)["a.ns"])
		if i == 1 {
			one.stop()
			lead(t, "two", w, db)
		}
	}
	w.set(podKey("a"), nil)
	require.Eventually(t, func() bool {
		return len(ports(db)) == 0 && db.Get("Logical_Switch", "web", "name") == "" && db.Get("Logical_Router", "red", "name") == ""
	}, patience, tick)
}

// TestSubnetInPlaceOfAnother: a Subnet that would give an address which a pod has of one that is
// declared no more, or of the built-in one, is not in force before that is given back, under the
// next leader either; in another Vpc it is.
func TestSubnetInPlaceOfAnother(t *testing.T) {
	t.Parallel()
	for old, cidr := range map[string]string{"old": "10.29.0.0/24", v1.DefaultSubnet: "10.16.0.0/16"} {
		t.Run(old, func(t *testing.T) {
			t.Parallel()
			w, db := newWorld(), database(t)
			for _, vpc := range []string{"red", "blue"} {
				w.set(object.Key{Kind: object.KindVpc, Name: vpc}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: vpc}})
			}
			spec := v1.SubnetSpec{CIDRBlock: cidr, Default: true}
			if old != v1.DefaultSubnet {
				spec.Vpc = "red"
				w.subnet(old, spec)
			}
			w.pod("a", "1", "ovn.kubernetes.io/logical_switch", old)
			one := lead(t, "one", w, db)
			ip := w.ip(t, "a")
			w.set(subnetKey(old), nil)
			w.subnet("new", spec)
			w.subnet("far", v1.SubnetSpec{CIDRBlock: cidr, Vpc: "blue"})
			says := "spec.cidrBlock: " + cidr + " holds " + ip + ", which a.ns has of Subnet " + old + ": it is in force when that is given back"
			w.ready(t, "far", "True", "")
			w.ready(t, "new", "False", says)
			if spec.Vpc != "" { // it comes back as another one, which is not in force either
				again := spec
				again.CIDRBlock = "10.99.0.0/24"
				w.subnet(old, again)
				w.ready(t, old, "False", "a.ns has "+ip)
				w.subnet("new", spec)
				w.ready(t, "new", "False", says)
				w.set(subnetKey(old), nil)
			}
			one.stop()
			w.subnet("new", spec) // without a status
			lead(t, "two", w, db)
			w.ready(t, "new", "False", says)
			require.Contains(t, ports(db)["a.ns"], ip)

			w.set(podKey("a"), nil)
			w.ready(t, "new", "True", "")
			w.pod("b", "2", "ovn.kubernetes.io/logical_switch", "new", "ovn.kubernetes.io/ip_address", ip)
			require.Equal(t, ip, w.ip(t, "b"))
		})
	}
}

// TestShrunkSubnet: a Subnet does not come into force in which an address in use
// would lie outside or be the gateway's, under this leader and under the next; it
// does when the address is given back.
func TestShrunkSubnet(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.pod("a", "1", "ovn.kubernetes.io/ip_address", "10.20.0.200")
	first := lead(t, "one", w, db)
	require.Equal(t, "10.20.0.200", w.ip(t, "a"))
	says := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", "web")
			return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
				return c.Type == v1.ConditionReady && strings.HasPrefix(c.Status+" "+c.Message, want)
			})
		}, patience, tick, want)
	}
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Gateway: "10.20.0.200", Default: true})
	says("False spec: a.ns has 10.20.0.200, which lies outside of 10.20.0.0/24 or would be the gateway's")
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/25", Default: true})
	says("False spec: a.ns has 10.20.0.200, which lies outside of 10.20.0.0/25")
	w.pod("b", "2")
	w.ip(t, "b")
	require.Equal(t, "10.20.0.0/24", w.notes("b")["ovn.kubernetes.io/cidr"], "what was in force is so on")
	first.stop()
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/25", Default: true}) // without a status
	lead(t, "two", w, db)
	says("False spec: a.ns has 10.20.0.200")
	require.NotEmpty(t, db.Get("Logical_Switch_Port", "a.ns", "addresses"), "the pod is left alone")
	w.set(podKey("a"), nil)
	says("True ")
	w.pod("c", "3")
	w.ip(t, "c")
	require.Equal(t, "10.20.0.0/25", w.notes("c")["ovn.kubernetes.io/cidr"])
}

// TestRowsInTheMaking: a pod is not told that rows are missing which are about to be
// made, and of those that stay missing the cause.
func TestRowsInTheMaking(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet(slow, v1.SubnetSpec{CIDRBlock: "10.40.0.0/24"})
	w.pod("early", "u", "ovn.kubernetes.io/logical_switch", slow)
	w.subnet("lost", v1.SubnetSpec{CIDRBlock: "10.41.0.0/24", Vpc: "none"})
	w.pod("lost", "u", "ovn.kubernetes.io/logical_switch", "lost")
	l := lead(t, "one", w, db)
	w.ip(t, "early")
	_, failed := l.failed.Load("northbound rows of pod/ns/early: Logical_Switch_Port early.ns: Logical_Switch slow is not in the northbound database")
	require.True(t, failed)
	require.Empty(t, w.warned(podKey("early")))
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.events, func(e told) bool {
			return e.on == podKey("lost") && e.Unserved && e.Message == "no rows of Subnet lost: there is no router of Vpc none: it does not exist, or its condition says why"
		})
	}, patience, tick, "%v", w.warned(podKey("lost")))
	require.Len(t, w.warned(podKey("lost")), 1)
	l.rests(t) // nobody wakes itself by what it gives back
}

// TestTwoOfOneSubnetRest: pods of which a later interface can have no address give back those of
// the others, and wake neither themselves nor each other by that.
func TestTwoOfOneSubnetRest(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/29", Default: true})
	w.elsewhere("10.88.0.0/24")
	w.set(object.Key{Kind: object.KindClaim, Name: "uplink.10.88.0.5"}, theirs("10.88.0.5", "other", "o"))
	w.pod("other", "o", instead, "ns/uplink", uplink+"ip_address", "10.88.0.5")
	l := lead(t, "one", w, db)
	require.Equal(t, "10.88.0.5", w.given(t, "other"))
	for _, name := range []string{"a", "b"} {
		w.pod(name, name, networks, "uplink", uplink+"ip_address", "10.88.0.5")
		w.pod(name+"-two", name, instead, "ns/uplink", networks, "uplink", "uplink.ns.net1.kubernetes.io/ip_address", "10.88.0.5")
	}
	for _, name := range []string{"a", "b"} {
		require.Eventually(t, func() bool { return len(w.warned(podKey(name))) > 0 }, patience, tick, name)
	}
	l.rests(t)
}

// TestWhyIsToldAgain: what is wrong with an object and could not be told is told later,
// although nothing else changes, and once.
func TestWhyIsToldAgain(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/30", Default: true})
	w.subnet("within", v1.SubnetSpec{CIDRBlock: "10.20.0.0/29"})
	w.mute = errors.New("the API server errs")
	w.pod("a", "1")
	lead(t, "one", w, db)
	w.ip(t, "a")
	w.pod("b", "2")
	require.Never(t, func() bool { return len(w.warned(podKey("b")))+len(w.warned(subnetKey("within"))) > 0 }, time.Second, tick)
	w.mu.Lock()
	w.mute = nil
	w.mu.Unlock()
	for _, k := range []object.Key{podKey("b"), subnetKey("within")} {
		require.Eventually(t, func() bool { return len(w.warned(k)) == 1 }, patience, tick, k)
	}
	require.Contains(t, w.warned(podKey("b"))[0], "AcquireAddressFailed: pod left without an address: Subnet web is full")
	require.Contains(t, w.warned(subnetKey("within"))[0], "ValidateLogicalSwitchFailed: spec.cidrBlock: 10.20.0.0/29 overlaps")
}
