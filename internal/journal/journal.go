// Package journal keeps every attachment's record on disk, so that an agent
// that dies at any instant knows afterwards what it had begun: begin, save,
// commit, forget. One writer goroutine puts everything that waits into one
// bbolt transaction (group commit), because a transaction costs the same disk
// flushes for one record as for fifty (spec/performance.md, rule 5). Reads come
// from memory.
//
// The journal knows values of package core and files. It must not know what a
// record means: which phase follows which, who may hold an address, or what to
// do after a restart belongs to the engine.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/filelock"
)

const (
	dbName      = "agent.db"
	lockName    = "agent.lock"
	ballastName = "ballast"

	lockWait = 2 * time.Second
	// flushDelay is how long a Delivered or Fail waits for a transaction to
	// ride along with before it gets one of its own.
	flushDelay = 20 * time.Millisecond
	// retryDelay is how often a failed flush and a missing ballast are tried
	// again.
	retryDelay = time.Second
	// queueLen bounds one transaction; more callers than this wait their turn.
	queueLen = 1024
)

// errClosed is what every write gets after Close.
var errClosed = &core.Error{Code: core.CodeTryAgain, Msg: "journal is closed", Err: core.ErrUnavailable}

// Options are optional; the zero value is usable.
type Options struct {
	// OnCorrupt is called by Open when a damaged agent.db was moved away, with
	// the path it has now. The journal that Open then returns is empty.
	OnCorrupt func(path string)
	// Log gets what has no caller to be returned to: why a file was
	// quarantined, a flush that failed. nil discards.
	Log *slog.Logger
}

// Journal is an open agent.db. Its methods may be called from any goroutine.
type Journal struct {
	db      *bbolt.DB
	lock    *filelock.Lock
	ballast *ballast
	log     *slog.Logger

	queue   chan *op
	poke    chan struct{} // something is stale; capacity 1
	closing chan struct{}
	stopped chan struct{}
	close   sync.Once
	failed  atomic.Pointer[error] // of the last transaction, nil when it succeeded
	whole   atomic.Bool

	mu  sync.RWMutex
	mem *memory
}

// Open opens or makes dir/agent.db (dir is made with mode 0700). A damaged file
// is renamed agent.db.corrupt-<unix time> and replaced by an empty one. It is an
// error, and nothing is touched, when another agent holds the journal (Open
// waits 2 s for it), when the file was written by a newer agent, or when the
// system refuses access. The caller calls Close.
func Open(dir string, opt Options) (*Journal, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal in %s: %w", dir, err)
	}
	held := &ballast{path: filepath.Join(dir, ballastName), size: ballastSize}
	db, mem, err := openDB(filepath.Join(dir, dbName), opt)
	if isFull(err) && held.drop() { // an older file is written anew: DELs need it
		db, mem, err = openDB(filepath.Join(dir, dbName), opt)
	}
	if err != nil {
		lock.Release()
		return nil, fmt.Errorf("open journal in %s: %w", dir, err)
	}
	j := &Journal{
		db: db, lock: lock, log: opt.Log, mem: mem,
		ballast: held,
		queue:   make(chan *op, queueLen),
		poke:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	j.whole.Store(mem.whole)
	// A disk that is full already is not a reason to refuse: DEL must work.
	// Healthy reports it and Begin is refused until there is room.
	_ = j.ballast.fill()
	go j.run()
	return j, nil
}

// Close writes what is still to be written, among it every Delivered and Fail,
// and closes the file. Writes that come later get an error; reads still work.
func (j *Journal) Close() error {
	var err error
	j.close.Do(func() {
		close(j.closing)
		<-j.stopped
		if e := j.failed.Load(); e != nil {
			err = *e
		}
		err = errors.Join(err, j.db.Close())
		j.lock.Release()
	})
	return err
}

