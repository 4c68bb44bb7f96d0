package controller_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const (
	patience = time.Minute // it decides how late a failure is seen
	tick     = 5 * time.Millisecond
)

// database starts a northbound database.
func database(t *testing.T) *bed.Central {
	t.Helper()
	return bed.NewNB(t, testbed.Bare(t))
}

// leader is a controller that leads until the test ends, or stop.
type leader struct {
	*controller.Controller
	stop func()
	end  chan error // what Lead gave
}

// lead starts a controller with a client of its own.
func lead(t *testing.T, name string, w *world, db *bed.Central) *leader {
	t.Helper()
	var ctl *controller.Controller
	log := slog.New(slog.DiscardHandler)
	client := ovn.New(ovn.Config{Endpoint: db.NB(), Log: log,
		OnTouch: func(owner string, lost bool) { ctl.Touched(owner, lost) }, OnUp: func() { ctl.Resync() }})
	ctl = controller.New(controller.Config{
		World: w.seenBy(name), DB: client, Log: log, Workers: 8,
		Join: core.Subnet{Name: "join", Provider: v1.DefaultProvider, Vpc: v1.DefaultVpc,
			CIDRs: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}, Gateways: []netip.Addr{netip.MustParseAddr("100.64.0.1")}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	l := &leader{Controller: ctl, end: make(chan error, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(ctx) })
	require.Eventually(t, func() bool { return client.Connected() == nil }, patience, tick)
	wg.Go(func() { l.end <- ctl.Lead(ctx, name) })
	l.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(l.stop)
	return l
}

// TestRest: a controller that has done everything does nothing, also about Subnets
// that are no more or not in force.
func TestRest(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("gone", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	w.subnet("wrong", v1.SubnetSpec{CIDRBlock: "10.20.0.0/16"})
	w.pod("a", "1")
	l := lead(t, "one", w, db)
	w.ip(t, "a")
	w.set(subnetKey("gone"), nil)
	require.Eventually(t, func() bool { return db.Get("Logical_Switch", "gone", "name") == "" }, patience, tick)
	require.Eventually(t, func() bool { n, leads := l.Pending(); return leads && n == 0 }, patience, tick, "it works on and on")
}

// TestPodHasItsAddress: a pod is told what its row in the database says, in one
// write.
func TestPodHasItsAddress(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24,fd20::/112", Default: true})
	w.pod("a", "1")
	lead(t, "one", w, db)
	require.Equal(t, "10.20.0.2,fd20::2", w.ip(t, "a"))
	notes := w.notes("a")
	mac := notes["ovn.kubernetes.io/mac_address"]
	require.Equal(t, map[string]string{
		"ovn.kubernetes.io/ip_address": "10.20.0.2,fd20::2", "ovn.kubernetes.io/mac_address": mac,
		"ovn.kubernetes.io/cidr": "10.20.0.0/24,fd20::/112", "ovn.kubernetes.io/gateway": "10.20.0.1,fd20::1",
		"ovn.kubernetes.io/logical_switch": "web", "ovn.kubernetes.io/logical_router": "ovn-cluster",
		"ovn.kubernetes.io/pod_nic_type": "veth-pair", "ovn.kubernetes.io/allocated": "true", "ovn.kubernetes.io/routed": "true",
		writers: "one ",
	}, notes)
	require.Equal(t, `["`+mac+` 10.20.0.2 fd20::2"]`, db.Get("Logical_Switch_Port", "a.ns", "addresses"))
}

// TestFullSubnet: a pod without an address gets an event, and the address of
// the pod that goes; counts and ranges follow.
func TestFullSubnet(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("tiny", v1.SubnetSpec{CIDRBlock: "10.21.0.0/29", Default: true, ExcludeIps: []string{"10.21.0.4..10.21.0.6"}})
	w.pod("a", "1")
	w.pod("b", "2")
	lead(t, "one", w, db)
	w.ip(t, "a")
	w.ip(t, "b")
	w.pod("c", "3")
	require.Eventually(t, func() bool { return len(w.warned(podKey("c"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("c"))[0], "AcquireAddressFailed: pod left without an address: Subnet tiny is full (IPv4: 2 in use of 2)")
	w.counts(t, "tiny", "2", "10.21.0.2-10.21.0.3", "0", "")
	freed := w.ip(t, "a")
	w.set(podKey("a"), nil)
	require.Equal(t, freed, w.ip(t, "c"))
	w.set(podKey("b"), nil)
	w.counts(t, "tiny", "1", freed, "1", map[string]string{"10.21.0.2": "10.21.0.3", "10.21.0.3": "10.21.0.2"}[freed])
	require.Len(t, w.warned(podKey("c")), 1, "an event is told once")
}

// TestFamily: a pod of a Subnet of both families has one where it asks for one,
// also under the next leader, and keeps it whatever its annotation says later.
func TestFamily(t *testing.T) {
	t.Parallel()
	const family = "ovn.kubernetes.io/ip_family"
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24,fd20::/112", Default: true})
	w.pod("a", "1", family, "ipv6")
	first := lead(t, "one", w, db)
	require.Equal(t, "fd20::2", w.ip(t, "a"))
	require.Equal(t, "fd20::/112", w.notes("a")["ovn.kubernetes.io/cidr"])
	first.stop()
	lead(t, "two", w, db)
	w.pod("a", "1", family, "ipv4")
	w.pod("b", "2", family, "ipv4")
	require.Equal(t, "10.20.0.2", w.ip(t, "b"))
	require.Equal(t, "fd20::2", w.ip(t, "a"))
}

// TestPrivateSubnet lets in the nodes of the join Subnet that is in force, and
// follows it; what is wrong with a Subnet's rules is its condition.
func TestPrivateSubnet(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true, Private: true, AllowSubnets: []string{"10.30.0.0/16"}})
	lead(t, "one", w, db)
	rules := func() string {
		return db.Nbctl("--bare", "--columns=priority,match,action", "find", "ACL", "external_ids:subnet=web")
	}
	has := func(parts ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(rules(), p) })
		}, patience, tick, "%v", parts)
	}
	has("ip4.src == 100.64.0.0/16", "ip4.src == 10.20.0.0/24 && ip4.dst == 10.30.0.0/16", "drop")
	w.subnet("join", v1.SubnetSpec{CIDRBlock: "100.65.0.0/16"})
	has("ip4.src == 100.65.0.0/16")
	require.NotContains(t, rules(), "100.64")

	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true, Private: true, Acls: []v1.ACL{{Direction: "up", Match: "ip4", Action: "drop"}}})
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", "web")
		return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
			return c.Type == v1.ConditionReady && c.Status == "False" && strings.Contains(c.Message, `spec.acls[0].direction: "up" is neither`)
		})
	}, patience, tick)
	has("10.30.0.0/16") // the last good version stays
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	require.Eventually(t, func() bool { return rules() == "" }, patience, tick)
}

