package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ballastSize is enough for thousands of DELs: each rewrites a few pages that
// the file mostly has already.
const ballastSize = 1 << 20

// ballast is a file that holds disk space while there is plenty. When the disk
// is full it is removed, and what it held lets DELs be recorded (spec
// reliability.md, "disk full"). Only the writer fills and releases it.
type ballast struct {
	path string
	size int64
	held atomic.Bool
}

// fill takes the space; having it already is success. It wants as much again to
// stay free: else what a release gave back would be taken at once from those it
// was meant for, and Healthy would change its mind at every turn.
func (b *ballast) fill() (err error) {
	if b.held.Load() {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.path), &st); err != nil {
		return fmt.Errorf("reserve disk space for DELs: %w", err)
	}
	if st.Bavail*uint64(st.Frsize) < uint64(2*b.size) {
		return fmt.Errorf("make ballast: %w", unix.ENOSPC)
	}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("reserve disk space for DELs: %w", err)
	}
	err = errors.Join(allocate(f, 0, b.size), f.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("reserve disk space for DELs: %w", err), os.Remove(b.path))
	}
	b.held.Store(true)
	return nil
}

// release gives the space back; false when there was none.
func (b *ballast) release() bool {
	if !b.held.CompareAndSwap(true, false) {
		return false
	}
	if os.Remove(b.path) != nil {
		return false
	}
	// ext4 frees the blocks when its own journal commits: ask for that now.
	_ = syncDir(filepath.Dir(b.path))
	return true
}

// drop releases the file of an earlier agent, if it left one, and tells whether it
// did.
func (b *ballast) drop() bool {
	_, err := os.Lstat(b.path)
	b.held.Store(err == nil)
	return b.release()
}

// allocate reserves n bytes of f from off, by writing zeros where the
// filesystem knows no fallocate(2).
func allocate(f *os.File, off, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, off, n)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return writeZeros(f, off, n)
}

// writeZeros takes blocks for good; unlike those of fallocate, writing to them
// later converts nothing and needs no journal of the filesystem.
func writeZeros(f *os.File, off, n int64) error {
	_, err := f.WriteAt(make([]byte, n), off)
	return err
}

// syncDir makes a rename or removal in dir last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