// Healthy is nil when the last transaction succeeded and the disk has room for
// new attachments; else an error with code 5 that says what is wrong.
func (j *Journal) Healthy() error {
	select {
	case <-j.closing:
		return errClosed
	default:
	}
	// While the writer tries once more on a full disk, that is what is wrong.
	if e := j.failed.Load(); e != nil && (j.ballast.held.Load() || !isFull(*e)) {
		return *e
	}
	if !j.ballast.held.Load() {
		return &core.Error{
			Code: core.CodeIO, Msg: "journal: disk is full",
			Details: fmt.Sprintf("less than %d bytes are free in %s; only DEL is served until there is room",
				2*j.ballast.size, filepath.Dir(j.ballast.path)),
		}
	}
	return nil
}

// Begin records a new attachment before anything is done for it. Its key must
// be new: core.ErrExists otherwise. An empty Phase becomes core.Adding. On a
// full disk Begin is refused with code 5, so that the last bytes are left to
// DELs.
//
// When ctx ends while Begin waits, the record may or may not have been written;
// the error then wraps ctx's. The caller must Forget the key before it reports
// failure, and a restart before that finds a record without work behind it,
// which rolls back to nothing.
func (j *Journal) Begin(ctx context.Context, r core.Record) error {
	if r.Phase == "" {
		r.Phase = core.Adding
	}
	return j.putRecord(ctx, kindBegin, r)
}

// Save replaces a record: core.ErrNotFound when it was forgotten meanwhile, so
// that a late Save cannot bring it back. Delivered is never taken back by Save.
// When ctx ends while Save waits, it may or may not have happened.
func (j *Journal) Save(ctx context.Context, r core.Record) error {
	return j.putRecord(ctx, kindSave, r)
}

// Commit is Save with Phase core.Added: all of the record's work is done.
func (j *Journal) Commit(ctx context.Context, r core.Record) error {
	r.Phase = core.Added
	return j.putRecord(ctx, kindCommit, r)
}

// putRecord encodes in the caller's goroutine: fifty callers do that side by
// side, and the one writer has only bytes to move.
func (j *Journal) putRecord(ctx context.Context, k kind, r core.Record) error {
	data, err := encodeRecord(r)
	if err != nil {
		return fmt.Errorf("journal %s %s: %w", k.name(), r.Key, err)
	}
	return j.submit(ctx, &op{kind: k, key: r.Key, row: newRow(data, r.Delivered).of(&r)})
}

// Shed is Save of a record from which some addresses are gone, and remembers
// them in the same transaction, as Forget does.
func (j *Journal) Shed(ctx context.Context, r core.Record, released []core.Released) error {
	data, err := encodeRecord(r)
	if err != nil {
		return fmt.Errorf("journal shed %s: %w", r.Key, err)
	}
	o := &op{kind: kindSave, key: r.Key, row: newRow(data, r.Delivered).of(&r)}
	if err := o.give(released); err != nil {
		return err
	}
	return j.submit(ctx, o)
}

// Forget drops a record whose every part is gone, and remembers in the same
// transaction which addresses it gave back (those without addresses are
// ignored). Forgetting what is not there succeeds. When ctx ends while Forget
// waits, it may or may not have happened; repeat it.
func (j *Journal) Forget(ctx context.Context, k core.Key, released []core.Released) error {
	o := &op{kind: kindForget, key: k}
	if err := o.give(released); err != nil {
		return err
	}
	return j.submit(ctx, o)
}

// give adds what is to be remembered of addresses that went.
func (o *op) give(released []core.Released) error {
	for _, r := range released {
		if len(r.IPs) == 0 {
			continue
		}
		g, err := newGiven(r)
		if err != nil {
			return fmt.Errorf("journal %s %s: %w", o.kind.name(), o.key, err)
		}
		o.given = append(o.given, g)
	}
	return nil
}

