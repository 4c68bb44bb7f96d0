// Package plan turns what a pod should get into what drivers must do: Wants and
// Leases become Specs, in the order in which they run. It is pure and knows no
// kernel, no database and no source; what depends on this machine comes in as
// Node.
package plan

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ipam"
)

// Names of the drivers that Specs go to.
const (
	driverOVS      = "ovs"
	driverExec     = "exec"
	driverDefroute = "defroute"
	driverHostport = "hostport"
)

// Node is what a plan needs to know of the machine.
type Node struct {
	MTU     int      // bytes, for NICs whose subnet sets none
	BinDirs []string // searched for foreign plugins before what the runtime says
	// KernelDatapath: Open vSwitch forwards in the kernel. There it knows its
	// own devices by their names: one that was renamed for the pod is missed, and
	// made again on the host, when the next port comes (OVS 3.1). So every NIC is
	// a veth pair.
	KernelDatapath bool
}

// NeedsSwitch tells that one of the wants is a NIC of ours.
func NeedsSwitch(wants []core.Want) bool {
	for _, w := range wants {
		if slices.ContainsFunc(w.Steps, func(s core.Step) bool { return s.Kind() == core.KindNIC }) {
			return true
		}
	}
	return false
}

// NIC types of NICs of ours.
const (
	nicVeth     = "veth-pair"
	nicInternal = "internal-port"
)

// Leases are the address requests of wants: one per NIC of ours, in step order.
// Plan takes the leases in the same order.
func Leases(wants []core.Want, key core.Key, pod core.Pod) []ipam.Request {
	var out []ipam.Request
	for _, w := range wants {
		for _, s := range w.Steps {
			if s.Kind() == core.KindNIC {
				out = append(out, ipam.Request{
					Subnet: s.NIC.Subnet, IPs: s.NIC.IPs, Pool: s.NIC.Pool, MAC: s.NIC.MAC, Given: s.NIC.Given,
					Owner: core.Owner{Key: core.Key{Container: key.Container, IfName: w.IfName}, Pod: pod},
				})
			}
		}
	}
	return out
}

// Plan makes one Spec per step, in order, and after them one "defroute" Spec
// per network whose requested default gateways the steps alone cannot enforce,
// and one "hostport" Spec per NIC of ours with ports of the node.
// leases are those of Leases, in its order; one that does not fit is an error.
//
//nolint:revive // six values that the engine has in a record and two lists; a struct would only rename them
func Plan(wants []core.Want, leases []core.Lease, pod core.Pod, key core.Key, netns core.Netns, node Node) ([]core.Spec, error) {
	b := builder{wants: wants, leases: leases, node: node}
	for i := range wants {
		w := &wants[i]
		base := core.Spec{
			Key:     core.Key{Container: key.Container, IfName: w.IfName},
			Network: w.Network, Request: w.Request, Default: w.Default, Pod: pod, Netns: netns,
		}
		for _, s := range w.Steps {
			if s.Kind() == core.KindDelegate {
				b.exec(base, s.Exec)
			} else if err := b.nic(base, i, s.NIC); err != nil {
				return nil, err
			}
		}
	}
	if len(b.leases) > 0 {
		return nil, core.Errorf(core.CodeConfig, "plan %s: %d leases belong to no interface", key, len(b.leases))
	}
	b.defaultRoutes(pod, key, netns)
	// Last, so that a DEL closes the ports before it takes the NIC away.
	b.specs = append(b.specs, b.ports...)
	return b.specs, nil
}

// builder collects specs and uses up leases.
type builder struct {
	wants  []core.Want
	leases []core.Lease
	node   Node
	specs  []core.Spec
	ports  []core.Spec // of host ports
}

func (b *builder) exec(s core.Spec, x *core.Exec) {
	run := *x
	run.Path = slices.Concat(b.node.BinDirs, x.Path)
	s.Driver, s.Exec = driverExec, &run
	b.specs = append(b.specs, s)
}

