package ovn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const patient = 20 * time.Second

// connect runs a client until the test ends.
func connect(t *testing.T, endpoint string) *ovn.Client {
	t.Helper()
	return run(t, ovn.Config{Endpoint: endpoint})
}

func run(t *testing.T, cfg ovn.Config) *ovn.Client {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	c := ovn.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	require.Eventually(t, func() bool { return c.Connected() == nil }, patient, 5*time.Millisecond)
	return c
}

// leader is a client that has taken the database.
func leader(t *testing.T, endpoint, name string) *ovn.Client {
	t.Helper()
	c := connect(t, endpoint)
	_, err := c.Take(t.Context(), name)
	require.NoError(t, err)
	return c
}

func subnet(name string) *ovn.Set {
	s := &ovn.Set{Owner: "subnet/" + name}
	s.Put(&ovn.LogicalSwitch{Name: name, OtherConfig: map[string]string{"subnet": "10.16.0.0/24"}})
	return s
}

func pod(name, sw, addresses string, more ...ovn.Link) *ovn.Set {
	s := &ovn.Set{Owner: "pod/" + name}
	s.Put(&ovn.LogicalSwitchPort{
		Name: name, Addresses: []string{addresses}, ExternalIDs: map[string]string{"pod": name},
	}, append(more, ovn.InSwitch(sw))...)
	return s
}

// transactions counts what the database was written to: the records of its file.
func transactions(t *testing.T, nb *bed.Central) int {
	t.Helper()
	return strings.Count(nb.Node.Run("ovsdb-tool", "show-log", nb.Node.Dir+"/disk/ovn/nb.db"), "record ")
}

func uuid(nb *bed.Central, table, record string) string { return nb.Get(table, record, "_uuid") }

// TestApply: rows come, change in place and go as Sets say; what is so already
// costs nothing, and rows of others are left alone.
func TestApply(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	nb.Nbctl("init", "--", "ls-add", "his", "--", "lsp-add", "his", "hisport", "--", "lsp-set-addresses", "hisport", "unknown")
	his := nb.Nbctl("list", "Logical_Switch", "his") + nb.Nbctl("list", "Logical_Switch_Port", "hisport")
	c := leader(t, nb.NB(), "a")

	require.NoError(t, c.Apply(t.Context(), subnet("web")))
	group := &ovn.Set{Owner: "group/g"}
	group.Put(&ovn.PortGroup{Name: "g"})
	require.NoError(t, c.Apply(t.Context(), group))
	p := pod("p.ns", "web", "00:00:00:00:00:01 10.16.0.2", ovn.InGroup("g"))
	require.NoError(t, c.Apply(t.Context(), p))
	port := uuid(nb, "Logical_Switch_Port", "p.ns")
	require.Equal(t, "["+port+"]", nb.Get("Logical_Switch", "web", "ports"))
	require.Equal(t, "["+port+"]", nb.Get("Port_Group", "g", "ports"))
	require.Equal(t, "kube-ovn", nb.Get("Logical_Switch_Port", "p.ns", "external_ids:vendor"))
	require.Equal(t, "pod/p.ns", nb.Get("Logical_Switch_Port", "p.ns", "external_ids:fairlead-owner"))
	require.Equal(t, "p.ns", nb.Get("Logical_Switch_Port", "p.ns", "external_ids:pod"))

	before := transactions(t, nb)
	for _, s := range []*ovn.Set{p, subnet("web"), group, pod("p.ns", "web", "00:00:00:00:00:01 10.16.0.2", ovn.InGroup("g"))} {
		require.NoError(t, c.Apply(t.Context(), s))
	}
	require.Equal(t, before, transactions(t, nb), "what is so already costs no transaction")

	// Another address, another switch, no group: the row is the same one.
	require.NoError(t, c.Apply(t.Context(), subnet("db")))
	require.NoError(t, c.Apply(t.Context(), pod("p.ns", "db", "00:00:00:00:00:01 10.17.0.2")))
	require.Equal(t, port, uuid(nb, "Logical_Switch_Port", "p.ns"))
	require.Contains(t, nb.Get("Logical_Switch_Port", "p.ns", "addresses"), "10.17.0.2")
	require.NotContains(t, nb.Get("Logical_Switch_Port", "p.ns", "addresses"), "10.16.0.2")
	require.Equal(t, "[]", nb.Get("Logical_Switch", "web", "ports"))
	require.Equal(t, "["+port+"]", nb.Get("Logical_Switch", "db", "ports"))
	require.Equal(t, "[]", nb.Get("Port_Group", "g", "ports"))

	ports, err := c.Ports()
	require.NoError(t, err)
	require.Len(t, ports, 2)
	require.Equal(t, "his", ports[0].Switch)
	require.Empty(t, ports[0].Owner)
	require.Equal(t, "db", ports[1].Switch)
	require.Equal(t, "00:00:00:00:00:01", ports[1].MAC.String())
	require.Equal(t, "10.17.0.2", ports[1].IPs[0].String())

	// What somebody changed by hand is put right.
	nb.Nbctl("lsp-set-addresses", "p.ns", "unknown", "--", "clear", "Port_Group", "g", "external_ids")
	require.Eventually(t, func() bool {
		return c.Apply(t.Context(), pod("p.ns", "db", "00:00:00:00:00:01 10.17.0.2")) == nil &&
			!strings.Contains(nb.Get("Logical_Switch_Port", "p.ns", "addresses"), "unknown")
	}, patient, 5*time.Millisecond)
	var taken *ovn.TakenError
	require.ErrorAs(t, c.Apply(t.Context(), group), &taken, "without our mark it is not ours")

	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "pod/p.ns"}))
	require.Equal(t, 1, nb.Count("Logical_Switch_Port"))
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "subnet/web"}))
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "subnet/db"}))
	require.Equal(t, 1, nb.Count("Logical_Switch"))
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "nobody"}))
	require.Equal(t, his, nb.Nbctl("list", "Logical_Switch", "his")+nb.Nbctl("list", "Logical_Switch_Port", "hisport"))
}

