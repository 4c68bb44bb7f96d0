package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/controller/ports"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// northbound is a database with the default Vpc's router, and a client that leads.
func northbound(t *testing.T) (*bed.Central, *ovn.Client) {
	t.Helper()
	db := bed.NewNB(t, testbed.Bare(t))
	return db, leading(t, db)
}

// leading is a client that leads, and has made the default Vpc's router.
func leading(t *testing.T, db *bed.Central) *ovn.Client {
	t.Helper()
	c := ovn.New(ovn.Config{Endpoint: db.NB(), Log: slog.New(slog.DiscardHandler)})
	go c.Run(t.Context())
	require.Eventually(t, func() bool { return c.Connected() == nil }, 20*time.Second, 10*time.Millisecond)
	_, err := c.Take(t.Context(), "test")
	require.NoError(t, err)
	vpc := &ovn.Set{Owner: "vpc/" + v1.DefaultVpc}
	vpc.Put(&ovn.LogicalRouter{Name: v1.DefaultVpc})
	require.NoError(t, c.Apply(t.Context(), vpc))
	return c
}

// translated are the translations that a database has: type, inside, outside.
func translated(db *bed.Central) (out []string) {
	for line := range strings.Lines(db.Nbctl("--format=csv", "--no-headings", "--columns=type,logical_ip,external_ip", "list", "NAT")) {
		out = append(out, strings.ReplaceAll(strings.TrimSpace(line), `"`, ""))
	}
	slices.Sort(out)
	return out
}

// gatewayData is a ConfigMap's.
func gatewayData() map[string]string {
	return map[string]string{"enable-external-gw": "true", "external-gw-nic": "eth1", "nic-ip": "192.0.2.9/24", "external-gw-addr": "192.0.2.1"}
}

// wanting is a pod that asks for an address outside.
func wanting(name, eip string) object.Pod {
	return object.Pod{Pod: core.Pod{Namespace: "web", Name: name}, Annotations: map[string]string{annEIP: eip}}
}

// bench is a Keeper of what lies on shelves.
type bench struct {
	*objecttest.Board
	*Keeper
	data map[string]string
	pods objecttest.Shelf[object.Pod]
	ips  objecttest.Shelf[*v1.IP]
}

func newBench(c *ovn.Client, subnets objecttest.Shelf[*v1.Subnet]) *bench {
	b := &bench{Board: &objecttest.Board{}, data: gatewayData(), pods: objecttest.Shelf[object.Pod]{}, ips: objecttest.Shelf[*v1.IP]{}}
	b.Keeper = New(Config{World: object.World{Readers: object.Readers{Nodes: objecttest.Shelf[object.Node]{}, Pods: b.pods, IPs: b.ips, Subnets: subnets}, Outcomes: b.Board}, DB: c})
	b.begin()
	return b
}

func (b *bench) once(t *testing.T) error {
	t.Helper()
	b.Said = nil
	for _, p := range b.pods {
		b.concerns(object.KindPod.Named(p.Namespace, p.Name))
	}
	return b.Keeper.once(t.Context(), map[string]object.Map{declare.ConfigExternal: {Name: declare.ConfigExternal, Data: b.data}})
}

func ipIn(subnet, addr string) *v1.IP {
	return &v1.IP{Spec: v1.IPSpec{Subnet: subnet, IPAddress: addr}}
}

