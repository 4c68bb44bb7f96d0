package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/ovs"
)

// Check compares kernel and database with the Spec. Differences are
// core.Difference, joined, without the interface's name; any other error means that it
// could not be told. In the pod, what the link says of MAC, MTU and further
// routes goes before the Spec: later plugins of the chain may change these.
func (d *Driver) Check(ctx context.Context, r driver.Run, spec core.Spec, l core.Link) (err error) {
	done := r.Time.Step("ovs.check")
	defer func() { done(err) }()
	s, err := nicOf(spec)
	if err != nil {
		return err
	}
	defer d.locks.Hold(s.HostIf)()
	diff, err := d.differences(ctx, s, l)
	if err != nil {
		return err
	}
	return errors.Join(diff...)
}

func (d *Driver) differences(ctx context.Context, s nic, l core.Link) (drift, error) {
	if err := errors.Join(ctx.Err(), d.cfg.OVS.Connected()); err != nil {
		return nil, err
	}
	pod, err := netns.Verify(s.Netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pod.Close() }()
	var diff drift
	near, err := d.checkHost(s, &diff)
	if err != nil {
		return nil, err
	}
	now := *s.NICSpec
	if len(l.MAC) > 0 {
		now.MAC = l.MAC
	}
	now.MTU = cmp.Or(l.MTU, s.MTU)
	if err := diff.pod(nic{s.Spec, &now, s.OVSPort}, pod, near, l.Routes); err != nil {
		return nil, err
	}
	d.checkPort(s, &diff)
	if err := d.checkDelay(s, &diff); err != nil {
		return nil, err
	}
	if st, _ := d.cfg.OVS.PortByName(s.HostIf); st.OFPort > 0 && d.secured(s) {
		err = d.checkFlows(ctx, s, st.OFPort, &diff)
	}
	return diff, err
}

// drift lists differences.
type drift []error

func (d *drift) add(format string, args ...any) {
	*d = append(*d, core.Differ(format, args...))
}

// equal adds a difference unless have is want.
func equal[T comparable](d *drift, what string, have, want T) {
	if have != want {
		d.add("%s is %v, not %v", what, have, want)
	}
}

// checkHost proves the host's end; an internal port has none.
func (d *Driver) checkHost(s nic, diff *drift) (near rtnl.Link, err error) {
	if s.Type == InternalPort {
		return near, nil
	}
	c, err := d.host.Get()
	if err != nil {
		return near, err
	}
	defer d.host.Put(c)
	near, err = c.LinkByName(s.HostIf)
	if errors.Is(err, core.ErrNotFound) {
		diff.add("link %s is missing on the host", s.HostIf)
		return near, nil
	}
	if err != nil {
		return near, err
	}
	name := "link " + s.HostIf
	equal(diff, "kind of "+name, near.Kind, "veth")
	equal(diff, "group of "+name, near.Group, GroupLive)
	equal(diff, "alias of "+name, near.Alias, Alias(s.Key))
	if s.MTU != 0 {
		equal(diff, "MTU of "+name, near.MTU, s.MTU)
	}
	if !near.Up {
		diff.add("%s is down", name)
	}
	return near, nil
}

// pod proves the pod's end and what it carries; more are routes that may be
// there beside those of the Spec.
func (d *drift) pod(s nic, pod *netns.Handle, near rtnl.Link, more []core.Route) error {
	c, err := rtnl.Open(pod)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	far, err := c.LinkByName(s.Key.IfName)
	if errors.Is(err, core.ErrNotFound) {
		d.missing(c, near)
		return nil
	}
	if err != nil {
		return err
	}
	if s.Type != InternalPort && near.Index != 0 && !paired(near, far) {
		d.add("link in the pod is not the far end of %s", s.HostIf)
	}
	if !far.Up {
		d.add("link in the pod is down")
	}
	if s.MTU != 0 {
		equal(d, "MTU in the pod", far.MTU, s.MTU)
	}
	if len(s.MAC) != 0 {
		equal(d, "MAC in the pod", far.MAC.String(), s.MAC.String())
	}
	if err := d.addresses(c, s, far.Index); err != nil {
		return err
	}
	if err := d.routes(c, s, far.Index, more); err != nil {
		return err
	}
	return pod.Do(func() error { return d.sysctls(s) })
}

// missing says also what became of the link, if its far end is still known.
func (d *drift) missing(c *rtnl.Conn, near rtnl.Link) {
	if far, err := c.LinkByIndex(near.PeerIndex); near.PeerIndex != 0 && err == nil && paired(near, far) {
		d.add("link in the pod is called %s", far.Name)
		return
	}
	d.add("link is missing in the pod")
}

func (d *drift) addresses(c *rtnl.Conn, s nic, index int) error {
	have, err := c.Addrs(index)
	if err != nil {
		return err
	}
	for _, want := range s.Addrs {
		if !rtnl.HasAddr(have, want) {
			d.add("address %s is missing", want)
		}
	}
	for _, a := range have {
		if isGlobal(a) && !slices.Contains(s.Addrs, a.Prefix) {
			d.add("address %s is not ours", a.Prefix)
		}
	}
	return nil
}

