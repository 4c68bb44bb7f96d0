package uplink_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// reboot is one as it is without an agent: the machine's programs give the NIC what it has.
func (b *bed) reboot(boot string) {
	b.t.Helper()
	rule := b.sw.In("ip", "rule")
	b.sw.Reboot(func() {
		b.sw.In("nft", "flush", "ruleset")
		if strings.Contains(rule, "77:") {
			b.sw.In("ip", "rule", "del", "priority", "77")
		}
		b.sw.In("ip", "link", "del", b.kind.nic)
		b.kind.wire(b)
		b.kind.address(b)
	})
	b.boot = boot
}

// TestRebootWithoutAgent: after a reboot Open vSwitch does not take the NIC by itself:
// the node answers until there is an agent, which finishes the transfer, and after; whether
// the machine or only ovs-vswitchd was started anew.
func TestRebootWithoutAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	_, err := b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	require.Equal(t, "true", b.sw.Get("Port", "eth1", "other_config:transient"))

	b.sw.KillSwitchd()
	b.sw.PreStart()
	b.sw.StartSwitchd()
	if ovstest.Datapath(t) != ovstest.Userspace { // there the devices go with ovs-vswitchd
		require.Equal(t, "eth1", b.sw.Vsctl("list-ports", "br-net1"))
	}

	b.reboot("two")
	b.until("the bridge's device is there", func() bool { _, err := ovstest.Run(b.sw.NS, "ip", "link", "show", "br-net1"); return err == nil })
	b.out("ping", "-n", "-c", "1", "-w", "5", "192.0.2.1") // the world's neighbour entry
	p := b.ping(b.world, "192.0.2.1")
	time.Sleep(time.Second)
	b.proved()
	require.Equal(t, before, b.has("eth1"))
	p.none()

	b.start()
	require.NoError(t, b.node.Resume(t.Context()))
	require.Equal(t, before, b.has("br-net1"))
	require.Equal(t, "eth1", b.sw.Vsctl("list-ports", "br-net1"))
	require.Equal(t, "true", b.sw.Get("Port", "eth1", "other_config:transient"))
	b.out("ping", "-n", "-c", "3", "-i", "0.1", "192.0.2.1")
}