// TestApplyRefuses: what cannot be is said with what is missing or whose it is,
// and changes nothing.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	nb.Nbctl("init", "--", "ls-add", "his", "--", "lsp-add", "his", "hisport")
	c := leader(t, nb.NB(), "a")
	before := transactions(t, nb)

	var missing *ovn.MissingError
	require.ErrorAs(t, c.Apply(t.Context(), pod("p.ns", "web", "unknown")), &missing)
	require.Equal(t, ovn.MissingError{Table: "Logical_Switch", Key: "web", For: "Logical_Switch_Port p.ns"}, *missing)
	require.ErrorAs(t, c.Apply(t.Context(), pod("p.ns", "his", "unknown")), &missing, "a switch of somebody else is not ours to fill")

	var taken *ovn.TakenError
	s := subnet("web")
	s.Put(&ovn.LogicalSwitchPort{Name: "hisport"}, ovn.InSwitch("web"))
	require.ErrorAs(t, c.Apply(t.Context(), s), &taken)
	require.Empty(t, taken.Owner)

	hasTier, err := c.Has("ACL", "tier")
	require.NoError(t, err)
	s = &ovn.Set{Owner: "acl"}
	s.Put(&ovn.PortGroup{Name: "g"})
	s.PutKeyed("drop", &ovn.ACL{Direction: "to-lport", Priority: 2000, Match: "ip", Action: "drop", Tier: 2},
		ovn.Place{Table: ovn.TablePortGroup, Key: "g", Column: "acls"})
	if err := c.Apply(t.Context(), s); hasTier {
		require.NoError(t, err)
	} else {
		var unsupported *ovn.UnsupportedError
		require.ErrorAs(t, err, &unsupported)
		require.Equal(t, "tier", unsupported.Column)
		require.Equal(t, before, transactions(t, nb))
	}

	for what, wrong := range map[string]func(*ovn.Set){
		"without a place": func(s *ovn.Set) { s.Put(&ovn.LogicalSwitchPort{Name: "p"}) },
		"without a key":   func(s *ovn.Set) { s.Put(&ovn.LogicalSwitch{}) },
		"twice":           func(s *ovn.Set) { s.Put(&ovn.LogicalSwitch{Name: "a"}); s.Put(&ovn.LogicalSwitch{Name: "a"}) },
		"a wrong place":   func(s *ovn.Set) { s.Put(&ovn.LogicalSwitchPort{Name: "p"}, ovn.RouteOf("r")) },
		"a wrong reference": func(s *ovn.Set) {
			s.Put(&ovn.LogicalSwitch{Name: "a"}, ovn.Ref{Column: "ports", Table: ovn.TableDHCPOptions, Key: "d"})
		},
	} {
		s := &ovn.Set{Owner: "wrong"}
		wrong(s)
		require.Error(t, c.Apply(t.Context(), s), what)
	}
	require.Equal(t, "[]", nb.Get("Logical_Switch", "his", "acls"))
	require.Zero(t, nb.Count("Logical_Router"))
	require.Equal(t, 1, nb.Count("Logical_Switch"))
}

