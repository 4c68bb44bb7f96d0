// Package ipset keeps sets of networks and of addresses in the kernel, which rules of iptables match
// addresses with (ipset(8)): idempotent verbs over netlink, without a process. It
// knows networks and names, and nothing of who matches what.
package ipset

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// MaxMembers is how many networks a set may hold.
const MaxMembers = 1 << 20

// nameLimit is the kernel's, in bytes.
const nameLimit = nl.IPSET_MAXNAMELEN - 1

// Set is a set of networks of one family.
type Set struct {
	Name     string
	V6       bool
	Counters bool // of packets and bytes, for each member
	Hosts    bool // it holds single addresses alone
	Members  []netip.Prefix
}

// Types of our sets. Of the revisions of each one is named that kernels have since
// 3.19: programs that print a set leave out what its revision has not.
const (
	kindNets      = "hash:net"
	revisionNets  = 6
	kindHosts     = "hash:ip"
	revisionHosts = 4
)

// kind is the set's type, and the revision of that.
func (s Set) kind() (name string, revision uint8) {
	if s.Hosts {
		return kindHosts, revisionHosts
	}
	return kindNets, revisionNets
}

// State is a set as the kernel has it. One of another type has no Members that
// are of use.
type State struct {
	Set
	Type   string
	Used   bool                    // by a rule
	Counts map[netip.Prefix]Counts // of a set with Counters
}

// Counts are how much a member has matched.
type Counts struct{ Packets, Bytes uint64 }

// Table is all sets of one namespace. It is safe for concurrent use.
type Table struct {
	ns *netns.Handle

	mu sync.Mutex
	h  *netlink.Handle // stays open, as in conntrack
}

// New names the sets of ns (nil: the current namespace); nothing is opened before
// the first call.
func New(ns *netns.Handle) *Table { return &Table{ns: ns} }

