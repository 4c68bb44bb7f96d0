// Package standalone is the way out for pods of a node: per Subnet an internal port
// on the bridge holds the gateway address, or with OVN one port leads to all of
// them, the node forwards, and its packet filter translates what leaves a natOutgoing
// subnet. It takes the desired state as a whole and touches only ports that
// carry its mark. It must not know pods, drivers or where Subnets come from.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/ovs"
)

const (
	forward4 = "net.ipv4.ip_forward"
	forward6 = "net.ipv6.conf.all.forwarding"
)

// PortMaker is the bridge; *ovs.Client is one. Its methods are idempotent and
// fail with core.ErrUnavailable while the database is away.
type PortMaker interface {
	AddPort(ctx context.Context, p ovs.Port) error
	DelPort(ctx context.Context, name string) error
	PortByName(name string) (ovs.PortState, bool)
	PortsWith(key, value string) []ovs.PortState
	WaitPort(ctx context.Context, name string) (int, error)
}

// Filter is the node's packet filter; *netfilter.Filter is one. Apply and Pods are idempotent.
type Filter interface {
	Apply(ctx context.Context, in rules.Input) error
	Differences(ctx context.Context, in rules.Input) ([]netfilter.Difference, error)
	Pods(addrs []netip.Addr) error
	Traffic(ctx context.Context, in rules.Input) ([]netfilter.Traffic, error)
	Inventory(ctx context.Context, in rules.Input) (netfilter.Inventory, error)
}

// Config says where gateways are made.
type Config struct {
	Ports  PortMaker
	Filter Filter
	Host   *netns.Handle                    // the node's namespace, where OVS makes its ports; nil = current
	Held   func(subnet string) []netip.Addr // by the node's pods; nil: nobody has to know
	Node   string                           // the node's name, written on the ports
	// MTU is for subnets that name none, in bytes, until SetMTU; 0 = OVS chooses.
	MTU int
}

// Gateway keeps the gateways of a node. What is there is read each time, so a
// restart of anything is repaired by the next Set. It remembers what the last Set was
// to make: what differs from that somebody else has changed.
type Gateway struct {
	cfg  Config
	mu   sync.Mutex             // one Set at a time
	pods sync.Mutex             // one list of the node's pods at a time
	last atomic.Pointer[Wanted] // of the last Set, read beside one under way; never nil
	mtu  atomic.Int64
}

// New makes a Gateway; nothing is touched before Set.
func New(cfg Config) *Gateway {
	g := &Gateway{cfg: cfg}
	g.last.Store(&Wanted{})
	g.SetMTU(cfg.MTU)
	return g
}

// SetMTU is what the next Set gives ports whose subnets name none, in bytes.
func (g *Gateway) SetMTU(mtu int) { g.mtu.Store(int64(mtu)) }

// Wanted is what a node has of ways between itself and pods.
type Wanted struct {
	Subnets  []core.Subnet  // that get a gateway
	Join     *Join          // nil where there is no OVN, or it gave the node nothing yet
	Services []netip.Prefix // networks of cluster IPs, as far as they are known
	Out      string         // device of the node's own way out, "" where no rule needs to know it
	Own      []netip.Addr   // of the node there: as which it sends what a Service answers pods
	Clamp    *rules.Clamp   // of TCP's segments, nil for none
	Probes   []rules.Probe  // which the node leads to a proxy
}

// gates are the ports, each with what its device has.
func (g *Gateway) gates(w Wanted) (out []gate) {
	for _, s := range w.Subnets {
		if Serves(s) {
			out = append(out, g.gate(s))
		}
	}
	if w.Join != nil {
		out = append(out, g.join(w.Join))
	}
	return out
}

// Set makes exactly what is wanted, repeatably: it adds and
// repairs, then removes the ports that carry our mark and belong to none. It
// goes on past failures and returns them all; a subnet that could not be
// served costs no other its gateway.
func (g *Gateway) Set(ctx context.Context, w Wanted) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last.Store(&w)
	want := g.gates(w)
	errs := []error{
		g.Pods(),
		g.cfg.Filter.Apply(ctx, w.filtered()), // before forwarding, which would let packets out untranslated
		g.setWays(waysOf(w)),
		g.forward(want),
	}
	ctx, stop := context.WithTimeout(ctx, switchLimit)
	defer stop()
	for some := range slices.Chunk(want, atOnce) {
		made, err := g.addPorts(ctx, some)
		errs = append(errs, err, g.setLinks(ctx, made))
		if errors.Is(err, core.ErrUnavailable) || ctx.Err() != nil {
			break // for the others too; once is enough to say it
		}
	}
	return errors.Join(append(errs, g.prune(ctx, want))...)
}

// Pods has the packet filter know which of the node's pods there are, of the last Set's
// Subnets with NAT.
func (g *Gateway) Pods() error {
	g.pods.Lock() // a list that is older must not come after
	defer g.pods.Unlock()
	var out []netip.Addr
	if g.cfg.Held != nil {
		for _, s := range g.last.Load().pods() {
			if s.NATOutgoing {
				out = append(out, g.cfg.Held(s.Name)...)
			}
		}
	}
	return g.cfg.Filter.Pods(out)
}

// switchLimit is for Open vSwitch to take all ports.
const switchLimit = 10 * time.Second

// atOnce is how many ports are written before the switch is waited for: a pod's
// port that comes meanwhile is behind these in the passes of ovs-vswitchd, and not
// behind those of hundreds of Subnets.
const atOnce = 16

