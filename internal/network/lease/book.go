package lease

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// Entry is a lease that this node has, or has to give back.
type Entry struct {
	Claim  core.Claim `json:"claim"` // Epoch is that of the last holder who was confirmed, 0 for none
	Holder Holder     `json:"holder"`
	Since  time.Time  `json:"since"`
	// Free: its interface is gone, and whoever keeps the leases has yet to hear of it.
	Free bool `json:"free,omitempty"`
	// Former are sandboxes of this node that had it before, and are gone: the keeper of the
	// leases may still take one for the holder.
	Former []string `json:"former,omitempty"`
	// Leaving: whoever keeps the leases may have heard that it is free, though nobody has
	// said so: another may have it.
	Leaving bool `json:"leaving,omitempty"`
	// Conflict is why the holder could not have it, of one that is given back.
	Conflict string `json:"conflict,omitempty"`
	// Contested: the holder's pod was told that another has it as well.
	Contested bool `json:"contested,omitempty"`
}

// Ours tells that whom the keeper of the leases has as the holder is the entry's sandbox,
// or one of this node before it.
func (e Entry) Ours(h Holder) bool {
	id := h.Key.Container
	return id != "" && h.Node == e.Holder.Node && (id == e.Holder.Key.Container || slices.Contains(e.Former, id))
}

// Book is who of this node has which lease. The zero value is empty; its methods may be
// called at the same time.
type Book struct {
	mu  sync.Mutex
	all map[string]Entry // by Name
}

// Take enters claims for a holder: all, or none and the error of the first that another
// sandbox of this node has. One that is free passes on, and so does one of an earlier
// sandbox of the same pod. before are the entries that were there, in the claims' order;
// one that was not is the zero value.
func (b *Book) Take(h Holder, claims []core.Claim, now time.Time) (before []Entry, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range claims {
		e, there := b.all[Name(c)]
		if there && !e.Free && !e.Holder.Same(h) && !h.Reincarnates(e.Holder) {
			return nil, Held(c, e.Holder, e.Since, "")
		}
	}
	if b.all == nil {
		b.all = map[string]Entry{}
	}
	for _, c := range claims {
		was, there := b.all[Name(c)]
		before = append(before, was)
		e := Entry{Claim: c, Holder: h, Since: now}
		if there {
			e.Claim.Epoch, e.Former = was.Claim.Epoch, was.Former
			if id := was.Holder.Key.Container; id != h.Key.Container && !slices.Contains(e.Former, id) {
				e.Former = append(slices.Clone(e.Former), id)
			}
		}
		b.all[Name(c)] = e
	}
	return before, nil
}

// Confirm notes that the keeper of the leases has a holder for what it claims, under an
// epoch.
func (b *Book) Confirm(h Holder, c core.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.all[Name(c)]; ok && e.Holder.Same(h) {
		e.Claim.Epoch, e.Former = c.Epoch, nil
		b.all[Name(c)] = e
	}
}

// Leave marks an entry as Leaving where it is free and h, whom the keeper of the leases has
// as the holder, is its own; else it is not to be given back.
func (b *Book) Leave(name string, h Holder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.all[name]
	if !ok || !e.Free || !e.Ours(h) {
		return false
	}
	e.Leaving = true
	b.all[name] = e
	return true
}

// Note notes why a holder cannot have what it claims.
func (b *Book) Note(h Holder, c core.Claim, conflict string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.all[Name(c)]; ok && e.Holder.Same(h) {
		e.Conflict = conflict
		b.all[Name(c)] = e
	}
}

// Free marks what a holder has of claims as given back, and tells which: what has passed
// to another sandbox is left alone.
func (b *Book) Free(h Holder, claims []core.Claim) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range claims {
		e, ok := b.all[Name(c)]
		if !ok || e.Free || !e.Holder.Same(h) {
			continue
		}
		e.Free = true
		b.all[Name(c)] = e
		names = append(names, Name(c))
	}
	return names
}

// Undo makes entries what they were before a Take whose holder was not confirmed: the
// keeper of the leases may have it nevertheless. It tells which are to be given back.
func (b *Book) Undo(h Holder, claims []core.Claim, before []Entry) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, c := range claims {
		e, ok := b.all[Name(c)]
		if !ok || !e.Holder.Same(h) {
			continue
		}
		if before[i].Holder.IsZero() {
			e.Free = true
		} else {
			e = before[i]
			e.Former = append(slices.Clone(e.Former), h.Key.Container)
		}
		if b.all[Name(c)] = e; e.Free {
			names = append(names, Name(c))
		}
	}
	return names
}

// Lost makes an entry what it was before a Take whose holder is known not to have got it.
func (b *Book) Lost(h Holder, c core.Claim, before Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e, ok := b.all[Name(c)]; {
	case !ok || !e.Holder.Same(h):
	case before.Holder.IsZero():
		delete(b.all, Name(c))
	default:
		b.all[Name(c)] = before
	}
}

// Drop forgets an entry, unless it is another by now.
func (b *Book) Drop(e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now, ok := b.all[Name(e.Claim)]; ok && now.Free == e.Free && now.Holder.Same(e.Holder) {
		delete(b.all, Name(e.Claim))
	}
}

// Restore puts entries back, the later over the earlier of one lease, and nothing over
// what is held.
func (b *Book) Restore(all []Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]Entry{}
	}
	for _, e := range all {
		if was, ok := b.all[Name(e.Claim)]; !ok || was.Free || !e.Free {
			b.all[Name(e.Claim)] = e
		}
	}
}

// Get is one entry.
func (b *Book) Get(name string) (Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.all[name]
	return e, ok
}

// All are all entries, by name.
func (b *Book) All() []Entry {
	b.mu.Lock()
	out := slices.Collect(maps.Values(b.all))
	b.mu.Unlock()
	slices.SortFunc(out, func(x, y Entry) int { return cmp.Compare(Name(x.Claim), Name(y.Claim)) })
	return out
}
