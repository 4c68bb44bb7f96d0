package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/device"
)

// prepare makes functions and binds their drivers, where policies say so and nobody has
// one; true: the cards are not what they were. What cannot be done s.amiss tells.
func (m *Manager) prepare(ctx context.Context, s *state) (changed bool) {
	who := &holders{m: m, s: s}
	for _, card := range s.cards {
		if w, is := s.plan.VFs[card.Name]; is && w.Is != card.VFs {
			changed = m.number(ctx, s, card, w, who) || changed
		}
		if w, is := s.plan.MTUs[card.Name]; is && !w.By.Spec.ExternallyManaged {
			s.setMTU(card, w)
		}
	}
	if changed {
		return true // the functions are others
	}
	return m.drivers(ctx, s, who)
}

// drivers binds those of all functions that policies have.
func (m *Manager) drivers(ctx context.Context, s *state, who *holders) (changed bool) {
	present := map[string]bool{}
	for _, r := range s.plan.Resources {
		for _, f := range r.Functions {
			present[f.PCI] = true
			changed = m.drive(ctx, s, r.Of[f.PCI], f, who) || changed
		}
	}
	for pci := range m.driven {
		if !present[pci] {
			delete(m.driven, pci)
		}
	}
	return changed
}

func (s *state) lament(p *vfpolicy.Policy, what string) {
	s.amiss[p.Name] = append(s.amiss[p.Name], what)
}

// number gives a PF its functions. One that a pod has keeps the number as it is.
func (m *Manager) number(ctx context.Context, s *state, card vfpolicy.PF, w vfpolicy.Wanted, who *holders) bool {
	stays := fmt.Sprintf("numVFs of %s stays %d, not %d: ", card.Name, card.VFs, w.Is)
	if w.By.Spec.ExternallyManaged {
		s.lament(w.By, stays+"they are made by somebody else (externallyManaged)")
		return false
	}
	for _, f := range card.Functions {
		if by, err := who.has(ctx, f); err != nil || by != "" {
			s.lament(w.By, stays+because(f, by, err))
			return false
		}
	}
	if err := m.cfg.Sys.SetVFs(sriov.PF{PCI: card.PCI, Name: card.Name, VFs: card.VFs, Most: card.Most}, w.Is); err != nil {
		s.lament(w.By, err.Error())
		return false
	}
	m.cfg.Log.Info("virtual functions made", "pf", card.Name, "were", card.VFs, "are", w.Is, "policy", w.By.Name)
	return true
}

func because(f vfpolicy.Function, by string, err error) string {
	if err != nil {
		return fmt.Sprintf("it cannot be told who has virtual function %d: %v", f.Index, err)
	}
	return fmt.Sprintf("%s has virtual function %d (%s)", by, f.Index, f.PCI)
}

// drive binds a function to its policy's driver when that is first seen, or changes: what
// somebody does to it later is told as its health.
func (m *Manager) drive(ctx context.Context, s *state, p *vfpolicy.Policy, f vfpolicy.Function, who *holders) bool {
	want := ""
	if p.VFIO() {
		want = sriov.DriverVFIO
	}
	if was, seen := m.driven[f.PCI]; p.Spec.ExternallyManaged || seen && was == want {
		return false
	}
	if f.Driver == want || want == "" && f.Driver != "" && f.Driver != sriov.DriverVFIO {
		m.driven[f.PCI] = want
		return false
	}
	if by, err := who.has(ctx, f); err != nil || by != "" {
		s.lament(p, fmt.Sprintf("driver of %s stays %q: %s", f.PCI, f.Driver, because(f, by, err)))
		return false
	}
	if err := m.cfg.Sys.Drive(f.PCI, want); err != nil {
		s.lament(p, err.Error())
		return false
	}
	m.driven[f.PCI] = want
	return true
}

func (s *state) setMTU(card vfpolicy.PF, w vfpolicy.Wanted) {
	if err := setMTU(card.Name, w.Is); err != nil {
		s.lament(w.By, fmt.Sprintf("mtu of %s: %v", card.Name, err))
	}
}

// setMTU sets that of a device of this namespace.
func setMTU(name string, mtu int) error {
	conn, err := rtnl.Open(nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	l, err := conn.LinkByName(name)
	if err != nil || l.MTU == mtu {
		return err
	}
	return conn.SetMTU(l.Index, mtu)
}

// holders tells who has functions. Kubelet is asked at most once, and only when it matters.
type holders struct {
	m     *Manager
	s     *state
	asked bool
	given []device.Given
	err   error
}

// has names the one who has a function, "" for nobody. An error: that cannot be told.
func (h *holders) has(ctx context.Context, f vfpolicy.Function) (string, error) {
	if by, is := h.s.given[f.PCI]; is {
		if pod := h.m.cfg.Pod(by.key); !pod.IsZero() {
			return "pod " + pod.String(), nil
		}
		return "container " + by.key.Container, nil
	}
	if kernel := f.Driver != "" && f.Driver != sriov.DriverVFIO; kernel && f.Netdev == "" {
		return "somebody", nil
	}
	if !h.asked {
		h.asked = true
		h.given, h.err = h.m.cfg.Kubelet.Given(ctx)
		if errors.Is(h.err, core.ErrNotFound) { // there never was one
			h.err = nil
		}
	}
	at := slices.IndexFunc(h.given, func(g device.Given) bool { return slices.Contains(g.IDs, f.PCI) })
	if at < 0 {
		return "", h.err
	}
	return "pod " + h.given[at].Pod.String(), nil
}
