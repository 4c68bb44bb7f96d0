package hostport_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// patience ends a connection that hangs; it decides nothing.
const patience = 5 * time.Second

// Addresses of the node, and of the world, which stands behind a veth.
const (
	node4, node4b, world4 = "198.51.100.2", "198.51.100.3", "198.51.100.1"
	node6, world6         = "2001:db8:51::2", "2001:db8:51::1"
)

// bed is a node with pods on one network, reached by way of a bridge, and the
// world outside.
type bed struct {
	t           *testing.T
	host, world *netns.Handle
	table       *hostport.Table
	pods        int
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, host: netnstest.New(t), world: netnstest.New(t)}
	b.sh(b.world, "ip link set lo up")
	// Where a bridge has its packets translated before they reach the node, a
	// pod meets itself only through a port in hairpin mode.
	b.sh(b.host, "sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 || true")
	b.sh(b.host, "ip link set lo up", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
		"ip link add br0 type bridge", "ip addr add 10.9.0.1/24 dev br0", "ip addr add fd09::1/64 dev br0 nodad", "ip link set br0 up")
	b.link("out", b.world)
	b.sh(b.host, "ip addr add "+node4+"/24 dev out", "ip addr add "+node4b+"/24 dev out", "ip addr add "+node6+"/64 dev out nodad")
	b.sh(b.world, "ip addr add "+world4+"/24 dev eth0", "ip addr add "+world6+"/64 dev eth0 nodad")
	b.restart()
	return b
}

// restart makes the table that a new process has.
func (b *bed) restart() { b.table = hostport.New(hostport.Config{Host: b.host}) }

// link makes a veth between the node and eth0 of another namespace.
func (b *bed) link(name string, peer *netns.Handle) {
	b.t.Helper()
	b.sh(b.host, "ip link add "+name+" type veth peer name eth0 netns "+netnstest.Path(peer), "ip link set "+name+" up")
	b.sh(peer, "ip link set eth0 up")
}

// sh runs commands in ns: independent witnesses.
func (b *bed) sh(ns *netns.Handle, lines ...string) string {
	b.t.Helper()
	return inside.Sh(b.t, ns, lines...)
}

// pod is a namespace with a server that tells its name and whom it sees.
type pod struct {
	ns   *netns.Handle
	spec core.Spec
}

func (b *bed) pod(name string, ports ...core.PortMapping) pod {
	t := b.t
	t.Helper()
	b.pods++
	p := pod{ns: netnstest.New(t)}
	a4, a6 := fmt.Sprintf("10.9.0.%d/24", 9+b.pods), fmt.Sprintf("fd09::%d/64", 9+b.pods)
	b.link(fmt.Sprintf("p%d", b.pods), p.ns)
	b.sh(b.host, fmt.Sprintf("ip link set p%d master br0", b.pods))
	b.sh(p.ns, "ip link set lo up", "ip addr add "+a4+" dev eth0", "ip addr add "+a6+" dev eth0 nodad",
		"ip route add default via 10.9.0.1", "ip route add default via fd09::1")
	id, err := netns.Identify(netnstest.Bind(t, p.ns))
	require.NoError(t, err)
	p.spec = core.Spec{
		Driver: core.DriverHostport, Key: core.Key{Container: fmt.Sprintf("c%d", b.pods), IfName: "eth0"}, Netns: id,
		Pod:       core.Pod{Namespace: "default", Name: name},
		HostPorts: &core.HostPorts{Addrs: []netip.Prefix{netip.MustParsePrefix(a4), netip.MustParsePrefix(a6)}, Ports: ports},
	}
	inside.Serve(t, p.ns, name, 80)
	return p
}

// ask is what a server says to ns; "" for no answer.
func (b *bed) ask(ns *netns.Handle, network, host string, port int) string {
	return inside.Query(ns, peer(network, host, port))
}

func (b *bed) dial(ns *netns.Handle, network, host string, port int) net.Conn {
	return inside.Dial(ns, peer(network, host, port))
}

func peer(network, host string, port int) inside.Peer {
	return inside.Peer{Network: network, Host: host, Port: port, Limit: patience}
}

func tcp(host, container uint16) core.PortMapping {
	return core.PortMapping{HostPort: host, ContainerPort: container, Protocol: "tcp"}
}

func udp(host, container uint16) core.PortMapping {
	return core.PortMapping{HostPort: host, ContainerPort: container, Protocol: "udp"}
}

func on(addr string, p core.PortMapping) core.PortMapping {
	p.HostIP = netip.MustParseAddr(addr)
	return p
}

func (b *bed) attach(p pod) {
	b.t.Helper()
	_, err := b.table.Attach(b.t.Context(), driver.Run{}, p.spec)
	require.NoError(b.t, err)
	require.NoError(b.t, b.table.Check(b.t.Context(), driver.Run{}, p.spec, core.Link{}))
}

func (b *bed) detach(p pod) {
	b.t.Helper()
	require.NoError(b.t, b.table.Detach(b.t.Context(), driver.Run{}, p.spec))
}

func (b *bed) ruleset() string { return b.sh(b.host, "nft -s list ruleset") }
