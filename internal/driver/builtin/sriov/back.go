package sriov

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Del takes the VF back and makes it what it was, then frees the addresses. A VF that
// was given on by now is left alone.
func (p *Plugin) Del(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if c.DeviceID == "" {
		if c.DeviceID, err = p.marks.owned(call.Key); err != nil {
			return inproc.Fail("find the device of "+call.Key.String(), err)
		}
	}
	if c.DeviceID != "" {
		unlock, err := p.lock(ctx, c.DeviceID)
		if err != nil {
			return err
		}
		defer unlock()
		if err := p.back(ctx, c.DeviceID, call); err != nil {
			return inproc.Fail("take back "+c.DeviceID, err)
		}
		fail.Here("sriov.restored")
	}
	return c.Ask(ctx, call.IPAM, core.Del)
}

// back restores the VF. Of one that is no more only the mark is left.
func (p *Plugin) back(ctx context.Context, pci string, call driver.PluginCall) error {
	v, err := p.sys.VF(pci)
	if err == nil {
		return p.restore(ctx, v, call)
	}
	if !errors.Is(err, core.ErrNotFound) {
		return err
	}
	m, ok, err := p.marks.load(pci)
	if err != nil || !ok || m.Owner != call.Key {
		return err
	}
	return p.marks.remove(pci, m)
}

// restore brings the device back out of the pod, if it is there, and cleans it.
func (p *Plugin) restore(ctx context.Context, v sriov.VF, call driver.PluginCall) error {
	m, ok, err := p.marks.load(v.PCI)
	if err != nil || !ok || m.Owner != call.Key {
		return err
	}
	host, err := p.host.Get()
	if err != nil {
		return err
	}
	defer p.host.Put(host)
	if err := timed(call.Time, "sriov.del.fetch", func() error { return p.fetch(ctx, v, call, m.Name) }); err != nil {
		return err
	}
	fail.Here("sriov.back")
	return p.clean(call.Time, host, v, m)
}

// fetch has the device be on the machine: it moves it out of the pod, or waits for the
// kernel, which moves it when the pod's namespace has ended. One that is in neither is
// where somebody took it; it ends there when its driver is bound anew. One that was
// unbound, or is of programs by now, has no device.
func (p *Plugin) fetch(ctx context.Context, v sriov.VF, call driver.PluginCall, name string) error {
	here := func() (bool, error) {
		now, err := p.sys.Netdev(v.PCI)
		return now != "", err
	}
	if ok, err := here(); ok || err != nil || v.Driver == "" || v.Userspace() {
		return err
	}
	if call.Netns.Path != "" {
		pod, err := netns.Verify(call.Netns)
		if err == nil {
			defer func() { _ = pod.Close() }()
			err = p.outOf(pod, v, name)
		}
		if errors.Is(err, core.ErrNotFound) {
			return nil
		}
		if !errors.Is(err, core.ErrNetnsGone) {
			return err
		}
	}
	err := inproc.Await(ctx, returnLimit, here)
	if errors.Is(err, inproc.ErrTimeout) {
		return nil
	}
	return err
}

// inPod finds the device of a PCI address in a pod, whatever its name.
func inPod(pod *netns.Handle, pci string) (l rtnl.Link, err error) {
	conn, err := rtnl.Open(pod)
	if err != nil {
		return l, err
	}
	defer func() { _ = conn.Close() }()
	all, err := conn.Links()
	if err != nil {
		return l, err
	}
	at := slices.IndexFunc(all, func(l rtnl.Link) bool { return l.Bus == pci })
	if at < 0 {
		return l, fmt.Errorf("device %s: %w", pci, core.ErrNotFound)
	}
	return all[at], nil
}

// outOf moves the device back to the machine. Where its name is taken by now it keeps the
// one that it had in the pod, or gets one that nobody has.
func (p *Plugin) outOf(pod *netns.Handle, v sriov.VF, name string) error {
	l, err := inPod(pod, v.PCI)
	if err != nil {
		return err
	}
	home, err := netns.Current()
	if err != nil {
		return err
	}
	defer func() { _ = home.Close() }()
	err = sriov.Move(pod, l.Index, home, name)
	if !errors.Is(err, core.ErrExists) {
		return err
	}
	if now, err := p.sys.Netdev(v.PCI); err != nil || now != "" {
		return err
	}
	return sriov.Move(pod, l.Index, home, "vf%d")
}

// clean makes a device on the machine what it was: no attribute and no filter of the
// pod stays. The mark goes last. The driver of one that is of programs stays bound: it
// resets the VF whenever a program takes it or gives it back, and waits for the program
// if it is to go.
func (p *Plugin) clean(t driver.Timer, host *rtnl.Conn, v sriov.VF, m Mark) error {
	if err := write(t, "sriov.del", v, baseline); err != nil {
		return err
	}
	fail.Here("sriov.baseline")
	if v.Userspace() {
		return p.marks.remove(v.PCI, m)
	}
	var l rtnl.Link
	err := timed(t, "sriov.del.bind", func() (err error) {
		l, err = p.rebind(host, v, m.MAC)
		return err
	})
	if err != nil {
		return err
	}
	if m.Name != "" && l.Name != m.Name {
		err := host.SetName(l.Index, m.Name)
		if err != nil && !errors.Is(err, core.ErrExists) {
			return err
		}
	}
	fail.Here("sriov.clean")
	return p.marks.remove(v.PCI, m)
}