// TestOptionalReference: a server without its column has the row without it.
func TestOptionalReference(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	var schema map[string]any
	require.NoError(t, json.Unmarshal([]byte(nb.Node.Run("ovsdb-client", "get-schema", nb.NB(), "OVN_Northbound")), &schema))
	at := schema
	for _, level := range []string{"tables", "NAT", "columns"} {
		at, _ = at[level].(map[string]any)
	}
	require.Contains(t, at, "gateway_port")
	delete(at, "gateway_port")
	text, err := json.Marshal(schema)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "former.ovsschema")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	nb.Node.Run("ovsdb-client", "convert", nb.NB(), file)
	c := leader(t, nb.NB(), "a")
	for range 2 {
		require.NoError(t, c.Apply(t.Context(), everything()))
		require.Equal(t, 1, nb.Count("NAT"))
	}
}

// everything has a row of each kind.
func everything() *ovn.Set {
	s := &ovn.Set{Owner: "all"}
	s.PutKeyed("v4", &ovn.DHCPOptions{CIDR: "10.16.0.0/24", Options: map[string]string{"lease_time": "3600", "router": "10.16.0.1", "server_id": "10.16.0.1", "server_mac": "00:00:00:00:00:01"}})
	s.Put(&ovn.HAChassisGroup{Name: "gw"})
	s.PutKeyed("gw/n1", &ovn.HAChassis{ChassisName: "n1", Priority: 10}, ovn.Place{Table: ovn.TableHAChassisGroup, Key: "gw", Column: "ha_chassis"})
	s.Put(&ovn.LogicalSwitch{Name: "web"}, ovn.Balancers("lbs"))
	s.Put(&ovn.LogicalRouter{Name: "r"})
	s.Put(&ovn.LogicalRouterPort{Name: "r-web", MAC: "00:00:00:00:00:01", Networks: []string{"10.16.0.1/24", "fd16::1/64"}}, ovn.InRouter("r"))
	s.Put(&ovn.LogicalRouterPort{Name: "r-out", MAC: "00:00:00:00:00:02", Networks: []string{"192.0.2.1/24"}}, ovn.InRouter("r"))
	s.Put(&ovn.GatewayChassis{Name: "r-out-n1", ChassisName: "n1", Priority: 20}, ovn.Place{Table: ovn.TableRouterPort, Key: "r-out", Column: "gateway_chassis"})
	s.Put(&ovn.LogicalSwitchPort{Name: "web-r", Type: "router", Addresses: []string{"router"}, Options: map[string]string{"router-port": "r-web"}}, ovn.InSwitch("web"))
	s.Put(&ovn.LogicalSwitchPort{Name: "p", Addresses: []string{"00:00:00:00:00:0a 10.16.0.2"}, PortSecurity: []string{"00:00:00:00:00:0a 10.16.0.2"}},
		ovn.InSwitch("web"), ovn.InGroup("g"), ovn.Ref{Column: "dhcpv4_options", Table: ovn.TableDHCPOptions, Key: "v4"})
	s.PutKeyed("default", &ovn.StaticRoute{IPPrefix: "0.0.0.0/0", Nexthop: "192.0.2.254"}, ovn.RouteOf("r"))
	s.PutKeyed("local", &ovn.Policy{Priority: 31000, Match: "ip4.dst == 10.16.0.0/24", Action: "allow"}, ovn.PolicyOf("r"))
	s.PutKeyed("out", &ovn.NAT{Type: "snat", LogicalIP: "10.16.0.0/24", ExternalIP: "192.0.2.1"}, ovn.Place{Table: ovn.TableRouter, Key: "r", Column: "nat"}, ovn.GatewayPort("r-out"))
	s.Put(&ovn.PortGroup{Name: "g"})
	s.PutKeyed("g/drop", &ovn.ACL{Direction: "to-lport", Priority: 2000, Match: "outport == @g && ip", Action: "drop"}, ovn.Place{Table: ovn.TablePortGroup, Key: "g", Column: "acls"})
	s.Put(&ovn.AddressSet{Name: "as", Addresses: []string{"10.0.0.1", "10.0.0.2"}})
	s.Put(&ovn.LoadBalancer{Name: "svc", Protocol: new("tcp"), Vips: map[string]string{"10.96.0.1:80": "10.16.0.2:8080"}}, ovn.InBalancers("lbs"))
	s.Put(&ovn.LoadBalancerGroup{Name: "lbs"})
	return s
}

