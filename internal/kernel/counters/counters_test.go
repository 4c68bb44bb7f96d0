package counters_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/kernel/counters"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// TestRead: the two ends of a pair count the same packets, each in its own direction.
func TestRead(t *testing.T) {
	ns := netnstest.New(t)
	require.NoError(t, ns.Do(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}
		require.NoError(t, netlink.LinkAdd(v))
		for _, name := range []string{"a", "b"} {
			l, err := netlink.LinkByName(name)
			require.NoError(t, err)
			require.NoError(t, netlink.LinkSetUp(l)) // neighbour discovery sends
		}
		return nil
	}))
	require.Eventually(t, func() bool {
		d, err := counters.Read(ns)
		require.NoError(t, err)
		a, b := d.Links["a"], d.Links["b"].Turned()
		return a.TxPackets > 0 && a.TxPackets == b.TxPackets && a.RxBytes == b.RxBytes
	}, 10*time.Second, 20*time.Millisecond)
	here, err := counters.Read(nil)
	require.NoError(t, err)
	require.NotContains(t, here.Links, "a")
}
