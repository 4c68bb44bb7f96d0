package kubeovn

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	run "github.com/fairlead/fairlead/internal/driver"
	driver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/former"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// bed is a node that Kube-OVN has left: two pods, one with a rate, and a provider network
// whose NIC leads to the world.
type bed struct {
	node
	t     *testing.T
	sw    *ovstest.Switch
	vsctl string
	pods  [2]inside.KubeOVNPod
	ns    [2]*netns.Handle
	world *netns.Handle
}

// nodeAddr is the node's on the provider network.
const nodeAddr = "198.18.0.1/24"

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, sw: ovstest.New(t), world: netnstest.New(t)}
	b.vsctl = "ovs-vsctl --timeout=20 --db=" + b.sw.Endpoint()
	dir := t.TempDir()
	b.node = node{
		agent: client.New(filepath.Join(dir, "none.sock")), host: b.sw.NS, dir: filepath.Join(dir, "import"), proc: filepath.Join(dir, "proc"),
		state: filepath.Join(dir, "state"), ovsdb: b.sw.Endpoint(), results: filepath.Join(dir, "results"),
	}
	require.NoError(t, os.Mkdir(b.results, 0o700))
	b.sw.Vsctl("init")
	inside.Sh(t, b.sw.NS, "ip link set lo up", b.vsctl+" add-br br-int -- set bridge br-int fail_mode=standalone datapath_type="+ovstest.Datapath(t)+" external_ids:ovn-nb-cfg=7")
	for i := range b.pods {
		b.ns[i] = netnstest.New(t)
		b.pods[i] = inside.KubeOVNPod{
			Vsctl: b.vsctl, Container: strings.Repeat(fmt.Sprintf("%x", 10+i), 64), Netns: b.ns[i].ProcPath(), Namespace: "web", Name: fmt.Sprint("p", i),
			MAC: fmt.Sprintf("00:00:00:bb:00:%02x", i), Addrs: []string{fmt.Sprintf("10.16.0.%d/16", 5+i), fmt.Sprintf("fd00:10:16::%d/112", 5+i)}, Gateways: []string{"10.16.0.1", "fd00:10:16::1"},
		}
		b.attach(i)
	}
	b.sw.Vsctl("set", "interface", b.pods[0].HostIf(), "ingress_policing_rate=5000", "ingress_policing_burst=4000", "external_ids:ovn-installed=true", "--", "set", "port", b.pods[0].HostIf(), "qos=@q",
		"--", "--id=@q", "create", "qos", "type=linux-htb", "queues:0=@u", "external_ids:iface-id=p0.web", "external_ids:pod=web/p0",
		"--", "--id=@u", "create", "queue", "other_config:max-rate=7000000", "other_config:burst=700000", "external_ids:iface-id=p0.web", "external_ids:pod=web/p0")
	inside.Sh(t, b.sw.NS, "ip link add eth1 type veth peer name far netns "+b.world.ProcPath(), "ip link set eth1 up; ip addr add "+nodeAddr+" dev eth1",
		inside.KubeOVNBridge(b.vsctl, ovstest.Datapath(t), "net1", "eth1", nodeAddr))
	inside.Sh(t, b.world, "ip link set far up; ip addr add 198.18.0.2/24 dev far")
	return b
}

// attach makes a pod's port, and what its runtime keeps.
func (b *bed) attach(i int) {
	b.t.Helper()
	p := b.pods[i]
	inside.Sh(b.t, b.ns[i], p.Before())
	inside.Sh(b.t, b.sw.NS, p.Attach())
	inside.Sh(b.t, b.ns[i], p.Configure())
	require.NoError(b.t, os.WriteFile(filepath.Join(b.results, "kube-ovn-"+p.Container+"-eth0"), []byte(p.Cached()), 0o600))
}

