// Package filelock lets one process at a time do something on this machine: an
// advisory lock on a file (flock(2)), which the kernel gives back when the
// process ends, however it ends. It knows nothing of what is locked, and its
// callers say in their own words what it means that another process has it.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// again is the pause between two attempts: a flock that blocks has no timeout.
const again = 20 * time.Millisecond

// HeldError says that another process has the lock.
type HeldError struct {
	Path string
	// PID is that process, if it has signed the lock; else 0.
	PID int
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return "another process has the lock " + e.Path
	}
	return fmt.Sprintf("process %d has the lock %s", e.PID, e.Path)
}

// Lock is held until Release, or until the process ends.
type Lock struct{ file *os.File }

// Take locks the file at path, which is made if need be, as is its folder: both
// for their owner alone. Whoever has the lock is waited for that long, 0 is not
// at all; a HeldError follows.
func Take(path string, wait time.Duration) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // not inherited by children
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for end := time.Now().Add(wait); ; time.Sleep(again) {
		err = try(f)
		if !errors.Is(err, unix.EWOULDBLOCK) || !time.Now().Before(end) {
			break
		}
	}
	switch {
	case err == nil:
		return &Lock{f}, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &HeldError{Path: path, PID: signed(f)}
	default:
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, f.Close())
}

func try(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Sign writes this process's number into the lock, for the HeldError of others.
// It fails where nothing can be written, a full disk for one: the lock is held
// all the same.
func (l *Lock) Sign() error {
	// Emptied first: of a longer number nothing stays, and of a write that fails
	// nobody reads the number of the one before.
	err := l.file.Truncate(0)
	if err == nil {
		_, err = l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		return fmt.Errorf("sign lock %s: %w", l.file.Name(), err)
	}
	return nil
}

// signed is the process that signed the lock; 0 when it has not done so yet.
func signed(f *os.File) int {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0) // what is not there is no number
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// Release gives the lock back; none (nil) is nothing to give. The file stays:
// who waits has it open.
func (l *Lock) Release() {
	if l != nil {
		_ = l.file.Close()
	}
}
