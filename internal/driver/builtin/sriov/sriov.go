// Package sriov is a CNI plugin inside the agent that gives a pod a virtual function
// of a network card: the device that kubelet or the configuration names is moved into
// the pod with the attributes that its physical function enforces, and comes back as
// it was. Configurations of the usual plugin sriov work as they stand. It knows no
// other plugin, and keeps a file for each VF that is given, until the machine ends: whose
// it is, and what its device was called.
package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/keylock"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// Name is the plugin's type.
const Name = "sriov"

const (
	undoLimit    = 20 * time.Second // for what a failed Add has to clear up
	carrierLimit = 5 * time.Second  // cards begin anew when a VF changes
	returnLimit  = 3 * time.Second  // for the kernel to bring back a device whose namespace has ended
)

// Plugin is the plugin; make it with New.
type Plugin struct {
	sys   sriov.Sys
	host  *rtnl.Pool
	dir   string        // of the marks
	locks keylock.Queue // by PCI address
}

var _ driver.PluginProver = (*Plugin)(nil)

// Dir is where the machine's marks are. They end with it, as VFs do.
const Dir = "/run/fairlead/vf"

// New makes the plugin for the machine's devices, with its marks in a folder. It must run
// in the namespace that has the devices.
func New(dir string) *Plugin { return &Plugin{sys: sriov.At(""), host: rtnl.NewPool(nil), dir: dir} }

// mark is what is kept of a VF while a pod has it, or is to have it.
type mark struct {
	Owner core.Key `json:"owner"`
	Name  string   `json:"name"` // of the device, on the machine
	MAC   core.MAC `json:"mac"`  // that it had there
}

func (p *Plugin) file(pci string) string { return filepath.Join(p.dir, filepath.Base(pci)+".json") }

// marked reads a VF's mark; ok is false where it has none.
func (p *Plugin) marked(pci string) (m mark, ok bool, err error) {
	ok, err = recordfile.Load(p.file(pci), &m)
	return m, ok, err
}

func (p *Plugin) mark(pci string, m mark) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	return recordfile.Save(p.file(pci), m)
}

// Add gives the pod the VF. After an error the VF is as it was.
func (p *Plugin) Add(ctx context.Context, call driver.PluginCall) (json.RawMessage, error) {
	c, err := read(call.Conf)
	if err == nil {
		err = p.Prove(call)
	}
	if err != nil {
		return nil, err
	}
	want, err := c.attrs(call)
	if err != nil {
		return nil, err
	}
	unlock, err := p.lock(ctx, c.DeviceID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	pod, err := netns.Verify(call.Netns)
	if err != nil {
		return nil, inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = pod.Close() }()
	v, err := p.find(c.DeviceID)
	if err != nil {
		return nil, err
	}
	if err := p.sys.Writable(); err != nil { // the VF could never be cleaned
		return nil, core.Errorf(core.CodeConfig, "%w: give the agent a writable /sys, or put the program %s into the plugin folder", err, Name)
	}
	return p.give(ctx, v, want, grant{c, call, pod})
}

func (p *Plugin) lock(ctx context.Context, pci string) (unlock func(), err error) {
	unlock, err = p.locks.Lock(ctx, pci)
	return unlock, inproc.Fail("wait for device "+pci, err)
}

// grant is a call that is carried out.
type grant struct {
	c    conf
	call driver.PluginCall
	pod  *netns.Handle
}

func (p *Plugin) find(pci string) (sriov.VF, error) {
	v, err := p.sys.VF(pci)
	if errors.Is(err, core.ErrNotFound) {
		return v, core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "%w", err)
	}
	return v, inproc.Fail("find device "+pci, err)
}

// give marks the device, sets the VF's attributes, moves it and configures it.
func (p *Plugin) give(ctx context.Context, v sriov.VF, want sriov.Attrs, g grant) (out json.RawMessage, err error) {
	host, err := p.host.Get()
	if err != nil {
		return nil, inproc.Fail("host", err)
	}
	defer p.host.Put(host)
	l, err := p.take(host, v, g)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.undo(ctx, v, g.call))
		}
	}()
	fail.Here("sriov.marked")
	if err := sriov.Write(v, want); err != nil {
		if refused := (*sriov.Refused)(nil); errors.As(err, &refused) {
			return nil, core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "virtual function %d of %s: %w", v.Index, v.PF, err)
		}
		return nil, inproc.Fail("set up "+v.PCI, err)
	}
	fail.Here("sriov.attributes")
	if l, err = p.setMAC(host, v, l, want.MAC); err != nil {
		return nil, inproc.Fail("set up "+v.PCI, err)
	}
	if err := sriov.Move(nil, l.Index, g.pod, g.call.Key.IfName); err != nil {
		return nil, inproc.Fail("give "+v.PCI, err)
	}
	fail.Here("sriov.moved")
	return p.configure(ctx, v, g)
}

