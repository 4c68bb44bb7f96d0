package resolve

import (
	"context"
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// subnet chooses where a NIC gets its address: the annotation, else the
// provider's Subnet, else (default network) the namespace's, else the default. Of several
// it is the one with the addresses that are asked for, else the first that has room
// (sdn.md, 12).
func (r *resolution) subnet(ctx context.Context, n *network, ann *annotation.Notes, a annotation.Requested) (core.Subnet, error) {
	if !r.loaded {
		all, err := r.src.Subnets(ctx)
		if err != nil {
			return core.Subnet{}, core.WithCode(core.CodeTryAgain, "subnets", err)
		}
		r.subnets, r.loaded = all, true
	}
	if n.subnet != "" {
		if err := r.declaredSubnet(n, ann, &a); err != nil {
			return core.Subnet{}, err
		}
	}
	s, err := r.chooseSubnet(n, ann, a)
	if err != nil {
		return s, err
	}
	return s, ann.CheckDeclared(a, s)
}

// declaredSubnet has the NIC be in the Subnet that is declared for it.
func (r *resolution) declaredSubnet(n *network, ann *annotation.Notes, a *annotation.Requested) error {
	if a.Subnet != "" && n.subnet != a.Subnet {
		return n.declared.Contradicts(declared.Network, n.subnet, ann.Key(v1.FieldSubnet), a.Subnet)
	}
	if !slices.ContainsFunc(r.subnets, func(s core.Subnet) bool { return s.Name == n.subnet }) {
		return core.Errorf(core.CodeConfig, "%s: network %s is no Subnet", n.declared.From[declared.Network], n.subnet)
	}
	a.Subnet = n.subnet
	return nil
}

func (r *resolution) chooseSubnet(n *network, ann *annotation.Notes, a annotation.Requested) (core.Subnet, error) {
	if a.Subnet != "" {
		if s, ok := r.findSubnet(a, func(s core.Subnet) bool { return s.Name == a.Subnet }); ok {
			return s, nil
		}
		return ann.Implied(n.provider, a)
	}
	mine := func(s core.Subnet) bool { return slices.Contains(s.Namespaces, r.pod.Namespace) }
	of := func(s core.Subnet) bool { return s.Provider == n.provider }
	if n.provider != v1.DefaultProvider {
		if s, ok := r.findSubnet(a,
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
	if s, ok := r.findSubnet(a,
		func(s core.Subnet) bool { return of(s) && mine(s) },
		func(s core.Subnet) bool { return s.Default },
		func(s core.Subnet) bool { return s.Name == v1.DefaultSubnet },
	); ok {
		return s, nil
	}
	return core.Subnet{}, core.Errorf(core.CodeConfig, "%s: no Subnet is the default (spec.default: true) and none is called %s",
		n.field(), v1.DefaultSubnet)
}

// findSubnet is the best of those that fit first, if none does of those that fit next, and
// so on.
func (r *resolution) findSubnet(a annotation.Requested, fits ...func(core.Subnet) bool) (core.Subnet, bool) {
	for _, f := range fits {
		all := slices.DeleteFunc(slices.Clone(r.subnets), func(s core.Subnet) bool { return !f(s) })
		if len(all) > 0 {
			return r.best(all, a), true
		}
	}
	return core.Subnet{}, false
}

// best is the Subnet that has the addresses that are asked for, else the first of the
// lowest rank.
func (r *resolution) best(all []core.Subnet, a annotation.Requested) core.Subnet {
	asked := a.IPs
	if len(asked) == 0 {
		asked = slices.Concat(a.Pool...)
	}
	if i := slices.IndexFunc(all, func(s core.Subnet) bool { return has(s, asked) }); i >= 0 {
		return all[i]
	}
	best := all[0]
	if len(all) == 1 || len(asked) > 0 || r.in.Rank == nil {
		return best
	}
	lowest := r.in.Rank(best, a.Family)
	for _, s := range all[1:] {
		if at := r.in.Rank(s, a.Family); at < lowest {
			best, lowest = s, at
		}
	}
	return best
}

// has tells that all of some addresses are a Subnet's.
func has(s core.Subnet, ips []netip.Addr) bool {
	return len(ips) > 0 && !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !annotation.Within(ip, s.CIDRs) })
}

// checkGateways holds requested default gateways to the NIC's own subnet:
// anything else could never be reached.
func checkGateways(n *network, nic *core.NIC) error {
	for _, gw := range n.elem.Gateways {
		if !annotation.Within(gw, nic.Subnet.CIDRs) {
			return annotation.Refused(core.CodeValue, n.elem.Field+".default-route", gw.String(), "lies outside of subnet %s %v", nic.Subnet.Name, nic.Subnet.CIDRs)
		}
		if !nic.Family.Has(gw) {
			return annotation.Refused(core.CodeValue, n.elem.Field+".default-route", gw.String(), "is asked for, and only an %s address", nic.Family)
		}
		if slices.Contains(nic.IPs, gw) {
			return annotation.Refused(core.CodeValue, n.elem.Field+".default-route", gw.String(), "is the pod's own address")
		}
	}
	return nil
}
