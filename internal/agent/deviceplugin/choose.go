package deviceplugin

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
)

// grant is a function that was chosen for an attachment.
type grant struct {
	Resource string `json:"resource"`
	ID       string `json:"id"` // kubelet's
	PCI      string `json:"pci"`
	MinMbps  int    `json:"minMbps,omitempty"`
}

// keyOf is an attachment of the book.
func keyOf(text string) core.Key {
	k, _ := core.ParseKey(text)
	return k
}

// slot is what places look like.
var slot = regexp.MustCompile(`^n[0-9]*-[0-9]+$`)

// Choose implements resolve.Chooser: of a resource of places it picks a function, and
// keeps it for the attachment until that has ended. Called again for the same one it gives
// the same, as long as that fits.
func (m *Manager) Choose(_ context.Context, w resolve.DeviceWish) (resolve.Chosen, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known && slot.MatchString(w.IDs[0]) {
		return resolve.Chosen{}, core.Errorf(core.CodeTryAgain, "resource %s: %s is a place, and which functions it may stand for is not known yet", w.Resource, w.IDs[0])
	}
	if r, is := m.resource(w.Resource); !is || !r.Slot {
		return resolve.Chosen{ID: w.IDs[0], Device: w.IDs[0], Defaults: defaults(r.Of[w.IDs[0]])}, nil
	}
	m.load()
	m.prune()
	mine := w.Key.String()
	former := m.book[mine]
	delete(m.book, mine)
	id := m.place(w)
	if id == "" {
		return resolve.Chosen{}, nil
	}
	f, p, err := m.pick(w, id, former)
	if err != nil {
		return resolve.Chosen{}, err
	}
	m.book[mine] = grant{Resource: w.Resource, ID: id, PCI: f.PCI, MinMbps: w.MinMbps}
	if err := m.save(); err != nil {
		delete(m.book, mine)
		return resolve.Chosen{}, core.WithCode(core.CodeIO, "virtual function "+f.PCI, err)
	}
	m.seen.given[f.PCI] = owner{key: w.Key}
	return resolve.Chosen{ID: id, Device: f.PCI, Defaults: defaults(p)}, nil
}

// defaults are a policy's baseline in the words of plugin sriov, nil without one.
func defaults(p *vfpolicy.Policy) map[string]any {
	if p == nil || p.Spec.Baseline == nil {
		return nil
	}
	onOff := map[bool]string{true: "on", false: "off"}
	b := p.Spec.Baseline
	return map[string]any{"vlan": b.VLAN, "trust": onOff[b.Trust], "max_tx_rate": b.MaxMbps, "spoofchk": onOff[b.SpoofChk == nil || *b.SpoofChk]}
}

// save writes the book.
func (m *Manager) save() error {
	if err := os.MkdirAll(filepath.Dir(m.cfg.Book), 0o755); err != nil {
		return err
	}
	return recordfile.Save(m.cfg.Book, m.book)
}

// prune forgets what attachments had that are no more.
func (m *Manager) prune() {
	alive := m.cfg.Living()
	maps.DeleteFunc(m.book, func(key string, _ grant) bool { return !alive(keyOf(key)) })
}

// place is the first of kubelet's places that no other interface of the container has, ""
// for none.
func (m *Manager) place(w resolve.DeviceWish) string {
	for _, id := range w.IDs {
		used := func(key string) bool {
			g := m.book[key]
			return keyOf(key).Container == w.Key.Container && g.Resource == w.Resource && g.ID == id
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(m.book)), used) {
			return id
		}
	}
	return ""
}

// refresh looks at the cards again, by the policies of the last pass.
func (m *Manager) refresh() error {
	next, err := m.observe(m.seen.plan.Policies)
	if err != nil {
		return err
	}
	next.amiss = m.seen.amiss
	m.seen = next
	return nil
}

// pick chooses among the functions that are healthy and nobody's now. What was chosen for
// the same attachment before comes first.
func (m *Manager) pick(w resolve.DeviceWish, id string, former grant) (f vfpolicy.Function, p *vfpolicy.Policy, err error) {
	if err := m.refresh(); err != nil {
		return f, nil, core.WithCode(core.CodeTryAgain, "virtual functions of resource "+w.Resource, err)
	}
	r, is := m.resource(w.Resource)
	if !is {
		return f, nil, core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "resource %s is not given here any more", w.Resource)
	}
	left, err := m.left(r, w)
	if err != nil {
		return f, nil, core.WithCode(core.CodeTryAgain, "rates of resource "+r.Name, err)
	}
	var free, again []vfpolicy.Function
	for _, f := range r.Functions {
		by, given := m.seen.given[f.PCI]
		if m.seen.sick[f.PCI] != "" || given && by.key != w.Key {
			continue
		}
		free = append(free, f)
		if f.PCI == former.PCI {
			again = append(again, f)
		}
	}
	wish := vfpolicy.Wish{PFs: w.PFs, MinMbps: w.MinMbps, Place: vfpolicy.Place{ID: id, NUMA: -1}}
	if at := slices.IndexFunc(r.Places(), func(p vfpolicy.Place) bool { return p.ID == id }); at >= 0 {
		wish.Place = r.Places()[at]
	}
	if f, err = r.Choose(again, wish, left); err != nil {
		f, err = r.Choose(free, wish, left)
	}
	return f, r.Of[f.PCI], err
}

// left is what the resource's PFs can still promise, Mbit/s, by their names: their budget
// less what functions have, and what was chosen and is not set yet.
func (m *Manager) left(r vfpolicy.Resource, w resolve.DeviceWish) (map[string]int, error) {
	out := map[string]int{}
	if w.MinMbps == 0 {
		return out, nil
	}
	for _, f := range r.Functions {
		if p := r.Of[f.PCI]; p.Spec.MinRateBudgetPercent > 0 {
			out[f.PF] = m.budget(p, f.PF)
		}
	}
	booked := map[string]int{}
	for _, g := range m.book {
		booked[g.PCI] = g.MinMbps
	}
	for _, card := range m.seen.cards {
		if _, bounded := out[card.Name]; !bounded {
			continue
		}
		for _, f := range card.Functions {
			a, err := m.cfg.Attrs(sriov.VF{PCI: f.PCI, PF: f.PF, Index: f.Index})
			if err != nil {
				return nil, err
			}
			if m.seen.given[f.PCI].key != w.Key {
				out[card.Name] -= max(a.MinMbps, booked[f.PCI])
			}
		}
	}
	return out, nil
}
