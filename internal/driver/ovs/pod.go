package ovs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// configure makes the pod's end, the link of that index, what the Spec says. Of
// a fresh one it is known what is there.
func (a attachment) configure(index int, fresh bool) (l rtnl.Link, err error) {
	done := a.time.Step("ovs.pod")
	defer func() { done(err) }()
	var c *rtnl.Conn
	err = a.pod.Do(func() (err error) {
		if c, err = rtnl.Open(nil); err != nil {
			return err
		}
		return a.tune()
	})
	if c != nil {
		defer func() { _ = c.Close() }()
	}
	if err != nil {
		return l, err
	}
	fail.Here("ovs.pod.sysctl")
	if !fresh {
		if err := a.flush(c, index); err != nil {
			return l, err
		}
	}
	if err := a.address(c, index); err != nil {
		return l, err
	}
	fail.Here("ovs.pod")
	if fresh && len(a.spec.MAC) != 0 && a.spec.MTU != 0 {
		return rtnl.Link{Index: index, MAC: a.spec.MAC, MTU: a.spec.MTU}, nil
	}
	return c.LinkByIndex(index)
}

// sysctl is a setting that Attach makes and Check proves.
type sysctl struct {
	path, value string
	set         func(path, value string) error
}

// sysctls: a pod with an IPv6 address has IPv6, and no pod believes router
// advertisements of its neighbours. `default` is for interfaces that others add
// later. Whether a pod without IPv6 address has IPv6 is left to the runtime:
// turned on for nothing, its neighbour discovery goes to every port of the
// switch.
func sysctls(s nic) []sysctl {
	six := slices.ContainsFunc(s.Addrs, func(p netip.Prefix) bool { return p.Addr().Is6() })
	list := make([]sysctl, 0, 6)
	for _, conf := range []string{"all", "default", s.Key.IfName} {
		base := "net/ipv6/conf/" + conf + "/"
		if six {
			list = append(list, sysctl{base + "disable_ipv6", "0", sysfs.WriteSysctl})
		}
		list = append(list, sysctl{base + "accept_ra", "0", sysfs.SetSysctl}) // a new namespace has 1
	}
	return list
}

// tune runs inside the pod's namespace. A kernel without IPv6 and a read-only
// /proc/sys are no reason to refuse a pod.
func (a attachment) tune() error {
	for _, s := range sysctls(a.spec) {
		err := s.set(s.path, s.value)
		if err != nil && !sysfs.SysctlMissing(err) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
			return err
		}
	}
	if a.driver.cfg.UserspaceDatapath {
		return sysfs.TxChecksumOff(a.spec.Key.IfName)
	}
	return nil
}

// flush takes addresses away that the Spec does not have.
func (a attachment) flush(c *rtnl.Conn, index int) error {
	have, err := c.Addrs(index)
	if err != nil {
		return err
	}
	for _, h := range have {
		if isGlobal(h) && !slices.Contains(a.spec.Addrs, h.Prefix) {
			if err := c.DelAddr(index, h.Prefix); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a attachment) address(c *rtnl.Conn, index int) error {
	if err := c.SetUp(loIndex); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	for _, p := range a.spec.Addrs {
		// No duplicate detection: IPAM has proved the address ours.
		if err := c.AddAddr(index, p, true); err != nil {
			return err
		}
	}
	if err := c.SetUp(index); err != nil {
		return err
	}
	for _, r := range routes(a.spec, index) {
		if err := c.ReplaceRoute(r); err != nil {
			return err
		}
	}
	return nil
}

// isGlobal leaves out what the kernel gives each interface by itself.
func isGlobal(a rtnl.Addr) bool {
	return a.Scope != unix.RT_SCOPE_LINK && !a.Prefix.Addr().IsLinkLocalUnicast()
}

// routes are the Spec's routes in the order in which the kernel takes them:
// on-link ones first, for gateways may lie in them. A gateway that nothing
// covers is reached directly.
func routes(s nic, index int) []rtnl.Route {
	near := slices.Clone(s.Addrs)
	var onLink, via []rtnl.Route
	for _, r := range s.Routes {
		if !r.GW.IsValid() {
			near = append(near, r.Dst)
			onLink = append(onLink, rtnl.Route{Dst: r.Dst.Masked(), Index: index})
		}
	}
	for _, r := range s.Routes {
		if r.GW.IsValid() {
			via = append(via, rtnl.Route{Dst: r.Dst.Masked(), GW: r.GW, Index: index, OnLink: !covered(near, r.GW)})
		}
	}
	return append(onLink, via...)
}

func covered(nets []netip.Prefix, gw netip.Addr) bool {
	return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Masked().Contains(gw) }) || gw.IsLinkLocalUnicast() && gw.Is6()
}