// take marks the device for the pod. One that an agent which died left marked for another
// is cleaned first: nobody works on it, and its pod has it not.
func (p *Plugin) take(host *rtnl.Conn, v sriov.VF, g grant) (l rtnl.Link, err error) {
	m, ok, err := p.marked(v.PCI)
	if err != nil {
		return l, inproc.Fail("find device "+v.PCI, err)
	}
	name, err := p.sys.Netdev(v.PCI)
	if err != nil {
		return l, inproc.Fail("find device "+v.PCI, err)
	}
	own := ok && m.Owner == g.call.Key
	if ok && !own && (name != "" || v.Driver == "") {
		if l, err = p.clean(host, v, m); err != nil {
			return l, core.Reasoned(core.CodeDevice, core.ReasonVFDirty, "virtual function %d of %s (%s), which %s had, cannot be cleaned: %w", v.Index, v.PF, v.PCI, m.Owner, err)
		}
		name = l.Name
	}
	if name == "" {
		return l, absent(v, g, own)
	}
	if l, err = host.LinkByName(name); err == nil && !own {
		err = p.mark(v.PCI, mark{g.call.Key, l.Name, l.MAC})
	}
	return l, inproc.Fail("mark device "+v.PCI, err)
}

// absent says why the machine has no network device of the VF.
func absent(v sriov.VF, g grant, own bool) error {
	if own {
		_, err := inPod(g.pod, v.PCI)
		switch {
		case err == nil:
			return fmt.Errorf("%s has it already: %w", g.call.Key, core.ErrExists)
		case !errors.Is(err, core.ErrNotFound):
			return inproc.Fail("find device "+v.PCI, err)
		}
	}
	return core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches,
		"virtual function %d of %s (%s) has no network device on this machine: its driver is %q, or another pod has it", v.Index, v.PF, v.PCI, v.Driver)
}

// setMAC gives the device itself the MAC. Drivers that do not take it read that of the
// physical function when they begin anew.
func (p *Plugin) setMAC(host *rtnl.Conn, v sriov.VF, l rtnl.Link, mac core.MAC) (rtnl.Link, error) {
	if len(mac) == 0 || mac.String() == l.MAC.String() {
		return l, nil
	}
	if err := host.SetDown(l.Index); err != nil {
		return l, err
	}
	if host.SetMAC(l.Index, mac) == nil {
		return l, nil
	}
	return p.rebind(host, v, mac)
}

// rebind makes the device anew, with a MAC.
func (p *Plugin) rebind(host *rtnl.Conn, v sriov.VF, mac core.MAC) (rtnl.Link, error) {
	if err := p.sys.Unbind(v.PCI); err != nil {
		return rtnl.Link{}, err
	}
	fail.Here("sriov.unbound")
	name, err := p.sys.Bind(v.PCI)
	if err != nil {
		return rtnl.Link{}, err
	}
	l, err := host.LinkByName(name)
	if err == nil && len(mac) > 0 && l.MAC.String() != mac.String() {
		err = errors.Join(host.SetDown(l.Index), host.SetMAC(l.Index, mac))
	}
	return l, err
}

// undo clears up after a failed Add, whose caller may have given up.
func (p *Plugin) undo(ctx context.Context, v sriov.VF, call driver.PluginCall) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer stop()
	return p.restore(ctx, v, call)
}

// configure gives the device its addresses and answers. After an error the IPAM plugin
// holds nothing.
func (p *Plugin) configure(ctx context.Context, v sriov.VF, g grant) (out json.RawMessage, err error) {
	res, err := addresses(ctx, g)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.release(ctx))
		}
	}()
	fail.Here("sriov.leased")
	name := g.call.Key.IfName
	conn, err := inproc.Enter(g.pod, res.Sysctls(name))
	if err != nil {
		return nil, inproc.Fail("failed to configure "+name, err)
	}
	defer func() { _ = conn.Close() }()
	l, err := conn.LinkByName(name)
	if err == nil {
		if err = alone(ctx, g, conn, l); core.ReasonOf(err) != "" {
			return nil, err
		}
	}
	if err == nil {
		err = res.Configure(ctx, conn, l.Index)
	}
	if err == nil {
		err = carrier(ctx, conn, l.Index)
	}
	if err != nil {
		return nil, inproc.Fail("failed to configure "+name, err)
	}
	fail.Here("sriov.configured")
	var addrs []netip.Prefix
	for _, ip := range res.IPs {
		addrs = append(addrs, ip.Address)
	}
	_ = neigh.Announce(g.pod, name, l.MAC, addrs) // neighbours ask again in any case
	if g.call.Saw != nil {
		g.call.Saw(l.MTU)
	}
	res.Interfaces = []inproc.Interface{{Name: name, MAC: l.MAC.String(), Sandbox: g.call.Netns.Path}}
	res.DNS = g.c.DNS
	if out, err = res.Encode(g.c.CNIVersion); err != nil {
		return nil, core.Errorf(inproc.CodeOther, "%s: %w", v.PCI, err)
	}
	return out, nil
}

