package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/ovs"
)

var _ driver.Repairer = (*Driver)(nil)

// Repair implements driver.Repairer: the port in OVSDB, with its tag, rates and
// mirror. A port whose device is gone has nothing to forward for and is left.
func (d *Driver) Repair(ctx context.Context, _ driver.Run, spec core.Spec) (found, err error) {
	s, err := nicOf(spec)
	if err != nil {
		return nil, fmt.Errorf("repair %s: %w", spec.Key, err)
	}
	defer d.locks.Hold(s.HostIf)()
	if err := errors.Join(ctx.Err(), d.cfg.OVS.Connected()); err != nil {
		return nil, fmt.Errorf("repair %s: %w", s.Key, err)
	}
	p := d.portBeside(s)
	if d.isDetached(s.HostIf) || d.cfg.OVS.Holds(p) {
		return nil, nil
	}
	var diff drift
	d.checkPort(s, &diff)
	made, err := d.readd(ctx, s, p)
	if err != nil {
		return errors.Join(diff...), fmt.Errorf("repair %s: %w", s.Key, err)
	}
	if !made {
		return nil, nil
	}
	return errors.Join(diff...), nil
}

// portBeside is the port of a Spec beside those of others: a logical port that
// another sandbox of the pod has taken over by now stays that one's.
func (d *Driver) portBeside(s nic) ovs.Port {
	p, _ := portFor(s)
	for _, st := range d.cfg.OVS.PortsWith(ovs.KeyIfaceID, s.IfaceID) {
		if s.IfaceID != "" && st.Name != p.Name {
			delete(p.ExternalIDs, ovs.KeyIfaceID)
		}
	}
	return p
}
