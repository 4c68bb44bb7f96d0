package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/gateway"
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
	stop   func()
	end    chan error   // what Lead gave
	failed sync.Map     // errors, by their text
	looks  atomic.Int64 // at pods that failed
	rules  atomic.Int64
	spaces atomic.Int64 // looks at annotations of namespaces
	stuck  atomic.Bool  // rows of gateways are refused
}

// slow is a Subnet whose rows take a moment to make.
const slow = "slow"

// counted counts the changes of rows of NetworkPolicies that are asked for.
type counted struct {
	controller.Database
	rules *atomic.Int64
	stuck *atomic.Bool
}

func (c counted) Apply(ctx context.Context, set *ovn.Set) error {
	if strings.HasPrefix(set.Owner, "networkpolicy/") {
		c.rules.Add(1)
	}
	if set.Owner == "subnet/"+slow {
		time.Sleep(100 * time.Millisecond)
	}
	if set.Owner == gateway.Owner && c.stuck.Load() {
		return errors.New("gateways' rows are refused")
	}
	return c.Database.Apply(ctx, set)
}

// lead starts a controller with a client of its own.
func lead(t *testing.T, name string, w *world, db *bed.Central) *leader {
	t.Helper()
	return leadWith(t, name, w, db, "100.64.0.0/16")
}

// leadWith is lead with other networks of nodes.
func leadWith(t *testing.T, name string, w *world, db *bed.Central, join ...string) *leader {
	t.Helper()
	nodes := core.Subnet{Name: "join", Provider: v1.DefaultProvider, Vpc: v1.DefaultVpc}
	for _, c := range join {
		p := netip.MustParsePrefix(c)
		nodes.CIDRs, nodes.Gateways = append(nodes.CIDRs, p), append(nodes.Gateways, p.Addr().Next())
	}
	var ctl *controller.Controller
	l := &leader{end: make(chan error, 1)}
	log := slog.New(slog.DiscardHandler)
	client := ovn.New(ovn.Config{Endpoint: db.NB(), Log: log,
		OnTouch: func(owner string, lost bool) { ctl.Touched(owner, lost) }, OnUp: func() { ctl.Resync() }})
	ctl = controller.New(controller.Config{
		World: w.seenBy(name), DB: counted{client, &l.rules, &l.stuck}, Log: log, Seen: gateway.Seen{Silent: func(node string) bool { _, is := w.silent.Load(node); return is }, Routes: client.Routes}, Workers: 8, Join: nodes, Declared: w,
		Done: func(kind object.Kind, _ time.Duration, err error) {
			if kind == "annotations of a namespace" {
				l.spaces.Add(1)
			}
			if err != nil {
				l.failed.Store(err.Error(), true)
			}
			if kind == object.KindPod && err != nil {
				l.looks.Add(1)
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	l.Controller = ctl
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(ctx) })
	require.Eventually(t, func() bool { return client.Connected() == nil }, patience, tick)
	wg.Go(func() { l.end <- ctl.Lead(ctx, name) })
	l.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(l.stop)
	return l
}

// TestRest: a controller that has done everything does nothing, also about Subnets
// that are no more or not in force. One that is declared anew is as new.
func TestRest(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("gone", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	w.subnet("wrong", v1.SubnetSpec{CIDRBlock: "10.20.0.0/16"})
	w.pod("a", "1")
	l := lead(t, "one", w, db)
	w.ip(t, "a")
	w.pod("b", "2", "ovn.kubernetes.io/logical_switch", "gone")
	require.Equal(t, "10.21.0.2", w.ip(t, "b"))
	w.set(podKey("b"), nil)
	w.set(subnetKey("gone"), nil)
	require.Eventually(t, func() bool { return db.Get("Logical_Switch", "gone", "name") == "" }, patience, tick)
	require.Eventually(t, func() bool { n, leads := l.Pending(); return leads && n == 0 }, patience, tick, "it works on and on")
	w.subnet("gone", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	w.pod("c", "3", "ovn.kubernetes.io/logical_switch", "gone")
	require.Equal(t, "10.21.0.2", w.ip(t, "c"), "who had it under the former Subnet of the name is not remembered")
}

// TestOverlappingSubnet: of two Subnets with one address the second one has a condition
// that says so, and no rows, until the first one is another.
func TestOverlappingSubnet(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.pod("a", "1")
	lead(t, "one", w, db)
	a := w.ip(t, "a")
	says := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", "late")
			return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionReady && c.Status+" "+c.Message == want })
		}, patience, tick, want)
	}
	w.subnet("late", v1.SubnetSpec{CIDRBlock: "10.20.0.128/25"})
	w.pod("b", "2", "ovn.kubernetes.io/logical_switch", "late")
	says("False spec.cidrBlock: 10.20.0.128/25 overlaps 10.20.0.0/24 of Subnet web")
	require.Eventually(t, func() bool { return len(w.warned(podKey("b"))) > 0 }, patience, tick)
	require.Empty(t, db.Get("Logical_Switch", "late", "name"))
	require.Empty(t, w.notes("b")["ovn.kubernetes.io/ip_address"])
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/25", Default: true})
	says("True ")
	require.Equal(t, "10.20.0.130", w.ip(t, "b"))
	require.Equal(t, a, w.notes("a")["ovn.kubernetes.io/ip_address"])
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
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true, Private: true, NatOutgoing: true, NatOutgoingPolicy: []v1.NatPolicyRule{
		{Action: v1.NATTranslate}, {Action: v1.NATForward, Match: v1.NatPolicyMatch{SrcIPs: "10.20.0.1", DstIPs: "fd00::/64"}},
	}})
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", "web")
		return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
			return c.Type == v1.ConditionReady && c.Status == "False" && strings.Contains(c.Message, "spec.natOutgoingPolicyRules[1].match: srcIPs and dstIPs are of both families")
		})
	}, patience, tick)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	require.Eventually(t, func() bool { return rules() == "" }, patience, tick)
}

