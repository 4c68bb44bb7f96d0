package journal

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/internal/core"
)

// model is the journal's meaning in the plainest form.
type model struct {
	records  map[core.Key]core.Record
	released map[string]core.Released // by identity
	attempts map[core.Pod]core.Attempt
	seq      uint64
}

// run applies random calls to a journal and its model.
type run struct {
	t   *testing.T
	r   *rand.Rand
	dir string
	j   *Journal
	m   model
}

func (x *run) reopen() {
	if x.j != nil {
		require.NoError(x.t, x.j.Close())
	}
	j, err := Open(x.dir, Options{OnCorrupt: func(p string) { x.t.Errorf("corrupt: %s", p) }})
	require.NoError(x.t, err)
	x.j = j
}

func (x *run) step() {
	rec := record(x.r.IntN(12))
	rec.Error = fmt.Sprint(x.r.Uint64())
	known, ok := x.m.records[rec.Key]
	switch x.r.IntN(9) {
	case 0, 1, 2:
		x.put(rec, ok, x.j.Begin(x.t.Context(), rec), core.ErrExists)
	case 3:
		x.put(rec, !ok, x.j.Save(x.t.Context(), rec), core.ErrNotFound)
	case 4:
		x.put(rec, !ok, x.j.Commit(x.t.Context(), rec), core.ErrNotFound)
		if ok {
			rec.Phase, rec.Delivered = core.Added, known.Delivered
			x.m.records[rec.Key] = rec
		}
	case 5:
		x.j.Delivered(rec.Key)
		if ok {
			known.Delivered = true
			x.m.records[rec.Key] = known
		}
	case 6:
		x.forget(rec)
	case 7:
		a := core.Attempt{Op: core.Add, Key: rec.Key, Pod: rec.Pod, When: time.Unix(int64(x.r.IntN(1e6)), 0).UTC(), Error: rec.Error}
		x.j.Fail(a)
		x.m.attempts[rec.Pod] = a
	case 8:
		x.reopen()
	}
	x.compare(rec.Pod)
}

func (x *run) put(rec core.Record, refused bool, err, want error) {
	if refused {
		require.ErrorIs(x.t, err, want)
		return
	}
	require.NoError(x.t, err)
	rec.Delivered = x.m.records[rec.Key].Delivered
	x.m.records[rec.Key] = rec
}

func (x *run) forget(rec core.Record) {
	x.m.seq++
	rel := core.Released{
		Subnet: fmt.Sprint("s", x.r.IntN(2)), Pod: rec.Pod, IfName: rec.Key.IfName,
		IPs: rec.Leases[0].IPs, MAC: rec.Leases[0].MAC, Seq: x.m.seq,
	}
	if x.r.IntN(3) == 0 {
		rel.Pod = core.Pod{}
	}
	require.NoError(x.t, x.j.Forget(x.t.Context(), rec.Key, []core.Released{rel, {Subnet: "nothing"}}))
	delete(x.m.records, rec.Key)
	x.m.released[identity(rel)] = rel
}

// compareHeads: they say what the records say, by whatever they are looked up.
func (x *run) compareHeads(want []core.Record) {
	heads := []Head{}
	for _, r := range want {
		h := *headOf(&r)
		h.Delivered = r.Delivered
		heads = append(heads, h)
		require.Contains(x.t, x.j.PodHeads(r.Pod), h)
		require.Contains(x.t, x.j.NetnsHeads(r.Netns), h)
	}
	require.Equal(x.t, heads, x.j.Heads())
	x.j.mu.RLock()
	defer x.j.mu.RUnlock()
	for _, n := range []int{len(x.j.mem.indexes.containers), len(x.j.mem.indexes.pods)} {
		require.Equal(x.t, len(want), n, "nothing is left in an index")
	}
}