// all is what is to be Kube-OVN's again, as the node's own programs tell it.
func (b *bed) all() string {
	b.t.Helper()
	out := b.sw.Vsctl("--columns=external_ids", "list", "open_vswitch") + "\n"
	for _, list := range []struct{ table, columns string }{
		{"bridge", "name,external_ids,other_config,fail_mode"}, {"port", "name,tag,trunks,vlan_mode,external_ids"},
		{"interface", "name,type,external_ids,ingress_policing_rate,ingress_policing_burst"}, {"qos", "type,other_config,external_ids"}, {"queue", "other_config,external_ids"},
	} {
		out += list.table + "\n" + inside.Sh(b.t, b.sw.NS, b.vsctl+" --no-headings --format=csv --columns="+list.columns+" list "+list.table+" | sort")
	}
	return out + inside.Sh(b.t, b.sw.NS, `ip -o link show type veth | sed 's/.*: \(.*\)@.* \(group .*\) qlen[^\\]*\(.*\)/\1 \2 \3/'; ip -4 -br addr show`)
}

// journaled reads the journal.
func (b *bed) journaled() (pods []string, nets []string) {
	b.t.Helper()
	j, err := journal.Open(b.state, journal.Options{})
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, j.Close()) }()
	for _, r := range j.Records() {
		require.Equal(b.t, core.Added, r.Phase)
		require.Equal(b.t, 1, r.Begun)
		pods = append(pods, r.Pod.String()+" "+r.Key.String())
	}
	for _, u := range j.Uplinks() {
		require.Equal(b.t, core.Taken, u.Phase)
		nets = append(nets, u.Network+" "+u.Bridge+" "+u.NIC)
	}
	return pods, nets
}

// taken wants all to be the agent's.
func (b *bed) taken() {
	b.t.Helper()
	pods, nets := b.journaled()
	want := []string{}
	for _, p := range b.pods {
		want = append(want, "web/"+p.Name+" "+core.Key{Container: p.Container, IfName: "eth0"}.String())
		require.Equal(b.t, p.Container, b.sw.Get("interface", p.HostIf(), "external_ids:container_id"))
		require.Contains(b.t, inside.Sh(b.t, b.sw.NS, "ip -d link show "+p.HostIf()), "alias "+driver.Alias(core.Key{Container: p.Container, IfName: "eth0"}))
	}
	require.ElementsMatch(b.t, want, pods)
	require.Equal(b.t, []string{"net1 br-net1 eth1"}, nets)
}

// begin does the first steps of an apply, as one that is killed behind them.
func (b *bed) begin(steps int) {
	b.t.Helper()
	k := taking{node: b.node}
	_, err := recordfile.Load(b.file(), &k.k)
	require.NoError(b.t, err)
	k.db, err = former.Open(b.t.Context(), b.ovsdb)
	require.NoError(b.t, err)
	defer k.db.Close()
	require.NoError(b.t, os.MkdirAll(b.dir, 0o700))
	for _, step := range k.steps()[:steps] {
		require.NoError(b.t, step(b.t.Context()))
	}
}

// beginBack does the first steps of a rollback.
func (b *bed) beginBack(steps int) {
	b.t.Helper()
	g := giving{node: b.node}
	_, err := recordfile.Load(b.file(), &g.k)
	require.NoError(b.t, err)
	g.db, err = former.Open(b.t.Context(), b.ovsdb)
	require.NoError(b.t, err)
	defer g.db.Close()
	g.j, err = journal.Open(b.state, journal.Options{})
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, g.j.Close()) }()
	for _, step := range g.steps()[:steps] {
		require.NoError(b.t, step(b.t.Context()))
	}
}

func (b *bed) done(do func(context.Context) (Report, error)) string {
	b.t.Helper()
	r, err := b.locked(func() (Report, error) { return do(b.t.Context()) })
	require.NoError(b.t, err)
	return strings.Join(append(r.Done, r.Todo...), "\n")
}