// TestBeforeTheEpochIsTaken: a look that came before this controller had taken its epoch is made
// again, and complains of no other controller; a fault of another kind is told.
func TestBeforeTheEpochIsTaken(t *testing.T) {
	t.Parallel()
	db := bed.NewNB(t, testbed.Bare(t))
	c := ovn.New(ovn.Config{Endpoint: db.NB(), Log: slog.New(slog.DiscardHandler)})
	go c.Run(t.Context())
	require.Eventually(t, func() bool { return c.Connected() == nil }, 20*time.Second, 10*time.Millisecond)
	var looks atomic.Int32
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	said := func() string {
		text, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		return string(text)
	}
	b := newBench(c, objecttest.Shelf[*v1.Subnet]{"/s": {}})
	b.World.Follow = func(context.Context, func(object.Key)) error { return nil }
	b.Log = slog.New(slog.NewTextHandler(log, nil))
	b.Loop = ports.NewLoop(Owner, declare.ConfigExternal, func(context.Context, func()) func() (map[string]object.Map, bool) {
		return func() (map[string]object.Map, bool) {
			looks.Add(1)
			return map[string]object.Map{declare.ConfigExternal: {Name: declare.ConfigExternal, Data: b.data}}, true
		}
	})
	var wg sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	wg.Go(func() { _ = b.Run(ctx) })
	require.Eventually(t, func() bool { return looks.Load() > 2 }, 20*time.Second, 10*time.Millisecond)
	require.Empty(t, said())
	_, err = c.Take(t.Context(), "test")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(said(), "the external gateway is not as it should be yet") }, 20*time.Second, 10*time.Millisecond, "there is no router yet")
	end()
	wg.Wait()
}

// TestUntoldIsTriedAgain: an event that could not be recorded has the Keeper look again, and is
// told then.
func TestUntoldIsTriedAgain(t *testing.T) {
	t.Parallel()
	_, c := northbound(t)
	b := newBench(c, objecttest.Shelf[*v1.Subnet]{"/s": {}})
	b.data["type"] = "distributed"
	b.Fail = errors.New("the API server is away")
	require.ErrorIs(t, b.once(t), b.Fail)
	b.Fail = nil
	require.NoError(t, b.once(t))
	require.Contains(t, fmt.Sprint(b.Said), "ExternalGatewayRefused")
	require.NoError(t, b.once(t))
	require.Empty(t, b.Said, "it is told once")
}

// TestRefusedConfigMap: with a ConfigMap that is refused pods go on to come and go by the
// last good one, whoever led then: who gets a dead pod's address inside has not its address
// outside.
func TestRefusedConfigMap(t *testing.T) {
	t.Parallel()
	db, c := northbound(t)
	subnets := objecttest.Shelf[*v1.Subnet]{"/s": {}, "/vlan": {ObjectMeta: metav1.ObjectMeta{Name: "vlan"}, Spec: v1.SubnetSpec{Vlan: "v"}}}
	b := newBench(c, subnets)
	b.pods["web/a"], b.pods["web/b"], b.pods["web/new"], b.pods["web/far"] = wanting("a", "192.0.2.50"), wanting("b", "192.0.2.53"), wanting("new", "192.0.2.51"), wanting("far", "192.0.2.52")
	b.ips["/a.web"], b.ips["/b.web"], b.ips["/far.web"] = ipIn("s", "10.0.0.2"), ipIn("s", "10.0.0.3"), ipIn("vlan", "10.0.1.2")
	other := b.pods["web/far"]
	other.Name, other.Annotations = "other", map[string]string{annEIP: "192.0.2.54", "uplink.ns.kubernetes.io/allocated": "true"}
	b.pods["web/other"] = other
	require.NoError(t, b.once(t))
	require.Equal(t, []string{"dnat_and_snat,10.0.0.2,192.0.2.50", "dnat_and_snat,10.0.0.3,192.0.2.53"}, translated(db))
	require.Contains(t, fmt.Sprint(b.Said), "leaves by the physical gateway of Subnet vlan")
	require.Contains(t, fmt.Sprint(b.Said), "web/other ExternalAddressRefused annotations ovn.kubernetes.io/eip and snat: its default network is not of provider ovn")
	require.NotContains(t, fmt.Sprint(b.Said), "new", "it has no address yet")

	delete(b.pods, "web/a")
	b.data["type"] = "distributed"
	require.NoError(t, b.once(t))
	require.Contains(t, fmt.Sprint(b.Said), "ExternalGatewayRefused")
	require.Equal(t, []string{"dnat_and_snat,10.0.0.3,192.0.2.53"}, translated(db))
	require.Equal(t, `["192.0.2.9/24"]`, db.Get("Logical_Router_Port", "ovn-cluster-external", "networks"), "the gateway stays")

	// Another leads, and writes a good one; this one leads again when that is refused.
	next := newBench(c, subnets)
	next.ips["/b.web"] = b.ips["/b.web"]
	next.data["type"] = "distributed"
	require.NoError(t, next.once(t))
	require.Empty(t, translated(db), "pod b is gone")
	next.pods["web/b"] = wanting("b", "198.51.100.53")
	delete(next.data, "type")
	next.data["nic-ip"], next.data["external-gw-addr"] = "198.51.100.9/24", "198.51.100.1"
	require.NoError(t, next.once(t))
	b.begin()
	b.pods["web/b"] = next.pods["web/b"]
	require.NoError(t, b.once(t))
	require.Equal(t, []string{"dnat_and_snat,10.0.0.3,198.51.100.53"}, translated(db))
	require.Equal(t, `["198.51.100.9/24"]`, db.Get("Logical_Router_Port", "ovn-cluster-external", "networks"))
}

