package packetfilter

import (
	"log/slog"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/network/record"
)

// lastGone bounds what may have gone a moment before an agent was killed.
const lastGone = 1 << 10

// Forgetter is a core.Notices before another: it has the kernel forget the
// connections of pods that are gone. An address that is given again before they
// are forgotten waits for that.
type Forgetter struct {
	Next core.Notices // may be nil
	Of   *hostport.Table
	Log  *slog.Logger
}

// Attached implements core.Notices.
func (f *Forgetter) Attached(r core.Record) {
	moved := false
	for _, s := range r.Specs { // another node may have had what they claim
		addrs := s.ClaimedAddrs()
		moved = moved || len(addrs) > 0
		f.Of.Forget(addrs)
	}
	if moved || slices.ContainsFunc(r.Specs, func(s core.Spec) bool { return f.Of.Forgetting(s.Addresses()) }) {
		if err := f.Of.Flush(); err != nil {
			f.Log.Warn("conntrack entries of the pod that had the address before not deleted: they may lead to this one",
				"container", r.Key.Container, "err", err)
		}
	}
	if f.Next != nil {
		f.Next.Attached(r)
	}
}

// Detached implements core.Notices. Only addresses that we gave are ours to
// tell of.
func (f *Forgetter) Detached(r core.Record) {
	var gone []netip.Addr
	for _, s := range r.Specs {
		gone = append(gone, s.ClaimedAddrs()...)
		if s.Kind() != core.KindNIC {
			continue
		}
		for _, a := range s.NIC.Addrs {
			gone = append(gone, a.Addr())
		}
	}
	f.Of.Forget(gone)
	if f.Next != nil {
		f.Next.Detached(r)
	}
}

// Recall adds what an agent before this one may not have come to: the last
// addresses that were released, but for those that are in use.
func (f *Forgetter) Recall(released []core.Released, records []core.Record) {
	held := map[netip.Addr]bool{}
	for _, l := range record.Held(records) {
		for _, a := range l.IPs {
			held[a] = true
		}
	}
	var gone []netip.Addr
	for _, r := range released[max(0, len(released)-lastGone):] {
		for _, a := range r.IPs {
			if !held[a] {
				gone = append(gone, a)
			}
		}
	}
	f.Of.Forget(gone)
}

// Failed implements core.Notices.
func (f *Forgetter) Failed(a core.Attempt) {
	if f.Next != nil {
		f.Next.Failed(a)
	}
}