// alone proves of addresses that are to be the device's alone that nobody else answers for
// one, once its cable leads somewhere.
func alone(ctx context.Context, g grant, conn *rtnl.Conn, l rtnl.Link) error {
	if len(g.call.Alone) == 0 {
		return nil
	}
	err := conn.SetUp(l.Index)
	if err == nil {
		err = carrier(ctx, conn, l.Index)
	}
	if err != nil {
		return err
	}
	return inproc.Alone(ctx, g.pod, conn, l, g.call.Alone)
}

// carrier waits until the device has one. A card whose cable is out is no reason to
// refuse the pod.
func carrier(ctx context.Context, conn *rtnl.Conn, index int) error {
	err := inproc.Await(ctx, carrierLimit, func() (bool, error) {
		l, err := conn.LinkByIndex(index)
		return l.Running, err
	})
	if errors.Is(err, inproc.ErrTimeout) {
		return nil
	}
	return err
}

// addresses asks the IPAM plugin, if the configuration names one.
func addresses(ctx context.Context, g grant) (res inproc.Result, err error) {
	if g.c.IPAM.Type == "" {
		return res, nil
	}
	out, err := g.call.IPAM(ctx, core.Add)
	if err != nil {
		return res, err
	}
	if res, err = inproc.Parse(out, g.c.CNIVersion); err != nil {
		return res, errors.Join(err, g.release(ctx))
	}
	first := 0
	for i := range res.IPs {
		res.IPs[i].Interface = &first
	}
	return res, nil
}

// release gives back the addresses of an Add that failed.
func (g grant) release(ctx context.Context) error {
	if g.c.IPAM.Type == "" {
		return nil
	}
	return inproc.Release(ctx, g.call.IPAM)
}

// Del takes the VF back and makes it what it was, then frees the addresses. A VF that
// was given on by now is left alone.
func (p *Plugin) Del(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
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
	if m, ok, err := p.marked(pci); err != nil || !ok || m.Owner != call.Key {
		return err
	}
	return recordfile.Remove(p.file(pci))
}

// restore brings the device back out of the pod, if it is there, and cleans it.
func (p *Plugin) restore(ctx context.Context, v sriov.VF, call driver.PluginCall) error {
	m, ok, err := p.marked(v.PCI)
	if err != nil || !ok || m.Owner != call.Key {
		return err
	}
	host, err := p.host.Get()
	if err != nil {
		return err
	}
	defer p.host.Put(host)
	if err := p.fetch(ctx, v, call, m.Name); err != nil {
		return err
	}
	fail.Here("sriov.back")
	_, err = p.clean(host, v, m)
	return err
}

// fetch has the device be on the machine: it moves it out of the pod, or waits for the
// kernel, which moves it when the pod's namespace has ended. One whose driver was taken
// away has none.
func (p *Plugin) fetch(ctx context.Context, v sriov.VF, call driver.PluginCall, name string) error {
	here := func() (bool, error) {
		now, err := p.sys.Netdev(v.PCI)
		return now != "", err
	}
	if ok, err := here(); ok || err != nil || v.Driver == "" {
		return err
	}
	if call.Netns.Path != "" {
		pod, err := netns.Verify(call.Netns)
		if err == nil {
			defer func() { _ = pod.Close() }()
			err = p.outOf(pod, v, name)
		}
		if err != nil && !errors.Is(err, core.ErrNetnsGone) && !errors.Is(err, core.ErrNotFound) {
			return err
		}
	}
	err := inproc.Await(ctx, returnLimit, here)
	if errors.Is(err, inproc.ErrTimeout) {
		return fmt.Errorf("it is neither in its pod nor on the machine: its driver is %q", v.Driver)
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
// pod stays. The mark goes last.
func (p *Plugin) clean(host *rtnl.Conn, v sriov.VF, m mark) (l rtnl.Link, err error) {
	if err := sriov.Write(v, baseline); err != nil {
		return l, err
	}
	fail.Here("sriov.baseline")
	if l, err = p.rebind(host, v, m.MAC); err != nil {
		return l, err
	}
	if l.Name != m.Name {
		err := host.SetName(l.Index, m.Name)
		if err != nil && !errors.Is(err, core.ErrExists) {
			return l, err
		}
		if err == nil {
			l.Name = m.Name
		}
	}
	fail.Here("sriov.clean")
	l.MAC = m.MAC
	return l, recordfile.Remove(p.file(v.PCI))
}

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
	v, err := p.find(c.DeviceID)
	if err != nil {
		return err
	}
	have, err := sriov.Read(v)
	if err != nil {
		return inproc.Fail("check "+v.PCI, err)
	}
	var found []error
	for _, d := range want.Differ(have) {
		found = append(found, core.Differ("virtual function %d of %s: %s", v.Index, v.PF, d))
	}
	return errors.Join(append(found, inspect(call, v.PCI, prev))...)
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

// GC does nothing: a device that nobody asked back is cleaned when the next pod gets it.
func (p *Plugin) GC(context.Context, driver.PluginCall) error { return nil }

// Status asks the IPAM plugin.
func (p *Plugin) Status(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	return c.Ask(ctx, call.IPAM, core.Status)
}
