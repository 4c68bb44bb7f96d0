package logs

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Limits of a log.
type Limits struct {
	Size  int64 // bytes, from which on it is put aside
	Files int   // how many it may have, the one that is written included
}

// stamp is in the name of a part that was put aside; by name they are in order.
const stamp = "20060102-150405.000"

// Rotate puts a log aside that has become too long, has the runtime begin a new
// one, and removes the oldest parts. One that is not there is begun anew: who put it
// aside may have been killed before the runtime knew, which goes on writing to the
// part then. The error is reopen's, or that of a file.
func Rotate(file string, l Limits, now time.Time, reopen func() error) error {
	st, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		if err := reopen(); err != nil {
			return fmt.Errorf("begin log %s anew: %w", file, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	if st.Size() < l.Size {
		return nil
	}
	aside := file + "." + now.UTC().Format(stamp)
	if err := os.Rename(file, aside); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	if err := reopen(); err != nil {
		// The runtime goes on writing to the old file: it gets its name back,
		// unless there is a new one all the same.
		if _, gone := os.Stat(file); errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, os.Rename(aside, file))
		}
		return fmt.Errorf("rotate log %s: %w", file, err)
	}
	return trim(file, max(l.Files, 1))
}

// trim removes the oldest parts of a log.
func trim(file string, keep int) error {
	parts, err := Parts(file)
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	var errs []error
	for _, old := range parts[:max(0, len(parts)-keep)] {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("rotate log: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Remove removes a log with all its parts.
func Remove(file string) error {
	parts, err := Parts(file)
	if err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	var errs []error
	for _, p := range parts {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
