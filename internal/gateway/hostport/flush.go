package hostport

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/conntrack"
)

var numbers = map[string]uint8{"tcp": conntrack.TCP, "udp": conntrack.UDP, "sctp": conntrack.SCTP}

// together is how long Run waits for more to be forgotten: the kernel's table
// must be read as a whole, and a node that is drained would else read it at each
// pod.
const together = 200 * time.Millisecond

// oblivion is what the kernel is yet to forget: all connections of addresses,
// and those that ports do not serve though they should.
type oblivion struct {
	mu    sync.Mutex
	seq   uint64 // of what came last
	addrs map[netip.Addr]uint64
	stale map[core.Key]uint64
	wake  chan struct{}
}

func newOblivion() *oblivion {
	return &oblivion{addrs: map[netip.Addr]uint64{}, stale: map[core.Key]uint64{}, wake: make(chan struct{}, 1)}
}

// add remembers addresses, and whose ports have just been opened.
func (o *oblivion) add(addrs []netip.Addr, opened ...core.Key) {
	if len(addrs)+len(opened) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	for _, a := range addrs {
		o.addrs[a] = o.seq
	}
	for _, k := range opened {
		o.stale[k] = o.seq
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Forget has Run have the kernel forget every connection of some addresses: the
// next pod that gets one must not be sent the answers to the last one's questions.
func (t *Table) Forget(addrs []netip.Addr) { t.late.add(addrs) }

// Forgetting tells that one of some addresses is still to be forgotten.
func (t *Table) Forgetting(addrs []netip.Prefix) bool {
	t.late.mu.Lock()
	defer t.late.mu.Unlock()
	return slices.ContainsFunc(addrs, func(p netip.Prefix) bool { _, waits := t.late.addrs[p.Addr()]; return waits })
}

// Run forgets until ctx ends, and then what is left. A Table with Config.Late
// needs it.
func (t *Table) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-t.late.wake:
			select {
			case <-ctx.Done():
			case <-time.After(together):
			}
		}
		if err := t.Flush(); err != nil {
			t.cfg.Log.Warn("connections of pods that are gone not forgotten", "err", err)
		}
	}
}

// Flush has the kernel forget now what it is yet to forget. It reads the
// kernel's table once for each family.
func (t *Table) Flush() error {
	t.late.mu.Lock()
	addrs, opened := maps.Clone(t.late.addrs), maps.Clone(t.late.stale)
	t.late.mu.Unlock()
	err := t.flush(addrs, t.serving(opened))
	t.late.mu.Lock()
	defer t.late.mu.Unlock()
	maps.DeleteFunc(t.late.addrs, func(a netip.Addr, seq uint64) bool { return addrs[a] == seq })
	maps.DeleteFunc(t.late.stale, func(k core.Key, seq uint64) bool { return opened[k] == seq })
	return err
}

// serving are the entries that have their ports still.
func (t *Table) serving(opened map[core.Key]uint64) (out []entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range opened {
		if e, ok := t.entries[k]; ok {
			out = append(out, e)
		}
	}
	return out
}

func (t *Table) flush(addrs map[netip.Addr]uint64, opened []entry) error {
	var errs []error
	for _, v4 := range []bool{true, false} {
		among := maps.Clone(addrs)
		maps.DeleteFunc(among, func(a netip.Addr, _ uint64) bool { return a.Is4() != v4 })
		serving := slices.DeleteFunc(slices.Clone(opened), func(e entry) bool {
			return !slices.ContainsFunc(e.addrs, func(a netip.Prefix) bool { return a.Addr().Is4() == v4 })
		})
		if len(among)+len(serving) > 0 {
			errs = append(errs, t.flushFamily(v4, among, serving))
		}
	}
	return errors.Join(errs...)
}

func (t *Table) flushFamily(v4 bool, among map[netip.Addr]uint64, serving []entry) error {
	own := map[netip.Addr]bool{}
	if len(serving) > 0 {
		var err error
		if own, err = t.ownAddresses(v4); err != nil {
			return err
		}
	}
	_, err := t.tracked.Flush(v4, func(f conntrack.Flow) bool {
		for _, a := range []netip.Addr{f.Src, f.Dst, f.ReplySrc, f.ReplyDst} {
			if _, gone := among[a]; gone {
				return true
			}
		}
		return slices.ContainsFunc(serving, func(e entry) bool { return stale(f, e, own) })
	})
	return err
}

// settle forgets what has just been added, or leaves it to Run.
func (t *Table) settle(addrs []netip.Addr, opened ...core.Key) error {
	t.late.add(addrs, opened...)
	if t.cfg.Late {
		return nil
	}
	return t.Flush()
}

// ownAddresses are the node's.
func (t *Table) ownAddresses(v4 bool) (own map[netip.Addr]bool, err error) {
	family := unix.AF_INET6
	if v4 {
		family = unix.AF_INET
	}
	own = map[netip.Addr]bool{}
	err = t.cfg.Host.Do(func() error {
		list, err := netlink.AddrList(nil, family)
		for _, a := range list {
			ip, _ := netip.AddrFromSlice(a.IP)
			own[ip.Unmap()] = true
		}
		return err
	})
	return own, err
}

// stale tells a connection to a port of e on the node that goes elsewhere: to an
// earlier pod, or to the node itself, where nobody listened. TCP to the node
// itself is left alone: such a connection is somebody's, and a new one begins
// with a handshake, which is translated.
func stale(f conntrack.Flow, e entry, own map[netip.Addr]bool) bool {
	if slices.ContainsFunc(e.addrs, func(a netip.Prefix) bool { return a.Addr() == f.ReplySrc }) {
		return false
	}
	if f.Protocol == conntrack.TCP && !f.Translated() {
		return false
	}
	return slices.ContainsFunc(e.ports, func(p core.PortMapping) bool {
		here := own[f.Dst] || f.Dst.IsLoopback()
		if isBound(p) {
			here = f.Dst == p.HostIP
		}
		return here && numbers[p.Protocol] == f.Protocol && p.HostPort == f.DstPort
	})
}
