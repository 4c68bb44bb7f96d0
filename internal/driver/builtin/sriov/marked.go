package sriov

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

// Marked are the VFs, by PCI address, that attachments have, or had and that were not
// cleaned since.
func (p *Plugin) Marked() (map[string]core.Key, error) {
	all, err := p.marks.all()
	if err != nil {
		return nil, fmt.Errorf("marks of virtual functions: %w", err)
	}
	out := map[string]core.Key{}
	for pci, m := range all {
		out[pci] = m.Owner
	}
	return out, nil
}

// Clean makes a VF what it was, if it is marked for an attachment, of which the caller
// knows that it has ended. One that is not on the machine yet is not cleaned; of one that
// is no more the mark goes.
func (p *Plugin) Clean(ctx context.Context, pci string, of core.Key) error {
	unlock, err := p.lock(ctx, pci)
	if err != nil {
		return err
	}
	defer unlock()
	m, ok, err := p.marks.load(pci)
	if err != nil || !ok || m.Owner != of {
		return err
	}
	v, err := p.sys.VF(pci)
	if errors.Is(err, core.ErrNotFound) {
		return p.marks.remove(pci, m)
	}
	if err == nil {
		err = p.here(v)
	}
	if err != nil {
		return err
	}
	host, err := p.host.Get()
	if err != nil {
		return err
	}
	defer p.host.Put(host)
	return p.clean(nil, host, v, m)
}

// here proves that a VF's network device is on the machine, if its driver makes one.
func (p *Plugin) here(v sriov.VF) error {
	name, err := p.sys.Netdev(v.PCI)
	if err == nil && name == "" && v.Driver != "" && !v.Userspace() {
		err = errors.New("its network device is not on the machine")
	}
	return err
}
