package standalone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/ovs"
)

// Check proves that the subnet's gateway is what Set makes. The error joins a
// core.Difference for each that it finds, without the subnet's name; one that does not
// says that the truth could not be learnt. A subnet without a gateway of ours
// is right as it is.
func (g *Gateway) Check(ctx context.Context, s core.Subnet) error {
	if !Serves(s) {
		return nil
	}
	w := *g.last.Load()
	w.Subnets = append(slices.DeleteFunc(slices.Clone(w.Subnets), func(o core.Subnet) bool { return o.Name == s.Name }), s)
	found, err := g.cfg.Filter.Differences(ctx, w.filtered())
	// What is about no network is about all of them.
	found = slices.DeleteFunc(found, func(d netfilter.Difference) bool {
		return d.Of.IsValid() && !slices.ContainsFunc(s.CIDRs, d.Of.Overlaps)
	})
	return errors.Join(g.checkGate(ctx, g.gate(s)), err, netfilter.Errors(found), g.lacking(waysOf(w), []core.Subnet{s})[s.Name])
}

// Names in Drift that no Subnet has: of the packet filter's rules, and of the way to the
// proxy of probes.
const (
	Filtered = "(packet filter)"
	Probed   = "(probes)"
)

// Drift compares the node with what the last Set was to make: what is not so, by subnet,
// JoinPort, Filtered and Probed. What is wanted since is no change of the node. An error that is
// no core.ErrDrift says that the truth could not be learnt. A port too much is not looked
// for.
func (g *Gateway) Drift(ctx context.Context) map[string]error {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := *g.last.Load()
	found := map[string]error{}
	differs, err := g.cfg.Filter.Differences(ctx, w.filtered())
	if err = errors.Join(err, netfilter.Errors(differs), g.aliased(w.Join)); err != nil {
		found[Filtered] = err
	}
	maps.Copy(found, g.lacking(waysOf(w), w.pods()))
	if err := g.probesLack(w.Probes); err != nil {
		found[Probed] = err
	}
	for _, one := range g.gates(w) {
		if err := g.checkGate(ctx, one); err != nil {
			found[one.subnet] = errors.Join(found[one.subnet], err)
		}
	}
	return found
}

// Elsewhere tells that the node's own way out is not what the last Set was made of: another
// device, or other addresses.
func (g *Gateway) Elsewhere(w Wanted) bool {
	last := g.last.Load()
	return w.Out != last.Out || !slices.Equal(w.Own, last.Own)
}

// Traffic is what the node forwarded for the Subnets of the last Set, by the packet
// filter's counters, which begin anew when it writes these.
func (g *Gateway) Traffic(ctx context.Context) ([]netfilter.Traffic, error) {
	w := *g.last.Load()
	return g.cfg.Filter.Traffic(ctx, w.filtered())
}

// Links are the indexes of the devices that hold what is wanted, as far as they
// are there, and of those by which the node itself leaves, or pods do for gateways of
// their Subnets, or as whose addresses. Routes are those over which there are routes of ours.
func (g *Gateway) Links(w Wanted) (out rtnl.Aims, err error) {
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return out, err
	}
	defer func() { _ = c.Close() }()
	for _, one := range g.gates(w) {
		l, err := c.LinkByName(one.port.Name)
		if errors.Is(err, core.ErrNotFound) {
			continue
		}
		if err != nil {
			return out, err
		}
		out.Links = append(out.Links, l.Index)
		if one.routes != nil {
			out.Routes = append(out.Routes, l.Index)
		}
	}
	if l, err := c.LinkByName(w.Out); w.Out != "" && err == nil {
		out.Links = append(out.Links, l.Index)
	}
	nics, err := waysOf(w).nics(c)
	more, errAliases := g.aliasLinks(w.Join)
	out.Links = slices.Concat(out.Links, nics, more)
	slices.Sort(out.Links)
	out.Links = slices.Compact(out.Links)
	return out, errors.Join(err, errAliases)
}

func (g *Gateway) checkGate(ctx context.Context, w gate) error {
	return errors.Join(
		g.checkPort(ctx, w),
		g.checkLink(w),
		g.cfg.Host.Do(func() error { return checkForwarding(w) }),
	)
}

// findings collects differences.
type findings []error

// add notes a difference; the text says what is and what should be.
func (f *findings) add(format string, args ...any) {
	*f = append(*f, core.Differ(format, args...))
}

// differ adds a finding unless have is want.
func differ[T comparable](f *findings, what string, have, want T) {
	if have != want {
		f.add("%s is %v, want %v", what, have, want)
	}
}

// err is nil when nothing was found.
func (f *findings) err() error { return errors.Join(*f...) }