// TestBesideAnotherGateway: where the router has another port with gateway chassis, as the one to other
// clusters, an address outside that is in no port's network is translated too, at the gateway's.
func TestBesideAnotherGateway(t *testing.T) {
	t.Parallel()
	db := bed.New(t, testbed.Bare(t), "127.0.0.1")
	c := leading(t, db)
	other := &ovn.Set{Owner: "other"}
	other.Put(&ovn.LogicalRouterPort{Name: "to-others", MAC: "02:00:00:00:00:09", Networks: []string{"169.254.100.1/24"}}, ovn.InRouter(v1.DefaultVpc))
	other.Put(&ovn.GatewayChassis{Name: "to-others-c", ChassisName: "c", Priority: 1}, ovn.Place{Table: ovn.TableRouterPort, Key: "to-others", Column: "gateway_chassis"})
	require.NoError(t, c.Apply(t.Context(), other))
	b := newBench(c, objecttest.Shelf[*v1.Subnet]{"/s": {}})
	b.data["external-gw-nodes"] = "n"
	b.Nodes = objecttest.Shelf[object.Node]{"/n": {Name: "n", Annotations: map[string]string{v1.AnnChassis: "c"}}}
	b.pods["web/a"], b.ips["/a.web"] = wanting("a", "203.0.113.50"), ipIn("s", "10.0.0.2")
	require.NoError(t, b.once(t))
	port := db.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Router_Port", "name=ovn-cluster-external")
	require.Equal(t, port, db.Nbctl("--bare", "--columns=gateway_port", "list", "NAT"))
	db.Sync()
	require.Contains(t, db.Sbctl("lflow-list", v1.DefaultVpc), "ct_snat(203.0.113.50)")

	// It stays so when somebody takes that away.
	db.Nbctl("clear", "NAT", db.Nbctl("--bare", "--columns=_uuid", "list", "NAT"), "gateway_port")
	require.Eventually(t, func() bool {
		return b.once(t) == nil && db.Nbctl("--bare", "--columns=gateway_port", "list", "NAT") == port
	}, 20*time.Second, 10*time.Millisecond)
}

// TestNameTaken: a Subnet of the external gateway's name keeps it from being, and the
// ConfigMap is told.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	_, c := northbound(t)
	subnet := &ovn.Set{Owner: "subnet/external"}
	subnet.Put(&ovn.LogicalSwitch{Name: "external"})
	require.NoError(t, c.Apply(t.Context(), subnet))
	b := newBench(c, objecttest.Shelf[*v1.Subnet]{})
	require.Error(t, b.once(t))
	require.Contains(t, fmt.Sprint(b.Said), "Logical_Switch external belongs to subnet/external")
}

// running are virtual machines that are all there.
type running struct{ object.Machines }

func (running) Get(namespace, name string) (m object.Machine, there, known bool) {
	return object.Machine{Namespace: namespace, Name: name}, true, true
}

