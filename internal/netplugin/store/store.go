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
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
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

const podCIDRs = "pod-cidrs"

// Store is a folder of records, all of them in memory too, and the node's pod
// CIDRs. Its methods may be called from any goroutine.
type Store struct {
	*recordfile.Store[Record]

	dir   string
	mu    sync.Mutex
	cidrs []netip.Prefix
	told  bool // by this process's callers
}

// Open reads the folder, making it first. Damaged records are set aside and told
// in the error; the store is usable unless it is nil.
func Open(dir string) (*Store, error) {
	records, err := recordfile.Open(filepath.Join(dir, "pods"), recordfile.Form[Record]{
		What: "network record", ID: func(r Record) string { return r.Pod.Sandbox },
		Encode: func(r Record) ([]byte, error) { return json.Marshal(r) },
		Decode: recordfile.JSON[Record],
	})
	if records == nil {
		return nil, err
	}
	s := &Store{Store: records, dir: dir}
	return s, errors.Join(s.recall(), err)
}

// Start is Open for a plugin's Init: that records were set aside is logged, and
// no reason not to begin.
func Start(dir string, log *slog.Logger) (*Store, error) {
	s, err := Open(dir)
	if s == nil {
		return nil, err
	}
	if err != nil {
		log.Error("damaged network records set aside: nothing is known of their pods' networks", "err", err)
	}
	return s, nil
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
	known := map[string]bool{}
	maps.Copy(known, live)
	for _, id := range s.IDs() {
		known[id] = true
	}
	return known
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
	if err := hostfile.Write(filepath.Join(s.dir, podCIDRs), []byte(text), 0o600); err != nil {
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