func (b *builder) nic(s core.Spec, want int, n *core.NIC) error {
	l, err := b.lease(s.Key, n)
	if err != nil {
		return err
	}
	w := &b.wants[want]
	s.Driver, s.CNIVersion = driverOVS, w.CNIVersion
	s.NIC = &core.NICSpec{
		Subnet: n.Subnet.Name, IfaceID: n.IfaceID,
		Settings:  n.Settings,
		Bandwidth: &n.Bandwidth, Quiet: l.Quiet, NoDefault: w.Default && !n.DefaultRoute && len(w.Gateways) == 0,
		OVS: &core.OVSPort{HostIf: HostIf(s.Key), Type: b.nicType(n)},
	}
	if err := address(s.Key, s.NIC, n, l); err != nil {
		return err
	}
	s.NIC.MAC, s.NIC.MTU = l.MAC, b.mtu(n)
	s.NIC.Routes = b.routes(want, n, s.NIC.Gateways)
	b.specs = append(b.specs, s)
	return b.hostports(s, n.Ports)
}

func (b *builder) nicType(n *core.NIC) string {
	if n.Type == nicInternal && b.node.KernelDatapath {
		return nicVeth
	}
	return n.Type
}

// lease takes the next lease and proves that it is this NIC's.
func (b *builder) lease(key core.Key, n *core.NIC) (core.Lease, error) {
	if len(b.leases) == 0 {
		return core.Lease{}, core.Errorf(core.CodeAddress, "plan %s: no lease in subnet %s", key, n.Subnet.Name)
	}
	l := b.leases[0]
	if l.Subnet != n.Subnet.Name || l.Owner.Key != key {
		return l, core.Errorf(core.CodeAddress, "plan %s: the lease at hand is for %s in subnet %s, not in %s", key, l.Owner.Key, l.Subnet, n.Subnet.Name)
	}
	b.leases = b.leases[1:]
	return l, nil
}

func (b *builder) mtu(n *core.NIC) int {
	for _, mtu := range []int{n.MTU, n.Subnet.MTU} {
		if mtu > 0 {
			return mtu
		}
	}
	return b.node.MTU
}

// routes are the NIC's own and its default routes. A route that somebody wrote
// wins over the default route that would follow from the gateway; several
// gateways of one family are one route, which defaultRoutes leaves to a driver
// that can make it.
func (b *builder) routes(want int, n *core.NIC, subnetGateways []netip.Addr) []core.Route {
	w := &b.wants[want]
	gateways := w.Gateways
	if len(gateways) == 0 && n.DefaultRoute {
		gateways = subnetGateways
	}
	out := slices.Clone(n.Routes)
	for _, gw := range gateways {
		dst := netip.PrefixFrom(zero(gw), 0)
		written := slices.ContainsFunc(n.Routes, func(r core.Route) bool { return r.Dst == dst })
		if !written && !b.claimed(want, gw.Is4()) && !ecmp(gateways) {
			out = append(out, core.Route{Dst: dst, GW: gw})
		}
	}
	return out
}

// claimed tells whether another network asks for the default route of a family.
func (b *builder) claimed(by int, v4 bool) bool {
	for i, w := range b.wants {
		if i != by && slices.ContainsFunc(w.Gateways, func(gw netip.Addr) bool { return gw.Is4() == v4 }) {
			return true
		}
	}
	return false
}

func zero(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// defaultRoutes adds the specs that set the requested gateways after all
// chains: a foreign plugin cannot be told to leave the default route alone, so
// what it did is put right when it is done. A single NIC of ours among our own
// carries them among its routes already, unless there are several gateways of
// one family, which make one ECMP route. A network that takes the default route
// has its gateways filled in when its plugins have told them.
func (b *builder) defaultRoutes(pod core.Pod, key core.Key, netns core.Netns) {
	foreign := slices.ContainsFunc(b.wants, func(w core.Want) bool {
		return slices.ContainsFunc(w.Steps, func(s core.Step) bool { return s.Kind() == core.KindDelegate })
	})
	for _, w := range b.wants {
		if len(w.Gateways) == 0 && !w.TakesDefault || !foreign && !ecmp(w.Gateways) {
			continue
		}
		b.specs = append(b.specs, core.Spec{
			Driver: driverDefroute, Key: core.Key{Container: key.Container, IfName: w.IfName},
			Network: w.Network, Request: w.Request, Default: w.Default, Pod: pod, Netns: netns,
			DefaultRoute: &core.DefaultRoute{Gateways: slices.Clone(w.Gateways)}, CNIVersion: w.CNIVersion,
		})
	}
}

// ecmp tells several gateways of one family.
func ecmp(gws []netip.Addr) bool {
	v4 := 0
	for _, gw := range gws {
		if gw.Is4() {
			v4++
		}
	}
	return v4 > 1 || len(gws)-v4 > 1
}