// TestFieldsNotCarriedOut: a Subnet's conditions say that its Vpc is not there, and
// name what is set and does nothing, the way out by nodes of another Vpc among it.
func TestFieldsNotCarriedOut(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true, NatOutgoing: true})
	w.subnet("red", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24", Vpc: "red", NatOutgoing: true, GatewayType: v1.GatewayCentralized, NatOutgoingPolicy: []v1.NatPolicyRule{{}}})
	w.subnet("all", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", LogicalGateway: true, EnableEcmp: true, DHCPv4Options: "a", DHCPv6Options: "a", IPv6RAConfigs: "a",
		U2OInterconnectionIP: "10.22.0.9", PolicyRoutingPriority: 1, PolicyRoutingTableID: 1, U2OFeatures: []byte("{}")})
	lead(t, "one", w, db)
	says := func(name, kind, want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", name)
			return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
				return c.Type == kind && c.Status+" "+c.Message == want
			})
		}, patience, tick, name)
	}
	says("red", v1.ConditionReady, "False there is no router of Vpc red: it does not exist, or its condition says why")
	w.set(object.Key{Kind: object.KindVpc, Name: "red"}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: "red"}})
	says("red", v1.ConditionReady, "True ")
	for name, want := range map[string]string{
		"web": "False ",
		"all": "True spec.logicalGateway, spec.enableEcmp, spec.dhcpV4Options, spec.dhcpV6Options, spec.ipv6RAConfigs, spec.u2oInterconnectionIP, " +
			"spec.policyRoutingPriority, spec.policyRoutingTableID, spec.u2oFeatures",
		"red": "True spec.gatewayType: centralized (pods leave by their own node), spec.natOutgoingPolicyRules, spec.natOutgoing (Vpc red has no way out by nodes)",
	} {
		says(name, v1.ConditionNotImplemented, want)
	}
}
