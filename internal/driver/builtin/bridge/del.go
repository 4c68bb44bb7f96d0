package bridge

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Del implements driver.Plugin. The link goes first: an address that is free
// must not be on the wire any more.
func (p *Plugin) Del(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if call.Netns.Path != "" {
		if err := p.unlink(call); err != nil {
			return inproc.Fail("link", err)
		}
		fail.Here("bridge.del.link")
	}
	if !c.layer3() {
		return nil
	}
	_, err = call.IPAM(ctx, core.Del)
	return inproc.Fail("ipam", err)
}

// unlink removes the pod's interface, whatever made it: the name is the
// runtime's to give.
func (p *Plugin) unlink(call driver.PluginCall) (err error) {
	done := call.Time.Step("bridge.del.link")
	defer func() { done(err) }()
	ns, err := p.open(call.Netns)
	if errors.Is(err, core.ErrNetnsGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	pod, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	far, err := pod.LinkByName(call.Key.IfName)
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.bury(ns, pod, far)
}

// bury puts both ends of the pair aside, so that their names are free when it
// returns. A link without partner on the host is deleted.
func (p *Plugin) bury(ns *netns.Handle, pod *rtnl.Conn, far rtnl.Link) error {
	host, err := p.host.Get()
	if err != nil {
		return err
	}
	defer p.host.Put(host)
	near, err := host.Partner(ns, far)
	if errors.Is(err, core.ErrNotFound) {
		return pod.DelLink(far.Index)
	}
	if err != nil {
		return err
	}
	defer p.reaper.Wake()
	if err := tombstone.Bury(host, near.Index); err != nil {
		return err
	}
	fail.Here("bridge.del.near")
	return tombstone.Bury(pod, far.Index)
}

// GC implements driver.Plugin. A bridge's ports go with their namespaces; what
// can be left is the IPAM plugin's.
func (p *Plugin) GC(ctx context.Context, call driver.PluginCall) error {
	return p.ask(ctx, call, core.GC)
}

// Status implements driver.Plugin.
func (p *Plugin) Status(ctx context.Context, call driver.PluginCall) error {
	return p.ask(ctx, call, core.Status)
}

// ask proves that the configuration is sound and hands the command on.
func (p *Plugin) ask(ctx context.Context, call driver.PluginCall, op core.Op) error {
	c, err := read(call.Conf)
	if err == nil {
		err = inproc.Refused(c.sound())
	}
	if err != nil || !c.layer3() {
		return err
	}
	_, err = call.IPAM(ctx, op)
	return inproc.Fail("ipam", err)
}
