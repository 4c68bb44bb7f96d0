package record

import (
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
)

// Adopt adds to a record an interface that was read back from the switch and the
// kernel; the runtime's own, and the default network's, is eth0.
func Adopt(rec *core.Record, s core.Spec) {
	if s.Key.IfName == "eth0" {
		rec.Key, s.Default = s.Key, true
	}
	rec.Netns = s.Netns
	rec.Specs = append(rec.Specs, s)
	rec.Links = append(rec.Links, core.Link{
		HostIf: s.HostIf, IfName: s.Key.IfName, MAC: s.MAC, MTU: s.MTU, Addrs: s.Addrs, Gateways: s.Gateways, Routes: s.Routes,
	})
	if s.Subnet == "" {
		return
	}
	var ips []netip.Addr
	for _, a := range s.Addrs {
		ips = append(ips, a.Addr())
	}
	rec.Leases = append(rec.Leases, core.Lease{
		Subnet: s.Subnet, Owner: core.Owner{Key: s.Key, Pod: s.Pod}, IPs: ips, MAC: s.MAC,
	})
}