// TestFieldsNotCarriedOut: a Subnet's conditions say that its Vpc is not there, and
// name what is set and does nothing, the way out by nodes of another Vpc among it.
func TestFieldsNotCarriedOut(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true, NatOutgoing: true})
	w.subnet("red", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24", Vpc: "red", NatOutgoing: true, GatewayType: v1.GatewayCentralized, NatOutgoingPolicy: []v1.NatPolicyRule{{Action: v1.NATForward}}})
	w.subnet("balanced", v1.SubnetSpec{CIDRBlock: "10.24.0.0/24", Vpc: "red", EnableLb: new(true)})
	w.subnet("carried", v1.SubnetSpec{CIDRBlock: "10.25.0.0/24", Provider: "nad.ns", EnableLb: new(true)})
	w.subnet("ruled", v1.SubnetSpec{CIDRBlock: "10.27.0.0/24", Acls: []v1.ACL{
		{Direction: v1.ToPort, Priority: 1, Match: "ip4", Action: "drop"}, {Direction: v1.ToPort, Priority: 2, Match: "ip4.src = 10.0.0.1", Action: "drop"},
	}})
	w.subnet("none", v1.SubnetSpec{CIDRBlock: "10.26.0.0/24", Vpc: "red", EnableLb: new(false)})
	w.subnet("all", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", LogicalGateway: true, EnableEcmp: true, DHCPv4Options: "a=b", DHCPv6Options: "a=b", IPv6RAConfigs: "a=b",
		U2OInterconnectionIP: "10.22.0.9", PolicyRoutingPriority: 1, PolicyRoutingTableID: 1, U2OFeatures: []byte("{}")})
	w.subnet("masked", v1.SubnetSpec{CIDRBlock: "10.29.0.0/24", NatOutgoing: true, ExternalEgressGateway: "192.0.2.1", PolicyRoutingPriority: 1, PolicyRoutingTableID: 1})
	w.subnet("egress", v1.SubnetSpec{CIDRBlock: "10.30.0.0/24", ExternalEgressGateway: "192.0.2.1", PolicyRoutingPriority: 1, PolicyRoutingTableID: 1})
	w.subnet("led", v1.SubnetSpec{
		CIDRBlock: "10.32.0.0/24", GatewayType: v1.GatewayCentralized, GatewayNode: "n1", ExternalEgressGateway: "192.0.2.1", PolicyRoutingPriority: 1, PolicyRoutingTableID: 1,
	})
	for i, nodes := range []string{"n1:fd00::1,n2:192.0.2.1", "n1:192.0.2.1", "n1:192.0.2.1,n2"} {
		w.subnet(fmt.Sprintf("exits%d", i), v1.SubnetSpec{CIDRBlock: fmt.Sprintf("10.31.%d.0/24", i), NatOutgoing: i != 1, GatewayType: v1.GatewayCentralized, GatewayNode: nodes})
	}
	w.set(subnetKey("shared"), &v1.Subnet{
		ObjectMeta: metav1.ObjectMeta{Name: "shared", Annotations: map[string]string{v1.AnnAllocate: v1.AllocateNodeBlock}}, Spec: v1.SubnetSpec{CIDRBlock: "10.28.0.0/24"},
	})
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
		"web":      "False ",
		"shared":   "True metadata.annotations[fairlead.io/allocate] (the controller gives the addresses)",
		"ruled":    `True spec.acls[1].match: "= 10.0.0.1" means nothing`,
		"none":     "False ",
		"balanced": "True spec.enableLb (Services are reached in Vpc ovn-cluster alone)",
		"carried":  "True spec.enableLb (OVN does not carry provider nad.ns)",
		"all": "True spec.enableEcmp (of gatewayType centralized alone), spec.u2oFeatures, spec.policyRoutingPriority (without externalEgressGateway), spec.policyRoutingTableID (without externalEgressGateway), " +
			"spec.u2oInterconnectionIP (u2oInterconnection is not set), spec.dhcpV4Options (enableDHCP is not set), spec.dhcpV6Options (enableDHCP is not set), spec.ipv6RAConfigs (enableIPv6RA is not set)",
		"masked": "True spec.externalEgressGateway (without natOutgoing in Vpc ovn-cluster alone)",
		"egress": "False ",
		"led":    "False ",
		"exits0": "True spec.gatewayNode: addresses (fd00::1 of node n1 is of a family that cidrBlock does not have)",
		"exits1": "True spec.gatewayNode: addresses (natOutgoing is off)",
		"exits2": "False ",
		"red":    "True spec.gatewayType: centralized (Vpc red has no way out by nodes), spec.natOutgoingPolicyRules, spec.natOutgoing (Vpc red has no way out by nodes)",
	} {
		says(name, v1.ConditionNotImplemented, want)
	}

	// Of the default Vpc, fields about pods' Subnets say nothing.
	w.set(object.Key{Kind: object.KindVpc, Name: v1.DefaultVpc}, &v1.Vpc{
		ObjectMeta: metav1.ObjectMeta{Name: v1.DefaultVpc}, Spec: v1.VpcSpec{DefaultSubnet: "all", Namespaces: []string{"ns"}},
	})
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Vpc]{w, object.KindVpc}.Get("", v1.DefaultVpc)
		return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool {
			return c.Type == v1.ConditionNotImplemented && c.Status+" "+c.Message == "True spec.defaultSubnet (of Vpc ovn-cluster it is the Subnet with default: true), "+
				"spec.namespaces (pods of all that no other Vpc and no Subnet names are in Vpc ovn-cluster)"
		})
	}, patience, tick)
	w.set(object.Key{Kind: object.KindVpc, Name: v1.DefaultVpc}, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: v1.DefaultVpc}, Spec: v1.VpcSpec{DefaultSubnet: "web"}})
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Vpc]{w, object.KindVpc}.Get("", v1.DefaultVpc)
		return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionNotImplemented && c.Status == "False" })
	}, patience, tick)
}

