package ovs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/openflow"
)

// Flows with these bits in their cookie are this driver's; the others name the port.
const (
	cookieMark uint64 = 0x0FA1 << 48
	cookieMask uint64 = 0xFFFF << 48
)

// Priorities of a port's flows: a former one may let pass what a later one drops.
const (
	prioOwn   = 1003 // addresses that are the pod's
	prioIP    = 1002 // any other address
	prioOther = 1001 // what is neither IP nor ARP, from the pod's MAC
	prioPort  = 1000 // the rest
)

// answers is how long a switch that does not answer may hold up what goes on
// without it.
const answers = time.Second

// cookieOf is the cookie of a port's flows.
func cookieOf(hostIf string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(hostIf)) // never fails
	return cookieMark | h.Sum64()&^cookieMask
}

// secured tells whether the interface has port security.
func (d *Driver) secured(s nic) bool { return d.cfg.Flows != nil && s.Secure && !s.Open }

// ownFlows let pass what the pod sends as itself, by the number of its port: its MAC
// in the frame, and its MAC and addresses in ARP, IP and neighbour discovery. They are
// what OVN makes of a port's security (ovn-nb(5), port_security), so that a pod may
// send the same with and without OVN: also requests of DHCPv4, and solicitations
// before it has an address (RFC 4862). An interface without addresses may use any.
func ownFlows(s nic, port int) []openflow.Flow {
	mac := net.HardwareAddr(s.MAC)
	from := openflow.From(port)
	own := from.MAC(mac)
	out := []openflow.Flow{{Priority: prioPort, Match: from}, {Priority: prioOther, Match: own, Forward: true}}
	allow := func(m ...openflow.Match) {
		for _, m := range m {
			out = append(out, openflow.Flow{Priority: prioOwn, Match: m, Forward: true})
		}
	}
	if len(s.Addrs) == 0 {
		return out
	}
	for _, kind := range []uint16{openflow.EthARP, openflow.EthIPv4, openflow.EthIPv6} {
		out = append(out, openflow.Flow{Priority: prioIP, Match: from.Type(kind)})
	}
	addrs := s.VIPs.Addrs()
	for _, p := range s.Addrs {
		addrs = append(addrs, p.Addr())
	}
	if slices.ContainsFunc(addrs, netip.Addr.Is4) {
		allow(own.DHCPv4(), own.ARP(mac, netip.IPv4Unspecified()))
	}
	if slices.ContainsFunc(addrs, netip.Addr.Is6) {
		addrs = append(addrs, linkLocal(mac))
		none := own.Source(netip.IPv6Unspecified())
		allow(none.ICMPv6(openflow.ListenerReport), none.ICMPv6(openflow.ListenerReport2))
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, ip := range slices.Compact(addrs) {
		allow(own.Source(ip))
		if ip.Is4() {
			allow(own.ARP(mac, ip))
		}
	}
	return append(out, discovery(from, own, mac, addrs)...)
}

// discovery are the flows of neighbour discovery, in which the pod must tell its own
// MAC for its own addresses. They stand above those that look at the source alone.
// Without the option that tells a MAC nobody learns from it.
func discovery(from, own openflow.Match, mac net.HardwareAddr, addrs []netip.Addr) []openflow.Flow {
	out := []openflow.Flow{
		{Priority: prioOwn + 1, Match: from.ICMPv6(openflow.Solicitation)},
		{Priority: prioOwn + 1, Match: from.ICMPv6(openflow.Advertisement)},
		{Priority: prioOwn + 2, Match: own.Soliciting(nil), Forward: true},
		{Priority: prioOwn + 2, Match: own.Advertising(nil), Forward: true},
	}
	for _, ip := range addrs {
		if ip.Is6() {
			out = append(out,
				openflow.Flow{Priority: prioOwn + 2, Match: own.Source(ip).Soliciting(mac), Forward: true},
				openflow.Flow{Priority: prioOwn + 2, Match: own.Advertising(mac).Target(ip), Forward: true})
		}
	}
	return out
}

// linkLocal is the address that the kernel gives to an interface with this MAC
// (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// secure gives the port of that number its flows, in the place of those that it had.
func (d *Driver) secure(ctx context.Context, t driver.Timer, s nic, port int) error {
	if !d.secured(s) {
		return nil
	}
	done := t.Step("ovs.flows")
	err := d.cfg.Flows.Set(ctx, cookieOf(s.HostIf), ownFlows(s, port)...)
	fail.Here("ovs.flows")
	done(err)
	if err != nil {
		return fmt.Errorf("port security: %w", err)
	}
	return nil
}

// insecure has the flows of a port removed, which a Spec that was guessed does not know
// of, and does not wait for it: ovs-vswitchd has more to do when many pods go. What
// flows stay are strays.
func (d *Driver) insecure(ctx context.Context, s nic) {
	if d.cfg.Flows == nil {
		return
	}
	if err := d.cfg.Flows.Remove(ctx, cookieOf(s.HostIf)); err != nil {
		d.log.Debug("flows of a detached port stay until the next sweep", "port", s.HostIf, "err", err)
	}
}

// checkFlows compares the flows of the port of that number with what they should be.
func (d *Driver) checkFlows(ctx context.Context, s nic, port int, diff *drift) error {
	cookie := cookieOf(s.HostIf)
	have, err := d.cfg.Flows.Flows(ctx, cookie, ^uint64(0))
	if err != nil {
		return fmt.Errorf("port security: %w", err)
	}
	want := map[openflow.Flow]bool{}
	for _, f := range ownFlows(s, port) {
		want[f] = true
	}
	n := len(want)
	for _, f := range have[cookie] {
		delete(want, f)
	}
	if len(want) > 0 || len(have[cookie]) != n {
		diff.add("port security of port %s is not in force: %d of its %d flows are missing, and there are %d", s.HostIf, len(want), n, len(have[cookie]))
	}
	return nil
}

// secureAll gives the ports of these Specs their flows, as far as the switch has
// numbered them in time; the repair of ports comes to the others.
func (d *Driver) secureAll(ctx context.Context, specs []core.Spec) error {
	ctx, stop := context.WithTimeout(ctx, securesAll)
	defer stop()
	var errs []error
	for _, spec := range specs {
		s, err := nicOf(spec)
		if err != nil || !d.secured(s) {
			continue
		}
		errs = append(errs, d.secureAgain(ctx, s))
	}
	return errors.Join(errs...)
}

// securesAll is how long a switch may take to number the ports that a sweep made.
const securesAll = 10 * time.Second

func (d *Driver) secureAgain(ctx context.Context, s nic) error {
	defer d.locks.Hold(s.HostIf)()
	if st, ok := d.cfg.OVS.PortByName(s.HostIf); !ok || st.OFPort < 0 || d.isDetached(s.HostIf) {
		return nil // there is nothing to forward for
	}
	var diff drift
	return d.repairFlows(ctx, s, &diff)
}

// strayFlows are those with a cookie of ours that are no port's. Those of a switch
// that is away are gone.
func (d *Driver) strayFlows(ctx context.Context, keep []core.Spec) ([]driver.Stray, error) {
	if d.cfg.Flows == nil {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, answers)
	defer stop()
	have, err := d.cfg.Flows.Flows(ctx, cookieMark, cookieMask)
	if errors.Is(err, core.ErrUnavailable) {
		return nil, nil
	}
	for _, s := range keep {
		if n, err := nicOf(s); err == nil && n.Secure {
			delete(have, cookieOf(n.HostIf))
		}
	}
	keys := map[uint64]core.Key{} // as far as the ports are there
	for _, st := range d.cfg.OVS.PortsWith(ovs.KeyContainer, "") {
		keys[cookieOf(st.Name)] = portKey(st)
	}
	var out []driver.Stray
	for _, cookie := range slices.Sorted(maps.Keys(have)) {
		if d.isCookie(cookie) {
			continue
		}
		out = append(out, driver.Stray{Kind: driver.StrayFlows, Name: fmt.Sprintf("%#x", cookie), Key: keys[cookie], Remove: func(ctx context.Context) error {
			if d.isCookie(cookie) {
				return nil
			}
			return d.cfg.Flows.Set(ctx, cookie)
		}})
	}
	return out, err
}

// isCookie tells the cookie of a port that this process attached.
func (d *Driver) isCookie(cookie uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.attached {
		if cookieOf(name) == cookie {
			return true
		}
	}
	return false
}
