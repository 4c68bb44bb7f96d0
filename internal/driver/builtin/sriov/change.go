package sriov

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Change implements driver.PluginChanger: VLAN, rates and switches, with the card's word
// that they are so. The MAC and what is in the pod stay.
func (p *Plugin) Change(ctx context.Context, call driver.PluginCall, former json.RawMessage) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	want, err := c.attrs(call)
	if err != nil {
		return err
	}
	unlock, err := p.lock(ctx, c.DeviceID)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := p.find(c.DeviceID)
	if err != nil {
		return err
	}
	m, ok, err := p.marks.load(v.PCI)
	if err != nil {
		return inproc.Fail("find device "+v.PCI, err)
	}
	if !ok || m.Owner != call.Key {
		return core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "virtual function %d of %s (%s) is not that of %s any more", v.Index, v.PF, v.PCI, call.Key)
	}
	err = adjust(v, want)
	fail.Here("sriov.changed")
	if err == nil {
		return nil
	}
	if err = refused(v, "change", err); core.ReasonOf(err) == "" {
		return err
	}
	if back := p.again(v, call, former); back != nil {
		return inproc.Fail("change "+v.PCI, fmt.Errorf("%v; the former attributes are not in force again: %w", err, back)) //nolint:errorlint // its reason says that they are
	}
	return err
}

// again has the attributes of a configuration be in force, where another was refused.
func (p *Plugin) again(v sriov.VF, call driver.PluginCall, former json.RawMessage) error {
	c, err := read(former)
	if err != nil {
		return err
	}
	want, err := c.attrs(call)
	if err != nil {
		return err
	}
	return adjust(v, want)
}

func adjust(v sriov.VF, want sriov.Attrs) error {
	if err := sriov.Adjust(v, want); err != nil {
		return err
	}
	return sriov.Prove(v, want)
}