func (x *run) compare(pod core.Pod) {
	want := []core.Record{}
	for _, r := range x.m.records {
		want = append(want, r)
	}
	slices.SortFunc(want, func(a, b core.Record) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	require.Equal(x.t, want, x.j.Records())
	x.compareHeads(want)
	for n := range 12 {
		k := record(n).Key
		got, ok := x.j.Get(k)
		rec, known := x.m.records[k]
		require.Equal(x.t, known, ok)
		require.Equal(x.t, rec, got)
		require.Len(x.t, x.j.Container(k.Container), map[bool]int{true: 1}[known])
		require.Len(x.t, x.j.PodHeads(record(n).Pod), map[bool]int{true: 1}[known])
	}
	released := []core.Released{}
	for _, r := range x.m.released {
		released = append(released, r)
	}
	slices.SortFunc(released, func(a, b core.Released) int { return cmp.Compare(a.Seq, b.Seq) })
	require.Equal(x.t, released, x.j.Released())
	a, ok := x.j.Attempt(pod)
	attempt, known := x.m.attempts[pod]
	require.Equal(x.t, known, ok)
	require.Equal(x.t, attempt, a)
}

// TestModel: any sequence of calls, the journal reopened in between, reads as
// the model does.
func TestModel(t *testing.T) {
	for seed := range uint64(12) {
		x := &run{t: t, r: rand.New(rand.NewPCG(seed, 3)), dir: t.TempDir(), m: model{
			records: map[core.Key]core.Record{}, released: map[string]core.Released{}, attempts: map[core.Pod]core.Attempt{},
		}}
		x.reopen()
		for range 60 {
			x.step()
		}
		require.NoError(t, x.j.Close())
	}
}

// TestConcurrentWriters: each goroutine owns its keys; all of them together are
// there at the end, in memory and on disk.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var wg sync.WaitGroup
	for g := range 50 {
		wg.Go(func() {
			for n := range 6 {
				r := record(g*100 + n)
				err := j.Begin(t.Context(), r)
				if err == nil {
					err = j.Commit(t.Context(), r)
				}
				j.Delivered(r.Key)
				j.Fail(core.Attempt{Pod: r.Pod, Key: r.Key})
				j.Records()
				if err == nil && n%2 == 0 {
					err = j.Forget(t.Context(), r.Key, []core.Released{{Subnet: "s", Pod: r.Pod, IfName: "eth0", IPs: []netip.Addr{{}}, Seq: uint64(g*100 + n + 1)}})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for range 2 {
		all := j.Records()
		require.Len(t, all, 150)
		for _, r := range all {
			require.True(t, r.Delivered)
			require.Equal(t, core.Added, r.Phase)
		}
		require.Len(t, j.Released(), 150)
		require.NoError(t, j.Close())
		j = open(t, dir)
	}
}

// TestGroupCommit: what waits while a transaction runs shares the next one.
func TestGroupCommit(t *testing.T) {
	j := open(t, t.TempDir())
	before := txid(t, j)
	j.mu.RLock() // the writer stops before it looks at memory, in whichever transaction it is
	var ops []*op
	for n := range 50 {
		data, err := encodeRecord(record(n))
		require.NoError(t, err)
		ops = append(ops, &op{kind: kindBegin, key: record(n).Key, row: newRow(data, false).of(new(record(n))), done: make(chan struct{})})
		j.queue <- ops[n]
	}
	j.mu.RUnlock()
	for _, o := range ops {
		<-o.done
		require.NoError(t, o.err)
	}
	require.LessOrEqual(t, txid(t, j), before+2)
}

func txid(t *testing.T, j *Journal) (id int) {
	t.Helper()
	require.NoError(t, j.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}

// TestReadersOwnWhatTheyGet: what a caller does to a value changes nothing.
func TestReadersOwnWhatTheyGet(t *testing.T) {
	j := open(t, t.TempDir())
	r := record(1)
	require.NoError(t, j.Begin(t.Context(), r))
	got, _ := j.Get(r.Key)
	got.Specs[0].Driver, got.Leases[0].IPs[0] = "other", netip.Addr{}
	r.Specs[0].NIC.MAC[5]++
	again, _ := j.Get(r.Key)
	require.Equal(t, record(1), again)
}

func TestCancelled(t *testing.T) {
	j := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Whether the writer or the end of ctx is seen first, the answer says
	// what is there.
	for n := range 200 {
		r := record(n)
		err := j.Begin(ctx, r)
		_, there := j.Get(r.Key)
		if err == nil {
			require.True(t, there)
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
		if strings.Contains(err.Error(), "nothing was written") {
			require.NoError(t, j.Begin(t.Context(), r))
		}
		require.NoError(t, j.Forget(t.Context(), r.Key, nil), "what Begin's contract asks for")
		_, there = j.Get(r.Key)
		require.False(t, there)
	}
}

// TestAsynchronousReachesTheDisk: without a Close, and without other writes.
func TestAsynchronousReachesTheDisk(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	r := record(1)
	require.NoError(t, j.Begin(t.Context(), r))
	j.Delivered(r.Key)
	j.Fail(core.Attempt{Pod: r.Pod, Error: "x"})
	j.Delivered(core.Key{Container: "unknown", IfName: "eth0"})
	require.Eventually(t, func() bool {
		rows := onDisk(t, j).rows
		return rows[records][r.Key.String()].flags == flagDelivered && len(rows[attempts]) == 1
	}, time.Minute, time.Millisecond)
}

func TestAttemptsAreBounded(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for n := range maxAttempts + 20 {
		j.Fail(core.Attempt{Pod: core.Pod{Namespace: "n", Name: fmt.Sprint(n)}, When: time.Unix(int64(n), 0)})
	}
	require.NoError(t, j.Close())
	j = open(t, dir)
	require.Len(t, j.mem.rows[attempts], maxAttempts)
	_, ok := j.Attempt(core.Pod{Namespace: "n", Name: "19"})
	require.False(t, ok)
	_, ok = j.Attempt(core.Pod{Namespace: "n", Name: "20"})
	require.True(t, ok)
}

func TestReleasedAreBounded(t *testing.T) {
	j := open(t, t.TempDir())
	give := func(subnet string, from, n int) {
		var list []core.Released
		for i := range n {
			list = append(list, core.Released{
				Subnet: subnet, Pod: core.Pod{Namespace: "n", Name: fmt.Sprint(subnet, from+i)}, IfName: "eth0",
				IPs: []netip.Addr{netip.IPv6Unspecified()}, Seq: uint64(from + i),
			})
		}
		require.NoError(t, j.Forget(t.Context(), record(1).Key, list))
	}
	give("small", 1, 10)
	give("big", 100, maxReleased+pruneSlack+1)
	give("big", 100+maxReleased+pruneSlack+1, 1)
	all := j.Released()
	require.Len(t, all, 10+maxReleased+1)
	require.Equal(t, uint64(100+pruneSlack+1), all[10].Seq, "the oldest are gone")
	require.Len(t, onDisk(t, j).rows[released], len(all))
}

func TestClosed(t *testing.T) {
	j := open(t, t.TempDir())
	require.NoError(t, j.Begin(t.Context(), record(1)))
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	err := j.Begin(t.Context(), record(2))
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorIs(t, j.Healthy(), core.ErrUnavailable)
	_, ok := j.Get(record(1).Key)
	require.True(t, ok)
}

// TestCloseAnswersEverybody: writers that are in the middle get an answer, and
// what it says is true.
func TestCloseAnswersEverybody(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var wg sync.WaitGroup
	errs := make([]error, 200)
	for n := range errs {
		wg.Go(func() { errs[n] = j.Begin(t.Context(), record(n)) })
	}
	require.NoError(t, j.Close())
	wg.Wait()
	j = open(t, dir)
	for n, err := range errs {
		_, there := j.Get(record(n).Key)
		require.Equal(t, err == nil, there, "%v", err)
	}
}

func TestRecordsThatCannotBeReadAreRefused(t *testing.T) {
	j := open(t, t.TempDir())
	for _, change := range []func(*core.Record){
		func(r *core.Record) { r.Key.IfName = "" },
		func(r *core.Record) { r.Key.Container = "a/b" },
		func(r *core.Record) { r.Specs[0].NIC.MAC = core.MAC{1, 2, 3} },
		func(r *core.Record) { r.Links = []core.Link{{CNIResult: []byte("{")}} },
		func(r *core.Record) { r.Created = time.Unix(1<<40, 0) },
	} {
		r := record(1)
		change(&r)
		err := j.Begin(t.Context(), r)
		require.Error(t, err)
		require.Equal(t, core.CodeValue, core.CodeOf(err))
	}
	require.Empty(t, j.Records())
}
