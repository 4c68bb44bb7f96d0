package resolve

import (
	"context"
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// subnet chooses where a NIC gets its address: the annotation, else the
// provider's Subnet, else (default network) the namespace's, else the default.
func (r *resolution) subnet(ctx context.Context, n *network, ann *annotation.Notes, a annotation.Requested) (core.Subnet, error) {
	if !r.loaded {
		all, err := r.src.Subnets(ctx)
		if err != nil {
			return core.Subnet{}, core.WithCode(core.CodeTryAgain, "subnets", err)
		}
		r.subnets, r.loaded = all, true
	}
	s, err := r.chooseSubnet(n, ann, a)
	if err != nil {
		return s, err
	}
	return s, checkDeclared(ann, a, s)
}

func (r *resolution) chooseSubnet(n *network, ann *annotation.Notes, a annotation.Requested) (core.Subnet, error) {
	if a.Subnet != "" {
		if s, ok := r.findSubnet(func(s core.Subnet) bool { return s.Name == a.Subnet }); ok {
			return s, nil
		}
		return implied(n, ann, a)
	}
	mine := func(s core.Subnet) bool { return slices.Contains(s.Namespaces, r.pod.Namespace) }
	of := func(s core.Subnet) bool { return s.Provider == n.provider }
	if n.provider != v1.DefaultProvider {
		if s, ok := r.findSubnet(
			// Kube-OVN's controller does not write its name.
			func(s core.Subnet) bool { return r.in.OVN && a.Allocated && of(s) && has(s, a.IPs) },
			func(s core.Subnet) bool { return of(s) && mine(s) }, of,
		); ok {
			return s, nil
		}
		return core.Subnet{}, core.Errorf(core.CodeConfig, "%s: no Subnet has provider %q; add one, or name a Subnet in %s",
			n.field(), n.provider, ann.Key(v1.FieldSubnet))
	}
	of = func(s core.Subnet) bool { return s.Provider == "" || s.Provider == v1.DefaultProvider }
	if s, ok := r.findSubnet(
		func(s core.Subnet) bool { return of(s) && mine(s) },
		func(s core.Subnet) bool { return s.Default },
		func(s core.Subnet) bool { return s.Name == v1.DefaultSubnet },
	); ok {
		return s, nil
	}
	return core.Subnet{}, core.Errorf(core.CodeConfig, "%s: no Subnet is the default (spec.default: true) and none is called %s",
		n.field(), v1.DefaultSubnet)
}

// findSubnet is one that fits first, if none does one that fits next, and so on.
func (r *resolution) findSubnet(fits ...func(core.Subnet) bool) (core.Subnet, bool) {
	for _, f := range fits {
		if i := slices.IndexFunc(r.subnets, f); i >= 0 {
			return r.subnets[i], true
		}
	}
	return core.Subnet{}, false
}

// has tells that all of some addresses are a Subnet's.
func has(s core.Subnet, ips []netip.Addr) bool {
	return len(ips) > 0 && !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !annotation.Within(ip, s.CIDRs) })
}

// implied is the subnet that follows from what a controller left on the pod:
// no object declares it here, so its CIDR must stand beside its name. Where
// the gateway does not, it is the first address, as for a Subnet.
func implied(n *network, ann *annotation.Notes, a annotation.Requested) (core.Subnet, error) {
	if len(a.CIDRs) == 0 {
		return core.Subnet{}, annotation.Refused(core.CodeValue, ann.Key(v1.FieldSubnet), a.Subnet,
			"is no known Subnet, and there is no %s to tell its addresses", ann.Key(v1.FieldCIDR))
	}
	s := core.Subnet{Name: a.Subnet, Provider: n.provider, CIDRs: a.CIDRs, Implied: true}
	for _, p := range a.CIDRs {
		gw := p.Addr().Next()
		if i := slices.IndexFunc(a.Gateways, p.Contains); i >= 0 {
			gw = a.Gateways[i]
		}
		s.Gateways = append(s.Gateways, gw)
	}
	return s, nil
}

// checkDeclared compares the annotations cidr and gateway with the Subnet that
// was chosen: what they say must not be ignored. A Subnet that has grown since
// still overlaps.
func checkDeclared(ann *annotation.Notes, a annotation.Requested, s core.Subnet) error {
	if s.Implied {
		return nil
	}
	for _, p := range a.CIDRs {
		if !slices.ContainsFunc(s.CIDRs, p.Overlaps) {
			return annotation.Refused(core.CodeConflict, ann.Key(v1.FieldCIDR), p.String(), "is not part of subnet %s %v", s.Name, s.CIDRs)
		}
	}
	for _, gw := range a.Gateways {
		if !slices.Contains(s.Gateways, gw) {
			return annotation.Refused(core.CodeConflict, ann.Key(v1.FieldGateway), gw.String(), "is not a gateway of subnet %s %v", s.Name, s.Gateways)
		}
	}
	return nil
}

// checkGateways holds requested default gateways to the NIC's own subnet:
// anything else could never be reached.
func checkGateways(n *network, nic *core.NIC) error {
	for _, gw := range n.elem.gateways {
		if !annotation.Within(gw, nic.Subnet.CIDRs) {
			return annotation.Refused(core.CodeValue, n.elem.field+".default-route", gw.String(), "lies outside of subnet %s %v", nic.Subnet.Name, nic.Subnet.CIDRs)
		}
		if !nic.Family.Has(gw) {
			return annotation.Refused(core.CodeValue, n.elem.field+".default-route", gw.String(), "is asked for, and only an %s address", nic.Family)
		}
		if slices.Contains(nic.IPs, gw) {
			return annotation.Refused(core.CodeValue, n.elem.field+".default-route", gw.String(), "is the pod's own address")
		}
	}
	return nil
}
