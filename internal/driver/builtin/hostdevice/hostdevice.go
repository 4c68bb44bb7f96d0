// Package hostdevice is CNI's plugin host-device inside the agent: a network device of the
// machine is moved into the pod, and comes back. What the pod gets and what is answered is
// what containernetworking/plugins v1.9.1 give, so that each may check and take back what
// the other gave. It knows no other plugin, and keeps a file for each device that a pod has,
// until the machine ends: whose it is and what it was, since the pod may change that.
package hostdevice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/keylock"
)

// Name is the plugin's type.
const Name = "host-device"

// Dir is where the machine's marks are. They end with it, as what was moved does.
const Dir = "/run/fairlead/device"

const (
	undoLimit   = 10 * time.Second // for what a failed Add has to clear up
	returnLimit = 3 * time.Second  // for the kernel to bring back a device whose namespace has ended
)

// Plugin is the plugin; make it with New.
type Plugin struct {
	home  *netns.Handle // nil: the agent's own
	host  *rtnl.Pool
	sys   string // sysfs
	dir   string // of the marks
	moves keylock.Queue
}

var _ driver.PluginProver = (*Plugin)(nil)

// New makes the plugin for devices of the namespace home, nil for the agent's own, with its
// marks in a folder.
func New(home *netns.Handle, dir string) *Plugin {
	return &Plugin{home: home, host: rtnl.NewPool(home), sys: "/sys", dir: dir}
}

// lock serialises what moves devices: who looks for one must not meet it half-way.
func (p *Plugin) lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = p.moves.Lock(ctx, "")
	return unlock, inproc.Fail("wait for devices", err)
}

// grant is a call that is carried out.
type grant struct {
	c     conf
	call  driver.PluginCall
	pod   *netns.Handle
	inPod *rtnl.Conn
	bare  bool // the device has no network device
}

// Add moves the device, asks for addresses and configures it. After an error the device is
// where it was.
func (p *Plugin) Add(ctx context.Context, call driver.PluginCall) (out json.RawMessage, err error) {
	g := grant{call: call}
	if g.c, err = read(call.Conf); err == nil {
		err = g.c.refuse()
	}
	if err != nil {
		return nil, err
	}
	if g.pod, err = netns.Verify(call.Netns); err != nil {
		return nil, inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = g.pod.Close() }()
	auxiliaryDir, err := p.bus(&g.c)
	if err == nil {
		g.bare, err = p.userspaceDriven(g.c.PCI)
	}
	if err != nil {
		return nil, err
	}
	if g.inPod, err = rtnl.Open(g.pod); err != nil {
		return nil, inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = g.inPod.Close() }()
	if g.bare {
		return g.answer(ctx)
	}
	if err := p.give(ctx, g, auxiliaryDir); err != nil {
		return nil, err
	}
	if out, err = g.answer(ctx); err != nil {
		err = errors.Join(err, p.undo(ctx, call))
	}
	return out, err
}

// undo brings the device of a failed Add back, whose caller may have given up.
func (p *Plugin) undo(ctx context.Context, call driver.PluginCall) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer stop()
	return p.back(ctx, call)
}

// give marks the device and moves it into the pod, with its name on the machine as alias.
func (p *Plugin) give(ctx context.Context, g grant, auxiliaryDir string) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	name := g.call.Key.IfName
	if _, err := g.inPod.LinkByName(name); !errors.Is(err, core.ErrNotFound) {
		if err == nil {
			err = core.ErrExists
		}
		return fmt.Errorf("interface %s: %w", name, err)
	}
	host, err := p.host.Get()
	if err != nil {
		return inproc.Fail("host", err)
	}
	defer p.host.Put(host)
	l, err := p.free(host, g.c, auxiliaryDir)
	if err != nil {
		return inproc.Fail("failed to find host device", err)
	}
	if err := p.mark(p.marked(g.call.Key, l)); err != nil {
		return inproc.Fail("mark "+l.Name, err)
	}
	fail.Here("hostdevice.marked")
	if err := host.Apply(l.Index, rtnl.Change{To: g.pod, Name: name, Alias: l.Name}); err != nil {
		_, left := p.restore(host, g.call)
		return errors.Join(inproc.Fail("failed to move link "+l.Name, err), left)
	}
	fail.Here("hostdevice.moved")
	return nil
}

// free finds the device on the machine. Those that came back by themselves, because their
// pods' namespaces ended, are made what they were before.
func (p *Plugin) free(host *rtnl.Conn, c conf, auxiliaryDir string) (rtnl.Link, error) {
	l, err := p.find(host, c, auxiliaryDir)
	if err == nil && l.Alias == "" && l.Bus == "" { // none that was in a pod
		return l, nil
	}
	dirty, swept := p.sweep(host)
	if l, err = p.find(host, c, auxiliaryDir); err != nil {
		return l, errors.Join(err, swept)
	}
	if slices.ContainsFunc(dirty, func(m mark) bool { return m.is(l) }) {
		return l, swept
	}
	return l, nil
}

