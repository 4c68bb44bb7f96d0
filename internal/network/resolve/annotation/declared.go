package annotation

import (
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Implied is the subnet that follows from what a controller left on the pod:
// no object declares it here, so its CIDR must stand beside its name. Where
// the gateway does not, it is the first address, as for a Subnet.
func (n *Notes) Implied(provider string, a Requested) (core.Subnet, error) {
	if len(a.CIDRs) == 0 {
		return core.Subnet{}, Refused(core.CodeValue, n.Key(v1.FieldSubnet), a.Subnet,
			"is no known Subnet, and there is no %s to tell its addresses", n.Key(v1.FieldCIDR))
	}
	s := core.Subnet{Name: a.Subnet, Provider: provider, CIDRs: a.CIDRs, Implied: true}
	for _, p := range a.CIDRs {
		gw := p.Addr().Next()
		if i := slices.IndexFunc(a.Gateways, p.Contains); i >= 0 {
			gw = a.Gateways[i]
		}
		s.Gateways = append(s.Gateways, gw)
	}
	return s, nil
}

// Routed is a Subnet with the gateways that a controller has told, where that is OVN's
// router beside a physical gateway.
func (n *Notes) Routed(s core.Subnet, a Requested) core.Subnet {
	if !s.Interconnected || !n.Controlled {
		return s
	}
	s.Gateways = slices.Clone(s.Gateways)
	for i, c := range s.CIDRs {
		if at := slices.IndexFunc(a.Gateways, c.Contains); at >= 0 && i < len(s.Gateways) {
			s.Gateways[i] = a.Gateways[at]
		}
	}
	return s
}

// CheckDeclared compares the annotations cidr and gateway with the Subnet that
// was chosen: what they say must not be ignored. A Subnet that has grown since
// still overlaps.
func (n *Notes) CheckDeclared(a Requested, s core.Subnet) error {
	if s.Implied {
		return nil
	}
	for _, p := range a.CIDRs {
		if !slices.ContainsFunc(s.CIDRs, p.Overlaps) {
			return Refused(core.CodeConflict, n.Key(v1.FieldCIDR), p.String(), "is not part of subnet %s %v", s.Name, s.CIDRs)
		}
	}
	for _, gw := range a.Gateways {
		if !slices.Contains(s.Gateways, gw) && !s.Interconnected { // where a controller tells OVN's router
			return Refused(core.CodeConflict, n.Key(v1.FieldGateway), gw.String(), "is not a gateway of subnet %s %v", s.Name, s.Gateways)
		}
	}
	return nil
}
