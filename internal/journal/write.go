package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// kind is what an op does; it names the crash points before and after the
// transaction that carries such an op.
type kind int

const (
	kindBegin kind = iota
	kindSave
	kindCommit
	kindForget
	kindTake
	kindMove
	kindReturn
	kinds
)

var kindNames = [kinds][2]string{
	kindBegin:  {"journal.begin", "journal.begun"},
	kindSave:   {"journal.save", "journal.saved"},
	kindCommit: {"journal.commit", "journal.committed"},
	kindForget: {"journal.forget", "journal.forgotten"},
	kindTake:   {"journal.take", "journal.taken"},
	kindMove:   {"journal.move", "journal.moved"},
	kindReturn: {"journal.return", "journal.returned"},
}

func (k kind) name() string { return kindNames[k][0][len("journal."):] }

// op is one caller's write.
type op struct {
	kind  kind
	key   core.Key
	link  string  // take, move, return: of an uplink, instead of key
	row   row     // begin, save, commit, take, move
	given []given // forget, shed

	// claimed is set once, by the writer that takes the op into a transaction
	// or by the caller that gives up before.
	claimed atomic.Bool
	done    chan struct{}
	refused error // by stage: the op cannot apply to what is there
	err     error // valid once done is closed
}

// about names what the op is about.
func (o *op) about() string { return cmp.Or(o.link, o.key.String()) }

// answer ends the caller's wait; what stage refused stands above what became
// of the transaction.
func (o *op) answer(err error) {
	if o.refused != nil {
		err = o.refused
	}
	if err != nil {
		o.err = fmt.Errorf("journal %s %s: %w", o.kind.name(), o.about(), err)
	}
	close(o.done)
}

// submit hands an op to the writer and waits for its transaction.
func (j *Journal) submit(ctx context.Context, o *op) error {
	o.done = make(chan struct{})
	select {
	case j.queue <- o:
	case <-ctx.Done():
		return cancelled(ctx, o, "nothing was written")
	case <-j.closing:
		return errClosed
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		if o.claimed.CompareAndSwap(false, true) {
			return cancelled(ctx, o, "nothing was written")
		}
		return cancelled(ctx, o, "it may have been written")
	case <-j.stopped:
	}
	// The writer is gone; it may have answered just before.
	select {
	case <-o.done:
		return o.err
	default:
		return errClosed
	}
}

// cancelled says what a caller that gave up must know: whether the write can
// still have happened.
func cancelled(ctx context.Context, o *op, outcome string) error {
	err := context.Cause(ctx)
	return &core.Error{
		Code: core.CodeTryAgain, Msg: "journal " + o.kind.name() + " " + o.about() + " was given up",
		Details: err.Error() + ": " + outcome, Err: err,
	}
}

// run is the writer: the only goroutine that writes to the database.
func (j *Journal) run() {
	defer close(j.stopped)
	// An I/O error on the memory map arrives as a fault; it must not end the
	// agent.
	debug.SetPanicOnFault(true)
	flush := time.NewTimer(0)
	defer flush.Stop()
	armed := true
	for {
		select {
		case o := <-j.queue:
			j.write(j.drain([]*op{o}))
		case <-j.poke:
			if !armed {
				armed = true
				flush.Reset(flushDelay)
			}
			continue
		case <-flush.C:
			armed = false
			if !j.ballast.held.Load() {
				_ = j.ballast.fill() // Healthy tells while it fails
			}
			j.write(nil)
		case <-j.closing:
			j.write(j.drain(nil))
			return
		}
		if !armed && j.unfinished() {
			armed = true
			flush.Reset(retryDelay)
		}
	}
}

// unfinished tells that something is to be tried again without being asked.
func (j *Journal) unfinished() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return len(j.mem.stale) > 0 || !j.ballast.held.Load()
}

// drain takes everything that waits now.
func (j *Journal) drain(batch []*op) []*op {
	for len(batch) < queueLen {
		select {
		case o := <-j.queue:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// write puts a batch into one transaction and answers it. On a full disk the
// ballast goes, Begins are refused and the rest is tried once more.
func (j *Journal) write(batch []*op) {
	batch = claim(batch)
	if !j.ballast.held.Load() && j.ballast.fill() != nil {
		batch = refuseBegins(batch, errFull)
	}
	err := j.transact(batch)
	if isFull(err) && j.ballast.release() {
		batch = refuseBegins(batch, asIO(err))
		err = j.transact(batch)
	}
	if err != nil && len(batch) == 0 {
		j.log.Error("journal not flushed to the disk: it is tried again", "err", err)
	}
	for _, o := range batch {
		o.answer(asIO(err))
	}
}

// claim drops the ops whose callers gave up.
func claim(batch []*op) []*op {
	kept := batch[:0]
	for _, o := range batch {
		if o.claimed.CompareAndSwap(false, true) {
			kept = append(kept, o)
		}
	}
	return kept
}

// refuseBegins answers the ops that would fill the disk further and keeps those
// that end attachments or finish begun ones.
func refuseBegins(batch []*op, err error) []*op {
	kept := batch[:0]
	for _, o := range batch {
		if o.kind == kindBegin || o.kind == kindTake {
			o.answer(err)
		} else {
			kept = append(kept, o)
		}
	}
	return kept
}

var errFull = &core.Error{Code: core.CodeIO, Msg: "disk is full", Details: "only DEL is served until there is room", Err: syscall.ENOSPC}

// isFull knows a full disk and a used-up quota.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func asIO(err error) error { return core.WithCode(core.CodeIO, "journal cannot be written", err) }

// transact stages a batch, commits it and then lets readers see it. Ops that
// cannot apply (a Begin of a known key) are answered and do not join.
func (j *Journal) transact(batch []*op) error {
	t := j.stage(batch)
	if len(t.changes) == 0 {
		return nil
	}
	t.crash(0)
	err := j.update(t)
	if err == nil {
		t.crash(1)
	}
	j.mu.Lock()
	if err == nil {
		t.publish(j.mem)
	} else {
		t.spoil(j.mem)
	}
	j.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("commit %d changes: %w", len(t.changes), err)
		j.failed.Store(&err)
		return err
	}
	j.failed.Store(nil)
	return nil
}

// update is one bbolt transaction; a panic inside bbolt is an error here.
func (j *Journal) update(t *txn) (err error) {
	defer catch(&err)
	return j.db.Update(func(tx *bbolt.Tx) error {
		// In the order of the keys, else bbolt moves what it holds of a page
		// at each insertion.
		for _, s := range slices.SortedFunc(maps.Keys(t.changes), slot.compare) {
			c, b := t.changes[s], tx.Bucket(bucketNames[s.bucket])
			if c.row == nil {
				err = b.Delete([]byte(s.key))
			} else {
				err = b.Put([]byte(s.key), c.row.seal(s.key))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// catch turns a panic (bbolt's assertions, a fault on the map) into an error.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("%w: %w", errPanic, r)
	default:
		*err = fmt.Errorf("%w: %v", errPanic, r)
	}
}

var errPanic = errors.New("database panicked")

// crash passes the crash points of the kinds that the transaction carries: 0
// before it, 1 when it is on disk and nobody was told.
func (t *txn) crash(when int) {
	for k, seen := range t.kinds {
		if seen {
			fail.Here(kindNames[k][when])
		}
	}
}
