package engine

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// fullNode fills a journal with count attachments of two interfaces each, as an
// agent left them that was stopped in this boot, and gives the Config of the
// next one.
func fullNode(tb testing.TB, count int) (Config, string) {
	tb.Helper()
	e := newEngine(tb, &nics{})
	req := add(tb)
	req.Conf.Raw = []byte(`{"cniVersion":"1.0.0","name":"net","type":"fairlead"}`)
	_, err := e.Add(tb.Context(), req)
	require.NoError(tb, err)
	made, _ := e.Journal.Get(req.Key)
	dir := tb.TempDir()
	j, err := journal.Open(dir, journal.Options{})
	require.NoError(tb, err)
	require.NoError(tb, j.SetWhole(tb.Context()))
	for i := range count {
		require.NoError(tb, j.Begin(tb.Context(), another(made, i)))
	}
	require.NoError(tb, j.Close())
	return e.Config, dir
}

// another is a record like made, of another container with other addresses.
func another(made core.Record, i int) core.Record {
	id := fmt.Sprintf("c%d", i)
	rec := made
	rec.Key.Container, rec.Pod.Name, rec.Delivered = id, fmt.Sprintf("p%d", i), true
	rec.Netns.Cookie += uint64(i + 1)
	rec.Specs, rec.Leases = append([]core.Spec(nil), made.Specs...), append([]core.Lease(nil), made.Leases...)
	for n := range rec.Specs {
		s := &rec.Specs[n]
		s.Key.Container, s.Pod, s.Netns = id, rec.Pod, rec.Netns
		if s.Kind() == core.KindNIC {
			s.ChangeNIC().OVS = &core.OVSPort{HostIf: fmt.Sprintf("%s_%d", id, n)}
		}
	}
	for n := range rec.Leases {
		l := &rec.Leases[n]
		l.Owner.Key.Container, l.Owner.Pod = id, rec.Pod
		l.IPs = []netip.Addr{netip.AddrFrom4([4]byte{10, byte(20 + n), byte(i >> 8), byte(i)})}
		l.MAC = core.MAC{2, 0, 0, byte(n), byte(i >> 8), byte(i)}
	}
	return rec
}

// TestStartDecodesOnce: a start reads each record of a full node once, also to
// look for unfinished work, strays and pods to be followed.
func TestStartDecodesOnce(t *testing.T) {
	const count = 20
	conf, dir := fullNode(t, count)
	j, err := journal.Open(dir, journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	conf.Journal, conf.IPAM = j, ipam.New()
	e := New(conf)
	require.True(t, e.Recover(t.Context(), j.Records()))
	e.finish(t.Context())
	require.Len(t, e.Followed(), count)
	require.Len(t, e.IPAM.Leases(), 2*count)
	require.Equal(t, count, j.Decoded())
	for _, p := range e.Followed() {
		require.NoError(t, e.Replug(t.Context(), p))
	}
	require.Equal(t, 2*count, j.Decoded(), "and each once more when its annotation is looked at")
}

// BenchmarkStart is what a start reads of a journal before and after it serves.
func BenchmarkStart(b *testing.B) {
	for _, count := range []int{500, 2000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			conf, dir := fullNode(b, count)
			b.ReportAllocs()
			var open, recover, rest time.Duration
			for b.Loop() {
				t0 := time.Now()
				j, err := journal.Open(dir, journal.Options{Log: slog.New(slog.DiscardHandler)})
				require.NoError(b, err)
				t1 := time.Now()
				conf.Journal, conf.IPAM = j, ipam.New()
				e := New(conf)
				swept := e.Recover(b.Context(), j.Records())
				t2 := time.Now()
				if !swept {
					require.NoError(b, e.Sweep(b.Context()))
				}
				e.finish(b.Context())
				require.Len(b, e.Followed(), count)
				rest += time.Since(t2)
				open += t1.Sub(t0)
				recover += t2.Sub(t1)
				require.NoError(b, j.Close())
			}
			b.ReportMetric(float64(open.Milliseconds())/float64(b.N), "open-ms/op")
			b.ReportMetric(float64(recover.Milliseconds())/float64(b.N), "recover-ms/op")
			b.ReportMetric(float64(rest.Milliseconds())/float64(b.N), "rest-ms/op")
		})
	}
}