// Read gives all sets by their names, those of others too. A kernel without sets has
// none.
func (t *Table) Read() (map[string]State, error) {
	out := map[string]State{}
	err := t.do("read", "all", func(h *netlink.Handle) error {
		parts, err := h.IpsetListAll()
		for _, p := range parts { // a large set comes in several
			s, known := out[p.SetName]
			if !known {
				s = State{
					Type: p.TypeName, Used: p.References > 0,
					Set: Set{
						Name: p.SetName, V6: p.Family == unix.AF_INET6, Counters: p.CadtFlags&nl.IPSET_FLAG_WITH_COUNTERS != 0, Hosts: p.TypeName == kindHosts,
					},
				}
			}
			s.take(p.Entries)
			out[p.SetName] = s
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) {
		return out, nil
	}
	return out, err
}

// take adds members.
func (s *State) take(entries []netlink.IPSetEntry) {
	for _, e := range entries {
		a, ok := netip.AddrFromSlice(e.IP)
		if !ok {
			continue
		}
		bits := a.BitLen()
		if e.CIDR != 0 {
			bits = int(e.CIDR)
		}
		p := netip.PrefixFrom(a, bits)
		s.Members = append(s.Members, p)
		if e.Packets != nil && e.Bytes != nil {
			if s.Counts == nil {
				s.Counts = map[netip.Prefix]Counts{}
			}
			s.Counts[p] = Counts{*e.Packets, *e.Bytes}
		}
	}
}

// Lacks tells what s has and the kernel's set does not, and the other way round.
func (s Set) Lacks(have State) (missing, extra []netip.Prefix) {
	want := map[netip.Prefix]bool{}
	for _, p := range s.Members {
		want[p] = true
	}
	for _, p := range have.Members {
		if !want[p] {
			extra = append(extra, p)
		}
		delete(want, p)
	}
	for _, p := range s.Members {
		if want[p] {
			missing = append(missing, p)
		}
	}
	return missing, extra
}

// Fits tells whether the kernel's set is of s's form, whatever it holds.
func (s Set) Fits(have State) bool {
	kind, _ := s.kind()
	return have.Type == kind && have.V6 == s.V6 && have.Counters == s.Counters
}

// Add makes a set, if it is not there, and gives it the members that it lacks. One of
// another form is replaced at once, if that is of the same type; else that fails while
// rules use it. What it holds too much stays.
func (t *Table) Add(s Set) error {
	if len(s.Name) > nameLimit {
		return fmt.Errorf("make ipset %s: a name has at most %d characters", s.Name, nameLimit)
	}
	return t.do("make", s.Name, func(h *netlink.Handle) error {
		have, err := h.IpsetList(s.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err != nil {
			return fill(h, s, State{})
		}
		now := State{Type: have.TypeName, Set: Set{V6: have.Family == unix.AF_INET6, Counters: have.CadtFlags&nl.IPSET_FLAG_WITH_COUNTERS != 0}}
		if !s.Fits(now) {
			return replace(h, s)
		}
		now.take(have.Entries)
		return fill(h, s, now)
	})
}

// replace puts a new set in the place of another.
func replace(h *netlink.Handle, s Set) error {
	name := s.Name
	s.Name = "fairlead-swap"
	_ = h.IpsetDestroy(s.Name) // of a program that ended in the middle
	err := fill(h, s, State{})
	if err == nil {
		err = h.IpsetSwap(s.Name, name)
	}
	if err == nil || !errors.Is(err, nl.IPSetError(nl.IPSET_ERR_TYPE_MISMATCH)) {
		return errors.Join(err, ignore(h.IpsetDestroy(s.Name), fs.ErrNotExist))
	}
	_ = h.IpsetDestroy(s.Name)
	s.Name = name
	if err := h.IpsetDestroy(name); err != nil {
		return err
	}
	return fill(h, s, State{})
}

// fill makes the set, unless it has a type, and adds what it lacks.
func fill(h *netlink.Handle, s Set, have State) error {
	if have.Type == "" {
		family := uint8(unix.AF_INET)
		if s.V6 {
			family = unix.AF_INET6
		}
		kind, revision := s.kind()
		err := h.IpsetCreate(s.Name, kind, netlink.IpsetCreateOptions{Revision: revision, Family: family, Counters: s.Counters, MaxElements: MaxMembers})
		if err != nil {
			return err
		}
	}
	missing, _ := s.Lacks(have)
	return put(h, s.Name, missing)
}

func put(h *netlink.Handle, name string, members []netip.Prefix) error {
	for _, p := range members {
		if err := h.IpsetAdd(name, entry(p)); err != nil {
			return fmt.Errorf("add %s: %w", p, err)
		}
	}
	return nil
}

// Put adds members to a set that is there; those that it has already stay.
func (t *Table) Put(s Set, members []netip.Prefix) error {
	return t.do("extend", s.Name, func(h *netlink.Handle) error { return put(h, s.Name, members) })
}

// entry is a member; to add one that is there, or to remove one that is not, is no failure.
func entry(p netip.Prefix) *netlink.IPSetEntry {
	return &netlink.IPSetEntry{IP: net.IP(p.Addr().AsSlice()), CIDR: uint8(p.Bits()), Replace: true} //nolint:gosec // at most 128
}

// Remove takes members out of a set; those that are not there are none. A set that is
// not there holds nothing.
func (t *Table) Remove(s Set, members []netip.Prefix) error {
	return t.do("reduce", s.Name, func(h *netlink.Handle) error {
		for _, p := range members {
			if err := h.IpsetDel(s.Name, entry(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove %s: %w", p, err)
			}
		}
		return nil
	})
}

// ErrUsed is why a set stays: a rule speaks of it.
var ErrUsed error = nl.IPSetError(nl.IPSET_ERR_BUSY)

// Destroy removes a set; none is success. One that a rule uses stays: ErrUsed.
func (t *Table) Destroy(name string) error {
	return t.do("destroy", name, func(h *netlink.Handle) error {
		return ignore(h.IpsetDestroy(name), fs.ErrNotExist)
	})
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// do calls fn with the socket; one that failed may hold the rest of an answer.
func (t *Table) do(verb, name string, fn func(*netlink.Handle) error) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		if err != nil {
			t.close()
			err = fmt.Errorf("%s ipset %s: %w", verb, name, err)
		}
	}()
	if t.h == nil {
		err := t.ns.Do(func() (err error) {
			t.h, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
			return err
		})
		if err != nil {
			return err
		}
	}
	// The library hands every attribute from one goroutine to another: where the caller has
	// a thread to itself that is a switch of threads, and 20 times as slow. The socket is of
	// its namespace wherever it is used.
	done := make(chan error, 1)
	go func() { done <- guarded(fn, t.h) }()
	return <-done
}

// guarded calls fn. The library takes every failure for an errno, and ends on another one: of
// an answer that is cut or not its own.
func guarded(fn func(*netlink.Handle) error, h *netlink.Handle) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("netlink: %v", p)
		}
	}()
	return fn(h)
}

func (t *Table) close() {
	if t.h != nil {
		t.h.Close()
		t.h = nil
	}
}
