// Package checkpoint keeps a record of each sandbox on disk: what must be known
// of it when the engine has lost it or this program was restarted. A record is
// there whole or not at all, and one that is damaged is set aside, so that it
// never blocks the end of its pod. It knows neither Docker nor networks.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/hostfile"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// Phase says how far a sandbox's network is.
type Phase string

// Phases of a network.
const (
	Pending Phase = "pending" // begun: whatever was done must be undone
	Ready   Phase = "ready"
	Host    Phase = "host"    // the node's own: nothing to do or to undo
	Leaving Phase = "leaving" // what was done is being undone
	Down    Phase = "down"    // undone
)

// Record is what is known of a sandbox.
type Record struct {
	Pod     netplugin.Pod           `json:"pod"`
	Ports   []netplugin.PortMapping `json:"ports,omitempty"`
	Attempt uint32                  `json:"attempt"`
	Phase   Phase                   `json:"phase"`
}

// version of the form on disk.
const version = "fairlead/v1"

// file is the form on disk: Checksum is over Data as it stands.
type file struct {
	Version  string          `json:"version"`
	Data     json.RawMessage `json:"data"`
	Checksum uint32          `json:"checksum"` // CRC-32C
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrCorrupt marks a record that cannot be read; it was set aside.
var ErrCorrupt = errors.New("the record is damaged")

// Store is a folder of records, all of them in memory too. Its methods may be
// called from any goroutine.
type Store struct {
	dir     string
	mu      sync.Mutex
	records map[string]Record
}

// Open reads the folder, making it first. Damaged records are renamed to
// <id>.corrupt and told in the error, which wraps ErrCorrupt: the store is usable
// nevertheless.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	s := &Store{dir: dir, records: map[string]Record{}}
	var errs []error
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") { // of a write that was cut off
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
		if strings.Contains(e.Name(), ".") || !e.Type().IsRegular() {
			continue
		}
		if err := s.load(e.Name()); err != nil {
			errs = append(errs, err)
		}
	}
	return s, errors.Join(errs...)
}

func (s *Store) load(id string) error {
	path := filepath.Join(s.dir, id)
	b, err := os.ReadFile(path)
	if err == nil {
		var r Record
		if r, err = decode(b); err == nil {
			s.records[id] = r
			return nil
		}
	}
	return fmt.Errorf("checkpoint of %s: %w", id, errors.Join(err, os.Rename(path, path+".corrupt")))
}

func decode(b []byte) (r Record, err error) {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return r, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if f.Version != version || crc32.Checksum(f.Data, castagnoli) != f.Checksum {
		return r, fmt.Errorf("%w: version %q, checksum %08x", ErrCorrupt, f.Version, f.Checksum)
	}
	if err := json.Unmarshal(f.Data, &r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return r, nil
}

// Put writes a record durably; Pod.Sandbox names it.
func (s *Store) Put(r Record) error {
	id := r.Pod.Sandbox
	path, err := s.path(id)
	if err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("checkpoint of %s: %w", id, err)
	}
	b, err := json.Marshal(file{version, data, crc32.Checksum(data, castagnoli)})
	if err != nil {
		return fmt.Errorf("checkpoint of %s: %w", id, err)
	}
	if err := hostfile.Write(path, b, 0o600); err != nil {
		return fmt.Errorf("checkpoint of %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[id] = r
	return nil
}

// path refuses ids that would leave the folder.
func (s *Store) path(id string) (string, error) {
	if id == "" || strings.ContainsAny(id, "/.") {
		return "", fmt.Errorf("checkpoint: %q is no sandbox's id", id)
	}
	return filepath.Join(s.dir, id), nil
}

// Get finds a record.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[id]
	return r, ok
}

// IDs lists the sandboxes that have a record.
func (s *Store) IDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.records))
	for id := range s.records {
		out = append(out, id)
	}
	return out
}

// Remove forgets a record, and a damaged one of the same sandbox. One that is not
// there is success.
func (s *Store) Remove(id string) error {
	path, err := s.path(id)
	if err != nil {
		return nil // no sandbox has such an id: there is nothing to forget
	}
	if err := os.Remove(path + ".corrupt"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint of %s: %w", id, err)
	}
	if err := hostfile.Remove(path); err != nil {
		return fmt.Errorf("checkpoint of %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
	return nil
}
