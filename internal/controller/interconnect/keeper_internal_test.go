package interconnect

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/ovn/ic"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// patient decides how late a failure is seen.
const patient = time.Minute

// cluster is one with its Keeper, over a real northbound database and the shared ones, which
// ovn-ic joins.
type cluster struct {
	*Keeper
	t       *testing.T
	central *bed.Central
	said    *objecttest.Board
	data    map[string]string // of the ConfigMap; nil for none
	subnets objecttest.Shelf[*v1.Subnet]
	silent  bool // the shared databases do not answer
	ic      *testbed.Process
}

// site has the databases that clusters share.
type site struct {
	t      *testing.T
	shared *bed.Shared
}

// cluster makes one with a gateway node and a Subnet, whose router has a port in it.
func (s *site) cluster(name, cidr string) *cluster {
	s.t.Helper()
	c := &cluster{t: s.t, central: bed.New(s.t, testbed.Bare(s.t), "127.0.0.1"), said: &objecttest.Board{}, subnets: objecttest.Shelf[*v1.Subnet]{}}
	c.central.Sbctl("chassis-add", name+"-1", "geneve", fmt.Sprintf("192.0.2.%d", len(name)), "--", "set", "Chassis", name+"-1", "other_config:is-interconn=true")
	db := ovn.New(ovn.Config{Endpoint: c.central.NB(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { db.Run(ctx) })
	s.t.Cleanup(func() { cancel(); wg.Wait() })
	require.Eventually(s.t, func() bool { return db.Connected() == nil }, patient, 5*time.Millisecond)
	_, err := db.Take(s.t.Context(), name)
	require.NoError(s.t, err)
	router := &ovn.Set{Owner: "router"}
	router.Put(&ovn.LogicalRouter{Name: v1.DefaultVpc})
	p := netip.MustParsePrefix(cidr)
	router.Put(&ovn.LogicalRouterPort{Name: "web", MAC: "0a:00:00:00:00:01", Networks: []string{netip.PrefixFrom(p.Addr().Next(), p.Bits()).String()}}, ovn.InRouter(v1.DefaultVpc))
	router.Put(&ovn.LogicalRouterPort{Name: "join", MAC: "0a:00:00:00:00:02", Networks: []string{"100.64.0.1/16"}}, ovn.InRouter(v1.DefaultVpc))
	require.NoError(s.t, db.Apply(s.t.Context(), router))
	c.subnet("web", cidr, false)
	node := object.Node{Name: name + "-1", Annotations: map[string]string{v1.AnnChassis: name + "-1"}, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.77")}}
	readers := object.Readers{
		Nodes: objecttest.Shelf[object.Node]{"/" + node.Name: node}, Subnets: c.subnets,
		Namespaces: objecttest.Shelf[object.Namespace]{"/kube-system": {UID: "uid-of-" + name}},
	}
	at := func(ic.Databases) ic.Databases {
		if c.silent {
			return ic.Databases{NB: "unix:/nowhere", SB: "unix:/nowhere"}
		}
		return ic.Databases{NB: s.shared.NB(), SB: s.shared.SB()}
	}
	c.Keeper = New(Config{
		World: object.World{Readers: readers, Outcomes: c.said}, DB: db, Join: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}, Log: slog.New(slog.DiscardHandler),
		Shared: Shared{
			Look: func(ctx context.Context, d ic.Databases) (ic.State, error) { return ic.Look(ctx, at(d)) },
			Claim: func(ctx context.Context, d ic.Databases, zone, owner string) error {
				return ic.Claim(ctx, at(d), zone, owner)
			},
			Forget: func(ctx context.Context, d ic.Databases, zone, owner string) (bool, error) {
				return ic.Forget(ctx, at(d), zone, owner)
			},
		},
	})
	c.begin()
	c.ic = c.central.Node.Start("ovn-ic", "ovn-ic", "--ovnnb-db="+c.central.NB(), "--ovnsb-db="+c.central.SB(), "--ic-nb-db="+s.shared.NB(), "--ic-sb-db="+s.shared.SB(),
		"--unixctl="+c.central.Node.Dir+"/run/ovn-ic.ctl")
	return c
}

func (c *cluster) subnet(name, cidr string, apart bool) {
	c.subnets["/"+name] = &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.SubnetSpec{CIDRBlock: cidr, DisableInterConnection: apart}}
}

// asks gives the ConfigMap what it has for a zone of that name.
func (c *cluster) asks(zone string) {
	c.data = map[string]string{"enable-ic": "true", "az-name": zone, "ic-db-host": "192.0.2.200", "gw-nodes": strings.ReplaceAll(zone, "az-", "") + "-1", "auto-route": "true"}
}

// look is one pass.
func (c *cluster) look() error {
	maps := map[string]object.Map{}
	if c.data != nil {
		maps[declare.ConfigInterconnect] = object.Map{Name: declare.ConfigInterconnect, UID: "u", Data: c.data}
	}
	err := c.once(c.t.Context(), maps)
	if zone := c.data["az-name"]; strings.Contains(c.central.Nbctl("lrp-list", v1.DefaultVpc), "("+portOf(zone)+")") {
		require.Contains(c.t, c.central.Get("Logical_Switch_Port", switchPortOf(zone), "options"), optKey, "the router is on a switch whose number in tunnels is not ovn-ic's")
	}
	return err
}

// until looks until something is so and nothing is left to do.
func (c *cluster) until(what string, is func() bool) {
	c.t.Helper()
	var err error
	for end := time.Now().Add(patient); ; time.Sleep(20 * time.Millisecond) {
		if err = c.look(); err == nil && is() {
			return
		}
		if err != nil && !errors.Is(err, errSoon) && !errors.Is(err, core.ErrUnavailable) {
			require.NoError(c.t, err)
		}
		require.True(c.t, time.Now().Before(end), "%s: in vain: %v, %v, %s", what, err, c.said.Said, c.routes())
	}
}

func (c *cluster) routes() string { return c.central.Nbctl("lr-policy-list", v1.DefaultVpc) }

func (c *cluster) heard(words string) bool {
	return slices.ContainsFunc(c.said.Said, func(s string) bool { return strings.Contains(s, words) })
}

// TestZones: two clusters are joined and learn each other's networks, but for the nodes' and
// what a Subnet keeps to itself; a part of a Subnet that the other has is not learned, and told.
// What ovn-ic chose stays. One that parts leaves nothing behind.
func TestZones(t *testing.T) {
	t.Parallel()
	s := &site{t: t, shared: bed.NewShared(t, testbed.Bare(t), "")}
	a, bb := s.cluster("a", "10.1.0.0/16"), s.cluster("bb", "10.2.0.0/16")
	a.asks("az-a")
	bb.asks("az-bb")
	a.until("a is there", func() bool { return strings.Contains(s.shared.Sbctl("show"), "az-a") })
	bb.until("b learns", func() bool { return strings.Contains(bb.routes(), "10.1.0.0/16") })
	a.until("a learns", func() bool { return strings.Contains(a.routes(), "10.2.0.0/16") })
	require.NotContains(t, s.shared.Sbctl("list", "Route"), "100.64.")
	require.Contains(t, a.routes(), `outport == "az-a-ts"`)
	require.Regexp(t, `31500 +inport == "az-a-ts" && ip4.dst == 100.64.0.0/16 +drop`, a.routes())
	require.Empty(t, strings.TrimSpace(a.central.Nbctl("lr-route-list", v1.DefaultVpc)), "what is a route ovn-ic tells on")
	require.Contains(t, a.central.Nbctl("lrp-get-gateway-chassis", "az-a-ts"), "az-a-ts-a-1")
	a.until("numbers stay", func() bool {
		return a.central.Get("Logical_Switch", "ts", "other_config:requested-tnl-key") != "" &&
			strings.Contains(a.central.Get("Logical_Switch_Port", "ts-az-a", "options"), optKey)
	})
	before := a.central.Get("Logical_Switch_Port", "ts-az-a", "options")
	require.NoError(t, a.look())
	require.Equal(t, before, a.central.Get("Logical_Switch_Port", "ts-az-a", "options"))

	bb.subnet("web", "10.2.0.0/16", true)
	a.until("a Subnet of its own", func() bool { require.NoError(t, bb.look()); return !strings.Contains(a.routes(), "10.2.0.0/16") })
	bb.subnet("web", "10.2.0.0/16", false)
	a.subnet("wide", "10.2.0.0/15", false) // of which bb has a part
	bb.until("bb tells it again", func() bool { return strings.Contains(s.shared.Sbctl("list", "Route"), "10.2.0.1/16") })
	a.until("an overlap", func() bool {
		return a.heard(`cluster "az-bb" has 10.2.0.0/16, which overlaps Subnet wide (10.2.0.0/15)`)
	})
	a.until("it is not learned", func() bool { return !strings.Contains(a.routes(), "10.2.0.0/16") })
	delete(a.subnets, "/wide")
	a.until("it is", func() bool { return strings.Contains(a.routes(), "10.2.0.0/16") })

	// A faulty ConfigMap changes nothing, databases that do not answer neither.
	a.data["auto-route"] = "x"
	require.NoError(t, a.look())
	require.True(t, a.heard("InterconnectionRefused data.auto-route"))
	// Nor does it where another led meanwhile, by another version than this one knew.
	without := a.Keeper
	a.Keeper = New(a.Config)
	a.begin()
	a.asks("az-a")
	delete(a.data, "auto-route")
	a.until("another leader's", func() bool { return !strings.Contains(a.routes(), "10.2.0.0/16") })
	a.Keeper = without
	a.begin()
	a.data["auto-route"] = "x"
	require.NoError(t, a.look())
	require.True(t, a.heard("InterconnectionRefused data.auto-route"))
	require.NotContains(t, a.routes(), "10.2.0.0/16")
	a.asks("az-a")
	a.until("joined as before", func() bool { return strings.Contains(a.routes(), "10.2.0.0/16") })
	a.silent = true
	require.ErrorIs(t, a.look(), core.ErrUnavailable)
	require.True(t, a.heard("does not answer"))
	require.Contains(t, a.routes(), "10.2.0.0/16")
	a.data = nil
	require.ErrorIs(t, a.look(), core.ErrUnavailable)
	require.NotContains(t, a.routes(), "10.2.0.0/16", "here it is withdrawn at once")
	a.silent = false
	a.until("nothing of a", func() bool { return true })
	require.NotContains(t, a.central.Nbctl("list", "NB_Global")+a.central.Nbctl("ls-list"), "ic-")
	require.Empty(t, a.central.Nbctl("ls-list"))
	require.NotContains(t, s.shared.Sbctl("show")+s.shared.Nbctl("list", "Transit_Switch"), "az-a")
	bb.until("bb forgets", func() bool { return !strings.Contains(bb.routes(), "10.1.0.0/16") })
}

// TestTwins: a name that another cluster has, of the zone or of a gateway, joins nothing.
func TestTwins(t *testing.T) {
	t.Parallel()
	s := &site{t: t, shared: bed.NewShared(t, testbed.Bare(t), "")}
	a, bb := s.cluster("a", "10.1.0.0/16"), s.cluster("bb", "10.2.0.0/16")
	a.asks("az-a")
	a.until("a is there", func() bool { return strings.Contains(s.shared.Sbctl("show"), "gateway a-1") })
	bb.asks("az-a")
	require.ErrorIs(t, bb.look(), errSoon)
	require.True(t, bb.heard(`"az-a" is another cluster's name`), bb.said.Said)
	require.Empty(t, bb.central.Nbctl("ls-list"))

	bb.asks("az-bb")
	bb.data["gw-nodes"] = "bb-1,none"
	bb.Nodes = objecttest.Shelf[object.Node]{"/bb-1": {Name: "bb-1", Annotations: map[string]string{v1.AnnChassis: "a-1"}}}
	require.ErrorIs(t, bb.look(), errSoon) // claims the name
	require.ErrorIs(t, bb.look(), errSoon)
	require.True(t, bb.heard(`chassis a-1 has the name of a gateway of cluster "az-a"`), bb.said.Said)
	require.True(t, bb.heard("there is no Node none"), bb.said.Said)
	require.Empty(t, bb.central.Nbctl("ls-list"))

	// A leader whose old databases do not answer any more leaves them in the end.
	a.silent = true
	a.data = nil
	require.ErrorIs(t, a.look(), core.ErrUnavailable)
	a.since = time.Now().Add(-2 * patience)
	require.NoError(t, a.look())
	require.Empty(t, a.central.Nbctl("ls-list"))
	require.NotContains(t, a.central.Nbctl("list", "NB_Global"), "fairlead-ic")
}

// TestNobodyRunsIt: that ovn-ic chooses no number for the zone's port is told, also where the zone
// is there from before; an event that could not be recorded is told at the next look.
func TestNobodyRunsIt(t *testing.T) {
	t.Parallel()
	s := &site{t: t, shared: bed.NewShared(t, testbed.Bare(t), "")}
	a := s.cluster("a", "10.1.0.0/16")
	a.ic.Kill()
	a.asks("az-a")
	require.ErrorIs(t, a.look(), errSoon) // claims the name
	s.shared.Sbctl("create", "Availability_Zone", "name=az-a")
	for range 2 { // makes the port, waits
		require.ErrorIs(t, a.look(), errSoon)
	}
	require.Empty(t, a.said.Said)
	a.asked = time.Now().Add(-time.Minute)
	a.said.Fail = errors.New("the API server is away")
	require.ErrorIs(t, a.look(), a.said.Fail)
	a.said.Fail = nil
	require.ErrorIs(t, a.look(), errSoon)
	require.True(t, a.heard(`zone "az-a", or its port, has not come into the databases`), a.said.Said)
}

// TestConcerns: what changes with every pod, or by itself, is no reason to look.
func TestConcerns(t *testing.T) {
	t.Parallel()
	nodes, subnets := objecttest.Shelf[object.Node]{}, objecttest.Shelf[*v1.Subnet]{}
	k := New(Config{World: object.World{Readers: object.Readers{Nodes: nodes, Subnets: subnets}}})
	k.begin()
	node, subnet := object.KindNode.Named("", "n"), object.KindSubnet.Named("", "s")
	nodes["/n"], subnets["/s"] = object.Node{Labels: map[string]string{declare.LabelInterconnect: "true"}}, &v1.Subnet{Spec: v1.SubnetSpec{CIDRBlock: "10.0.0.0/16"}}
	require.True(t, k.concerns(node))
	require.True(t, k.concerns(subnet))
	nodes["/n"] = object.Node{Labels: map[string]string{declare.LabelInterconnect: "true", "x": "y"}, Down: "NotReady"}
	subnets["/s"] = &v1.Subnet{Spec: v1.SubnetSpec{CIDRBlock: "10.0.0.0/16"}, Status: v1.SubnetStatus{V4UsingIPs: []byte("7")}}
	require.False(t, k.concerns(node))
	require.False(t, k.concerns(subnet))
	require.False(t, k.concerns(object.KindPod.Named("ns", "p")))
	nodes["/n"] = object.Node{}
	require.True(t, k.concerns(node))
	delete(subnets, "/s")
	require.True(t, k.concerns(subnet))
}