// TestPortsAndBridgesThereAndBack: pods' ports and a provider network's bridge are the
// agent's after an apply, also after one that ended behind any of its steps, and Kube-OVN's
// in every column after a rollback, for which the same holds. Each may be repeated.
func TestPortsAndBridgesThereAndBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.all()
	for n := range len((&taking{}).steps()) {
		b.begin(n)
		b.done(b.apply)
		b.taken()
		require.NotEqual(t, before, b.all())
		require.Contains(t, b.done(b.apply), "what was there at ")
		b.taken()
		b.beginBack(n)
		said := b.done(b.rollback)
		require.Equal(t, before, b.all(), "after %d steps: %s", n, said)
		pods, nets := b.journaled()
		require.Empty(t, pods)
		require.Empty(t, nets)
		require.Empty(t, b.done(b.rollback))
	}
	b.done(b.apply)
	b.serves()
	// What the agent has made of it in the meantime goes as well.
	inside.Sh(t, b.sw.NS, b.vsctl+" set open_vswitch . external_ids:fairlead-settled=x external_ids:ovn-remote=unix:/none -- set bridge br-net1 external_ids:fairlead-uplink=net1 -- set bridge br-int other_config:hwaddr="+strings.ReplaceAll("02:00:00:00:00:09", ":", `\\:`)+
		" fail_mode=secure -- set port eth1 trunks=0,10,20 -- set interface "+b.pods[0].HostIf()+" ingress_policing_rate=0 -- clear port "+b.pods[0].HostIf()+" qos -- --all destroy qos -- --all destroy queue")
	b.done(b.rollback)
	require.Equal(t, before, b.all())
}