var tables = []string{
	"DHCP_Options", "HA_Chassis_Group", "HA_Chassis", "Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port",
	"Gateway_Chassis", "Logical_Router_Static_Route", "Logical_Router_Policy", "NAT", "Port_Group", "ACL", "Address_Set", "Load_Balancer", "Load_Balancer_Group",
}

// TestKinds: rows of every kind come in one transaction, whatever refers to
// what, and go in one.
func TestKinds(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	c := leader(t, nb.NB(), "a")
	before := transactions(t, nb)
	require.NoError(t, c.Apply(t.Context(), everything()))
	require.Equal(t, before+1, transactions(t, nb))
	for _, table := range tables {
		require.NotZero(t, nb.Count(table), table)
	}
	require.Equal(t, "["+uuid(nb, "Load_Balancer", "svc")+"]", nb.Get("Load_Balancer_Group", nb.Get("Logical_Switch", "web", "load_balancer_group")[1:37], "load_balancer"))
	require.Equal(t, nb.Nbctl("--bare", "--columns=_uuid", "list", "DHCP_Options"), nb.Get("Logical_Switch_Port", "p", "dhcpv4_options"))
	require.Contains(t, nb.Nbctl("lr-route-list", "r"), "192.0.2.254")
	require.Equal(t, uuid(nb, "Logical_Router_Port", "r-out"), nb.Nbctl("--bare", "--columns=gateway_port", "list", "NAT"))
	require.NoError(t, c.Apply(t.Context(), everything()))
	require.Equal(t, before+1, transactions(t, nb), "again")

	// A reference and a list change in place.
	s := &ovn.Set{Owner: "as2"}
	s.Put(&ovn.AddressSet{Name: "as2", Addresses: []string{"10.0.0.1", "10.0.0.2"}})
	require.NoError(t, c.Apply(t.Context(), s))
	row := uuid(nb, "Address_Set", "as2")
	s = &ovn.Set{Owner: "as2"}
	s.Put(&ovn.AddressSet{Name: "as2", Addresses: []string{"10.0.0.3", "10.0.0.2"}})
	require.NoError(t, c.Apply(t.Context(), s))
	require.Equal(t, `["10.0.0.2", "10.0.0.3"]`, nb.Nbctl("get", "Address_Set", "as2", "addresses"))
	require.Equal(t, row, uuid(nb, "Address_Set", "as2"))
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "as2"}))
	for _, group := range []string{"lbs", "others"} {
		s = &ovn.Set{Owner: "as2"}
		s.Put(&ovn.LoadBalancerGroup{Name: "others"})
		s.Put(&ovn.LogicalSwitch{Name: "db"}, ovn.Balancers(group))
		require.NoError(t, c.Apply(t.Context(), s))
		require.Contains(t, nb.Nbctl("get", "Load_Balancer_Group", nb.Get("Logical_Switch", "db", "load_balancer_group")[1:37], "name"), group)
	}
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "as2"}))

	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "all"}))
	for _, table := range tables {
		require.Zero(t, nb.Count(table), table)
	}
}

