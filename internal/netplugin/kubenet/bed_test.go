package kubenet_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/kubenet"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// patience ends what hangs; it decides nothing.
const patience = 20 * time.Second

// Addresses of the node, and of the world, which stands behind a veth and has no
// way to pods.
const (
	node4, world4 = "198.51.100.2", "198.51.100.1"
	node6, world6 = "2001:db8:51::2", "2001:db8:51::1"
	cidrs         = "10.244.7.0/24,fd00:244:7::/64"
)

// bed is a node with the plugin, and the world outside. It is the plugin's host.
type bed struct {
	t           testing.TB
	host, world *netns.Handle
	state, data string
	settings    netplugin.Settings
	paths       map[string]string // of sandboxes that run
	ports       map[string][]netplugin.PortMapping
	m           *netplugin.Manager
	stop        func()
	pods        int
}

var defaults = netplugin.Settings{
	Hairpin:       netplugin.HairpinVeth,
	NonMasquerade: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
}

func newBed(t testing.TB, s netplugin.Settings) *bed {
	t.Helper()
	b := &bed{
		t: t, host: netnstest.New(t), world: netnstest.New(t), state: t.TempDir(), data: t.TempDir(), settings: s,
		paths: map[string]string{}, ports: map[string][]netplugin.PortMapping{},
	}
	b.sh(b.host, "ip link set lo up", "ip link add out mtu 1400 type veth peer name eth0 netns "+netnstest.Path(b.world), "ip link set out up",
		"ip addr add "+node4+"/24 dev out", "ip addr add "+node6+"/64 dev out nodad", "ip route add default via "+world4)
	b.sh(b.world, "ip link set lo up", "ip link set eth0 up", "ip addr add "+world4+"/24 dev eth0", "ip addr add "+world6+"/64 dev eth0 nodad")
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// start is the beginning of a process's life.
func (b *bed) start() {
	b.t.Helper()
	p := kubenet.New(kubenet.Config{StateDir: b.state, DataDir: b.data, Host: b.host, Log: slog.New(slog.NewTextHandler(b.t.Output(), nil))})
	b.m = netplugin.NewManager(p, nil)
	require.NoError(b.t, b.m.Init(b.t.Context(), b, b.settings))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { b.m.Run(ctx); close(ended) }()
	b.stop = func() { cancel(); <-ended }
}

// restart forgets all that is in memory.
func (b *bed) restart() {
	b.t.Helper()
	b.stop()
	b.start()
}

func (b *bed) GetNetNS(_ context.Context, sandbox string) (string, error) {
	if p := b.paths[sandbox]; p != "" {
		return p, nil
	}
	return "", netplugin.ErrNoNetns
}

func (b *bed) GetPodPortMappings(sandbox string) []netplugin.PortMapping { return b.ports[sandbox] }

// live are the sandboxes that run.
func (b *bed) live(context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	for id := range b.paths {
		ids[id] = true
	}
	return ids, nil
}

func (b *bed) told(cidr string) {
	b.t.Helper()
	require.NoError(b.t, b.m.SetPodCIDR(b.t.Context(), cidr))
}

// pod is a sandbox with a server that tells its name and whom it sees.
type pod struct {
	*netns.Handle
	netplugin.Pod
	v4, v6 string
}

func (b *bed) sandbox(name string, ports ...netplugin.PortMapping) pod {
	b.t.Helper()
	b.pods++
	p := pod{Handle: netnstest.New(b.t), Pod: netplugin.Pod{
		Sandbox: fmt.Sprintf("sandbox%d", b.pods), Namespace: "default", Name: name, UID: name, Annotations: map[string]string{},
	}}
	b.paths[p.Sandbox] = netnstest.Bind(b.t, p.Handle)
	b.ports[p.Sandbox] = ports
	return p
}

// run sets a pod up.
func (b *bed) run(name string, ports ...netplugin.PortMapping) pod {
	b.t.Helper()
	p := b.sandbox(name, ports...)
	return b.setUp(p)
}

func (b *bed) setUp(p pod) pod {
	b.t.Helper()
	require.NoError(b.t, b.m.SetUpPod(b.t.Context(), p.Pod))
	p.v4, p.v6 = b.addresses(p)
	inside.Serve(b.t, p.Handle, p.Name, 80)
	return p
}

func (b *bed) addresses(p pod) (v4, v6 string) {
	b.t.Helper()
	st := b.status(p)
	require.Len(b.t, st.IPs, 2)
	require.Equal(b.t, st.IPs[0], st.IP)
	return st.IPs[0].String(), st.IPs[1].String()
}

// up sets a pod up and gives its first address.
func (b *bed) up(p pod) string {
	b.t.Helper()
	require.NoError(b.t, b.m.SetUpPod(b.t.Context(), p.Pod))
	return b.status(p).IP.String()
}

func (b *bed) status(p pod) *netplugin.PodNetworkStatus {
	b.t.Helper()
	st, err := b.m.GetPodNetworkStatus(b.t.Context(), p.Pod)
	require.NoError(b.t, err)
	require.NotNil(b.t, st)
	return st
}

func (b *bed) tearDown(pods ...pod) {
	b.t.Helper()
	for _, p := range pods {
		require.NoError(b.t, b.m.TearDownPod(b.t.Context(), p.Pod))
	}
}

// sh runs commands in ns: independent witnesses.
func (b *bed) sh(ns *netns.Handle, lines ...string) string {
	b.t.Helper()
	return inside.Sh(b.t, ns, lines...)
}

// ask is what a server says to ns; "" for no answer.
func (b *bed) ask(ns *netns.Handle, network, host string, port int) string {
	return inside.Query(ns, inside.Peer{Network: network, Host: host, Port: port, Limit: patience})
}

// clean wants nothing left of any pod: a link, an address, a rule, a record.
func (b *bed) clean() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		links := b.sh(b.host, "ip -o link")
		// The way out is the only link with a far end.
		return strings.Count(links, "@") == 1 && !strings.Contains(links, "ifb") && !strings.Contains(links, "fltomb")
	}, patience, 20*time.Millisecond, "links are left over")
	leases, err := filepath.Glob(filepath.Join(b.data, "kubenet", "*[.:]*"))
	require.NoError(b.t, err)
	for _, l := range leases {
		require.Contains(b.t, l, "last_reserved", "an address is leaked")
	}
	require.NotContains(b.t, b.sh(b.host, "nft list ruleset"), kubenet.PortsTableName)
	records, err := os.ReadDir(filepath.Join(b.state, "pods"))
	require.NoError(b.t, err)
	require.Empty(b.t, records)
}

func tcp(host, container int32) netplugin.PortMapping {
	return netplugin.PortMapping{HostPort: host, ContainerPort: container, Protocol: "tcp"}
}

func udp(host, container int32) netplugin.PortMapping {
	return netplugin.PortMapping{HostPort: host, ContainerPort: container, Protocol: "udp"}
}
