package networks

import (
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/ippool"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
)

// Keys of the annotations in which a namespace is told to which Subnets its pods come
// (sdn.md, 3).
const (
	spaceSubnets = v1.DefaultProvider + v1.ProviderSuffix + v1.FieldSubnet
	spaceCIDRs   = v1.DefaultProvider + v1.ProviderSuffix + v1.FieldCIDR
	spaceExclude = v1.DefaultProvider + v1.ProviderSuffix + "exclude_ips"
	spacePool    = v1.DefaultProvider + v1.ProviderSuffix + v1.FieldIPPool
)

// SpaceFields are these keys.
func SpaceFields() []string { return []string{spaceSubnets, spaceCIDRs, spaceExclude, spacePool} }

// come are the Subnets to which a namespace's pods come that choose none: that of its
// IPPool, "" for none, else those that name it, of which the first counts, else the
// default one, unless its Vpc has none for it. all are those for pods, by name.
func come(namespace string, all []core.Subnet, pool string, homeless bool) (out []core.Subnet) {
	for n, fits := range []func(core.Subnet) bool{
		func(s core.Subnet) bool { return s.Name == pool },
		func(s core.Subnet) bool {
			return (s.Provider == "" || s.Provider == v1.DefaultProvider) && slices.Contains(s.Namespaces, namespace)
		},
		func(s core.Subnet) bool { return s.Default && !homeless },
		func(s core.Subnet) bool { return s.Name == v1.DefaultSubnet && !homeless },
	} {
		for _, s := range all {
			if fits(s) && (n == 1 || len(out) == 0) {
				out = append(out, s)
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// spaceNotes are the annotations of a namespace whose pods come to some Subnets, and
// to an IPPool, "" for none; excluded is what a Subnet does not give beside its
// gateways.
func spaceNotes(subnets []core.Subnet, pool string, excluded func(subnet string) []core.AddrRange) map[string]string {
	var names, cidrs, excludes []string
	for _, s := range subnets {
		not := []string{logical.Join(s.Gateways)}
		for _, r := range excluded(s.Name) {
			not = append(not, ippool.Range(r))
		}
		names, cidrs, excludes = append(names, s.Name), append(cidrs, logical.Join(s.CIDRs)), append(excludes, strings.Join(not, ","))
	}
	return map[string]string{
		spaceSubnets: strings.Join(names, ","), spaceCIDRs: strings.Join(cidrs, ";"), spaceExclude: strings.Join(excludes, ";"), spacePool: pool,
	}
}