// TestBatch: calls that come at once share transactions, and one that is wrong
// spoils nothing of the others.
func TestBatch(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	c := leader(t, nb.NB(), "a")
	before := transactions(t, nb)
	const n = 200
	errs := make([]error, n)
	var wg sync.WaitGroup
	require.NoError(t, c.Apply(t.Context(), subnet("web")))
	for i := range n {
		wg.Go(func() {
			sw := "web"
			if i%10 == 0 {
				sw = "none"
			}
			errs[i] = c.Apply(t.Context(), pod(fmt.Sprintf("p%d.ns", i), sw, fmt.Sprintf("00:00:00:00:00:%02x 10.16.0.%d", i, i+2)))
		})
	}
	// An invalid value is found by the server alone.
	bad := make(chan error, 1)
	wg.Go(func() {
		s := &ovn.Set{Owner: "bad"}
		s.PutKeyed("bad", &ovn.ACL{Direction: "sideways", Match: "ip", Action: "drop"}, ovn.Place{Table: ovn.TableSwitch, Key: "web", Column: "acls"})
		bad <- c.Apply(t.Context(), s)
	})
	wg.Wait()
	require.ErrorContains(t, <-bad, "sideways")
	for i, err := range errs {
		var missing *ovn.MissingError
		if i%10 == 0 {
			require.ErrorAs(t, err, &missing)
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, n-n/10, nb.Count("Logical_Switch_Port"))
	require.Less(t, transactions(t, nb)-before, n-n/10)
	require.Zero(t, nb.Count("ACL"))
}

// TestFence: who led before cannot change anything any more, also when it has
// not heard of it; who takes the database again can.
func TestFence(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	a, b := connect(t, nb.NB()), connect(t, nb.NB())
	require.ErrorIs(t, a.Apply(t.Context(), subnet("web")), ovn.ErrFenced, "not taken")
	first, err := a.Take(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, a.Apply(t.Context(), subnet("web")))
	nb.Nbctl("set", "NB_Global", ".", "external_ids:other=1")
	require.NoError(t, a.Apply(t.Context(), subnet("db")), "what others write beside it does not matter")

	second, err := b.Take(t.Context(), "b")
	require.NoError(t, err)
	require.Greater(t, second, first)
	require.Equal(t, "1", nb.Get("NB_Global", ".", "external_ids:other"))
	require.Equal(t, "b", nb.Get("NB_Global", ".", "external_ids:fairlead-holder"))
	before := transactions(t, nb)
	for _, s := range []*ovn.Set{subnet("new"), {Owner: "subnet/web"}, pod("p.ns", "web", "unknown")} {
		require.ErrorIs(t, a.Apply(t.Context(), s), ovn.ErrFenced)
	}
	require.ErrorIs(t, a.Leads(), ovn.ErrFenced)
	require.Equal(t, before, transactions(t, nb))
	require.NoError(t, b.Leads())
	require.NoError(t, b.Apply(t.Context(), pod("p.ns", "web", "unknown")))

	// Two that write all the time while the lead goes from one to the other:
	// each change is the leader's.
	var wg sync.WaitGroup
	for i, c := range []*ovn.Client{a, b} {
		wg.Go(func() {
			for k := range 50 {
				s := &ovn.Set{Owner: "contested"}
				s.Put(&ovn.AddressSet{Name: "as", Addresses: []string{fmt.Sprintf("10.%d.0.%d", i, k)}})
				if err := c.Apply(t.Context(), s); err != nil {
					require.ErrorIs(t, err, ovn.ErrFenced)
				}
				if k%10 == 9 {
					_, err := c.Take(t.Context(), fmt.Sprint(i))
					require.NoError(t, err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, nb.Count("Address_Set"))
	require.Eventually(t, func() bool { return (a.Leads() == nil) != (b.Leads() == nil) }, time.Minute, 10*time.Millisecond, "one leads, once the other has heard of it")
}

// TestServerRestarts: the database goes and comes back, as it was and empty.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	c := leader(t, nb.NB(), "a")
	require.NoError(t, c.Apply(t.Context(), subnet("web")))

	// In the middle of writing: each change is there, or its writer heard of it.
	stop, done := make(chan struct{}), make(chan []string)
	go func() {
		var made []string
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- made
				return
			default:
			}
			name := fmt.Sprintf("p%d.ns", i)
			if c.Apply(t.Context(), pod(name, "web", "unknown")) == nil {
				made = append(made, name)
			}
		}
	}()
	require.Eventually(t, func() bool { return nb.Count("Logical_Switch_Port") > 0 }, patient, 5*time.Millisecond)
	nb.KillNB()
	require.Eventually(t, func() bool { return c.Connected() != nil }, patient, time.Millisecond)
	require.ErrorIs(t, c.Apply(t.Context(), subnet("db")), core.ErrUnavailable)
	_, err := c.Ports()
	require.ErrorIs(t, err, core.ErrUnavailable)
	nb.StartNB()
	require.Eventually(t, func() bool { return c.Apply(t.Context(), subnet("db")) == nil }, patient, 5*time.Millisecond)
	close(stop)
	made := <-done
	have := nb.Nbctl("lsp-list", "web")
	for _, name := range made {
		require.Contains(t, have, "("+name+")")
	}
	require.Equal(t, 2, nb.Count("Logical_Switch"))

	nb.KillNB()
	nb.Node.Run("rm", nb.Node.Dir+"/disk/ovn/nb.db")
	nb.StartNB()
	require.Eventually(t, func() bool { return c.Connected() == nil }, patient, 5*time.Millisecond)
	require.ErrorIs(t, c.Apply(t.Context(), subnet("web")), ovn.ErrFenced, "another database has no epoch of ours")
	_, err = c.Take(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), subnet("web")))
	require.Equal(t, 1, nb.Count("Logical_Switch"))
}

// TestCluster: of three members the leader is killed, and another steps down,
// while Sets are written: what was answered is there, and writing goes on.
func TestCluster(t *testing.T) {
	t.Parallel()
	nb := bed.NewCluster(t, testbed.Bare(t), 3)
	var ups atomic.Int32
	c := run(t, ovn.Config{Endpoint: nb.Endpoint(), OnUp: func() { ups.Add(1) }})
	_, err := c.Take(t.Context(), "a")
	require.NoError(t, err)
	var mu sync.Mutex
	var made []string
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprintf("s%d-", i)
			if err := c.Apply(t.Context(), subnet(name)); err == nil {
				mu.Lock()
				made = append(made, name)
				mu.Unlock()
			} else if !errors.Is(err, core.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
				return
			} else {
				time.Sleep(time.Millisecond) // the database is away: others need the processor
			}
		}
	}()
	goesOn := func() {
		t.Helper()
		mu.Lock()
		before := len(made)
		mu.Unlock()
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(made) > before }, time.Minute, 5*time.Millisecond)
	}
	goesOn()
	killed := nb.Leader()
	nb.Kill(killed)
	goesOn()
	require.NotEqual(t, killed, nb.Leader())
	nb.Start(killed)
	before := ups.Load()
	nb.Depose()
	require.Eventually(t, func() bool { return ups.Load() > before }, time.Minute, 5*time.Millisecond, "it stays with a server that does not lead")
	goesOn()
	close(stop)
	<-done
	have := nb.Nbctl("ls-list")
	for _, name := range made {
		require.Contains(t, have, "("+name+")")
	}
	require.NoError(t, c.Leads())
}

