package uplink_test

import (
	"bufio"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

var net1 = uplink.Want{Network: "net1", NIC: "eth1", Trunks: []int{0, 100}}

// TestTransferAndReturn: a NIC goes to a bridge and comes back with all that it has, and
// nobody who talks with the node loses a packet, in either direction and family; a TCP
// connection goes on.
func TestTransferAndReturn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	pings := []*ping{b.ping(b.world, "192.0.2.1"), b.ping(b.world, "2001:db8::1"), b.ping(b.sw.NS, "198.51.100.1"), b.ping(b.sw.NS, "2001:db8::fe")}
	say := b.talk()
	time.Sleep(200 * time.Millisecond)
	say()

	st, err := b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	require.Equal(t, uplink.Status{NIC: "eth1", Bridge: "br-net1", MTU: 1500}, st)
	say()
	require.Equal(t, before, b.has("br-net1"), "all that the NIC had")
	require.Empty(t, b.sw.In("sh", "-c", "ip -o addr show dev eth1; ip -4 route show table all dev eth1; ip -6 route show dev eth1"))
	require.Equal(t, "net1:br-net1", b.sw.Get("Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"))
	require.Regexp(t, "^net1:0a:", b.sw.Get("Open_vSwitch", ".", "external_ids:ovn-chassis-mac-mappings"))
	require.Equal(t, "[0, 100]", b.sw.Get("Port", "eth1", "trunks"))
	require.NotContains(t, b.out("ping", "-n", "-i", "0.01", "-c", "20", "192.0.2.1"), "DUP!", "the kernel does not answer beside the bridge")

	for range 2 { // what is so already costs nothing
		rows := b.sw.Vsctl("--columns=next_cfg", "list", "Open_vSwitch")
		_, err = b.node.Take(t.Context(), net1)
		require.NoError(t, err)
		require.Equal(t, rows, b.sw.Vsctl("--columns=next_cfg", "list", "Open_vSwitch"))
	}

	more := net1
	more.Trunks = []int{0, 100, 200}
	_, err = b.node.Take(t.Context(), more)
	require.NoError(t, err)
	require.Equal(t, "[0, 100, 200]", b.sw.Get("Port", "eth1", "trunks"))
	require.Contains(t, b.file("systemd/network/05-fairlead-eth1.network"), "[Match]\nName=eth1\n\n[Link]\nUnmanaged=yes\n")
	require.Contains(t, b.file("NetworkManager/conf.d/fairlead-eth1.conf"), "[keyfile]\nunmanaged-devices+=interface-name:eth1\n")

	require.NoError(t, b.node.Return(t.Context(), "net1"))
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	require.NoFileExists(t, b.run+"/systemd/network/05-fairlead-eth1.network")
	require.NoFileExists(t, b.run+"/NetworkManager/conf.d/fairlead-eth1.conf")
	say()
	b.out("ping", "-n", "-i", "0.01", "-c", "20", "192.0.2.1")
	require.Equal(t, before, b.has("eth1"))
	require.Empty(t, b.sw.Get("Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"))
	b.until("the bridge is gone", func() bool { return b.sw.Count("Bridge") == 1 })
	require.Empty(t, b.node.All())
	for _, p := range pings {
		p.none()
	}
}

// TestLongName: a network whose bridge no link can be called after is begun nothing for. What
// an earlier version began for it is taken back.
func TestLongName(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	long := uplink.Want{Network: "datacenter-east", NIC: "eth1", Trunks: net1.Trunks}
	for _, exchanged := range []bool{false, true} {
		long.Exchanged = exchanged
		_, err := b.node.Take(t.Context(), long)
		require.ErrorContains(t, err, "no link can be called br-datacenter-east")
		require.Empty(t, b.node.All())
		require.Equal(t, 1, b.sw.Count("Bridge"))
	}

	require.NoError(t, b.j.Take(t.Context(), core.Uplink{
		Network: long.Network, Bridge: "br-datacenter-east", NIC: "eth1", Port: "eth1", MAC: core.MAC{2, 0, 0, 0, 1, 1}, Phase: core.Taking, BootID: b.boot, Had: []byte("{}"),
	}))
	require.NoError(t, b.ovs.EnsureUplinkBridge(t.Context(), ovs.Uplink{Network: long.Network, Bridge: "br-datacenter-east"}))
	b.start()
	require.NoError(t, b.node.Return(t.Context(), long.Network))
	require.Empty(t, b.node.All())
	require.Equal(t, 1, b.sw.Count("Bridge"))
	require.Equal(t, before, b.has("eth1"))
}

