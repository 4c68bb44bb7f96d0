package up

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/lib/filelock"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// Record is what is kept on disk of a folder that is up, so that `down` finds
// all of it after any end. It is written before anything is made.
type Record struct {
	// Dir is the folder, absolute: it is a part of its pods' UIDs.
	Dir     string `json:"dir"`
	Runtime string `json:"runtime"` // docker, or a CRI endpoint
	// What the flags of `up` said, by their names there.
	Flags map[string][]string `json:"flags,omitempty"`
	// Wrote lists the files that were made for the runtime's sake.
	Wrote []string `json:"wrote,omitempty"`
	// Untried: no pod has been begun, nor is it proven that one gets its network.
	Untried bool `json:"untried,omitempty"`
}

const recordName, lockName = "up.json", "up.lock"

// Load reads the record of a state folder; nil when nothing is up.
func Load(state string) (*Record, error) {
	r := &Record{}
	there, err := recordfile.Load(filepath.Join(state, recordName), r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read what is up: %w", err)
	case !there:
		return nil, nil //nolint:nilnil // none is no failure
	}
	return r, nil
}

// Save writes the record. Who calls has the lock.
func (r Record) Save(state string) error { return recordfile.Save(filepath.Join(state, recordName), r) }

// Forget removes the record: nothing is up any more. Who calls has the lock.
func Forget(state string) error { return recordfile.Remove(filepath.Join(state, recordName)) }

// RunningError says that a process has the folder up.
type RunningError struct{ PID int }

func (e *RunningError) Error() string { return fmt.Sprintf("it is up already (process %d)", e.PID) }

// Lock is held by the one process that may change what is up.
type Lock = filelock.Lock

// TakeLock takes the lock of a state folder, which is made if need be. Another
// process that has it is waited for that long; a RunningError follows.
func TakeLock(state string, wait time.Duration) (*Lock, error) {
	lock, err := filelock.Take(filepath.Join(state, lockName), wait)
	if held, ok := errors.AsType[*filelock.HeldError](err); ok {
		return nil, &RunningError{PID: held.PID}
	}
	if err != nil {
		return nil, err
	}
	if err := lock.Sign(); err != nil { // Stop asks the one that signed
		lock.Release()
		return nil, err
	}
	return lock, nil
}

// Stop asks the process that has the lock to end, waits for that, and takes the
// lock. Nobody having it is success.
func Stop(ctx context.Context, state string) (*Lock, error) {
	asked := 0
	for {
		lock, err := TakeLock(state, 0)
		running := (*RunningError)(nil)
		if err == nil || !errors.As(err, &running) {
			return lock, err
		}
		if running.PID > 0 && running.PID != asked {
			if err := unix.Kill(running.PID, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
				return nil, fmt.Errorf("end process %d: %w", running.PID, err)
			}
			asked = running.PID
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("process %d does not end: %w", running.PID, ctx.Err())
		case <-time.After(lookAgain):
		}
	}
}