// TestAddressOfMachine: the launcher pod of a virtual machine has the addresses outside of
// the machine's pod.
func TestAddressOfMachine(t *testing.T) {
	t.Parallel()
	db, c := northbound(t)
	b := newBench(c, objecttest.Shelf[*v1.Subnet]{"/s": {}})
	w := b.World
	w.Machines = running{}
	w.Follow = func(context.Context, func(object.Key)) error { return nil }
	w.Claims.Gone = func(context.Context, core.Pod) (bool, error) { return false, nil }
	b.Keeper = New(Config{World: w, DB: c})
	b.begin()
	p := wanting("virt-launcher-vm-x", "192.0.2.50")
	p.Owner = object.Owner{Kind: object.OwnerInstance, Name: "vm"}
	b.pods["web/virt-launcher-vm-x"], b.ips["/vm.web"] = p, ipIn("s", "10.0.0.2")
	require.NoError(t, b.Follow(t.Context(), func(object.Key) {}))
	require.NoError(t, b.once(t))
	require.Equal(t, []string{"dnat_and_snat,10.0.0.2,192.0.2.50"}, translated(db))
}

// counted counts looks at all objects.
type counted[T any] struct {
	objecttest.Shelf[T]
	looks *int
}

func (c counted[T]) List() []T {
	*c.looks++
	return c.Shelf.List()
}

// TestConcerns: what changes with every pod, or by itself, is no reason to look; and a look
// is at the pods that ask for something, not at all of them.
func TestConcerns(t *testing.T) {
	t.Parallel()
	_, c := northbound(t)
	subnets, nodes, looks := objecttest.Shelf[*v1.Subnet]{"/s": {}}, objecttest.Shelf[object.Node]{"/n": {Name: "n"}}, 0
	b := newBench(c, subnets)
	b.Nodes, b.Pods = nodes, counted[object.Pod]{b.pods, &looks}
	subnet, node, asking, plain, ip := object.KindSubnet.Named("", "s"), object.KindNode.Named("", "n"), object.KindPod.Named("web", "a"), object.KindPod.Named("web", "p"), object.KindIP.Named("", "a.web")
	b.pods["web/a"], b.pods["web/p"] = wanting("a", "192.0.2.50"), object.Pod{Pod: core.Pod{Namespace: "web", Name: "p"}}
	b.ips["/a.web"], b.ips["/p.web"] = ipIn("s", "10.0.0.2"), ipIn("s", "10.0.0.3")
	require.NoError(t, b.once(t))
	for _, of := range []object.Key{subnet, node, ip} {
		require.True(t, b.concerns(of), "%s: its first news", of)
	}
	subnets["/s"] = &v1.Subnet{Status: v1.SubnetStatus{V4UsingIPs: []byte("7")}}
	nodes["/n"] = object.Node{Name: "n", Down: "NotReady", Labels: map[string]string{"x": "y"}}
	running := wanting("a", "192.0.2.50")
	running.Version, running.Node = "2", "n"
	b.pods["web/a"] = running
	for _, of := range []object.Key{subnet, node, ip, asking, plain, object.KindIP.Named("", "p.web")} {
		require.False(t, b.concerns(of), of)
	}

	subnets["/s"] = &v1.Subnet{Spec: v1.SubnetSpec{Vpc: "other"}}
	nodes["/n"] = object.Node{Name: "n", Annotations: map[string]string{v1.AnnChassis: "c"}}
	b.pods["web/a"], b.pods["web/p"] = wanting("a", "192.0.2.51"), wanting("p", "192.0.2.52")
	b.ips["/a.web"] = ipIn("s", "10.0.0.4")
	for _, of := range []object.Key{subnet, node, ip, asking, plain} {
		require.True(t, b.concerns(of), of)
	}
	require.NoError(t, b.once(t))
	require.Equal(t, 1, looks, "all pods are looked at once")

	delete(b.pods, "web/a")
	delete(subnets, "/s")
	require.True(t, b.concerns(asking))
	require.True(t, b.concerns(subnet))
	require.False(t, b.concerns(ip), "nobody asks for it any more")
	b.begin()
	require.NoError(t, b.once(t))
	require.Equal(t, 2, looks, "who leads again knows no pod")
}