// Delivered notes that the runtime has the answer. Readers see it at once; the
// disk gets it with the next transaction, or soon in one of its own. An agent
// that dies in between treats the answer as not delivered, which costs a
// repeated attachment, never a wrong one. An unknown key is ignored.
func (j *Journal) Delivered(k core.Key) {
	j.mu.Lock()
	ok := j.mem.deliver(k.String())
	j.mu.Unlock()
	if ok {
		j.wake()
	}
}

// Fail remembers the pod's last failed operation, for `describe pod`; of all
// pods the newest 1,024 are kept. Readers see it at once, the disk as with
// Delivered; an attempt that cannot be encoded is logged and dropped.
func (j *Journal) Fail(a core.Attempt) {
	data, err := encode(a)
	if err != nil {
		j.log.Error("failed operation not kept for describe: it cannot be encoded", "container", a.Key.Container, "err", err)
		return
	}
	j.mu.Lock()
	j.mem.fail(a.Pod.String(), newRow(data, false), a.When)
	j.mu.Unlock()
	j.wake()
}

// wake tells the writer that memory is ahead of the disk.
func (j *Journal) wake() {
	select {
	case j.poke <- struct{}{}:
	default: // it has been told already
	}
}

// Get is the record of one attachment. The caller may change what it gets.
func (j *Journal) Get(k core.Key) (core.Record, bool) {
	j.mu.RLock()
	r, ok := j.mem.get(slot{records, k.String()})
	j.mu.RUnlock()
	if !ok {
		return core.Record{}, false
	}
	rec, err := j.decode(r)
	return rec, err == nil
}

// Records are all records, by key. The first call after Open gets what Open has
// decoded, unless a record was changed meanwhile.
func (j *Journal) Records() []core.Record {
	j.mu.Lock()
	out := j.mem.opened
	j.mem.opened = nil
	var rows []row
	if len(out) == 0 {
		rows = j.mem.bucket(records)
	}
	j.mu.Unlock()
	if len(out) > 0 {
		return byKey(out)
	}
	return j.decodeRecords(rows)
}

// Container are the records of one sandbox, by key.
func (j *Journal) Container(id string) []core.Record {
	j.mu.RLock()
	rows := j.mem.some(j.mem.indexes.containers[id])
	j.mu.RUnlock()
	return j.decodeRecords(rows)
}

// Decoded is how many records were decoded since Open began: what reads cost, at
// about 50 us each. Heads cost none.
func (j *Journal) Decoded() int { return int(j.mem.decoded.Load()) }

func (j *Journal) decode(r row) (core.Record, error) {
	j.mem.decoded.Add(1)
	return r.record()
}

// decodeRecords gives each reader values of its own: values shared with the
// journal would change under other readers as soon as one of them writes into a
// slice.
func (j *Journal) decodeRecords(rows []row) []core.Record {
	out := make([]core.Record, 0, len(rows))
	for _, r := range rows {
		if rec, err := j.decode(r); err == nil {
			out = append(out, rec)
		}
	}
	return byKey(out)
}

func byKey(recs []core.Record) []core.Record {
	slices.SortFunc(recs, func(a, b core.Record) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return recs
}

// Released are the remembered addresses, oldest first: the newest of each
// (subnet, pod, interface), at most 65,536 per subnet.
func (j *Journal) Released() []core.Released {
	j.mu.RLock()
	rows := j.mem.bucket(released)
	j.mu.RUnlock()
	out := make([]core.Released, 0, len(rows))
	for _, r := range rows {
		var rel core.Released
		if decode(r.data, &rel) == nil {
			out = append(out, rel)
		}
	}
	slices.SortFunc(out, func(a, b core.Released) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

// Attempt is the pod's last failed operation.
func (j *Journal) Attempt(p core.Pod) (core.Attempt, bool) {
	j.mu.RLock()
	r, ok := j.mem.get(slot{attempts, p.String()})
	j.mu.RUnlock()
	var a core.Attempt
	if !ok || decode(r.data, &a) != nil {
		return core.Attempt{}, false
	}
	return a, true
}
