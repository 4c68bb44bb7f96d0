package record

import (
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
)

// Adopt adds to a record a NIC that was read back from the switch and the
// kernel; the runtime's own, and the default network's, is eth0.
func Adopt(rec *core.Record, s core.Spec) {
	if s.Key.IfName == "eth0" {
		rec.Key, s.Default = s.Key, true
	}
	rec.Netns = s.Netns
	rec.Specs = append(rec.Specs, s)
	n := s.NIC
	l := core.Link{IfName: s.Key.IfName, Addrs: n.Addrs, Gateways: n.Gateways, PodSide: n.PodSide}
	if port := s.OVS(); port != nil {
		l.HostIf = port.HostIf
	}
	rec.Links = append(rec.Links, l)
	if n.Subnet == "" {
		return
	}
	var ips []netip.Addr
	for _, a := range n.Addrs {
		ips = append(ips, a.Addr())
	}
	rec.Leases = append(rec.Leases, core.Lease{
		Subnet: n.Subnet, Owner: core.Owner{Key: s.Key, Pod: s.Pod}, IPs: ips, MAC: n.MAC,
	})
}