// checkPort compares the database's rows. Keys that others wrote into
// external_ids are theirs and no difference; OVN and operators put some there.
func (g *Gateway) checkPort(ctx context.Context, w gate) error {
	p, ok := g.cfg.Ports.PortByName(w.port.Name)
	if !ok {
		// Not there, or the database is away: WaitPort tells which.
		if _, err := g.cfg.Ports.WaitPort(ctx, w.port.Name); !errors.Is(err, core.ErrNotFound) {
			return err
		}
		return core.Difference("port " + w.port.Name + " is missing")
	}
	var f findings
	port := "port " + w.port.Name
	differ(&f, port+": type", p.Type, w.port.Type)
	differ(&f, port+": tag", p.VLAN, w.port.VLAN)
	differ(&f, port+": vlan_mode", p.VLANMode, "")
	differ(&f, port+": number of trunks", len(p.Trunks), 0)
	differ(&f, port+": requested mac", p.MAC.String(), w.port.MAC.String())
	differ(&f, port+": requested mtu", p.MTU, w.port.MTU)
	for k, v := range w.port.ExternalIDs {
		differ(&f, port+": external_ids "+k, p.ExternalIDs[k], v)
	}
	differ(&f, port+": ingress_policing_rate", p.PolicingRate, w.port.PolicingRate)
	differ(&f, port+": ingress_policing_burst", p.PolicingBurst, w.port.PolicingBurst)
	differ(&f, port+": QoS", shape(p.QoS), shape(w.port.QoS))
	if p.Bridge == "" {
		f.add("%s is on no bridge", port)
	}
	if p.OFPort <= 0 || p.Error != "" {
		f.add("%s is not forwarded by Open vSwitch (ofport %d) %s", port, p.OFPort, p.Error)
	}
	return f.err()
}

// shape is what a QoS does, in words.
func shape(q *ovs.QoS) string {
	if q == nil {
		return "none"
	}
	return fmt.Sprintf("%s %v, queue %v", q.Type, q.Other, q.QueueOther)
}

// checkLink compares the kernel's device with the port: OVS applies MAC and
// MTU once and does not watch them, addresses it does not know at all.
func (g *Gateway) checkLink(w gate) error {
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	l, err := c.LinkByName(w.port.Name)
	if errors.Is(err, core.ErrNotFound) {
		return core.Difference("device " + w.port.Name + " is missing")
	}
	if err != nil {
		return err
	}
	has, err := c.Addrs(l.Index)
	if err != nil {
		return err
	}
	var f findings
	dev := "device " + w.port.Name
	differ(&f, dev+": up", l.Up, true)
	differ(&f, dev+": mac", l.MAC.String(), w.port.MAC.String())
	if w.port.MTU != 0 {
		differ(&f, dev+": mtu", l.MTU, w.port.MTU)
	}
	missing, extra := addrDifference(w.addrs, has)
	for _, p := range missing {
		f.add("%s lacks address %s", dev, p)
	}
	for _, p := range extra {
		f.add("%s has address %s too much", dev, p)
	}
	if w.routes == nil {
		return f.err()
	}
	routes, err := c.Routes(l.Index)
	if err != nil {
		return errors.Join(err, f.err())
	}
	lacking, stale := routeDifference(w.routes, routes)
	for _, r := range lacking {
		f.add("%s lacks route %s via %s", dev, r.Dst, r.GW)
	}
	for _, r := range stale {
		f.add("%s has route %s too much", dev, r.Dst)
	}
	return f.err()
}

// addrDifference compares addresses; IPv6 link-local ones are the kernel's.
func addrDifference(want []netip.Prefix, has []rtnl.Addr) (missing, extra []netip.Prefix) {
	for _, p := range want {
		if !rtnl.HasAddr(has, p) {
			missing = append(missing, p)
		}
	}
	for _, a := range has {
		own := a.Prefix.Addr().Is6() && a.Prefix.Addr().IsLinkLocalUnicast()
		if !own && !slices.Contains(want, a.Prefix) {
			extra = append(extra, a.Prefix)
		}
	}
	return missing, extra
}

// checkForwarding compares the sysctls that Set writes. accept_ra is not among
// them: Set only kept its effect, and it is the operator's.
func checkForwarding(w gate) error {
	var f findings
	is := func(name, want string) error {
		have, err := sysfs.ReadSysctl(name)
		if err != nil && !sysfs.SysctlMissing(err) {
			return err
		}
		differ(&f, "sysctl "+name, have, want) // a missing one reads as ""
		return nil
	}
	err := errors.Join(is(forward4, "1"), portSysctls(w, is))
	if w.has6() {
		err = errors.Join(err, is(forward6, "1"))
	}
	return errors.Join(err, f.err())
}

var _ PortMaker = (*ovs.Client)(nil)
