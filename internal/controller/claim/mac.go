package claim

import (
	"net/netip"
	"slices"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// A MAC that a pod asks for is claimed as well, by an object of the link-local address
// that IPv6 makes of it (RFC 4291, appendix A): interfaces of one network that share a
// MAC would share that address. MACs that plugins choose are theirs.

// linkLocal is the link-local address of a MAC of 6 bytes.
func linkLocal(m core.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// claimed are the addresses of which a lease has objects: its own, and its MAC's.
func claimed(l core.Lease) []netip.Addr {
	if len(l.MAC) != 6 {
		return l.IPs
	}
	return append(slices.Clone(l.IPs), linkLocal(l.MAC))
}

// OfMAC tells that an object claims a MAC, and no address for an interface.
func OfMAC(c *fairlead.AddressLease) bool {
	m := core.MAC{}
	return m.UnmarshalText([]byte(c.Spec.MAC)) == nil && len(m) == 6 && fairlead.LeaseName(c.Spec.Subnet, linkLocal(m)) == c.Name
}

// having are the leases of a Subnet that have an object of an address.
func (k *Keeper) having(subnet string, ip netip.Addr) []core.Lease {
	some := k.Book.Who(ip)
	if ip.IsLinkLocalUnicast() {
		some = k.Book.All()
	}
	return slices.DeleteFunc(some, func(l core.Lease) bool { return l.Subnet != subnet || !slices.Contains(claimed(l), ip) })
}
