package fence

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/record"
)

// Saved is what an interface had before it was taken down. The kernel forgets a link's routes
// and IPv6 addresses with it.
type Saved struct {
	Index   int          `json:"index,omitempty"`   // of the link in the pod, which may get another name; 0 for none
	VFState *int         `json:"vfState,omitempty"` // nil: no virtual function, or its driver has none
	Addrs   []rtnl.Addr  `json:"addrs,omitempty"`
	Routes  []rtnl.Route `json:"routes,omitempty"`
}

// Kernel is Links of this machine: a virtual function by its physical one where the driver can, a
// port of the switch by its end on the node, which pods cannot reach, all else by the link in
// the pod.
type Kernel struct {
	// Inside tells that a Spec's plugin is carried out by the agent, so that it is known
	// which link it made.
	Inside func(core.Spec) bool
	VFs    sriov.Sys
}

// whole are the plugins of which the one link in the pod is all that they have on a network.
var whole = []string{"bridge", "host-device", "ipvlan", "macvlan", "sriov", "vlan"}

// Can tells that Down takes an interface off the network. Of a virtual function that programs
// use it asks the driver.
func (l Kernel) Can(s core.Spec) bool {
	if s.OVS() != nil {
		return true
	}
	if s.Kind() != core.KindDelegate || !slices.Contains(whole, s.Exec.Type) || !l.Inside(s) {
		return false
	}
	v, is, err := l.vf(s)
	if err != nil || is && v.Userspace() && !sriov.HasState(v) {
		return false
	}
	if pci := record.Device(s); pci != "" && !is {
		_, err = l.VFs.Netdev(pci)
	}
	return err == nil
}

// vf is the virtual function of an interface.
func (l Kernel) vf(s core.Spec) (v sriov.VF, is bool, err error) {
	pci := record.Device(s)
	if pci == "" {
		return v, false, nil
	}
	v, err = l.VFs.VF(pci)
	if errors.Is(err, core.ErrNotFound) {
		return v, false, nil
	}
	return v, err == nil, err
}

// within calls do with an interface's link: that of a port of the switch on the node where its
// end is there, else that in the pod.
func within(s core.Spec, known Saved, pod bool, do func(c *rtnl.Conn, ns *netns.Handle, l rtnl.Link) error) error {
	if o := s.OVS(); o != nil && !pod {
		err := on(nil, func(c *rtnl.Conn) (rtnl.Link, error) { return c.LinkByName(o.HostIf) }, do)
		if !errors.Is(err, core.ErrNotFound) {
			return err
		}
	}
	ns, err := netns.Verify(s.Netns)
	if err != nil {
		return fmt.Errorf("link %s: %w", s.Key, err)
	}
	defer func() { _ = ns.Close() }()
	return on(ns, func(c *rtnl.Conn) (rtnl.Link, error) { return find(c, s, known) }, do)
}

// find is an interface's link in the pod. Whoever renames it there keeps what it has leased: where
// no link has the interface's name it is the one with that MAC or address.
func find(c *rtnl.Conn, s core.Spec, known Saved) (rtnl.Link, error) {
	if known.Index != 0 {
		if l, err := c.LinkByIndex(known.Index); !errors.Is(err, core.ErrNotFound) {
			return l, err
		}
	}
	named, err := c.LinkByName(s.Key.IfName)
	if !errors.Is(err, core.ErrNotFound) {
		return named, err
	}
	links, failed := c.Links()
	addrs, unread := c.Addrs(0)
	if failed := errors.Join(failed, unread); failed != nil {
		return rtnl.Link{}, failed
	}
	for _, l := range links {
		for _, claim := range s.Claims {
			if len(claim.MAC) > 0 && bytes.Equal(l.MAC, claim.MAC) || slices.ContainsFunc(addrs, func(a rtnl.Addr) bool {
				return a.Index == l.Index && claim.Addr.IsValid() && a.Prefix.Addr() == claim.Addr
			}) {
				return l, nil
			}
		}
	}
	return rtnl.Link{}, err
}

// on calls do with a link of a namespace, nil for the node's.
func on(ns *netns.Handle, find func(*rtnl.Conn) (rtnl.Link, error), do func(c *rtnl.Conn, ns *netns.Handle, l rtnl.Link) error) error {
	c, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	l, err := find(c)
	if err != nil {
		return err
	}
	return do(c, ns, l)
}

