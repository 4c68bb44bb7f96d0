package sriov

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

// Check proves that the pod has the device, and the VF each attribute.
func (p *Plugin) Check(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if err := c.Ask(ctx, call.IPAM, core.Check); err != nil {
		return err
	}
	prev, err := inproc.Parse(c.PrevResult, c.CNIVersion)
	if err != nil {
		return err
	}
	want, err := c.attrs(call)
	if err != nil {
		return err
	}
	v, err := p.sys.VF(c.DeviceID)
	if errors.Is(err, core.ErrNotFound) {
		return core.Differ("the virtual function is no more: %v", err)
	}
	if err != nil {
		return inproc.Fail("find device "+c.DeviceID, err)
	}
	have, err := sriov.Read(v)
	if err != nil {
		return inproc.Fail("check "+v.PCI, err)
	}
	m, _, err := p.marks.load(v.PCI)
	if err != nil {
		return inproc.Fail("check "+v.PCI, err)
	}
	found := []error{bound(v, m)}
	for _, d := range want.Differ(have) {
		found = append(found, core.Differ("virtual function %d of %s: %s", v.Index, v.PF, d))
	}
	if !(sriov.VF{Driver: m.Driver}).Userspace() {
		found = append(found, inspect(call, v.PCI, prev))
	}
	return errors.Join(found...)
}

// bound compares the VF's driver with the one that it was given with.
func bound(v sriov.VF, m Mark) error {
	if m.Driver == "" || m.Driver == v.Driver {
		return nil
	}
	return core.Differ("virtual function %d of %s: its driver is %q, not %q", v.Index, v.PF, v.Driver, m.Driver)
}

// Bare implements driver.PluginBare: a VF that was given with a driver which hands it to
// programs is no network device.
func (p *Plugin) Bare(call driver.PluginCall) (bool, error) {
	c, err := read(call.Conf)
	if err != nil {
		return false, err
	}
	m, ok, err := p.marks.load(c.DeviceID)
	return ok && m.Owner == call.Key && sriov.VF{Driver: m.Driver}.Userspace(), err
}

// inspect compares the pod with the result.
func inspect(call driver.PluginCall, pci string, prev inproc.Result) error {
	pod, err := netns.Verify(call.Netns)
	if err != nil {
		return inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = pod.Close() }()
	l, err := inPod(pod, pci)
	if errors.Is(err, core.ErrNotFound) {
		return core.Difference("the device is not in the pod")
	}
	if err != nil {
		return err
	}
	var found []error
	if l.Name != call.Key.IfName {
		found = append(found, core.Differ("the device is called %s, not %s", l.Name, call.Key.IfName))
	}
	if !l.Up {
		found = append(found, core.Difference("the device is down"))
	}
	for _, i := range prev.Interfaces {
		if i.Name == call.Key.IfName && i.MAC != l.MAC.String() {
			found = append(found, core.Differ("its MAC is %s, not %s", l.MAC, i.MAC))
		}
	}
	conn, err := rtnl.Open(pod)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return errors.Join(append(found, prev.Inspect(conn, l.Index))...)
}
