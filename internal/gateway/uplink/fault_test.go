package uplink_test

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
)

// TestLostAfterTheMove: a gateway that answered by the bridge before the node's ways were moved,
// and does not after, has all taken back.
func TestLostAfterTheMove(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	// It answers twice: on the NIC, before anything is begun, and by the bridge.
	for _, rule := range []string{
		"add table arp few", "add chain arp few in { type filter hook input priority 0; }",
		"add rule arp few in arp operation request arp daddr ip 192.0.2.254 limit rate over 1/hour burst 2 packets drop",
		"add table ip6 few", "add chain ip6 few in { type filter hook input priority 0; }", "add rule ip6 few in icmpv6 type nd-neighbor-solicit drop",
	} {
		b.out("nft", rule)
	}
	var ways strings.Builder
	watch := exec.Command("ip", "-4", "monitor", "route")
	watch.Stdout = &ways
	require.NoError(t, b.sw.NS.Do(watch.Start))
	_, err := b.node.Take(t.Context(), net1)
	time.Sleep(100 * time.Millisecond) // for what the watch has not read yet
	require.NoError(t, watch.Process.Kill())
	_ = watch.Wait()
	require.ErrorContains(t, err, "answers by br-net1")
	require.Contains(t, ways.String(), "default via 192.0.2.254 dev br-net1", "the gateway was lost too early")
	require.Equal(t, before, b.has("eth1"))
	require.Empty(t, b.node.All())
}

// fullDisk is a journal whose disk is full at its n-th write from now on, counted from 1, and
// at no other.
type fullDisk struct {
	uplink.Journal
	left int
}

func (f *fullDisk) write(do func() error) error {
	if f.left--; f.left == 0 {
		return syscall.ENOSPC
	}
	return do()
}

func (f *fullDisk) Take(ctx context.Context, u core.Uplink) error {
	return f.write(func() error { return f.Journal.Take(ctx, u) })
}

func (f *fullDisk) Move(ctx context.Context, u core.Uplink) error {
	return f.write(func() error { return f.Journal.Move(ctx, u) })
}

func (f *fullDisk) Return(ctx context.Context, network string) error {
	return f.write(func() error { return f.Journal.Return(ctx, network) })
}

// TestDiskFullInATransfer: whichever write of the journal fails, the node answers. A NIC is
// given when there is room, and given back without: what is recorded of it then ends later.
func TestDiskFullInATransfer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.has("eth1")
	disk := &fullDisk{}
	b.record = func(j uplink.Journal) uplink.Journal { disk.Journal = j; return disk }
	b.start()
	for _, step := range []struct {
		do    func() error
		link  string
		fails bool
	}{
		{func() error { _, err := b.node.Take(t.Context(), net1); return err }, "br-net1", true},
		{func() error { return b.node.Return(t.Context(), "net1") }, "eth1", false},
	} {
		failed := 0
		for n := 1; ; n++ {
			disk.left = n
			err := step.do()
			b.out("ping", "-n", "-c", "1", "-w", "5", "192.0.2.1")
			if err == nil {
				break
			}
			require.ErrorIs(t, err, syscall.ENOSPC)
			failed++
		}
		require.Equal(t, step.fails, failed > 0, failed)
		require.Equal(t, before, b.has(step.link))
	}
	b.start()
	require.NoError(t, b.node.Resume(t.Context()))
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	require.Equal(t, before, b.has("eth1"))
	require.Empty(t, b.node.All())
}