// answer configures the device in the pod and answers. After an error the IPAM plugin holds
// nothing.
func (g grant) answer(ctx context.Context) (out json.RawMessage, err error) {
	res, err := g.addresses(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && g.c.IPAM.Type != "" {
			err = errors.Join(err, inproc.Release(ctx, g.call.IPAM))
		}
	}()
	fail.Here("hostdevice.leased")
	res.Interfaces = []inproc.Interface{{Name: g.call.Key.IfName, Sandbox: g.call.Netns.Path}}
	if !g.bare {
		mac, err := g.configure(ctx, res)
		if err != nil {
			return nil, inproc.Fail("failed to configure "+g.call.Key.IfName, err)
		}
		res.Interfaces[0].MAC = mac.String()
	}
	fail.Here("hostdevice.configured")
	if res.DNS = g.c.DNS; g.c.IPAM.Type == "" {
		res.DNS = core.DNS{}
	}
	if out, err = res.Encode(g.c.CNIVersion); err != nil {
		return nil, core.Errorf(inproc.CodeOther, "%w", err)
	}
	return out, nil
}

// addresses asks the IPAM plugin, if the configuration names one.
func (g grant) addresses(ctx context.Context) (res inproc.Result, err error) {
	if g.c.IPAM.Type == "" {
		return res, nil
	}
	out, err := g.call.IPAM(ctx, core.Add)
	if err != nil {
		return res, err
	}
	if res, err = inproc.Parse(out, g.c.CNIVersion); err == nil && len(res.IPs) == 0 {
		err = core.Errorf(inproc.CodeOther, "IPAM plugin returned missing IP config")
	}
	if err != nil {
		return res, errors.Join(err, inproc.Release(ctx, g.call.IPAM))
	}
	first := 0
	for i := range res.IPs {
		res.IPs[i].Interface = &first
	}
	return res, nil
}

// configure gives the device what is declared, and the result's addresses.
func (g grant) configure(ctx context.Context, res inproc.Result) (core.MAC, error) {
	name := g.call.Key.IfName
	l, err := g.inPod.LinkByName(name)
	if err != nil {
		return nil, err
	}
	if l.MAC, err = g.setMAC(l); err != nil {
		return nil, err
	}
	if err := g.pod.Do(func() error { return inproc.Set(res.Sysctls(name)) }); err != nil {
		return nil, err
	}
	if g.call.Saw != nil {
		g.call.Saw(l.MTU)
	}
	return l.MAC, res.Configure(ctx, g.inPod, l.Index)
}

// setMAC gives the device the declared MAC, if there is one.
func (g grant) setMAC(l rtnl.Link) (core.MAC, error) {
	mac, err := inproc.ParseMAC(g.c.Declared.MAC)
	if err != nil || len(mac) == 0 || mac.String() == l.MAC.String() {
		return l.MAC, err
	}
	if err := g.inPod.SetMAC(l.Index, mac); err != nil {
		return nil, core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "the device takes no MAC %s: %w", mac, err)
	}
	return mac, nil
}

// Del brings the device back as it was, then frees the addresses: whoever gets them next
// must not meet the pod that still has them.
func (p *Plugin) Del(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if err := p.back(ctx, call); err != nil {
		return inproc.Fail("take back the device of "+call.Key.IfName, err)
	}
	err = c.Ask(ctx, call.IPAM, core.Del)
	fail.Here("hostdevice.released")
	return err
}

// Check proves that the device is as prevResult says.
func (p *Plugin) Check(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if err := c.Ask(ctx, call.IPAM, core.Check); err != nil {
		return err
	}
	if len(c.PrevResult) == 0 {
		return core.Errorf(inproc.CodeOther, "required prevResult missing")
	}
	prev, err := inproc.Parse(c.PrevResult, c.CNIVersion)
	if err != nil {
		return err
	}
	if _, err := p.bus(&c); err != nil {
		return err
	}
	if bare, err := p.userspaceDriven(c.PCI); err != nil || bare {
		return err
	}
	return inspect(call, prev)
}

// inspect compares the pod with the result.
func inspect(call driver.PluginCall, prev inproc.Result) error {
	pod, err := netns.Verify(call.Netns)
	if err != nil {
		return inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = pod.Close() }()
	conn, err := rtnl.Open(pod)
	if err != nil {
		return inproc.Fail("failed to open netns", err)
	}
	defer func() { _ = conn.Close() }()
	name := call.Key.IfName
	l, err := conn.LinkByName(name)
	if errors.Is(err, core.ErrNotFound) {
		return core.Difference("the device is not in the pod as " + name)
	}
	if err != nil {
		return err
	}
	var found []error
	if !l.Up {
		found = append(found, core.Difference("the device is down"))
	}
	for _, i := range prev.Interfaces {
		if i.Name == name && i.MAC != "" && i.MAC != l.MAC.String() {
			found = append(found, core.Differ("its MAC is %s, not %s", l.MAC, i.MAC))
		}
	}
	return errors.Join(append(found, prev.Inspect(conn, l.Index))...)
}

// GC does nothing, as the program: a device that nobody asked back is made what it was when
// the next pod gets it.
func (p *Plugin) GC(context.Context, driver.PluginCall) error { return nil }

// Status asks the IPAM plugin.
func (p *Plugin) Status(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	return c.Ask(ctx, call.IPAM, core.Status)
}
