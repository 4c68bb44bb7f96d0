package ovs

import (
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Carry implements driver.Carrier: the name of the port and its type. Where Open
// vSwitch forwards in the kernel it knows its own devices by their names: one that
// was renamed for the pod is missed, and made again on the host, when the next port
// comes (OVS 3.1). There every NIC is a veth pair. DriverCannot (102): what only other
// carriers have was declared of it.
func (d *Driver) Carry(s *core.Spec, n *core.NIC) error {
	if err := n.Hardware.Cannot(s.Key.IfName, "a port of Open vSwitch"); err != nil {
		return err
	}
	port := core.OVSPort{HostIf: core.HostIf(s.Key), Type: n.Type}
	if port.Type == InternalPort && !d.cfg.UserspaceDatapath {
		port.Type = v1.NICVeth
	}
	port.Secure = d.cfg.Flows != nil && !n.Subnet.Open
	if n.Subnet.Underlay != "" && d.cfg.Flows == nil {
		port.Underlay = underlayOf(s.NIC, n.Subnet)
		port.Way = core.Way{Network: n.Subnet.Underlay, VLAN: n.Subnet.VLAN}
	}
	s.NIC.OVS = &port
	return nil
}

// Guess implements driver.Guesser: the name of the port follows from the key.
func (d *Driver) Guess(key core.Key, ns core.Netns) core.Spec {
	return core.Spec{Key: key, Driver: core.DriverOVS, Netns: ns, NIC: &core.NICSpec{OVS: &core.OVSPort{HostIf: core.HostIf(key)}}}
}
