package uplink_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/uplink"
)

// taker is a switch whose datapath has a port's frames alone, as the kernel's: from the moment
// that the NIC is a port the kernel does not hear it. It is slow to take one and to give it back.
type taker struct {
	uplink.Switch
	b    *bed
	ends bool // the process ends when the NIC is a port
}

func (k *taker) WaitDevice(ctx context.Context, name string) error {
	err := k.Switch.WaitDevice(ctx, name)
	if err == nil && name == k.b.kind.nic {
		had := k.b.heard("br-net1")
		k.b.until("ovs-vswitchd has flows for the new port", func() bool { return k.b.heard("br-net1") > had+2 })
		k.b.sw.In("nft", "add table netdev taker; add chain netdev taker in { type filter hook ingress device "+name+" priority 0; policy drop; }")
		time.Sleep(300 * time.Millisecond)
		if k.ends {
			panic("ended")
		}
	}
	return err
}

func (k *taker) DetachUplink(ctx context.Context, network, bridge string) error {
	time.Sleep(300 * time.Millisecond)
	k.b.sw.In("nft", "add table netdev taker; delete table netdev taker")
	return k.Switch.DetachUplink(ctx, network, bridge)
}

// heard is how many frames a link has had.
func (b *bed) heard(link string) (frames int) {
	b.t.Helper()
	fields := strings.Fields(b.sw.In("sh", "-c", "grep ' *"+link+":' /proc/net/dev"))
	frames, err := strconv.Atoi(fields[2])
	require.NoError(b.t, err)
	return frames
}

// TestStrictPaths: where the kernel drops what comes by another link than the one that leads
// to its sender, a transfer and a return lose nothing, and the bridge's device is as strict as
// the NIC was when it is over; also when one that was interrupted is finished.
func TestStrictPaths(t *testing.T) {
	t.Parallel()
	b := newBedOf(t, bedOf{wire: (*bed).wire, address: func(b *bed) {
		b.sw.In("sysctl", "-w", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=0", "net.ipv4.conf.eth1.rp_filter=1")
		b.address()
	}})
	filter := func(link string) string { return b.sw.In("sysctl", "-n", "net.ipv4.conf."+link+".rp_filter") }
	k := &taker{Switch: b.ovs, b: b}
	b.through = k
	b.start()
	for range 2 {
		pings := []*ping{b.ping(b.world, "192.0.2.1"), b.ping(b.sw.NS, "198.51.100.1")}
		time.Sleep(200 * time.Millisecond)
		_, err := b.node.Take(t.Context(), net1)
		require.NoError(t, err)
		require.Equal(t, "1", filter("br-net1"))
		require.Equal(t, "1", filter("eth1"))
		require.NotContains(t, string(b.node.All()[0].Had), "Filter")
		b.sw.In("sysctl", "-w", "net.ipv4.conf.br-net1.rp_filter=0") // all's counts
		require.NoError(t, b.node.Return(t.Context(), "net1"))
		require.Equal(t, "1", filter("eth1"))
		b.out("ping", "-n", "-i", "0.01", "-c", "20", "192.0.2.1")
		for _, p := range pings {
			p.hardly()
		}
	}

	// Ended between two steps: the next process knows what it was.
	p := b.ping(b.world, "192.0.2.1")
	k.ends = true
	require.Panics(t, func() { _, _ = b.node.Take(t.Context(), net1) })
	require.Contains(t, string(b.node.All()[0].Had), `"Filter":"1"`)
	require.Equal(t, "2", filter("br-net1"))
	k.ends = false
	b.start()
	require.NoError(t, b.node.Resume(t.Context()))
	require.Equal(t, "1", filter("br-net1"))
	b.out("ping", "-n", "-i", "0.01", "-c", "20", "192.0.2.1")
	p.hardly()
}

// hardly ends it: fewer are lost than in the time that the switch takes. What Open vSwitch
// still has from its socket when it gives the NIC back nobody gets.
func (p *ping) hardly() {
	p.t.Helper()
	answered, lost := p.lost()
	require.Greater(p.t, answered, 10)
	require.Less(p.t, lost, 10, "of %d: %s", answered, p.text.String())
}
