package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// Check implements driver.Plugin. It names every difference, and beyond what the
// program looks at those of the port's flags, of MTUs and of the gateway. The
// MAC of a bridge without gateway is not compared, as it changes with its ports,
// nor is what a packet socket does to it.
func (p *Plugin) Check(ctx context.Context, call driver.PluginCall) error {
	c, err := read(call.Conf)
	if err != nil {
		return err
	}
	if len(c.PrevResult) == 0 {
		return core.Errorf(core.CodeConfig, "key \"prevResult\" is missing")
	}
	prev, err := inproc.Parse(c.PrevResult, c.CNIVersion)
	if err != nil {
		return err
	}
	err = p.inspect(call, c, prev)
	if c.layer3() {
		_, ierr := call.IPAM(ctx, core.Check)
		err = errors.Join(err, ierr)
	}
	if errors.Is(err, core.ErrDrift) {
		return core.WithCode(core.CodeDrift, "check", err)
	}
	return inproc.Fail("check", err)
}

// inspection is one Check under way.
type inspection struct {
	conf      conf
	prev      inproc.Result
	host, pod *rtnl.Conn
	bridge    rtnl.Port
	errs      []error
}

func (p *Plugin) inspect(call driver.PluginCall, c conf, prev inproc.Result) error {
	ns, err := p.open(call.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	pod, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	host, err := p.host.Get()
	if err != nil {
		return err
	}
	defer p.host.Put(host)
	i := &inspection{conf: c, prev: prev, host: host, pod: pod}
	err = errors.Join(i.checkBridge(), i.checkPair(ns, call.Key.IfName))
	if c.IsGateway {
		err = errors.Join(err, p.routing(prev))
	}
	return errors.Join(append(i.errs, err)...)
}

func (i *inspection) differ(format string, args ...any) {
	i.errs = append(i.errs, core.Differ(format, args...))
}

// said is the result's interface of that name; of the host, or of the pod.
func (i *inspection) said(name string, inPod bool) (inproc.Interface, bool) {
	at := slices.IndexFunc(i.prev.Interfaces, func(in inproc.Interface) bool {
		return in.Name == name && (in.Sandbox != "") == inPod
	})
	if at < 0 {
		return inproc.Interface{}, false
	}
	return i.prev.Interfaces[at], true
}

func (i *inspection) checkBridge() (err error) {
	name := i.conf.Bridge
	i.bridge, err = i.host.PortByName(name)
	switch {
	case errors.Is(err, core.ErrNotFound):
		i.differ("bridge %s is missing", name)
		return nil
	case err != nil:
		return err
	case i.bridge.Kind != rtnl.KindBridge:
		i.differ("%s is no bridge", name)
		return nil
	}
	if !i.bridge.Up {
		i.differ("bridge %s is down", name)
	}
	if i.conf.PromiscMode && !i.bridge.Promisc {
		i.differ("bridge %s is not promiscuous", name)
	}
	if !i.conf.IsGateway || !i.conf.layer3() {
		return nil
	}
	i.checkMAC(name, false, i.bridge.Link)
	have, err := i.host.Addrs(i.bridge.Index)
	for _, gw := range gatewaysOf(i.prev.IPs) {
		if !rtnl.HasAddr(have, gw) {
			i.differ("bridge %s has not the address %s", name, gw)
		}
	}
	return err
}

func (i *inspection) checkMAC(name string, inPod bool, have rtnl.Link) {
	if in, ok := i.said(name, inPod); ok && in.MAC != "" && in.MAC != have.MAC.String() {
		i.differ("MAC of %s is %s, was %s", name, have.MAC, in.MAC)
	}
}

// checkPair compares both ends of the veth.
func (i *inspection) checkPair(ns *netns.Handle, name string) error {
	far, err := i.pod.LinkByName(name)
	if errors.Is(err, core.ErrNotFound) {
		i.differ("interface %s is missing in the pod", name)
		return nil
	}
	if err != nil {
		return err
	}
	in, ok := i.said(name, true)
	if !ok {
		return core.Errorf(core.CodeConfig, "prevResult has no interface %s in the pod", name)
	}
	i.checkMAC(name, true, far)
	if in.MTU != 0 && in.MTU != far.MTU { // a later plugin may have set another than the configuration's
		i.differ("MTU of %s is %d, was %d", name, far.MTU, in.MTU)
	}
	if !far.Up && !i.conf.NoPodInterface {
		i.differ("interface %s is down", name)
	}
	near, err := i.host.Partner(ns, far)
	switch {
	case errors.Is(err, core.ErrNotFound):
		i.differ("interface %s has no partner on the host", name)
	case err != nil:
		return err
	default:
		err = i.checkPort(near)
	}
	return errors.Join(err, i.checkAddrs(far), i.checkRoutes(far))
}

// checkPort compares the near end, which must be the one that was made.
func (i *inspection) checkPort(near rtnl.Link) error {
	if _, ok := i.said(near.Name, false); !ok {
		i.differ("partner of the pod's interface is %s, which was not made", near.Name)
	}
	i.checkMAC(near.Name, false, near)
	port, err := i.host.PortByIndex(near.Index)
	if err != nil {
		return err
	}
	for _, d := range []struct {
		differs bool
		what    string
	}{
		{i.bridge.Index == 0 || port.MasterIndex != i.bridge.Index, "is no port of " + i.conf.Bridge},
		{!port.Up, "is down"},
		{port.Hairpin != i.conf.HairpinMode, fmt.Sprintf("has hairpin mode %t, was %t", port.Hairpin, i.conf.HairpinMode)},
		{port.Isolated != i.conf.PortIsolation, fmt.Sprintf("has isolation %t, was %t", port.Isolated, i.conf.PortIsolation)},
		{i.conf.MTU != 0 && port.MTU != i.conf.MTU, fmt.Sprintf("has MTU %d, was %d", port.MTU, i.conf.MTU)},
	} {
		if d.differs {
			i.differ("port %s %s", near.Name, d.what)
		}
	}
	return nil
}

func (i *inspection) checkAddrs(far rtnl.Link) error {
	have, err := i.pod.Addrs(far.Index)
	if err != nil {
		return err
	}
	for _, ip := range i.prev.IPs {
		if !rtnl.HasAddr(have, ip.Address) {
			i.differ("address %s is missing", ip.Address)
		}
	}
	if len(i.prev.IPs) == 0 {
		return nil // who has no IPAM plugin finds addresses for itself
	}
	for _, h := range have {
		was := slices.ContainsFunc(i.prev.IPs, func(ip inproc.IP) bool { return ip.Address == h.Prefix })
		if !was && !h.Prefix.Addr().IsLinkLocalUnicast() && h.Flags&unix.IFA_F_PERMANENT != 0 { // others come and go by router advertisements
			i.differ("address %s is there, and nobody gave it", h.Prefix)
		}
	}
	return nil
}

// checkRoutes looks in all tables, for `sbr` moves routes there.
func (i *inspection) checkRoutes(far rtnl.Link) error {
	if len(i.prev.Routes) == 0 {
		return nil
	}
	have, err := i.pod.PolicyRoutes(0)
	if err != nil {
		return err
	}
	gw4, gw6 := i.prev.Gateways()
	for _, r := range i.prev.Routes {
		want := r.Kernel(far.Index, gw4, gw6)
		if !slices.ContainsFunc(have, func(h rtnl.Route) bool { return h.Dst == want.Dst && h.Leads(want.Index, want.GW) }) {
			i.differ("route %s via %s is missing", want.Dst, want.GW)
		}
	}
	return nil
}

// routing tells why the host is no router for the gateways.
func (p *Plugin) routing(prev inproc.Result) error {
	return p.ns.Do(func() error {
		var errs []error
		for _, s := range forwardings(gatewaysOf(prev.IPs)) {
			have, err := sysfs.ReadSysctl(s.Path)
			if err == nil && have != s.Value {
				err = core.Differ("sysctl %s is %s, was %s", s.Path, have, s.Value)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