// addPorts writes some ports before anybody waits for one: ovs-vswitchd takes
// what has gathered in one pass. It returns the gates whose port is written.
func (g *Gateway) addPorts(ctx context.Context, want []gate) (made []gate, err error) {
	var errs []error
	for _, w := range want {
		err := g.cfg.Ports.AddPort(ctx, w.port)
		if err == nil {
			made = append(made, w)
			continue
		}
		errs = append(errs, fmt.Errorf("gateway of subnet %s: %w", w.subnet, err))
		if errors.Is(err, core.ErrUnavailable) {
			break // for the others too; once is enough to say it
		}
	}
	return made, errors.Join(errs...)
}

// setLinks completes the devices of the ports that were written. A port that is
// somebody else's was not, and its device gets no address of ours.
func (g *Gateway) setLinks(ctx context.Context, made []gate) error {
	if len(made) == 0 {
		return nil
	}
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var errs []error
	for _, w := range made {
		if err := g.setLink(ctx, c, w); err != nil {
			errs = append(errs, fmt.Errorf("gateway of subnet %s: %w", w.subnet, err))
		}
	}
	return errors.Join(errs...)
}

// setLink gives the port's device what OVS does not: addresses and state. MAC
// and MTU it has from OVS, which does not look at them again if somebody
// changes the device.
func (g *Gateway) setLink(ctx context.Context, c *rtnl.Conn, w gate) error {
	if _, err := g.cfg.Ports.WaitPort(ctx, w.port.Name); err != nil {
		return err
	}
	// After a restart of OVS the number may be older than the device: then this
	// fails, and the Set that follows OVS' own news repairs it.
	l, err := c.LinkByName(w.port.Name)
	if err != nil {
		return err
	}
	if l.MAC.String() != w.port.MAC.String() {
		err = c.SetMAC(l.Index, w.port.MAC)
	}
	if w.port.MTU != 0 && l.MTU != w.port.MTU {
		err = errors.Join(err, c.SetMTU(l.Index, w.port.MTU))
	}
	err = errors.Join(err, g.cfg.Host.Do(func() error { return portSysctls(w, sysfs.WriteSysctl) }))
	if !l.Up {
		err = errors.Join(err, c.SetUp(l.Index))
	}
	return errors.Join(err, setAddrs(c, l.Index, w), setRoutes(c, l.Index, w))
}

// setAddrs makes the addresses of a device exactly w's, IPv6 link-local ones
// aside. Deleting an IPv4 address takes its secondaries in the same network
// along, a new gateway address among them, so it looks again.
func setAddrs(c *rtnl.Conn, index int, w gate) error {
	for range 2 {
		has, err := c.Addrs(index)
		if err != nil {
			return err
		}
		missing, extra := addrDifference(w.addrs, has)
		var errs []error
		// Add before delete: the old address answers until the new one does.
		for _, p := range missing {
			errs = append(errs, c.AddAddr(index, p, true))
		}
		for _, p := range extra {
			errs = append(errs, c.DelAddr(index, p))
		}
		if err := errors.Join(errs...); err != nil || len(extra) == 0 {
			return err
		}
	}
	return nil
}

// portSysctls does set for each sysctl that w's device needs. Some machines
// disable IPv6 or forwarding on every new device; packets of pods that come in
// by such a one are dropped. A request for another gateway's address, which the
// switch floods to all of one VLAN, is that gateway's to answer.
func portSysctls(w gate, set func(name, value string) error) error {
	conf := "net/ipv4/conf/" + w.port.Name
	err := errors.Join(set(conf+"/forwarding", "1"), set(conf+"/arp_ignore", "1"))
	if w.has6() {
		conf = "net/ipv6/conf/" + w.port.Name
		err = errors.Join(err, set(conf+"/disable_ipv6", "0"), set(conf+"/forwarding", "1"))
	}
	return err
}

// forward makes the node a router for the families that gateways have.
func (g *Gateway) forward(want []gate) error {
	if len(want) == 0 {
		return nil
	}
	return g.cfg.Host.Do(func() error {
		err := sysfs.WriteSysctl(forward4, "1")
		if slices.ContainsFunc(want, gate.has6) {
			err = errors.Join(err, forwardIPv6())
		}
		return err
	})
}

// forwardIPv6 turns IPv6 forwarding on. A router ignores router advertisements
// where accept_ra is 1, so the node would lose its own default route; 2 keeps
// accepting them (kernel, networking/ip-sysctl.rst).
func forwardIPv6() error {
	on, err := sysfs.ReadSysctl(forward6)
	if sysfs.SysctlMissing(err) {
		return fmt.Errorf("an IPv6 gateway needs a kernel with IPv6: %w", err)
	}
	if err != nil || on == "1" {
		return err
	}
	c, err := rtnl.Open(nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	links, err := c.Links()
	if err != nil {
		return err
	}
	for _, l := range links {
		name := "net/ipv6/conf/" + l.Name + "/accept_ra"
		if v, err := sysfs.ReadSysctl(name); err == nil && v == "1" {
			if err := sysfs.WriteSysctl(name, "2"); err != nil {
				return err
			}
		}
	}
	return sysfs.WriteSysctl(forward6, "1")
}

// prune deletes the ports that carry our mark and are not wanted.
func (g *Gateway) prune(ctx context.Context, want []gate) error {
	var errs []error
	for _, p := range g.cfg.Ports.PortsWith(ovs.KeyGateway, "") {
		keep := func(w gate) bool {
			return w.port.Name == p.Name && w.subnet == p.ExternalIDs[ovs.KeyGateway]
		}
		if slices.ContainsFunc(want, keep) {
			continue
		}
		if err := g.cfg.Ports.DelPort(ctx, p.Name); err != nil {
			errs = append(errs, fmt.Errorf("remove gateway of subnet %s: %w", p.ExternalIDs[ovs.KeyGateway], err))
		}
	}
	return errors.Join(errs...)
}
