package plan

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// LentRequest is the request for the addresses of a foreign plugin's interface, whose
// MAC is that plugin's matter unless the pod asks for one.
func LentRequest(n *core.NIC, owner core.Owner) ipam.Request {
	return ipam.Request{Subnet: n.Subnet, IPs: n.IPs, Pool: n.Pool, Family: n.Family, Given: n.Given, MAC: n.MAC, NoMAC: n.MAC == nil, Owner: owner}
}

// Lent completes base, which names key, pod and namespace, with what LentRequest got.
func Lent(base core.Spec, n *core.NIC, l core.Lease) (core.Spec, error) {
	s := base
	to := &core.NICSpec{Subnet: n.Subnet.Name, Settings: core.Settings{PodSide: core.PodSide{MAC: l.MAC, DNS: n.DNS}}}
	s.Driver, s.Lent = core.DriverAddresses, to
	if err := address(s.Key, to, n, l); err != nil {
		return s, err
	}
	to.Routes = slices.Clone(n.Routes)
	if n.DefaultRoute {
		to.Routes = defaultroute.Complete(n.Routes, to.Gateways)
	}
	return s, nil
}

// address gives the NIC of key the addresses of a lease with their networks'
// lengths, and the gateways that go with them.
func address(key core.Key, to *core.NICSpec, n *core.NIC, l core.Lease) error {
	for _, ip := range l.IPs {
		i := slices.IndexFunc(n.Subnet.CIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
		if i < 0 || i >= len(n.Subnet.Gateways) {
			return core.Errorf(core.CodeAddress, "plan %s: address %s has no network in subnet %s", key, ip, n.Subnet.Name)
		}
		to.Addrs = append(to.Addrs, netip.PrefixFrom(ip, n.Subnet.CIDRs[i].Bits()))
		to.Gateways = append(to.Gateways, n.Subnet.Gateways[i])
	}
	return nil
}
