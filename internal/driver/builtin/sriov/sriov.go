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
	"net/netip"
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
	marks marks
	locks keylock.Queue // by PCI address
}

var (
	_ driver.PluginProver  = (*Plugin)(nil)
	_ driver.PluginChanger = (*Plugin)(nil)
	_ driver.PluginBare    = (*Plugin)(nil)
)

// Dir is where the machine's marks are. They end with it, as VFs do.
const Dir = "/run/fairlead/vf"

// New makes the plugin for the machine's devices, with its marks in a folder. It must run
// in the namespace that has the devices.
func New(dir string) *Plugin {
	return &Plugin{sys: sriov.At(""), host: rtnl.NewPool(nil), marks: marks{dir: dir}}
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
	l, err := p.take(host, v, want.MAC, g)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.undo(ctx, v, g.call))
		}
	}()
	fail.Here("sriov.marked")
	if err := write(g.call.Time, "sriov", v, want); err != nil {
		return nil, refused(v, "set up", err)
	}
	fail.Here("sriov.attributes")
	if v.Userspace() {
		return p.lend(ctx, v, want.MAC, g)
	}
	if l, err = p.setMAC(host, v, l, want.MAC); err != nil {
		return nil, inproc.Fail("set up "+v.PCI, err)
	}
	if err := timed(g.call.Time, "sriov.move", func() error { return sriov.Move(nil, l.Index, g.pod, g.call.Key.IfName) }); err != nil {
		return nil, inproc.Fail("give "+v.PCI, err)
	}
	fail.Here("sriov.moved")
	return p.configure(ctx, v, g)
}

// timed runs a step of Add or Del, for the operation's timeline.
func timed(t driver.Timer, step string, do func() error) error {
	done := t.Step(step)
	err := do()
	done(err)
	return err
}

// write sets the attributes of a VF and proves them.
func write(t driver.Timer, of string, v sriov.VF, want sriov.Attrs) error {
	if err := timed(t, of+".write", func() error { return sriov.Write(v, want) }); err != nil {
		return err
	}
	return timed(t, of+".prove", func() error { return sriov.Prove(v, want) })
}

// refused is the error of attributes that could not be set: DriverCannot where the driver
// does not take one.
func refused(v sriov.VF, verb string, err error) error {
	if no := (*sriov.Refused)(nil); errors.As(err, &no) {
		return core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "virtual function %d of %s: %w", v.Index, v.PF, err)
	}
	return inproc.Fail(verb+" "+v.PCI, err)
}

// setMAC gives the device itself the MAC, nil for its own, of which the card is told again:
// cards forget whose frames a VF is to get when the physical function's word of its MAC is
// taken back. Drivers that do not take one read that of the physical function, or choose
// theirs, when they begin anew.
func (p *Plugin) setMAC(host *rtnl.Conn, v sriov.VF, l rtnl.Link, mac core.MAC) (rtnl.Link, error) {
	if mac.String() == l.MAC.String() {
		return l, nil
	}
	if err := host.SetDown(l.Index); err != nil {
		return l, err
	}
	now := mac
	if len(mac) == 0 {
		now = l.MAC
	}
	if host.SetMAC(l.Index, now) == nil {
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
		err = g.carrier(ctx, conn, l.Index)
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
	return g.answer(v, res, l.MAC)
}

// lend answers for a VF whose driver hands it to programs: addresses are told, and there
// is no device that could have them.
func (p *Plugin) lend(ctx context.Context, v sriov.VF, mac core.MAC, g grant) (out json.RawMessage, err error) {
	res, err := addresses(ctx, g)
	if err != nil {
		return nil, err
	}
	fail.Here("sriov.lent")
	if out, err = g.answer(v, res, mac); err != nil {
		err = errors.Join(err, g.release(ctx))
	}
	return out, err
}

func (g grant) answer(v sriov.VF, res inproc.Result, mac core.MAC) (json.RawMessage, error) {
	res.Interfaces = []inproc.Interface{{Name: g.call.Key.IfName, MAC: mac.String(), Sandbox: g.call.Netns.Path}}
	res.DNS = g.c.DNS
	out, err := res.Encode(g.c.CNIVersion)
	if err != nil {
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
		err = g.carrier(ctx, conn, l.Index)
	}
	if err != nil {
		return err
	}
	return timed(g.call.Time, "sriov.probe", func() error { return inproc.Alone(ctx, g.pod, conn, l, g.call.Alone) })
}

// carrier waits until the device has one. A card whose cable is out is no reason to
// refuse the pod.
func (g grant) carrier(ctx context.Context, conn *rtnl.Conn, index int) error {
	waiting, stop := context.WithTimeout(ctx, carrierLimit)
	defer stop()
	err := timed(g.call.Time, "sriov.carrier", func() error {
		return rtnl.Await(waiting, g.pod, index, func() (bool, error) {
			l, err := conn.LinkByIndex(index)
			return l.Running, err
		})
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
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
