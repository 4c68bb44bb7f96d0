package hostport

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// localnet is the sysctl that lets packets from 127.0.0.0/8 out by a device,
// and their answers in. It is set for the devices towards pods only, and the
// table's guard keeps everybody else out.
func localnet(device string) string { return "net/ipv4/conf/" + device + "/route_localnet" }

// openLoopback makes a pod's ports reachable at the node's 127.0.0.0/8.
// The kernel has no such way for ::1.
func (t *Table) openLoopback(s core.Spec) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	if len(t.have) == 0 { // the ports are closed again, and the guard is gone
		return nil
	}
	return t.cfg.Host.Do(func() error {
		for dev, index := range devices(s.HostPorts.Addrs) {
			if t.open[dev] == index {
				continue
			}
			if err := sysfs.WriteSysctl(localnet(dev), "1"); err != nil && !sysfs.SysctlMissing(err) {
				return err
			}
			t.open[dev] = index
		}
		return nil
	})
}

// reopen does so for all pods: devices may have been made anew. The caller has
// the turn to write.
func (t *Table) reopen() error {
	addrs := t.reached()
	var errs []error
	err := t.cfg.Host.Do(func() error {
		for dev, index := range devices(addrs) {
			if err := sysfs.WriteSysctl(localnet(dev), "1"); err != nil && !sysfs.SysctlMissing(err) {
				errs = append(errs, err)
			}
			t.open[dev] = index
		}
		return errors.Join(errs...)
	})
	return err
}

// reached are the addresses of all pods that have ports.
func (t *Table) reached() (addrs []netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		addrs = append(addrs, e.addrs...)
	}
	return addrs
}

// shut takes back what openLoopback did, when the guard is gone with the last
// port. The caller has the turn to write.
func (t *Table) shut() {
	err := t.cfg.Host.Do(func() error {
		var errs []error
		for dev := range t.open {
			if err := sysfs.WriteSysctl(localnet(dev), "0"); err != nil && !sysfs.SysctlMissing(err) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.cfg.Log.Warn("sysctl route_localnet left on: no host port needs it any more", "err", err)
	}
	clear(t.open)
}

func (t *Table) checkLoopback(s core.Spec) error {
	return t.cfg.Host.Do(func() error {
		var errs []error
		for dev := range devices(s.HostPorts.Addrs) {
			errs = append(errs, isOpen(dev))
		}
		return errors.Join(errs...)
	})
}

// lostLoopback tells of devices that were opened and are not any more. One that is
// not opened yet is an Attach under way.
func (t *Table) lostLoopback() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	addrs := t.reached()
	return t.cfg.Host.Do(func() error {
		var errs []error
		for dev := range devices(addrs) {
			if t.open[dev] != 0 {
				errs = append(errs, isOpen(dev))
			}
		}
		return errors.Join(errs...)
	})
}

// isOpen is nil where packets from 127.0.0.0/8 go out by a device.
func isOpen(dev string) error {
	v, err := sysfs.ReadSysctl(localnet(dev))
	if err != nil && !sysfs.SysctlMissing(err) {
		return err
	}
	if v != "1" {
		return core.Differ("sysctl %s is %q, want 1: the node's 127.0.0.1 does not reach host ports", localnet(dev), v)
	}
	return nil
}

// devices are those by which the node reaches IPv4 addresses, with their indexes:
// one that is made anew has its name and not its sysctls. An address that the
// node has no route to has none.
func devices(addrs []netip.Prefix) map[string]int {
	out := map[string]int{}
	seen := map[int]bool{}
	for _, a := range addrs {
		if !a.Addr().Is4() {
			continue
		}
		routes, err := netlink.RouteGet(a.Addr().AsSlice())
		if err != nil || len(routes) == 0 || routes[0].Type == unix.RTN_LOCAL || seen[routes[0].LinkIndex] {
			continue
		}
		seen[routes[0].LinkIndex] = true
		if l, err := netlink.LinkByIndex(routes[0].LinkIndex); err == nil {
			out[l.Attrs().Name] = l.Attrs().Index
		}
	}
	return out
}