// routes proves those of the Spec and those that follow from its addresses, and
// that nobody added another through this interface: one more specific route is
// enough to take a pod's traffic elsewhere. Through other interfaces a pod may
// have what it likes.
func (d *drift) routes(c *rtnl.Conn, s nic, index int, more []core.Route) error {
	have, err := c.Routes(index)
	if err != nil {
		return err
	}
	want := routes(s, index)
	var lost drift
	lost.missingRoutes(have, want, s.Addrs)
	if len(lost) > 0 { // a later plugin (`sbr`) may have moved them to a table of its own
		all, err := c.PolicyRoutes(index)
		if err != nil {
			return err
		}
		d.missingRoutes(all, want, s.Addrs)
	}
	for _, h := range have {
		if added(h) && !contains(want, h) && !expected(h, more) {
			d.add("route %s %s (metric %d) is not ours", h.Dst, way(h), h.Priority)
		}
	}
	return nil
}

// missingRoutes proves the routes of the Spec and the connected ones.
func (d *drift) missingRoutes(have, want []rtnl.Route, addrs []netip.Prefix) {
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h rtnl.Route) bool { return sameRoute(h, w) }) {
			d.add("route %s %s is missing", w.Dst, way(w))
		}
	}
	for _, a := range addrs {
		net := a.Masked()
		if !a.IsSingleIP() && !slices.ContainsFunc(have, func(h rtnl.Route) bool { return h.Dst == net && !h.GW.IsValid() }) {
			d.add("route %s of address %s is missing", net, a)
		}
	}
}

func contains(want []rtnl.Route, h rtnl.Route) bool {
	return slices.ContainsFunc(want, func(w rtnl.Route) bool { return sameRoute(h, w) })
}

// expected tells a route that a later step of the pod made.
func expected(h rtnl.Route, more []core.Route) bool {
	return h.Dst.Bits() > 0 && slices.Contains(more, core.Route{Dst: h.Dst, GW: h.GW}) || ecmp(h, more)
}

// ecmp tells a multipath route of which every hop is known: a default-route
// step made it, and proves it.
func ecmp(h rtnl.Route, more []core.Route) bool {
	for _, hop := range h.Multipath {
		if !slices.Contains(more, core.Route{Dst: h.Dst, GW: hop.GW}) {
			return false
		}
	}
	return len(h.Multipath) > 0
}

// added tells routes that somebody made from those that the kernel makes.
func added(r rtnl.Route) bool {
	return r.Protocol != unix.RTPROT_KERNEL && r.Protocol != unix.RTPROT_RA && r.Protocol != unix.RTPROT_REDIRECT
}

func way(r rtnl.Route) string {
	if !r.GW.IsValid() {
		return "on-link"
	}
	return "via " + r.GW.String()
}

// metric6 is what the kernel makes of metric 0 for IPv6.
const metric6 = 1024

func sameRoute(have, want rtnl.Route) bool {
	metric := 0
	if want.Dst.Addr().Is6() {
		metric = metric6
	}
	return have.Dst == want.Dst && have.GW == want.GW && have.Priority == metric && len(have.Multipath) == 0
}

// sysctls runs inside the pod's namespace.
func (d *drift) sysctls(s nic) error {
	for _, s := range sysctls(s) {
		have, err := sysfs.ReadSysctl(s.path)
		if sysfs.SysctlMissing(err) {
			continue
		}
		if err != nil {
			return err
		}
		equal(d, "sysctl "+s.path, have, s.value)
	}
	return nil
}

// checkPort proves what the switch's database has.
func (d *Driver) checkPort(s nic, diff *drift) {
	want, _ := portFor(s)
	have, ok := d.cfg.OVS.PortByName(s.HostIf)
	if !ok {
		diff.add("port %s is missing in Open vSwitch", s.HostIf)
		return
	}
	name := "port " + s.HostIf
	equal(diff, "bridge of "+name, have.Bridge, d.cfg.OVS.Bridge())
	equal(diff, "type of "+name, have.Type, want.Type)
	equal(diff, "tag of "+name, have.VLAN, want.VLAN)
	equal(diff, "trunks of "+name, fmt.Sprint(have.Trunks), "[]")
	equal(diff, "vlan_mode of "+name, have.VLANMode, "")
	equal(diff, "mirroring of "+name, have.Mirror, want.Mirror)
	equal(diff, "ingress_policing_rate of "+name, have.PolicingRate, want.PolicingRate)
	equal(diff, "ingress_policing_burst of "+name, have.PolicingBurst, want.PolicingBurst)
	diff.entries("external_ids of "+name, have.ExternalIDs, want.ExternalIDs)
	diff.qos(name, have.QoS, want.QoS)
	if have.Error != "" {
		diff.add("%s: Open vSwitch says %q", name, have.Error)
	}
	if have.OFPort <= 0 {
		diff.add("%s has no OpenFlow number (ofport %d)", name, have.OFPort)
	}
}

func (d *drift) qos(port string, have, want *ovs.QoS) {
	switch {
	case want == nil && have == nil:
	case want == nil:
		d.add("%s has a QoS of type %s", port, have.Type)
	case have == nil:
		d.add("%s has no QoS", port)
	default:
		equal(d, "QoS type of "+port, have.Type, want.Type)
		d.entries("external_ids of the QoS of "+port, have.ExternalIDs, want.ExternalIDs)
		d.config("QoS other_config of "+port, have.Other, want.Other)
		equal(d, "queue 0 of "+port, have.QueueOther != nil, want.QueueOther != nil)
		d.config("Queue other_config of "+port, have.QueueOther, want.QueueOther)
	}
}

// entries proves that all of want is in have.
func (d *drift) entries(what string, have, want map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if have[k] != want[k] {
			d.add("%s: %s is %q, not %q", what, k, have[k], want[k])
		}
	}
}

// config proves that have is want and no more.
func (d *drift) config(what string, have, want map[string]string) {
	d.entries(what, have, want)
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[k]; !ok {
			d.add("%s: %s=%q is not ours", what, k, have[k])
		}
	}
}
