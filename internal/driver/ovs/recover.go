package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/ovs"
)

// inFlight bounds the transactions of a Resync under way at once.
const inFlight = 64

// Resync makes the database hold what these Specs say: the bridge, and ports that
// are missing or differ (conf.db lost). A Spec whose interface was detached
// meanwhile is left as it is. It goes on past failures and returns them all.
func (d *Driver) Resync(ctx context.Context, specs []core.Spec) error {
	if err := d.cfg.OVS.EnsureBridge(ctx); err != nil {
		return fmt.Errorf("resync: %w", err)
	}
	var (
		wg   sync.WaitGroup
		slot = make(chan struct{}, inFlight)
		errs = make([]error, len(specs))
		nics = make([]nic, len(specs))
		of   = map[string][]string{} // host interfaces by logical port
	)
	for i, s := range specs {
		if nics[i], errs[i] = nicOf(s); errs[i] == nil {
			of[nics[i].IfaceID] = append(of[nics[i].IfaceID], nics[i].HostIf)
		}
	}
	for i, s := range nics {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("resync %s: %w", specs[i].Key, errs[i])
			continue
		}
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			errs[i] = d.restore(ctx, s, of[s.IfaceID])
		})
	}
	wg.Wait()
	return errors.Join(errors.Join(errs...), d.secureAll(ctx, specs), d.delayAll(ctx, specs))
}

// restore makes the port of a Spec; its are the host interfaces of its logical port. Another
// port has that only where this process made it, after the Specs were read: what nobody has a
// record of goes.
func (d *Driver) restore(ctx context.Context, s nic, its []string) error {
	defer d.locks.Hold(s.HostIf)()
	_, err := d.readd(ctx, s, d.portBeside(s, its, d.isAttached))
	return err
}

