package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/internal/testbed/kube/remains"
)

// homes is the name of all runs' folders, for os.MkdirTemp and for Glob.
const homes = "fairlead-cluster-*"

// home is the folder of all that a run makes. The run holds its lock: a folder
// that nobody has locked is that of a run that was killed.
type home struct {
	dir  string
	lock *os.File
}

// newHome removes what killed runs have left, and makes a folder, which becomes
// this process's TMPDIR.
func newHome(say func(string, ...any)) (*home, error) {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), homes))
	if err != nil {
		return nil, err
	}
	for _, dir := range old {
		if err := clearOld(dir, say); err != nil {
			return nil, fmt.Errorf("what a killed run has left: %w", err)
		}
	}
	for {
		dir, err := os.MkdirTemp("", homes)
		if err != nil {
			return nil, err
		}
		h, err := lockHome(dir)
		if err == nil {
			return h, os.Setenv("TMPDIR", dir)
		}
		if !errors.Is(err, os.ErrNotExist) { // else another start took it for a killed run's
			return nil, err
		}
	}
}

// clearOld removes a folder unless its run lives.
func clearOld(dir string, say func(string, ...any)) error {
	h, err := lockHome(dir)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	say("Removing what a killed run has left: %s", dir)
	defer h.lock.Close()
	return remains.Clear(context.Background(), dir)
}

// lockHome locks a folder: EWOULDBLOCK where its run lives, ErrNotExist where it
// has gone meanwhile.
func lockHome(dir string) (*home, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	mine, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(dir); err == nil && !os.SameFile(mine, there) {
			err = os.ErrNotExist
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &home{dir: dir, lock: f}, nil
}

// remove ends the run's claim; its parts have removed themselves.
func (h *home) remove() error {
	err := os.Remove(h.dir) // an error where something is left in it
	return errors.Join(err, h.lock.Close())
}
