package testbed

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"
)

// The link between a node and the world outside (RFC 5737, RFC 3849).
const (
	OutsideIf = "eth0" // the node's interface, MTU 1500
	NodeIP4   = "198.51.100.2"
	NodeIP6   = "2001:db8:51::2"
	WorldIP4  = "198.51.100.1"
	WorldIP6  = "2001:db8:51::1"
)

// Outside stands for the world beyond a node's NIC. It has no route to any pod
// network: pods reach it only where the node translates their addresses.
type Outside struct {
	n *Node
	h *holder
}

// Outside gives the node its NIC, eth0, with addresses and default routes, and
// returns what is at its other end. A second call returns the same.
func (n *Node) Outside() *Outside {
	n.t.Helper()
	if n.outside == nil {
		n.outside = &Outside{n: n}
		n.outside.join()
	}
	return n.outside
}

// join makes the namespace on first use, and the link.
func (o *Outside) join() {
	o.n.t.Helper()
	if o.h == nil {
		h, err := hold(syscall.CLONE_NEWNET, "sh", "-c", "ip link set lo up && echo ready && exec cat >/dev/null")
		require.NoError(o.n.t, err)
		o.h = h
	}
	_, _ = o.Try("ip", "link", "del", "eth0") // its node's end may not have gone yet
	// Fixed MACs: a NIC keeps its own through a reboot.
	o.n.Run("ip", "link", "add", OutsideIf, "address", "02:00:00:00:00:02", "type", "veth",
		"peer", "name", "eth0", "address", "02:00:00:00:00:01", "netns", strconv.Itoa(o.h.pid()))
	o.Run("ip", "addr", "add", WorldIP4+"/24", "dev", "eth0")
	o.Run("ip", "addr", "add", WorldIP6+"/64", "dev", "eth0", "nodad")
	o.Run("ip", "link", "set", "eth0", "up")
	o.n.Run("ip", "addr", "add", NodeIP4+"/24", "dev", OutsideIf)
	o.n.Run("ip", "addr", "add", NodeIP6+"/64", "dev", OutsideIf, "nodad")
	o.n.Run("ip", "link", "set", OutsideIf, "up")
	o.n.Run("ip", "route", "add", "default", "via", WorldIP4)
	o.n.Run("ip", "-6", "route", "add", "default", "via", WorldIP6)
}

// NetnsPath is the namespace of the world outside, for who opens sockets there.
func (o *Outside) NetnsPath() string { return o.h.proc("ns/net") }

// Run runs a command in the world outside.
func (o *Outside) Run(argv ...string) string {
	o.n.t.Helper()
	out, err := o.Try(argv...)
	require.NoError(o.n.t, err, strings.Join(argv, " "))
	return out
}

// Try is Run for commands that may fail, and for any goroutine.
func (o *Outside) Try(argv ...string) (string, error) {
	return output(o.h.proc("ns/net"), o.n, argv)
}

// Ping asks from the world outside, as Pod.Ping does.
func (o *Outside) Ping(addr string) error { return pingFrom(o, addr) }
