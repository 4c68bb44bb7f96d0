package testbed

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// NIC is a node's interface on an Underlay, MTU 1500, and PhyBridge the Open
// vSwitch bridge that holds it: with the userspace datapath, ovs-vswitchd sends
// tunnels only from an address that sits on a bridge of its own.
const (
	NIC       = "under0"
	PhyBridge = "br-phy"
)

// Underlay is the network between nodes: a Linux bridge in a namespace of its
// own. It has nothing else: no route leads out.
type Underlay struct {
	t     testing.TB
	h     *holder
	sites int
}

// Site is a node's place on an Underlay. Each node's addresses differ.
type Site struct {
	IP4, IP6 string // without prefix length

	n    *Node
	u    *Underlay
	link string // the bridge's end
}

// NewUnderlay makes a network without nodes, which ends with the test.
func NewUnderlay(t testing.TB) *Underlay {
	t.Helper()
	h, err := hold(syscall.CLONE_NEWNET, "sh", "-c",
		"ip link set lo up && ip link add br0 type bridge && ip link set br0 up && echo ready && exec cat >/dev/null")
	require.NoError(t, err)
	t.Cleanup(h.end)
	return &Underlay{t: t, h: h}
}

// Join gives a node its NIC and its addresses: on PhyBridge, or on the NIC
// itself where the node has no Open vSwitch. A reboot keeps them. A node joins
// one underlay at most.
func (u *Underlay) Join(n *Node) *Site {
	u.t.Helper()
	require.Nil(u.t, n.site, "the node is on an underlay already")
	u.sites++
	n.site = &Site{
		IP4: fmt.Sprintf("172.18.0.%d", u.sites), IP6: fmt.Sprintf("fd00:172:18::%x", u.sites),
		n: n, u: u, link: fmt.Sprintf("u%d", u.sites),
	}
	n.site.join()
	return n.site
}

// join makes the link and what hangs on it.
func (s *Site) join() {
	s.n.t.Helper()
	// After a reboot the link of the former boot may still be there: a namespace
	// loses its links some time after its end.
	_, _ = output(s.u.h.proc("ns/net"), s.n, []string{"ip", "link", "del", s.link})
	s.n.Run("ip", "link", "add", NIC, "type", "veth", "peer", "name", s.link, "netns", strconv.Itoa(s.u.h.pid()))
	s.u.run(s.n, "ip", "link", "set", s.link, "master", "br0", "up")
	// A veth hands on checksums that are not computed; the userspace datapath of
	// the receiver does not know that and delivers them as they are.
	s.n.Run("ethtool", "-K", NIC, "tx", "off")
	s.n.Run("ip", "link", "set", NIC, "up")
	s.Address()
}

// Address gives a node that is on the network its addresses, and the bridge that they
// are on: what goes with conf.db, and is a machine's own to make again.
func (s *Site) Address() {
	s.n.t.Helper()
	dev := NIC
	if s.n.OVS != nil {
		dev = PhyBridge
		s.n.OVS.AddBridge(PhyBridge)
		s.n.OVS.Vsctl("--timeout=20", "--may-exist", "add-port", PhyBridge, NIC)
		s.n.OVS.Barrier()
	}
	s.n.Run("ip", "link", "set", dev, "up")
	s.n.Run("ip", "addr", "add", s.IP4+"/24", "dev", dev)
	s.n.Run("ip", "addr", "add", s.IP6+"/64", "dev", dev, "nodad")
}

// Cut takes the node off the network, as a pulled cable does; Mend puts it back.
func (s *Site) Cut() {
	s.n.t.Helper()
	s.u.run(s.n, "ip", "link", "set", s.link, "nomaster")
}

// Mend undoes Cut.
func (s *Site) Mend() {
	s.n.t.Helper()
	s.u.run(s.n, "ip", "link", "set", s.link, "master", "br0")
}

// run runs a command in the underlay's namespace, with the files of a node.
func (u *Underlay) run(n *Node, argv ...string) {
	u.t.Helper()
	_, err := output(u.h.proc("ns/net"), n, argv)
	require.NoError(u.t, err)
}

// Ping asks from the node itself, as Pod.Ping does.
func (n *Node) Ping(addr string) error { return pingFrom(n, addr) }