// serves wants the agent's own parts to find nothing amiss with what was taken over, and to
// give the NIC back.
func (b *bed) serves() {
	t := b.t
	t.Helper()
	j, err := journal.Open(b.state, journal.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	ctx, stop := context.WithCancel(t.Context())
	c := ovs.New(ovs.Config{Endpoint: b.ovsdb, Bridge: "br-int", Datapath: ovstest.Datapath(t), Log: slog.New(slog.DiscardHandler)})
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	require.Eventually(t, func() bool { return c.Connected() == nil }, time.Minute, 10*time.Millisecond)
	d := driver.New(driver.Config{OVS: c, Host: b.host, Log: slog.New(slog.DiscardHandler)})
	for _, r := range j.Records() {
		require.Eventually(t, func() bool { // ovs-vswitchd may be late
			found, err := d.Repair(ctx, run.Run{}, r.Specs[0])
			require.NoError(t, err)
			return found == nil && d.Check(ctx, run.Run{}, r.Specs[0], r.Links[0]) == nil
		}, time.Minute, 10*time.Millisecond, "%v", r.Specs[0])
		if r.Pod.Name == "p0" {
			require.Equal(t, core.QoS{IngressMbps: 7, EgressMbps: 5, EgressBurstMbit: 0, IngressBurstMbit: 0}, r.Specs[0].NIC.QoS)
		}
	}
	boot, err := netns.BootID()
	require.NoError(t, err)
	transfers := uplink.New(uplink.Config{Switch: c, Journal: j, Host: b.host, Node: "n", BootID: boot, Run: t.TempDir(), Userspace: ovstest.Datapath(t) == ovstest.Userspace, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, transfers.Resume(ctx))
	_, err = transfers.Take(ctx, uplink.Want{Network: "net1", NIC: "eth1", Trunks: []int{0, 10}})
	require.NoError(t, err)
	require.Contains(t, inside.Sh(t, b.sw.NS, "ip addr show dev br-net1"), nodeAddr)
}

// TestNICComesBack: the NIC of a bridge that was taken over has its address again when the
// provider network goes.
func TestNICComesBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.done(b.apply)
	j, err := journal.Open(b.state, journal.Options{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	c := ovs.New(ovs.Config{Endpoint: b.ovsdb, Bridge: "br-int", Datapath: ovstest.Datapath(t), Log: slog.New(slog.DiscardHandler)})
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	require.Eventually(t, func() bool { return c.Connected() == nil }, time.Minute, 10*time.Millisecond)
	boot, err := netns.BootID()
	require.NoError(t, err)
	transfers := uplink.New(uplink.Config{Switch: c, Journal: j, Host: b.host, Node: "n", BootID: boot, Run: t.TempDir(), Userspace: ovstest.Datapath(t) == ovstest.Userspace, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, transfers.Return(ctx, "net1"))
	require.NoError(t, j.Close())
	require.Contains(t, inside.Sh(t, b.sw.NS, "ip addr show dev eth1"), nodeAddr)
	require.NotContains(t, b.sw.Vsctl("list-br"), "br-net1")
	require.Empty(t, b.sw.Get("open_vswitch", ".", "external_ids:ovn-bridge-mappings"))
	// A rollback makes nothing of what is gone.
	b.done(b.rollback)
	require.NotContains(t, b.sw.Vsctl("list-br"), "br-net1")
	require.Empty(t, b.sw.Get("open_vswitch", ".", "external_ids:ovn-bridge-mappings"))
}

// TestWhatIsRefused: what the agent cannot serve, or could not give back, is named, and
// nothing is changed.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.all()
	as := func(name string) string {
		return " -- set interface " + name + " external_ids:vendor=kube-ovn external_ids:pod_name=x external_ids:pod_namespace=web"
	}
	for _, c := range []struct{ make, undo, want string }{
		{"add-port br-int vhost0" + as("vhost0") + " type=dpdkvhostuserclient", "del-port vhost0", "port vhost0 of pod web/x is of type dpdkvhostuserclient"},
		{"add-port br-int rep0" + as("rep0"), "del-port rep0", "port rep0 of pod web/x is no end of a veth pair, but a VF's representor"},
		{"add-port br-net1 br-net1-vlan10 tag=10 -- set interface br-net1-vlan10 type=internal external_ids:vendor=kube-ovn external_ids:provider-vlan-interface=eth1.10", "del-port br-net1-vlan10", "port br-net1-vlan10 in the place of VLAN link eth1.10"},
		{"add-port br-net1 rep0", "del-port rep0", "bridge br-net1 has port rep0, of type system"},
		{"add-br br-half -- set bridge br-half external_ids:vendor=kube-ovn", "del-br br-half", "bridge br-half is Kube-OVN's, and ovn-bridge-mappings names no network"},
	} {
		inside.Sh(t, b.sw.NS, "ip link show rep0 >/dev/null 2>&1 || ip link add rep0 type bridge", b.vsctl+" --no-wait "+c.make)
		_, err := b.apply(t.Context())
		require.ErrorContains(t, err, c.want)
		require.NoFileExists(t, b.file())
		require.NoDirExists(t, b.state)
		inside.Sh(t, b.sw.NS, b.vsctl+" --no-wait "+c.undo)
	}
	require.Equal(t, before, b.all())

	// An agent that runs would not know what there was; of one in another mode that is said.
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	answer := `{"settings":{"ovn":false}}`
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, agent.PathStatus, r.URL.Path)
		_, _ = fmt.Fprint(w, answer)
	})}
	go func() { _ = srv.Serve(l) }()
	defer func() { _ = srv.Close() }()
	b.agent = client.New(socket)
	_, err = b.apply(t.Context())
	require.ErrorContains(t, err, "the agent runs, without --ovn")
	answer = `{"settings":{"ovn":true}}`
	_, err = b.apply(t.Context())
	require.ErrorContains(t, err, "the agent runs, and what is Kube-OVN's must be kept before it begins")
	require.NoFileExists(t, b.file())
	require.Equal(t, before, b.all())
}

// TestWhatStays: a port whose container nobody knows, and one of a pod that is gone, stay
// as they are, and it is said.
func TestWhatStays(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	require.NoError(t, os.Remove(filepath.Join(b.results, "kube-ovn-"+b.pods[0].Container+"-eth0")))
	b.sw.Vsctl("set", "interface", b.pods[1].HostIf(), "external_ids:pod_netns=/run/netns/gone")
	said := b.done(b.apply)
	require.Contains(t, said, "port "+b.pods[0].HostIf()+" of pod web/p0 stays as it is: which container it is of cannot be told")
	require.Contains(t, said, "port "+b.pods[1].HostIf()+" of pod web/p1 stays as it is: its pod's namespace is gone")
	pods, nets := b.journaled()
	require.Empty(t, pods)
	require.Len(t, nets, 1)
	for _, p := range b.pods {
		require.Empty(t, b.sw.Get("interface", p.HostIf(), "external_ids:container_id"))
	}
}
