package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bberrors "go.etcd.io/bbolt/errors"

	"github.com/fairlead/fairlead/internal/lib/filelock"
)

const (
	// prealloc is written with zeros when the file is made: a transaction
	// that lands on blocks which exist needs no allocation, neither of space
	// (full disk) nor in the filesystem's own journal (a slower flush).
	prealloc = 1 << 20
	// mapSize is address space, not memory: a file below it is never mapped
	// again while the agent runs.
	mapSize = 64 << 20
	// growStep is how much the file grows at once, each time with a flush.
	growStep = 1 << 20
)

// corruptError says that a file is damaged: it may be moved away. All other
// errors leave it alone.
type corruptError struct{ err error }

func (e *corruptError) Error() string { return "damaged: " + e.err.Error() }
func (e *corruptError) Unwrap() error { return e.err }

// ErrBusy is bbolt's timeout and ours in the words of an operator.
var ErrBusy = errors.New("another agent holds the journal")

// lockDir makes dir and takes its lock. The lock is a file of its own because
// agent.db is made under another name and renamed: a lock on it would let two
// agents make one each.
func lockDir(dir string) (*filelock.Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := filelock.Take(filepath.Join(dir, lockName), lockWait)
	if errors.As(err, new(*filelock.HeldError)) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	_ = lock.Sign() // only for the next one's error message: a full disk does not matter
	return lock, nil
}

// openDB opens path, which must be good, or makes a new one: at the first start,
// and after a damaged one was moved away.
func openDB(path string, opt Options) (*bbolt.DB, *memory, error) {
	_, err := os.Lstat(path)
	if err == nil {
		db, m, err := load(path, current)
		if bad := (*corruptError)(nil); !errors.As(err, &bad) {
			return db, m, err
		}
		moved, qerr := quarantine(path)
		if qerr != nil {
			return nil, nil, errors.Join(err, qerr)
		}
		opt.Log.Error("journal was damaged and is replaced by an empty one", "moved", moved, "err", err)
		if opt.OnCorrupt != nil {
			opt.OnCorrupt(moved)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if err := create(path); err != nil {
		return nil, nil, fmt.Errorf("create %s: %w", dbName, err)
	}
	return load(path, current)
}

// quarantine moves a damaged file to a name that is free.
func quarantine(path string) (string, error) {
	base := path + ".corrupt-" + strconv.FormatInt(time.Now().Unix(), 10)
	to := base
	for n := 1; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = base + "." + strconv.Itoa(n)
	}
	if err := os.Rename(path, to); err != nil {
		return "", fmt.Errorf("quarantine: %w", err)
	}
	return to, syncDir(filepath.Dir(path))
}

// create makes an empty file under another name and renames it, so that a crash
// never leaves a half-made agent.db: one of zero bytes is damage.
func create(path string) (err error) {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	db, err := bbolt.Open(tmp, 0o600, &bbolt.Options{Timeout: lockWait})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { return initialise(tx, current.version) })
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := extend(tmp, prealloc); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// extend writes zeros from the end of a file to size, and flushes it.
func extend(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() < size {
		err = writeZeros(f, st.Size(), size-st.Size())
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// load opens a file and proves all of it before anything relies on it. What
// checkFile lets through bbolt may still answer by a panic, and a disk that
// fails by a fault on the map: both are caught, and are damage too.
func load(path string, want schema) (db *bbolt.DB, m *memory, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var file *os.File
	defer func() {
		if errors.Is(err, errPanic) {
			err = &corruptError{err}
		}
		if err == nil {
			return
		}
		if db != nil {
			err = errors.Join(err, db.Close())
		} else if file != nil {
			_ = file.Close() // bbolt panicked before it returned what it opened
		}
		db, m = nil, nil
	}()
	defer catch(&err)
	if err := checkFile(path); err != nil {
		return nil, nil, err
	}
	// The free list stays on disk (no NoFreelistSync): it costs one page write
	// per transaction and no flush (strace: 3 pwrite64 and 2 fdatasync against 2
	// and 2), and without it bbolt would scan the file at each start and after
	// each failed transaction, in a goroutine whose panics nobody catches.
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:         lockWait,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapSize,
		NoStatistics:    true,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
	if err != nil {
		return nil, nil, classify(err)
	}
	db.AllocSize = growStep
	m, err = verify(db, want)
	return db, m, err
}

// classify tells damage from what the system refuses.
func classify(err error) error {
	if errors.Is(err, bberrors.ErrTimeout) {
		return ErrBusy
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return err
	}
	return &corruptError{err}
}

// verify has bbolt check its pages, brings the schema up and reads every row.
func verify(db *bbolt.DB, want schema) (*memory, error) {
	if err := db.View(checkPages); err != nil {
		return nil, &corruptError{err}
	}
	if err := migrate(db, want); err != nil {
		return nil, err
	}
	m := newMemory()
	var err error
	if m.whole, err = getWhole(db); err != nil {
		return nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		for b := range buckets {
			if err := readBucket(tx, b, m); err != nil {
				return &corruptError{err}
			}
		}
		return nil
	})
	return m, err
}

// readBucket proves and loads every row of a bucket.
func readBucket(tx *bbolt.Tx, b bucket, m *memory) error {
	rows := tx.Bucket(bucketNames[b])
	if rows == nil {
		return fmt.Errorf("bucket %s is missing", bucketNames[b])
	}
	return rows.ForEach(func(k, v []byte) error {
		s := slot{b, strings.Clone(string(k))}
		r, err := unseal(s.key, v)
		if err == nil {
			err = m.load(s, r)
		}
		if err != nil {
			return fmt.Errorf("%s %q: %w", bucketNames[b], s.key, err)
		}
		return nil
	})
}

// checkPages has bbolt check the order of keys, and everything that it knows of
// its format and checkFile does not. It runs in a goroutine that catches panics
// but no faults, hence after checkFile.
func checkPages(tx *bbolt.Tx) error {
	var all []error
	for err := range tx.Check() {
		all = append(all, err)
	}
	return errors.Join(all...)
}
