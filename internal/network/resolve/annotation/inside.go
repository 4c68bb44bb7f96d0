package annotation

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// CheckAddresses refuses addresses that the subnet cannot give to anybody.
// excludeIps are not among them: they are kept for those who ask for them by
// name (spec/sdn.md, section 12). Who else holds an address is ipam's matter.
func CheckAddresses(from string, ips []netip.Addr, s core.Subnet) error {
	for _, ip := range ips {
		i := slices.IndexFunc(s.CIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
		switch {
		case i < 0:
			return Refused(core.CodeAddress, from, ip.String(), "lies outside of subnet %s %v", s.Name, s.CIDRs)
		case slices.Contains(s.Gateways, ip):
			return Refused(core.CodeAddress, from, ip.String(), "is the gateway of subnet %s", s.Name)
		case ip == s.CIDRs[i].Masked().Addr():
			return Refused(core.CodeAddress, from, ip.String(), "is the network address of subnet %s", s.Name)
		case ip.Is4() && ip == lastAddr(s.CIDRs[i]):
			return Refused(core.CodeAddress, from, ip.String(), "is the broadcast address of subnet %s", s.Name)
		}
	}
	return nil
}

// lastAddr is the highest address of p.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