// talk opens a TCP connection from the world to the node; each call says something that
// must come back.
func (b *bed) talk() func() {
	b.t.Helper()
	var l net.Listener
	require.NoError(b.t, b.sw.NS.Do(func() (err error) { l, err = net.Listen("tcp", "192.0.2.1:7"); return err }))
	b.t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(line))
		}
	}()
	var c net.Conn
	require.NoError(b.t, b.world.Do(func() (err error) { c, err = net.Dial("tcp", "192.0.2.1:7"); return err }))
	b.t.Cleanup(func() { _ = c.Close() })
	in := bufio.NewReader(c)
	return func() {
		b.t.Helper()
		require.NoError(b.t, c.SetDeadline(time.Now().Add(20*time.Second)))
		_, err := c.Write([]byte("hello\n"))
		require.NoError(b.t, err)
		line, err := in.ReadString('\n')
		require.NoError(b.t, err)
		require.Equal(b.t, "hello\n", line)
	}
}

// TestTakenBack: a gateway that answers on the NIC and not by the bridge, as where the
// network's VLANs do not have the node's, ends the transfer before anything is lost.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	p := b.ping(b.world, "192.0.2.1")
	_, err := b.node.Take(t.Context(), uplink.Want{Network: "net1", NIC: "eth1", Trunks: []int{100}})
	require.ErrorContains(t, err, "no gateway of the node (192.0.2.254, 2001:db8::fe) answers by br-net1")
	require.Equal(t, before, b.has("eth1"))
	b.until("the bridge is gone", func() bool { return b.sw.Count("Bridge") == 1 })
	require.Empty(t, b.node.All())
	require.Empty(t, b.sw.Get("Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"))
	b.out("ping", "-n", "-i", "0.01", "-c", "20", "192.0.2.1")
	p.none()

	b.out("ip", "link", "set", "far", "down")
	_, err = b.node.Take(t.Context(), net1)
	require.ErrorContains(t, err, "answers by eth1", "nothing is begun that could not be proved")
	require.Equal(t, 1, b.sw.Count("Bridge"))
}

// TestExchangedNames: the bridge takes the NIC's name, and each has its own again after.
func TestExchangedNames(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	mac := b.mac("eth1")
	p := b.ping(b.world, "192.0.2.1")
	w := net1
	w.Exchanged = true
	st, err := b.node.Take(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, uplink.Status{NIC: "br-net1", Bridge: "eth1", MTU: 1500}, st)
	require.Equal(t, before, b.has("eth1"), "the bridge's device")
	require.Equal(t, "true", b.sw.Get("Bridge", "eth1", "external_ids:exchange-link-name"))
	require.Equal(t, "net1:eth1", b.sw.Get("Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"))
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	// The kernel numbers the labels of further IPv4 addresses when a link is renamed.
	require.Equal(t, before, regexp.MustCompile(`NIC:\d+`).ReplaceAllString(b.has("eth1"), "NIC"), "the NIC")
	require.Equal(t, mac, b.mac("eth1"))
	b.out("ping", "-n", "-i", "0.01", "-c", "20", "192.0.2.1")
	p.none()
}

// TestExchangedNamesAfterAReboot: the switch's database has a bridge of the name that the
// NIC has again, with the addresses that the machine gave it.
func TestExchangedNamesAfterAReboot(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := net1
	w.Exchanged = true
	_, err := b.node.Take(t.Context(), w)
	require.NoError(t, err)
	before := b.has("eth1")
	b.sw.KillSwitchd()
	b.sw.In("nft", "flush", "ruleset")
	b.sw.In("ip", "rule", "del", "priority", "77")
	b.sw.In("ip", "link", "del", "eth1")
	b.sw.In("ip", "link", "del", "br-net1")
	b.wire()
	b.address()
	b.sw.StartSwitchd()
	b.boot = "two"
	b.start()
	b.out("ping", "-n", "-c", "1", "-w", "5", "192.0.2.1")
	b.until("the transfer is finished", func() bool { // Open vSwitch may make its device anew when it hears of the other names
		if b.node.Resume(t.Context()) != nil {
			return false
		}
		_, err := ovstest.Run(b.world, "ping", "-n", "-c", "3", "-i", "0.2", "-w", "2", "192.0.2.1")
		return err == nil
	})
	require.Equal(t, before, b.has("eth1"))
	require.Equal(t, "br-net1", b.sw.Vsctl("list-ports", "eth1"))
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	b.out("ping", "-n", "-c", "3", "-i", "0.1", "192.0.2.1")
}