// readd makes the port p of a Spec while its device lives; without device there
// is nothing to forward for, and a port would only be a leak.
func (d *Driver) readd(ctx context.Context, s nic, p ovs.Port) (made bool, err error) {
	if s.Type == InternalPort {
		if d.isDetached(s.HostIf) { // its device cannot tell: it went with the port
			return false, nil
		}
		s.IfaceID = p.ExternalIDs[ovs.KeyIfaceID]
		return true, d.reattach(ctx, s)
	}
	c, err := d.host.Get()
	if err != nil {
		return false, err
	}
	defer d.host.Put(c)
	l, err := c.LinkByName(s.HostIf)
	if errors.Is(err, core.ErrNotFound) || err == nil && (l.Group != GroupLive || !ownLink(l, s.Key)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, d.cfg.OVS.AddPort(ctx, p)
}

// reattach makes an internal port anew if its device went with the database
// row or with ovs-vswitchd.
func (d *Driver) reattach(ctx context.Context, s nic) error {
	l, err := d.attach(ctx, nil, s)
	if err == nil {
		err = d.settled(ctx, nil, s, l.MAC)
	}
	if errors.Is(err, core.ErrNetnsGone) {
		return nil
	}
	return err
}

// ours tells that this driver made the port.
func ours(st ovs.PortState) bool {
	return st.ExternalIDs[ovs.KeyVendor] == ovs.Vendor && st.ExternalIDs[keyIfName] != ""
}

// portKey is the attachment of a port of ours.
func portKey(st ovs.PortState) core.Key {
	return core.Key{Container: st.ExternalIDs[ovs.KeyContainer], IfName: st.ExternalIDs[keyIfName]}
}

// Strays implements driver.Sweeper: ports, and links of GroupLive. What this process
// attached is kept too. A port comes before its link. Of the links it cannot tell with an
// error; the ports are then there all the same.
func (d *Driver) Strays(ctx context.Context, keep []core.Spec) ([]driver.Stray, error) {
	var out []driver.Stray
	kept := map[string]bool{}
	for _, s := range keep {
		if port := s.OVS(); port != nil {
			kept[port.HostIf] = true
		}
	}
	stray := func(kind, name string, key core.Key, remove func(context.Context, string) error) {
		if kept[name] || d.isAttached(name) {
			return
		}
		out = append(out, driver.Stray{Kind: kind, Name: name, Key: key, Remove: func(ctx context.Context) error {
			defer d.locks.Hold(name)()
			if d.isAttached(name) {
				return nil
			}
			return remove(ctx, name)
		}})
	}
	for _, st := range d.cfg.OVS.PortsWith(ovs.KeyContainer, "") {
		if ours(st) {
			stray(driver.StrayPort, st.Name, portKey(st), d.cfg.OVS.DelPort)
		}
	}
	flows, err := d.strayFlows(ctx, keep)
	out = append(out, flows...)
	if err != nil {
		return out, fmt.Errorf("strays: %w", err)
	}
	links, err := d.links(GroupLive)
	if err != nil {
		return out, fmt.Errorf("strays: %w", err)
	}
	for _, l := range links {
		key, _ := core.ParseKey(l.Alias)
		stray(driver.StrayLink, l.Name, key, func(ctx context.Context, _ string) error { return d.bury(ctx, l.Index) })
	}
	return out, nil
}

// bury puts a link of ours aside.
func (d *Driver) bury(ctx context.Context, index int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c, err := d.host.Get()
	if err != nil {
		return err
	}
	defer d.host.Put(c)
	defer d.cfg.Reaper.Wake()
	return tombstone.Bury(c, index)
}

// Recover rebuilds the Specs of what is attached from the database and the
// kernel, for an agent whose journal was lost. DNS settings and bursts that
// equal the default are not kept there; a Spec whose namespace cannot be
// proved to be the pod's has none, which is enough to detach it.
func (d *Driver) Recover() ([]core.Spec, error) {
	if err := d.cfg.OVS.Connected(); err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	links, err := d.links(GroupLive)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	byName := map[string]rtnl.Link{}
	for _, l := range links {
		byName[l.Name] = l
	}
	var specs []core.Spec
	for _, st := range d.cfg.OVS.PortsWith(ovs.KeyContainer, "") {
		if ours(st) {
			s, err := recoverPort(st, byName[st.Name])
			if err != nil {
				return nil, fmt.Errorf("recover %s: %w", s.Key, err)
			}
			specs = append(specs, s)
			delete(byName, st.Name)
		}
	}
	for _, l := range byName { // made by an Attach that died before its transaction
		if k, ok := core.ParseKey(l.Alias); ok {
			specs = append(specs, core.Spec{
				Key: k, Driver: core.DriverOVS,
				NIC: &core.NICSpec{Settings: core.Settings{PodSide: core.PodSide{MTU: l.MTU}}, OVS: &core.OVSPort{HostIf: l.Name}},
			})
		}
	}
	return specs, nil
}

func recoverPort(st ovs.PortState, near rtnl.Link) (core.Spec, error) {
	id := st.ExternalIDs
	n := &core.NICSpec{
		Subnet: id[keySubnet], IfaceID: id[ovs.KeyIfaceID],
		Settings: core.Settings{PodSide: core.PodSide{MTU: near.MTU}, VLAN: st.VLAN, Tuning: core.Tuning{QoS: qosOf(st), Mirror: st.Mirror}},
		OVS:      &core.OVSPort{HostIf: st.Name, Secure: id[keySecure] != ""},
	}
	s := core.Spec{
		Key:    portKey(st),
		Driver: core.DriverOVS, Network: id[keyNetwork], Default: id[keyDefault] == "true",
		Pod: core.Pod{Namespace: id[keyPodNamespace], Name: id[keyPodName]}, NIC: n,
	}
	secure, vips, _ := strings.Cut(id[keySecure], ",")
	n.Open, n.VIPs = secure == "false", core.AddrList(vips)
	_ = n.MAC.UnmarshalText([]byte(id[keyMAC])) // the kernel tells it as well
	for ip := range strings.SplitSeq(id[keyIP], ",") {
		if a, err := netip.ParseAddr(ip); err == nil {
			n.Addrs = append(n.Addrs, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if st.Type == "internal" {
		n.OVS.Type, n.MTU = InternalPort, st.MTU
	}
	err := recoverPod(&s, id[keyPodNetns], near)
	return s, err
}

// Foreign is the Spec of a pod's port that somebody else made, on the device near, as if it
// were of that key and network, and the external ids by which the port is the driver's own
// then. A Spec without namespace says that the pod is gone, or its end of the pair.
func Foreign(st ovs.PortState, key core.Key, network string, near rtnl.Link) (core.Spec, map[string]string, error) {
	st.ExternalIDs = maps.Clone(st.ExternalIDs)
	st.ExternalIDs[ovs.KeyContainer], st.ExternalIDs[keyIfName], st.ExternalIDs[keyNetwork] = key.Container, key.IfName, network
	if key.IfName == "eth0" {
		st.ExternalIDs[keyDefault] = "true"
	}
	s, err := recoverPort(st, near)
	if err != nil {
		return s, nil, err
	}
	return s, externalIDs(nic{s, s.NIC, s.OVS()}), nil
}

// Marks are the external ids that Kube-OVN's ports have not.
func Marks() []string {
	return []string{ovs.KeyContainer, keyIfName, keyMAC, keyNetwork, keySubnet, keyDefault, keySecure}
}

// recoverPod fills what only the pod's namespace knows, if the path still
// leads to the pod that the port was made for. An error says that this could
// not be looked at.
func recoverPod(s *core.Spec, path string, near rtnl.Link) error {
	id, err := netns.Identify(path)
	if errors.Is(err, core.ErrNetnsGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return inPod(id, func(c *rtnl.Conn) error {
		far, err := c.LinkByName(s.Key.IfName)
		if errors.Is(err, core.ErrNotFound) {
			return nil
		}
		if err == nil && recoverFrom(s.NIC, near, far, c) {
			s.Netns = id
		}
		return err
	})
}

// recoverFrom is recoverPod with a link of the name in the namespace; it tells
// whether that is the pod's end of ours.
func recoverFrom(n *core.NICSpec, near, far rtnl.Link, c *rtnl.Conn) bool {
	if n.OVS.Type != InternalPort && !paired(near, far) || n.OVS.Type == InternalPort && far.MAC.String() != n.MAC.String() {
		return false
	}
	n.MAC, n.MTU = far.MAC, far.MTU
	if addrs, err := c.Addrs(far.Index); err == nil {
		n.Addrs = lengths(n.Addrs, addrs)
	}
	if rs, err := c.Routes(far.Index); err == nil {
		n.Routes, n.Gateways = routesOf(rs)
	}
	return true
}

// lengths gives each address the prefix length that the kernel has, in the
// order of the database.
func lengths(want []netip.Prefix, have []rtnl.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, w := range want {
		for _, h := range have {
			if h.Prefix.Addr() == w.Addr() {
				w = h.Prefix
			}
		}
		out = append(out, w)
	}
	return out
}

// routesOf leaves out the routes that the kernel makes of addresses.
func routesOf(have []rtnl.Route) (rs []core.Route, gws []netip.Addr) {
	for _, h := range have {
		if h.Protocol == unix.RTPROT_KERNEL || h.Dst.Addr().IsLinkLocalUnicast() || h.Dst.Addr().IsMulticast() {
			continue
		}
		rs = append(rs, core.Route{Dst: h.Dst, GW: h.GW})
		if h.Dst.Bits() == 0 && h.GW.IsValid() {
			gws = append(gws, h.GW)
		}
	}
	return rs, gws
}

// qosOf is the inverse of Port for rates; a burst that is the default comes
// back as none, which is the same request.
func qosOf(st ovs.PortState) core.QoS {
	q := core.QoS{EgressMbps: st.PolicingRate / ovs.KbitOfMbit}
	if _, def := ovs.Policing(q); st.PolicingBurst != def {
		q.EgressBurstMbit = st.PolicingBurst / ovs.KbitOfMbit
	}
	if st.QoS == nil {
		return q
	}
	num := func(m map[string]string, key string, unit int) int {
		n, err := strconv.Atoi(m[key])
		if err != nil {
			return 0
		}
		return n / unit
	}
	other := st.QoS.Other
	q.IngressMbps = num(other, "max-rate", ovs.BitsOfMbit)
	if b := st.QoS.QueueOther["burst"]; q.IngressMbps > 0 && b != ovs.HTB(q).QueueOther["burst"] {
		q.IngressBurstMbit = num(st.QoS.QueueOther, "burst", ovs.BitsOfMbit)
	}
	q.LatencyMs, q.JitterMs = num(other, "latency", micros), num(other, "jitter", micros)
	q.LimitPackets, q.LossPercent = num(other, "limit", 1), num(other, "loss", 1)
	return q
}
