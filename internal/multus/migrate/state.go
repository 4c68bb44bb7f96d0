package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/lib/filelock"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// Phases of a take-over.
const (
	phaseNone     = "none"
	phaseApplying = "applying"
	phaseApplied  = "applied"
	phaseBack     = "rolling-back"
)

// state is what a take-over began with, which the node does not show any more
// once it is under way. It is written, durably, before anything is changed.
type state struct {
	Phase   string    `json:"phase"`
	Started time.Time `json:"started"`
	// Conf is the path of Multus' configuration, Content what it said.
	Conf    string `json:"conf"`
	Content []byte `json:"content"`
	// Writes tells that the runtime's configuration is ours to write and to
	// remove: none of Fairlead was there.
	Writes bool `json:"writes"`
	// Types are the plugins that were taken over; not those that were ours before.
	Types []string `json:"types"`
}

// Folders of the backup, beside the state's file.
const (
	stateName  = "state.json"
	keptConfs  = "conf"
	keptBins   = "bin"
	keptFiles  = "records"
	folderMode = 0o700
)

func (m *Migration) kept(folder, name string) string { return filepath.Join(m.StateDir, folder, name) }

// load reads the state; none is a state of its own.
func (m *Migration) load() (state, error) {
	s := state{Phase: phaseNone}
	if _, err := recordfile.Load(filepath.Join(m.StateDir, stateName), &s); err != nil {
		return s, fmt.Errorf("state of the import: %w", err)
	}
	return s, nil
}

// lock keeps a second import away until the function is called, or the process
// ends.
func (m *Migration) lock() (func(), error) {
	l, err := filelock.Take(filepath.Join(m.StateDir, "lock"), 0)
	if errors.As(err, new(*filelock.HeldError)) {
		return nil, BlockedError{Block{What: "another import is under way on this node", Next: "wait for it"}}
	}
	if err != nil {
		return nil, fmt.Errorf("state of the import: %w", err)
	}
	return l.Release, nil
}

func (m *Migration) save(s state) error {
	for _, folder := range []string{keptConfs, keptBins, filepath.Join(keptFiles, "results")} {
		if err := os.MkdirAll(filepath.Join(m.StateDir, folder), folderMode); err != nil {
			return fmt.Errorf("state of the import: %w", err)
		}
	}
	return recordfile.Save(filepath.Join(m.StateDir, stateName), s)
}

// keep copies a file into the backup unless it is there as it is. It reports
// whether it did. What is gone is not kept.
func keep(from, to string) (bool, error) {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("back up: %w", err)
	}
	if hostfile.SameFile(from, to) {
		return false, nil
	}
	return true, hostfile.Copy(from, to, info.Mode().Perm())
}
