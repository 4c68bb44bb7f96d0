//go:build vm

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// realBond makes bond0, a bond with one NIC, and world, what is on the NIC's
// wire with an address of the network.
func realBond(n *testbed.Node, addr string) (world *testbed.Pod) {
	world = n.NewPod("world")
	n.Run("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "eth0", "netns", strings.TrimPrefix(world.Netns(), "/run/netns/"))
	n.Run("ip", "link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "100")
	n.Run("ip", "link", "set", "nic0", "master", "bond0")
	n.Run("ip", "link", "set", "bond0", "up")
	world.Run("ip", "addr", "add", addr, "dev", "eth0")
	world.Run("ip", "link", "set", "eth0", "up")
	return world
}

// bound pings from an address of a pod: behind source-based routing only that
// leads to the interface.
type bound struct {
	*testbed.Pod
	source string
}

func (b bound) Ping(addr string) error {
	_, err := b.Try("ping", "-n", "-I", b.source, "-c", "1", "-w", "3", addr)
	return err
}

// TestKernelSeedMultusIPVLAN is 00-multus.conf with its NAD and pod as they
// stand: ipvlan on a bond. Two pods and the wire hear each other.
func TestKernelSeedMultusIPVLAN(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.Outside()
	world := realBond(n, "192.168.133.1/24")
	n.WriteObjects("nad.yaml", seed(t, "nad-ipvlan-net2.yaml"))
	n.WriteObjects("pod.yaml", seed(t, "pod-ipvlanpod22.yaml"))
	n.WriteObjects("second.yaml", podObject("default/second", map[string]string{networksKey: "ipvlan-net2"}))
	n.Agent("--iface", testbed.OutsideIf).WaitReady()
	awaitGateways(t, n)
	conf := strings.TrimSpace(seed(t, "00-multus.conf"))
	p, q := n.NewPod("ipvlanpod22"), n.NewPod("second")
	before := linkNames(t, n)

	answer := p.CNI("ADD", conf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	require.Equal(t, addresses(t, p, "eth0"), answer.IPs(), "the result is the default network's")
	require.InDelta(t, 1400, linkOf(t, p, "eth0")["mtu"], 0)
	require.Len(t, defaultRoutes(p, "-4"), 1)
	require.Contains(t, defaultRoutes(p, "-4")[0], "default via 10.16.0.1 dev eth0")
	net1 := linkOf(t, p, "net1")
	require.Equal(t, "ipvlan", kind(net1))
	require.Equal(t, linkOf(t, n, "bond0")["address"], net1["address"], "ipvlan shares its master's address")
	require.Equal(t, []string{"192.168.133.190/24"}, addresses(t, p, "net1"))
	require.Contains(t, p.Run("ip", "rule", "show"), "from 192.168.133.190 lookup 100")
	require.Contains(t, p.Run("ip", "route", "show", "table", "100"), "192.168.133.0/24 dev net1")

	a := attachment(t, n, "default/ipvlanpod22")
	require.Len(t, a.Interfaces, 2)
	require.Equal(t, "kube-ovn", a.Interfaces[0].Network)
	require.Equal(t, "default/ipvlan-net2", a.Interfaces[1].Network)
	require.Equal(t, []string{"ipvlan", "sbr"}, a.Interfaces[1].Plugins)
	require.Len(t, a.NetworkStatus, 2)
	require.Equal(t, "default/ipvlan-net2 net1", a.NetworkStatus[1].Name+" "+a.NetworkStatus[1].Interface)
	require.Equal(t, []string{"192.168.133.190"}, a.NetworkStatus[1].IPs)

	q.CNI("ADD", conf).Must()
	require.Equal(t, []string{"192.168.133.191/24"}, addresses(t, q, "net1"))
	reaches(t, bound{p, "192.168.133.190"}, "192.168.133.191", "192.168.133.1")
	reaches(t, p, "10.16.0.1")
	reaches(t, world, "192.168.133.190", "192.168.133.191")
	checked := strings.ReplaceAll(conf, "0.3.1", "0.4.0") // the oldest version that has CHECK
	p.CNI("CHECK", withPrev(checked, answer.Stdout)).Must()

	for _, pod := range []*testbed.Pod{p, q} {
		pod.CNI("DEL", conf).Must()
		require.Equal(t, []string{"lo"}, linkNames(t, pod))
	}
	require.Empty(t, holds(n.Run("ls", "/var/lib/cni/networks/ipvlan-network"), "192.168.133.19"), "host-local has its addresses back")
	require.Equal(t, before, linkNames(t, n))
	p.CNI("DEL", conf).Must()
}
