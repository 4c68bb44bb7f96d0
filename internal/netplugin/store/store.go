// Package store keeps what a network plugin must know of its pods beyond the
// process's life: by what each was attached, its addresses, and the node's pod
// CIDRs. A record is written before anything is done for a pod and removed when
// all is given back. One that is damaged is set aside and never blocks the end
// of its pod. It knows no plugin.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/hostfile"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// Record is what is known of one pod's attachment.
type Record struct {
	Pod   netplugin.Pod           `json:"pod"`
	Ports []netplugin.PortMapping `json:"ports,omitempty"`
	// Netns is the pod's network namespace.
	Netns core.Netns `json:"netns"`
	// Conf is the CNI configuration by which it is attached.
	Conf json.RawMessage `json:"conf,omitempty"`
	// CIDRs are the node's pod CIDRs of that time.
	CIDRs []netip.Prefix `json:"cidrs,omitempty"`
	// Port is the node's end of the pod's interface, where the plugin made one.
	Port string `json:"port,omitempty"`
	// Result is the CNI result of the ADD, where libcni does not keep it.
	Result json.RawMessage `json:"result,omitempty"`
	// Refused is what the ADD was answered with instead of a result.
	Refused *types.Error `json:"refused,omitempty"`
	// Addrs are eth0's, the primary one first; none before the end of SetUpPod.
	Addrs []netip.Prefix `json:"addrs,omitempty"`
}

// IPs are the addresses alone.
func (r Record) IPs() []netip.Addr {
	var out []netip.Addr
	for _, a := range r.Addrs {
		out = append(out, a.Addr())
	}
	return out
}

const (
	folderMode = 0o700
	fileMode   = 0o600
	damaged    = ".corrupt"
	unfinished = ".tmp"
	podCIDRs   = "pod-cidrs"
)

// Store is a folder of records, all of them in memory too. Its methods may be
// called from any goroutine.
type Store struct {
	dir     string
	mu      sync.Mutex
	records map[string]Record
	cidrs   []netip.Prefix
	told    bool // by this process's callers
}

// Open reads the folder, making it first. Damaged records are set aside and told
// in the error; the store is usable unless it is nil.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, records: map[string]Record{}}
	if err := os.MkdirAll(s.pods(), folderMode); err != nil {
		return nil, fmt.Errorf("network records: %w", err)
	}
	entries, err := os.ReadDir(s.pods())
	if err != nil {
		return nil, fmt.Errorf("network records: %w", err)
	}
	errs := []error{s.recall()}
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, unfinished): // of a write that was cut off
			errs = append(errs, os.Remove(filepath.Join(s.pods(), name)))
		case !strings.Contains(name, "."):
			errs = append(errs, s.load(name))
		}
	}
	return s, errors.Join(errs...)
}

// Start is Open for a plugin's Init: that records were set aside is logged, and
// no reason not to begin.
func Start(dir string, log *slog.Logger) (*Store, error) {
	s, err := Open(dir)
	if s == nil {
		return nil, err
	}
	if err != nil {
		log.Error("network records set aside", "err", err)
	}
	return s, nil
}

func (s *Store) pods() string { return filepath.Join(s.dir, "pods") }

func (s *Store) load(id string) error {
	path := filepath.Join(s.pods(), id)
	b, err := os.ReadFile(path)
	if err == nil {
		var r Record
		if err = json.Unmarshal(b, &r); err == nil && r.Pod.Sandbox == id {
			s.records[id] = r
			return nil
		}
	}
	return fmt.Errorf("network record of %s set aside: %w", id, errors.Join(err, os.Rename(path, path+damaged)))
}

// path refuses ids that would leave the folder.
func (s *Store) path(id string) (string, error) {
	if id == "" || strings.ContainsAny(id, "/.") {
		return "", fmt.Errorf("network record: %q is no sandbox's id", id)
	}
	return filepath.Join(s.pods(), id), nil
}

