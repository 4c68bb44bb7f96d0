package deviceplugin

import (
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
)

// Promise has an attachment that got its function by a place be promised another rate,
// Mbit/s. A higher one must be left of what its physical function may promise. Called again
// it does nothing.
//
// 104: MinRateOversubscribed. 11: what is left is not known now.
func (m *Manager) Promise(key core.Key, mbps int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load()
	g, booked := m.book[key.String()]
	if !booked || g.MinMbps == mbps {
		return nil
	}
	if mbps > g.MinMbps {
		if err := m.spare(key, g, mbps); err != nil {
			return err
		}
	}
	return m.rebook(key, mbps)
}

// Promised has an attachment be promised what it was before a Promise of which nothing came.
func (m *Manager) Promised(key core.Key, mbps int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load()
	if g, booked := m.book[key.String()]; !booked || g.MinMbps == mbps {
		return nil
	}
	return m.rebook(key, mbps)
}

// rebook changes a rate in the book, which stays as it was after an error.
func (m *Manager) rebook(key core.Key, mbps int) error {
	was := m.book[key.String()]
	now := was
	now.MinMbps = mbps
	m.book[key.String()] = now
	if err := m.save(); err != nil {
		m.book[key.String()] = was
		return core.WithCode(core.CodeIO, "virtual function "+was.PCI, err)
	}
	return nil
}

// spare refuses a rate that a booked function's physical one has no room for, where that is
// bounded.
func (m *Manager) spare(key core.Key, g grant, mbps int) error {
	if !m.known {
		return core.Errorf(core.CodeTryAgain, "what may be promised of resource %s is not known yet", g.Resource)
	}
	if err := m.refresh(); err != nil {
		return core.WithCode(core.CodeTryAgain, "virtual functions of resource "+g.Resource, err)
	}
	r, is := m.resource(g.Resource)
	at := slices.IndexFunc(r.Functions, func(f vfpolicy.Function) bool { return f.PCI == g.PCI })
	if !is || at < 0 {
		return nil // no policy bounds it any more
	}
	left, err := m.left(r, resolve.DeviceWish{Key: key, Resource: g.Resource, MinMbps: mbps})
	if err != nil {
		return core.WithCode(core.CodeTryAgain, "rates of resource "+g.Resource, err)
	}
	pf := r.Functions[at].PF
	if most, bounded := left[pf]; bounded && most < mbps {
		return core.Reasoned(core.CodeDevice, core.ReasonMinRate, "%d Mbit/s cannot be promised: %s has %d left for %s", mbps, pf, max(0, most), key)
	}
	return nil
}