// gone makes an interface that is not there success.
func gone(err error) error {
	if errors.Is(err, core.ErrNetnsGone) || errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

// Look implements Links.
func (l Kernel) Look(s core.Spec) (out Saved, err error) {
	v, is, err := l.vf(s)
	if err != nil {
		return out, err
	}
	if is {
		a, failed := sriov.Read(v)
		out.VFState = &a.LinkState // that of the baseline where it cannot be read
		if v.Userspace() {
			return out, failed
		}
	}
	err = within(s, Saved{}, true, func(c *rtnl.Conn, _ *netns.Handle, l rtnl.Link) error {
		out.Index = l.Index
		addrs, err := c.Addrs(l.Index)
		if err != nil {
			return err
		}
		routes, err := c.AllRoutes(l.Index)
		out.Addrs = slices.DeleteFunc(addrs, func(a rtnl.Addr) bool { return !a.Permanent() })
		out.Routes = slices.DeleteFunc(routes, ofKernel)
		return err
	})
	return out, err
}

// ofKernel tells routes that follow from addresses, or are learnt.
func ofKernel(r rtnl.Route) bool {
	return r.Protocol == unix.RTPROT_KERNEL || r.Protocol == unix.RTPROT_RA || r.Table == unix.RT_TABLE_LOCAL || len(r.Lacks) > 0
}

// Down implements Links.
func (l Kernel) Down(s core.Spec, before Saved) error {
	v, is, err := l.vf(s)
	if err != nil {
		return err
	}
	if is { // what its physical function does not do, for whatever reason, the link in the pod does
		if err := sriov.SetState(v, sriov.LinkDisable); err == nil || v.Userspace() {
			return err
		}
	}
	return gone(within(s, before, false, func(c *rtnl.Conn, _ *netns.Handle, l rtnl.Link) error { return c.SetDown(l.Index) }))
}

// Up implements Links. What the pod's interface has kept, or got anew, stays.
func (l Kernel) Up(s core.Spec, before Saved) error {
	v, is, err := l.vf(s)
	if err != nil {
		return err
	}
	if is && before.VFState != nil {
		if err := sriov.SetState(v, *before.VFState); err != nil {
			if a, failed := sriov.Read(v); failed != nil || a.LinkState != *before.VFState { // else it was never another
				return err
			}
		}
		if v.Userspace() {
			return nil
		}
	}
	up := func(c *rtnl.Conn, _ *netns.Handle, l rtnl.Link) error { return c.SetUp(l.Index) }
	if err := gone(within(s, before, false, up)); err != nil {
		return err
	}
	return gone(within(s, before, true, func(c *rtnl.Conn, ns *netns.Handle, l rtnl.Link) error {
		if err := c.SetUp(l.Index); err != nil {
			return err
		}
		if err := restore(c, l, before); err != nil {
			return err
		}
		_ = neigh.Announce(ns, l.Name, l.MAC, leased(s, before)) // neighbours may know another, who had it meanwhile: they ask anew sooner or later
		return nil
	}))
}

// restore puts back addresses and routes, those through a gateway last.
func restore(c *rtnl.Conn, l rtnl.Link, before Saved) error {
	have, err := c.Addrs(l.Index)
	if err != nil {
		return err
	}
	for _, a := range before.Addrs {
		if rtnl.HasAddr(have, a.Prefix) {
			continue
		}
		if err := c.PutAddr(a); err != nil {
			return err
		}
	}
	slices.SortStableFunc(before.Routes, func(a, b rtnl.Route) int { return order(a) - order(b) })
	for _, r := range before.Routes {
		if err := c.ReplaceRoute(r); err != nil {
			return err
		}
	}
	return nil
}

func order(r rtnl.Route) int {
	if r.GW.IsValid() || len(r.Multipath) > 0 {
		return 1
	}
	return 0
}

// leased are the addresses of an interface that it has leased.
func leased(s core.Spec, before Saved) (out []netip.Prefix) {
	for _, a := range before.Addrs {
		if slices.ContainsFunc(s.Claims, func(c core.Claim) bool { return c.Addr == a.Prefix.Addr() }) {
			out = append(out, a.Prefix)
		}
	}
	return out
}
