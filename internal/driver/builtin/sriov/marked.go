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

// Clean makes a VF what it was, if it is marked for an attachment of which the caller does
// not know that it lives. One that its pod may have still is not cleaned, and the error
// says why; of one that is no more the mark goes.
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
		err = p.ended(v, m)
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

// ended proves that the pod of a mark has its VF no more.
func (p *Plugin) ended(v sriov.VF, m Mark) error {
	free, err := p.free(v, m)
	switch {
	case free || err != nil:
		return err
	case !v.Userspace():
		return errors.New("its network device is not on the machine")
	case m.Netns.Path == "":
		return errors.New("nothing tells whether the pod to which the program sriov gave it is there still: if it is not, `fairlead import sriov --rollback` leaves the function to that program")
	}
	return fmt.Errorf("the pod's namespace %s is there still, and nothing else tells whether its programs use the function", m.Netns.Path)
}