// Put writes a record durably; Pod.Sandbox names it.
func (s *Store) Put(r Record) error {
	return s.write(r, func(path string, b []byte) error { return hostfile.Write(path, b, fileMode) })
}

// Update writes a record that outlives the process, whole or not at all, and
// perhaps not the machine: with the machine go the pods, and a sync of the disk
// takes longer than all else that is done for one.
func (s *Store) Update(r Record) error {
	return s.write(r, func(path string, b []byte) error {
		tmp := filepath.Join(s.pods(), "."+r.Pod.Sandbox+unfinished)
		if err := os.WriteFile(tmp, b, fileMode); err != nil {
			return err
		}
		return os.Rename(tmp, path)
	})
}

func (s *Store) write(r Record, put func(path string, b []byte) error) error {
	path, err := s.path(r.Pod.Sandbox)
	if err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = put(path, b)
	}
	if err != nil {
		return fmt.Errorf("network record of %s: %w", r.Pod.Sandbox, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[r.Pod.Sandbox] = r
	return nil
}

// Get finds a record.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[id]
	return r, ok
}

// All are the records, by id.
func (s *Store) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Record
	for _, id := range slices.Sorted(maps.Keys(s.records)) {
		out = append(out, s.records[id])
	}
	return out
}

// Pods are those of the records.
func (s *Store) Pods() []netplugin.Pod {
	var out []netplugin.Pod
	for _, r := range s.All() {
		out = append(out, r.Pod)
	}
	return out
}

// Known are the live sandboxes and those of the records: one that lives counts
// although its record was lost.
func (s *Store) Known(live map[string]bool) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]bool{}
	maps.Copy(known, live)
	for id := range s.records {
		known[id] = true
	}
	return known
}

// Remove forgets a record, and a damaged one of the same sandbox. One that is not
// there is success.
func (s *Store) Remove(id string) error {
	path, err := s.path(id)
	if err != nil {
		return nil // no sandbox has such an id: there is nothing to forget
	}
	for _, p := range []string{path + damaged, path} { // one that comes back with a power cut is removed once more
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("network record of %s: %w", id, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
	return nil
}

// CIDRs are the node's pod CIDRs: those of Tell, and before it those that an
// earlier process was told. kubelet tells them when they change, not when we
// start.
func (s *Store) CIDRs() []netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cidrs)
}

// Event is a plugin's Event as far as all plugins do the same: the pod CIDRs are
// kept, and that later ones do not count is logged. It is true when they changed.
func (s *Store) Event(name string, details map[string]string, log *slog.Logger) (bool, error) {
	if name != netplugin.EventPodCIDR {
		return false, nil
	}
	counts, err := s.Tell(details[netplugin.DetailPodCIDR])
	if err == nil && !counts {
		log.Info("pod CIDR ignored: the first one counts", "cidr", details[netplugin.DetailPodCIDR])
	}
	return counts && err == nil, err
}

// Tell takes the node's pod CIDRs, "a[,b]", and keeps them durably. The first
// ones of a process's life count: false for later ones.
func (s *Store) Tell(text string) (bool, error) {
	list, err := ParseCIDRs(text)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told {
		return false, nil
	}
	s.cidrs, s.told = list, true
	if err := hostfile.Write(filepath.Join(s.dir, podCIDRs), []byte(text), fileMode); err != nil {
		return true, fmt.Errorf("pod CIDRs: %w", err)
	}
	return true, nil
}

// recall reads what an earlier process was told.
func (s *Store) recall() error {
	b, err := os.ReadFile(filepath.Join(s.dir, podCIDRs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		s.cidrs, err = ParseCIDRs(string(b))
	}
	if err != nil {
		return fmt.Errorf("pod CIDRs of an earlier process: %w", err)
	}
	return nil
}

// ParseCIDRs reads "a[,b]": one of each family at most.
func ParseCIDRs(text string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }) {
			return nil, fmt.Errorf("%s: there is another one of the same family", p)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
