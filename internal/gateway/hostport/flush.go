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

// forgetting is what the kernel is yet to forget: all connections of addresses,
// and those that ports do not serve though they should.
type forgetting struct {
	mu    sync.Mutex
	seq   uint64 // of what came last
	addrs map[netip.Addr]uint64
	stale map[opening]uint64
	wake  chan struct{}
}

// opening is one family of an interface whose ports have just been opened.
type opening struct {
	key core.Key
	v4  bool
}

func newForgetting() *forgetting {
	return &forgetting{addrs: map[netip.Addr]uint64{}, stale: map[opening]uint64{}, wake: make(chan struct{}, 1)}
}

// add remembers addresses, and whose ports have just been opened.
func (o *forgetting) add(addrs []netip.Addr, opened ...core.Key) {
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
		o.stale[opening{k, true}], o.stale[opening{k, false}] = o.seq, o.seq
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

// Pauses of Run before it tries again what failed.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Run forgets until ctx ends, and then what is left. What fails is tried again.
// A Table with Config.Late needs it.
func (t *Table) Run(ctx context.Context) {
	var pause time.Duration
	var again <-chan time.Time
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-again:
		case <-t.late.wake:
			select {
			case <-ctx.Done():
			case <-time.After(together):
			}
		}
		err := t.Flush()
		if pause, again = min(max(2*pause, firstRetry), lastRetry), nil; err == nil {
			pause = 0
			continue
		}
		t.cfg.Log.Warn("conntrack entries of pods that are gone not deleted: they may lead to whoever has the address next",
			"again", pause, "err", err)
		again = time.After(pause)
	}
}

// Flush has the kernel forget now what it is yet to forget. It reads the
// kernel's table once for each family; a family that fails is yet to be forgotten.
func (t *Table) Flush() error {
	return errors.Join(t.flush(true), t.flush(false))
}

// flush is Flush for one family. What has come meanwhile stays.
func (t *Table) flush(v4 bool) error {
	addrs, opened := t.late.of(v4)
	serving := t.serving(opened, v4)
	if len(addrs)+len(serving) > 0 {
		if err := t.flushFamily(v4, addrs, serving); err != nil {
			return err
		}
	}
	t.late.mu.Lock()
	defer t.late.mu.Unlock()
	maps.DeleteFunc(t.late.addrs, func(a netip.Addr, seq uint64) bool { return addrs[a] == seq })
	maps.DeleteFunc(t.late.stale, func(o opening, seq uint64) bool { return opened[o] == seq })
	return nil
}

// of is what is to be forgotten of one family.
func (o *forgetting) of(v4 bool) (map[netip.Addr]uint64, map[opening]uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	addrs, opened := maps.Clone(o.addrs), maps.Clone(o.stale)
	maps.DeleteFunc(addrs, func(a netip.Addr, _ uint64) bool { return a.Is4() != v4 })
	maps.DeleteFunc(opened, func(o opening, _ uint64) bool { return o.v4 != v4 })
	return addrs, opened
}

// serving are the entries that have their ports still, and addresses of the family.
func (t *Table) serving(opened map[opening]uint64, v4 bool) (out []entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for o := range opened {
		e, ok := t.entries[o.key]
		if ok && slices.ContainsFunc(e.addrs, func(a netip.Prefix) bool { return a.Addr().Is4() == v4 }) {
			out = append(out, e)
		}
	}
	return out
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