// TestLostJournal: what the switch has of it is enough to go on, and to give the NIC back,
// whether or not names were exchanged.
func TestLostJournal(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	p := b.ping(b.world, "192.0.2.1")
	for _, w := range []uplink.Want{net1, {Network: "net1", NIC: "eth1", Trunks: net1.Trunks, Exchanged: true}} {
		_, err := b.node.Take(t.Context(), w)
		require.NoError(t, err)
		require.Empty(t, b.node.Strays())
		b.dir = t.TempDir()
		b.start()
		stray := w
		stray.Trunks = nil
		require.Equal(t, []uplink.Want{stray}, b.node.Strays())
		st, err := b.node.Take(t.Context(), stray)
		require.NoError(t, err)
		require.Equal(t, before, b.has(st.Bridge))
		require.Equal(t, "[0, 100]", b.sw.Get("Port", st.NIC, "trunks"))
		require.NoError(t, b.node.Return(t.Context(), "net1"))
		require.Equal(t, before, regexp.MustCompile(`NIC:\d+`).ReplaceAllString(b.has("eth1"), "NIC"))
		b.until("the bridge is gone", func() bool { return b.sw.Count("Bridge") == 1 })
	}
	b.out("ping", "-n", "-i", "0.01", "-c", "20", "192.0.2.1")
	p.none()
}

// TestAnotherNIC: one that has another name is found by its hardware address; one that was
// pulled out and put back, with another address, serves as before.
func TestAnotherNIC(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	_, err := b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	b.sw.In("ip", "link", "set", "eth1", "name", "lan0")
	b.start()
	st, err := b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	require.Equal(t, "lan0", st.NIC)
	b.out("ping", "-n", "-c", "3", "-i", "0.1", "192.0.2.1")
	require.NotContains(t, b.sw.In("nft", "list", "tables"), "eth1")
	require.Equal(t, "lan0", b.sw.Vsctl("list-ports", "br-net1"))

	b.sw.In("ip", "link", "del", "lan0")
	_, err = b.node.Take(t.Context(), net1)
	require.ErrorContains(t, err, "no link has the name eth1 or its hardware address 02:00:00:00:01:01")
	require.Equal(t, before, b.has("br-net1"), "the bridge keeps what it has")
	b.wire()
	b.sw.In("ip", "link", "set", "eth1", "address", "02:00:00:00:01:02")
	_, err = b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	require.Equal(t, "02:00:00:00:01:02", b.mac("br-net1"))
	b.until("the world reaches it", func() bool {
		_, err := ovstest.Run(b.world, "ping", "-n", "-c", "1", "-w", "1", "192.0.2.1")
		return err == nil
	})
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	b.out("ping", "-n", "-c", "3", "-i", "0.1", "192.0.2.1")
}

// TestVLANLinkIsNotMade: what no VLAN link can be, or above what there is none, is refused;
// a NIC that is there needs none.
func TestVLANLinkIsNotMade(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.sw.In("sh", "-euc", "ip link add idle type veth peer name eth1.100; ip link add lan type bridge; ip link add part type veth peer name far; ip link set part master lan up")
	for nic, why := range map[string]string{
		"eth7": "does not say which VLAN link it is", "eth1.": "does not say", ".7": "does not say", "eth1.0": "does not say", "eth1.4095": "does not say", "eth1.+5": "does not say",
		"eth9.7": "eth9.7 is to be made above eth9, which this node has not", "idle.7": "idle.7 is to be made above idle, which is down",
		"part.7": "part is a member of lan (bridge): name a VLAN of that", "eth1.100": "eth1.100 is there and is not VLAN 100 of eth1",
	} {
		_, err := b.node.Take(t.Context(), uplink.Want{Network: "net1", NIC: nic, Trunks: net1.Trunks, Make: true})
		require.ErrorContains(t, err, why, nic)
	}
	require.Empty(t, b.node.All())
	require.Equal(t, 1, b.sw.Count("Bridge"))
	w := net1
	w.Make = true
	_, err := b.node.Take(t.Context(), w)
	require.NoError(t, err)
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	b.out("ping", "-n", "-c", "1", "-w", "10", "192.0.2.1")
}
