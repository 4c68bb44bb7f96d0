package journal

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func record(n int) core.Record {
	k := core.Key{Container: fmt.Sprintf("c%d", n), IfName: "eth0"}
	pod := core.Pod{Namespace: "default", Name: fmt.Sprintf("pod-%d", n)}
	ip := netip.AddrFrom4([4]byte{10, 16, byte(n >> 8), byte(n)})
	return core.Record{
		Key: k, Network: "net", Pod: pod, Phase: core.Adding, Created: time.Unix(1700000000, 0).UTC(),
		Netns: core.Netns{Path: "/run/netns/x", Cookie: 17, BootID: "b"},
		Specs: []core.Spec{{Key: k, Driver: "ovs", Pod: pod, NIC: &core.NICSpec{
			Addrs:    []netip.Prefix{netip.PrefixFrom(ip, 16)},
			Settings: core.Settings{PodSide: core.PodSide{MAC: core.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)}}},
			OVS:      &core.OVSPort{HostIf: "h"},
		}}},
		Leases: []core.Lease{{Subnet: "s", Owner: core.Owner{Key: k, Pod: pod}, IPs: []netip.Addr{ip}, MAC: core.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)}}},
	}
}

func open(t testing.TB, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, Options{OnCorrupt: func(p string) { t.Errorf("corrupt: %s", p) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	return j
}

func TestLifeOfARecord(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	j := open(t, dir)
	r := record(1)
	require.NoError(t, j.Begin(ctx, r))
	require.ErrorIs(t, j.Begin(ctx, r), core.ErrExists)
	require.NoError(t, j.Commit(ctx, r))
	j.Delivered(r.Key)
	got, ok := j.Get(r.Key)
	require.True(t, ok)
	r.Phase, r.Delivered = core.Added, true
	require.Equal(t, r, got)
	require.NoError(t, j.Close())
	j = open(t, dir)
	got, ok = j.Get(r.Key)
	require.True(t, ok)
	require.Equal(t, r, got)
	require.NoError(t, j.Healthy())
}

// TestShed: a record stays without some of its addresses, which are remembered
// in the same transaction; Delivered is not taken back.
func TestShed(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	j := open(t, dir)
	r := record(1)
	gone := core.Released{Subnet: "s", Pod: r.Pod, IfName: "net1", IPs: r.Leases[0].IPs, Seq: 7}
	require.ErrorIs(t, j.Shed(ctx, r, []core.Released{gone}), core.ErrNotFound)
	require.Empty(t, j.Released())
	require.NoError(t, j.Begin(ctx, r))
	require.NoError(t, j.Commit(ctx, r))
	j.Delivered(r.Key)
	r.Phase, r.Leases = core.Added, nil
	require.NoError(t, j.Shed(ctx, r, []core.Released{gone, {}}))
	require.NoError(t, j.Close())
	j = open(t, dir)
	got, ok := j.Get(r.Key)
	require.True(t, ok)
	r.Delivered = true
	require.Equal(t, r, got)
	require.Equal(t, []core.Released{gone}, j.Released())
}

func BenchmarkWriters(b *testing.B) {
	for _, writers := range []int{1, 50} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			j := open(b, b.TempDir())
			work := make(chan int)
			done := make(chan error, writers)
			for range writers {
				go func() {
					var err error
					for n := range work {
						r := record(n)
						err = j.Begin(context.Background(), r)
						if err == nil {
							err = j.Commit(context.Background(), r)
						}
						if err == nil {
							err = j.Forget(context.Background(), r.Key, nil)
						}
					}
					done <- err
				}()
			}
			b.ResetTimer()
			for n := range b.N {
				work <- n
			}
			close(work)
			for range writers {
				require.NoError(b, <-done)
			}
			b.ReportMetric(3*float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	r := record(1)
	data, err := encodeRecord(r)
	require.NoError(b, err)
	for b.Loop() {
		_, _ = newRow(data, false).record()
	}
}

func BenchmarkEncode(b *testing.B) {
	r := record(1)
	for b.Loop() {
		_, _ = encodeRecord(r)
	}
}

// TestEveryRecordIsDecodedOnce: what Open has decoded to prove the file is what
// the first reader gets; heads need nothing decoded.
func TestEveryRecordIsDecodedOnce(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var want []core.Record
	for n := range 5 {
		require.NoError(t, j.Begin(t.Context(), record(n)))
		j.Delivered(record(n).Key)
	}
	want = j.Records()
	require.NoError(t, j.Close())

	j = open(t, dir)
	require.Len(t, j.Heads(), 5)
	require.Equal(t, want, j.Records())
	require.Len(t, j.PodHeads(record(1).Pod), 1)
	require.Equal(t, 5, j.Decoded())
	require.Equal(t, want, j.Records(), "the values of the first reader are its own")
	require.Equal(t, 10, j.Decoded())
	require.NoError(t, j.Close())

	j = open(t, dir)
	require.NoError(t, j.Forget(t.Context(), record(0).Key, nil))
	require.Equal(t, want[1:], j.Records(), "what was changed since Open is read anew")
}
