package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/qdisc"
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
	if d.isDetached(s.HostIf) {
		return nil, nil
	}
	var diff drift
	err = d.repair(ctx, s, &diff)
	if errors.Is(err, core.ErrNotFound) { // the port went between two looks at it
		err = d.repair(ctx, s, &diff)
	}
	if err != nil {
		return errors.Join(diff...), fmt.Errorf("repair %s: %w", s.Key, err)
	}
	return errors.Join(diff...), nil
}

func (d *Driver) repair(ctx context.Context, s nic, diff *drift) error {
	there, err := d.repairPort(ctx, s, diff)
	if there && err == nil {
		err = d.repairDelay(ctx, s, diff)
	}
	if there && err == nil {
		err = d.repairFlows(ctx, s, diff)
	}
	return err
}

// repairPort is false where the interface has no device to forward for.
func (d *Driver) repairPort(ctx context.Context, s nic, diff *drift) (there bool, err error) {
	p := d.portBeside(s, []string{s.HostIf}, func(string) bool { return true })
	if d.cfg.OVS.Holds(p) {
		return true, nil
	}
	var found drift
	d.checkPort(s, &found)
	made, err := d.readd(ctx, s, p)
	if made || err != nil {
		*diff = append(*diff, found...)
	}
	return made, err
}

// repairDelay has the netem behind the port's rate as it should be. Of a port that was
// just changed the switch first makes the class.
func (d *Driver) repairDelay(ctx context.Context, s nic, diff *drift) error {
	if len(*diff) > 0 && d.shaped(s) && behindRate(s.QoS) != (qdisc.Netem{}) {
		if err := d.cfg.OVS.Settle(ctx); err != nil {
			return err
		}
	}
	return d.delay(s, diff)
}

// repairFlows has those of port security as they should be.
func (d *Driver) repairFlows(ctx context.Context, s nic, diff *drift) error {
	if !d.secured(s) {
		if len(*diff) > 0 && d.cfg.Flows != nil { // it may just have become so
			return d.cfg.Flows.Set(ctx, cookieOf(s.HostIf))
		}
		return nil
	}
	port, err := d.forwards(ctx, nil, s.HostIf)
	if err != nil {
		return err
	}
	before := len(*diff)
	if err := d.checkFlows(ctx, s, port, diff); err != nil || len(*diff) == before {
		return err
	}
	return d.secure(ctx, nil, s, port)
}

// portBeside is the port of a Spec beside those of others: a logical port that another
// sandbox of the pod has taken over by now stays that one's. its are the host interfaces of
// the logical port that are put right together, of which the last one has it.
// Of other ports those count of which counts tells true.
func (d *Driver) portBeside(s nic, its []string, counts func(port string) bool) ovs.Port {
	p, _ := portFor(s)
	if s.IfaceID == "" {
		return p
	}
	taken := func(st ovs.PortState) bool { return !slices.Contains(its, st.Name) && counts(st.Name) }
	if its[len(its)-1] != s.HostIf || slices.ContainsFunc(d.cfg.OVS.PortsWith(ovs.KeyIfaceID, s.IfaceID), taken) {
		delete(p.ExternalIDs, ovs.KeyIfaceID)
	}
	return p
}
