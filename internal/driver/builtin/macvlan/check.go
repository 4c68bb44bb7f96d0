package macvlan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/driver/builtin/vlanparent"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Check proves that the link is as prevResult and configuration say.
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
	host, err := p.host.Get()
	if err != nil {
		return inproc.Fail("host", err)
	}
	defer p.host.Put(host)
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
	if c.Master != "" || !p.kind.chained { // a chain's first link may be gone by now
		where := host
		if c.LinkInContainer {
			where = conn
		}
		if err := p.stands(where, conn, c, call.Key.IfName); err != nil {
			return err
		}
	}
	return inproc.Fail("check "+call.Key.IfName, p.inspect(conn, c, call, prev))
}

// inspect compares the pod with the result.
func (p *Plugin) inspect(conn *rtnl.Conn, c conf, call driver.PluginCall, prev inproc.Result) error {
	at := slices.IndexFunc(prev.Interfaces, func(in inproc.Interface) bool {
		return in.Name == call.Key.IfName && in.Sandbox == call.Netns.Path
	})
	if at < 0 {
		return fmt.Errorf("prevResult has no interface in sandbox %s", call.Netns.Path)
	}
	l, number, err := conn.UpperByName(call.Key.IfName)
	if err != nil {
		return err
	}
	if l.Kind != p.kind.link {
		return fmt.Errorf("it is no %s but of kind %q", p.kind.link, l.Kind)
	}
	errs := c.tags(l)
	want, err := p.kind.mode(c.Mode)
	if err != nil {
		return err
	}
	if number != want {
		errs = append(errs, fmt.Errorf("its mode is %s, not %s", p.kind.modeName(number), p.kind.modeName(want)))
	}
	if mac := prev.Interfaces[at].MAC; mac != "" && mac != l.MAC.String() {
		errs = append(errs, fmt.Errorf("its MAC is %s, not %s", l.MAC, mac))
	}
	return errors.Join(append(errs, prev.Inspect(conn, l.Index))...)
}

// tags compares what upstream's vlan compares.
func (c conf) tags(l rtnl.Link) (errs []error) {
	if l.Kind != rtnl.KindVLAN {
		return nil
	}
	if l.VLAN != c.VLAN {
		errs = append(errs, fmt.Errorf("its VLAN is %d, not %d", l.VLAN, c.VLAN))
	}
	if c.MTU != 0 && l.MTU != c.MTU {
		errs = append(errs, fmt.Errorf("its MTU is %d, not %d", l.MTU, c.MTU))
	}
	return errs
}

// stands proves that the master is there, and that the link stands on the declared VLAN.
func (p *Plugin) stands(where, pod *rtnl.Conn, c conf, name string) error {
	lower, err := p.lower(where, c)
	if err != nil || c.Declared.VLAN == 0 {
		return err
	}
	parent, ok, err := vlanparent.Find(where, lower, c.Declared.VLAN)
	if err != nil {
		return inproc.Fail("check "+name, err)
	}
	l, err := pod.LinkByName(name)
	if err != nil {
		return inproc.Fail("check "+name, err)
	}
	if !ok || l.Lower != parent.Index {
		return core.Differ("check %s: it is not in VLAN %d of %s", name, c.Declared.VLAN, lower.Name)
	}
	if !parent.Up {
		return core.Differ("check %s: VLAN %d of %s is down", name, c.Declared.VLAN, lower.Name)
	}
	return nil
}
