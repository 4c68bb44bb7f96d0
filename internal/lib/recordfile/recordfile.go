// Package recordfile keeps what a process must know after its end: one value in a
// file, or a folder of records of one kind. Each is there whole or not at all, also
// after a power loss; one that is damaged is put out of the way and told, so that
// it never blocks the end of what it is about. It knows no record's content.
package recordfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
	damaged    = ".corrupt"
	unfinished = ".tmp" // hostfile's too
)

// Load reads the value of a file into; false when there is none.
func Load(path string, into any) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// Save writes a value durably.
func Save(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := sweep(filepath.Dir(path), "."+filepath.Base(path)+"."); err != nil {
		return err
	}
	return hostfile.Write(path, append(text, '\n'), fileMode)
}

// Remove removes a file and what is left of writers that were killed. One that is
// not there is success.
func Remove(path string) error {
	return errors.Join(sweep(filepath.Dir(path), "."+filepath.Base(path)+"."), hostfile.Remove(path))
}

// sweep removes files that a killed writer has not finished.
func sweep(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), unfinished) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Form says how the records of a folder are written.
type Form[R any] struct {
	What   string // in errors: "checkpoint"
	Suffix string // of the files, whose names are the records' ids
	ID     func(R) string
	Encode func(R) ([]byte, error)
	Decode func([]byte) (R, error)
	// Drop removes damaged records; else they are renamed to <name>.corrupt.
	Drop bool
}

// JSON decodes a record that is written as it stands.
func JSON[R any](b []byte) (r R, err error) {
	err = json.Unmarshal(b, &r)
	return r, err
}

// Dir is a folder of records.
type Dir[R any] struct {
	path string
	form Form[R]
}

// NewDir makes nothing yet.
func NewDir[R any](path string, form Form[R]) *Dir[R] { return &Dir[R]{path, form} }

func (d *Dir[R]) errorf(id string, err error) error {
	return fmt.Errorf("%s of %s: %w", d.form.What, id, err)
}

// valid refuses ids that would leave the folder, or pass for what is no record.
func (d *Dir[R]) valid(id string) bool {
	dots := strings.HasPrefix(id, ".") || d.form.Suffix == "" && strings.Contains(id, ".")
	return id != "" && !dots && !strings.Contains(id, "/")
}

func (d *Dir[R]) file(id string) (string, error) {
	if !d.valid(id) {
		return "", fmt.Errorf("%s: %q is no id", d.form.What, id)
	}
	return filepath.Join(d.path, id+d.form.Suffix), nil
}

// Load makes the folder and reads all records. Damaged ones are told in the error,
// beside the others.
func (d *Dir[R]) Load() (map[string]R, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(d.path, folderMode)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.form.What, err)
	}
	records := map[string]R{}
	errs := []error{sweep(d.path, "")}
	for _, e := range entries {
		id, ours := strings.CutSuffix(e.Name(), d.form.Suffix)
		if !ours || !d.valid(id) || !e.Type().IsRegular() {
			continue
		}
		r, err := d.read(id)
		if err == nil {
			records[id] = r
			continue
		}
		errs = append(errs, d.discard(e.Name(), err))
	}
	return records, errors.Join(errs...)
}

func (d *Dir[R]) read(id string) (r R, err error) {
	b, err := os.ReadFile(filepath.Join(d.path, id+d.form.Suffix))
	if err == nil {
		r, err = d.form.Decode(b)
	}
	if err == nil && d.form.ID(r) != id {
		err = fmt.Errorf("it is that of %s", d.form.ID(r))
	}
	return r, err
}

// discard puts a damaged record out of the way.
func (d *Dir[R]) discard(name string, why error) error {
	file := filepath.Join(d.path, name)
	if d.form.Drop {
		return fmt.Errorf("%s of %s removed: %w", d.form.What, name, errors.Join(why, os.Remove(file)))
	}
	return fmt.Errorf("%s of %s set aside: %w", d.form.What, name, errors.Join(why, os.Rename(file, file+damaged)))
}

// Put writes a record durably.
func (d *Dir[R]) Put(r R) error {
	return d.write(r, func(file string, b []byte) error { return hostfile.Write(file, b, fileMode) })
}

// Update writes a record that outlives the process, whole or not at all, and
// perhaps not the machine: a sync of the disk takes longer than many an operation.
func (d *Dir[R]) Update(r R) error {
	return d.write(r, func(file string, b []byte) error {
		tmp := filepath.Join(d.path, "."+filepath.Base(file)+unfinished)
		if err := os.WriteFile(tmp, b, fileMode); err != nil {
			return err
		}
		return os.Rename(tmp, file)
	})
}

func (d *Dir[R]) write(r R, put func(file string, b []byte) error) error {
	id := d.form.ID(r)
	file, err := d.file(id)
	if err != nil {
		return err
	}
	b, err := d.form.Encode(r)
	if err == nil {
		err = os.MkdirAll(d.path, folderMode)
	}
	if err == nil {
		err = put(file, b)
	}
	if err != nil {
		return d.errorf(id, err)
	}
	return nil
}

// Remove forgets a record, and a damaged one of the same id. One that is not there
// is success; that it went is durable.
func (d *Dir[R]) Remove(id string) error { return d.remove(id, hostfile.Remove) }

// Forget is Remove without a sync of the disk: a record that comes back with a
// power cut is forgotten once more.
func (d *Dir[R]) Forget(id string) error { return d.remove(id, removeFile) }

func (d *Dir[R]) remove(id string, remove func(string) error) error {
	file, err := d.file(id)
	if err != nil {
		return nil //nolint:nilerr // nothing has such an id: there is nothing to forget
	}
	if err := errors.Join(removeFile(file+damaged), remove(file)); err != nil {
		return d.errorf(id, err)
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Store is a Dir of which all records are in memory too. Its methods may be called
// from any goroutine.
type Store[R any] struct {
	dir *Dir[R]

	mu      sync.Mutex
	records map[string]R
}

// Open reads the folder. The store is usable unless it is nil, whatever the error
// tells of damaged records.
func Open[R any](path string, form Form[R]) (*Store[R], error) {
	dir := NewDir(path, form)
	records, err := dir.Load()
	if records == nil {
		return nil, err
	}
	return &Store[R]{dir: dir, records: records}, err
}

// Put writes a record durably.
func (s *Store[R]) Put(r R) error { return s.keep(r, s.dir.Put) }

// Update writes a record for the machine's life (Dir.Update).
func (s *Store[R]) Update(r R) error { return s.keep(r, s.dir.Update) }

func (s *Store[R]) keep(r R, write func(R) error) error {
	if err := write(r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[s.dir.form.ID(r)] = r
	return nil
}

// Get finds a record.
func (s *Store[R]) Get(id string) (R, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[id]
	return r, ok
}

// IDs lists the records, in their order.
func (s *Store[R]) IDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.records))
}

// All are the records, by id.
func (s *Store[R]) All() []R {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []R
	for _, id := range slices.Sorted(maps.Keys(s.records)) {
		out = append(out, s.records[id])
	}
	return out
}

// Remove forgets a record durably; one that is not there is success.
func (s *Store[R]) Remove(id string) error { return s.drop(id, s.dir.Remove) }

// Forget is Remove without a sync of the disk (Dir.Forget).
func (s *Store[R]) Forget(id string) error { return s.drop(id, s.dir.Forget) }

func (s *Store[R]) drop(id string, remove func(string) error) error {
	if err := remove(id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
	return nil
}