// TestTouch: whatever somebody does to rows of ours is told with their owner, and
// applying the owner's Set puts it right. Others' rows and OVN's own columns
// are no news.
func TestTouch(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	nb.Nbctl("init", "--", "ls-add", "his")
	touched, losses := make(chan string, 1000), make(chan string, 1000)
	c := run(t, ovn.Config{Endpoint: nb.NB(), OnTouch: func(owner string, lost bool) {
		if lost {
			losses <- owner
		}
		touched <- owner
	}})
	_, err := c.Take(t.Context(), "a")
	require.NoError(t, err)
	group := &ovn.Set{Owner: "group/g"}
	group.Put(&ovn.PortGroup{Name: "g"})
	p := pod("p.ns", "web", "00:00:00:00:00:01 10.16.0.2", ovn.InGroup("g"))
	sets := map[string]*ovn.Set{"subnet/web": subnet("web"), "group/g": group, "pod/p.ns": p}
	for _, s := range []*ovn.Set{subnet("web"), group, p} {
		require.NoError(t, c.Apply(t.Context(), s))
	}
	owners, err := c.Owners()
	require.NoError(t, err)
	require.Equal(t, []string{"group/g", "pod/p.ns", "subnet/web"}, owners)

	// Rows came, others' and OVN's own columns change, and so does what this client
	// writes: no news until the harm.
	for _, mac := range []string{"2", "1"} {
		require.NoError(t, c.Apply(t.Context(), pod("p.ns", "web", "00:00:00:00:00:0"+mac+" 10.16.0.2", ovn.InGroup("g"))))
	}
	nb.Nbctl("set", "logical_switch", "his", "other_config:x=1", "--", "set", "logical_switch_port", "p.ns", "up=true")
	nb.Nbctl("clear", "logical_switch", "web", "other_config")
	require.Equal(t, "subnet/web", <-touched)
	require.NoError(t, c.Apply(t.Context(), sets["subnet/web"]))
	require.Equal(t, `{subnet="10.16.0.0/24"}`, nb.Get("Logical_Switch", "web", "other_config"))

	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	wg.Go(func() { // what a controller does
		for {
			select {
			case owner := <-touched:
				_ = c.Apply(t.Context(), sets[owner])
			case <-stop:
				return
			}
		}
	})
	const addresses = `["00:00:00:00:00:01 10.16.0.2"]`
	healed := func(table, record, column, is string) {
		t.Helper()
		require.Eventually(t, func() bool { return nb.Nbctl("--if-exists", "get", table, record, column) == is }, patient, 5*time.Millisecond)
	}
	port := uuid(nb, "Logical_Switch_Port", "p.ns")
	nb.Nbctl("lsp-set-addresses", "p.ns", "unknown")
	healed("Logical_Switch_Port", "p.ns", "addresses", addresses)
	nb.Nbctl("clear", "port_group", "g", "ports")
	healed("Port_Group", "g", "ports", "["+port+"]")
	nb.Nbctl("lsp-del", "p.ns")
	healed("Logical_Switch_Port", "p.ns", "addresses", addresses)
	healed("Logical_Switch", "web", "ports", "["+uuid(nb, "Logical_Switch_Port", "p.ns")+"]")
	require.Empty(t, losses, "a port that went holds nobody's rows")
	nb.Nbctl("destroy", "port_group", "g")
	require.Equal(t, "group/g", <-losses)
}
