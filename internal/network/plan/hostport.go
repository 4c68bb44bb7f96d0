package plan

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// hostports adds the spec that opens ports of the node for the NIC of s.
func (b *builder) hostports(s core.Spec, ports []core.PortMapping) error {
	if len(ports) == 0 {
		return nil
	}
	for _, p := range ports {
		if p.HostIP.Is6() && p.HostIP.IsLoopback() {
			return core.Errorf(core.CodeValue, "portMappings: hostIP %s: Linux leads nothing from there to a pod", p.HostIP)
		}
		if p.HostIP.IsValid() && !p.HostIP.IsUnspecified() && !hasFamily(s.NIC.Addrs, p.HostIP.Is4()) {
			return core.Errorf(core.CodeValue, "portMappings: hostIP %s: %s has no address of this family", p.HostIP, s.Key.IfName)
		}
	}
	b.ports = append(b.ports, core.Spec{
		Driver: core.DriverHostport, Key: s.Key, Network: s.Network, Request: s.Request, Default: s.Default,
		Pod: s.Pod, Netns: s.Netns, CNIVersion: s.CNIVersion,
		HostPorts: &core.HostPorts{Addrs: slices.Clone(s.NIC.Addrs), Ports: slices.Clone(ports)},
	})
	return nil
}

func hasFamily(addrs []netip.Prefix, v4 bool) bool {
	for _, a := range addrs {
		if a.Addr().Is4() == v4 {
			return true
		}
	}
	return false
}
