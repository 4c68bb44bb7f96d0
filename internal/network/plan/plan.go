// Package plan turns what a pod should get into what drivers must do: Wants and
// Leases become Specs, in the order in which they run. It is pure and knows no
// kernel, no database and no source; what depends on this machine comes in as
// Node.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// Node is what a plan needs to know of the machine.
type Node struct {
	MTU int // bytes, for NICs whose subnet sets none
	// NetworkMTU is that of a provider network's NIC, 0 where it is not known; nil: of none.
	NetworkMTU func(network string) int
	BinDirs    []string // searched for foreign plugins before what the runtime says
	// Carriers are the drivers of NICs, by name.
	Carriers map[string]Carrier
}

// Carrier is what plan asks of a driver of NICs.
type Carrier interface {
	// Carry completes the Spec of the NIC n, whose part NIC has all that every kind
	// of NIC has, by what this kind needs. It is pure. What of n it cannot carry
	// out is an error, mostly core.CodeValue.
	Carry(s *core.Spec, n *core.NIC) error
}

// Drivers are those of the wants' NICs, each once.
func Drivers(wants []core.Want) []string {
	var out []string
	for _, w := range wants {
		for _, s := range w.Steps {
			if s.Kind() == core.KindNIC && !slices.Contains(out, s.NIC.Driver) {
				out = append(out, s.NIC.Driver)
			}
		}
	}
	return out
}

// Leases are the address requests of wants: one per NIC of ours, in step order.
// Plan takes the leases in the same order.
func Leases(wants []core.Want, key core.Key, pod core.Pod) []ipam.Request {
	var out []ipam.Request
	for _, w := range wants {
		for _, s := range w.Steps {
			if s.Kind() == core.KindNIC {
				out = append(out, ipam.Request{
					Subnet: s.NIC.Subnet, IPs: s.NIC.IPs, Pool: s.NIC.Pool, Family: s.NIC.Family, MAC: s.NIC.MAC, Given: s.NIC.Given,
					Owner: core.Owner{Key: core.Key{Container: key.Container, IfName: w.IfName}, Pod: pod},
				})
			}
		}
	}
	return out
}

// Plan makes one Spec per step, in order, and after them one default-route
// Spec per network that needs it (defaultroute.NeedsStep),
// and one "hostport" Spec per NIC of ours with ports of the node.
// leases are those of Leases, in its order; one that does not fit is an error.
//
//nolint:revive // six values that the engine has in a record and two lists; a struct would only rename them
func Plan(wants []core.Want, leases []core.Lease, pod core.Pod, key core.Key, netns core.Netns, node Node) ([]core.Spec, error) {
	b := builder{wants: wants, leases: leases, node: node}
	var routes []core.Spec
	for i := range wants {
		w := &wants[i]
		base := core.Spec{
			Key:     core.Key{Container: key.Container, IfName: w.IfName},
			Network: w.Network, Request: w.Request, Default: w.Default, Pod: pod, Netns: netns,
		}
		for at, s := range w.Steps {
			base := base
			if at == 0 { // the step that makes the interface
				base.Claims, base.Declared = w.Claims, w.Declared
			}
			if s.Kind() == core.KindDelegate {
				b.exec(base, s.Exec)
			} else if err := b.nic(base, i, s.NIC); err != nil {
				return nil, err
			}
		}
		if defaultroute.NeedsStep(wants, i) {
			base.CNIVersion = w.CNIVersion
			routes = append(routes, defaultroute.Step(base, w.Gateways))
		}
	}
	if len(b.leases) > 0 {
		return nil, core.Errorf(core.CodeConfig, "plan %s: %d leases belong to no interface", key, len(b.leases))
	}
	// Ports come last, so that a DEL closes them before it takes the NIC away.
	return slices.Concat(b.specs, routes, b.ports), nil
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
	s.Driver, s.Exec = core.DriverExec, &run
	b.specs = append(b.specs, s)
}

func (b *builder) nic(s core.Spec, want int, n *core.NIC) error {
	l, err := b.lease(s.Key, n)
	if err != nil {
		return err
	}
	w := &b.wants[want]
	s.Driver, s.CNIVersion = n.Driver, w.CNIVersion
	s.NIC = &core.NICSpec{
		Subnet: n.Subnet.Name, IfaceID: n.IfaceID,
		Settings:  n.Settings,
		Bandwidth: &n.Bandwidth, PlainVLAN: n.PlainVLAN, Quiet: l.Quiet, NoDefault: w.Default && !n.DefaultRoute && len(w.Gateways) == 0,
	}
	if err := address(s.Key, s.NIC, n, l); err != nil {
		return err
	}
	s.NIC.MAC, s.NIC.MTU = l.MAC, b.mtu(n)
	s.NIC.Routes = defaultroute.Routes(b.wants, want, n, s.NIC.Gateways)
	carrier, ok := b.node.Carriers[n.Driver]
	if !ok {
		return core.Errorf(core.CodeConfig, "network %s: this node has no driver %q of NICs", s.Network, n.Driver)
	}
	if err := carrier.Carry(&s, n); err != nil {
		return fmt.Errorf("network %s: %w", s.Network, err)
	}
	b.specs = append(b.specs, s)
	return b.hostports(s, n.Ports)
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
	network := 0
	if b.node.NetworkMTU != nil && !n.Subnet.OnRouter() { // what no tunnel carries
		network = b.node.NetworkMTU(n.Subnet.Underlay)
	}
	return cmp.Or(n.MTU, n.Subnet.MTU, network, b.node.MTU)
}