// TestNamespaceSelectors: pods of a namespace come to the Subnet whose selector fits the
// namespace's labels; labels that change have new pods come elsewhere, and those that
// are there stay where they are.
func TestNamespaceSelectors(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("team", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24", NamespaceSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{"team": "none"}}, {MatchLabels: map[string]string{"team": "a"}},
	}})
	w.space("b")
	w.pod("before", "1")
	first := lead(t, "one", w, db)
	require.Equal(t, "10.20.0.2", w.ip(t, "before"))
	w.space("a")
	w.pod("in", "2")
	require.Equal(t, "10.21.0.2", w.ip(t, "in"))
	first.stop()
	w.pod("in-too", "3")
	first = lead(t, "two", w, db)
	require.Equal(t, "10.21.0.3", w.ip(t, "in-too"))
	w.space("b")
	w.pod("after", "4")
	require.Equal(t, "10.20.0.3", w.ip(t, "after"))
	first.rests(t)
	require.Equal(t, "10.20.0.2 10.21.0.2", w.ip(t, "before")+" "+w.ip(t, "in"))
	require.Equal(t, "10.21.0.2", strings.Fields(ports(db)["in.ns"])[1])

	// Made again, a pod is where its namespace's pods are now.
	w.set(podKey("in"), nil)
	w.pod("in", "5")
	require.Contains(t, w.ip(t, "in"), "10.20.0.")
}

// TestPortSecurity: a port lets its pod send from its own address alone, and from those
// that the pod names besides; from any where the pod or its Subnet says so.
func TestPortSecurity(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("open", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	w.mu.Lock()
	open := w.objects[subnetKey("open")].(*v1.Subnet).DeepCopy()
	open.Annotations = map[string]string{"ovn.kubernetes.io/port_security": "false"}
	w.mu.Unlock()
	w.set(subnetKey("open"), open)
	lead(t, "one", w, db)
	w.pod("plain", "1")
	w.pod("more", "2", "ovn.kubernetes.io/port_vips", "10.20.0.200,fd20::9")
	w.pod("free", "3", "ovn.kubernetes.io/port_security", "false")
	w.pod("there", "4", "ovn.kubernetes.io/logical_switch", "open")
	says := func(name, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return db.Get("Logical_Switch_Port", name+".ns", "port_security") == want }, patience, tick,
			"%s: wanted %s, have %s", name, want, lately{new(db.Get("Logical_Switch_Port", name+".ns", "port_security"))})
	}
	own := func(name string) string { w.ip(t, name); return ports(db)[name+".ns"] }
	says("plain", `["`+own("plain")+`"]`)
	says("more", `["`+own("more")+` 10.20.0.200 fd20::9"]`)
	for _, name := range []string{"free", "there"} {
		own(name)
		says(name, "[]")
	}
	w.change("free", "ovn.kubernetes.io/port_security", "true") // while it runs
	says("free", `["`+own("free")+`"]`)
}
