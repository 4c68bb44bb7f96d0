package networks

import (
	"cmp"
	"fmt"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
)

// systemNamespace stays in the default Vpc whatever a Vpc says, as the reference has
// it: what all others need runs there.
const systemNamespace = "kube-system"

// onOVN tells a Subnet in which pods may have their first interface.
func onOVN(s *core.Subnet) bool { return s.Provider == "" || s.Provider == v1.DefaultProvider }

// defaultSubnet is the Subnet of a Vpc to which pods of its namespaces come: the one
// that it names, else the first by name that isDefault says, "" for none.
func defaultSubnet(vpc string, spec v1.VpcSpec, all map[string]*logical.Subnet, isDefault func(subnet string) bool) string {
	of := func(name string) bool { s, ok := all[name]; return ok && s.Vpc == vpc && onOVN(&s.Subnet) }
	if vpc != v1.DefaultVpc && of(spec.DefaultSubnet) {
		return spec.DefaultSubnet
	}
	first := ""
	for name := range all {
		if (first == "" || name < first) && of(name) && isDefault(name) {
			first = name
		}
	}
	return first
}

// subnetsOf are those of a Vpc, by name.
func subnetsOf(vpc string, all map[string]*logical.Subnet) (out []string) {
	for name, s := range all {
		if s.Vpc == vpc {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// house has the namespaces of Vpcs come to their default Subnets: of all, the first
// Vpc by name has a namespace. A Subnet that names the namespace itself comes before
// one that is only marked as default, and after one that the Vpc names, as in the
// reference. homeless are the namespaces without any Subnet, each with its Vpc.
func house(vpcs []*v1.Vpc, all map[string]*logical.Subnet, isDefault func(subnet string) bool) (homeless map[string]string) {
	homeless = map[string]string{}
	housed := map[string]bool{systemNamespace: true}
	for _, v := range slices.SortedFunc(slices.Values(vpcs), func(a, b *v1.Vpc) int { return cmp.Compare(a.Name, b.Name) }) {
		if v.Name == v1.DefaultVpc {
			continue // who chooses nothing is there
		}
		home := defaultSubnet(v.Name, v.Spec, all, isDefault)
		for _, ns := range v.Spec.Namespaces {
			if housed[ns] {
				continue
			}
			housed[ns] = true
			named := namedBy(all, ns)
			switch {
			case home == "" && len(named) == 0:
				homeless[ns] = v.Name
			case home != "" && (len(named) == 0 || home == v.Spec.DefaultSubnet):
				move(all, ns, named, home)
			}
		}
	}
	return homeless
}

// namedBy are the Subnets to which a namespace's pods come.
func namedBy(all map[string]*logical.Subnet, ns string) (out []string) {
	for name, s := range all {
		if onOVN(&s.Subnet) && slices.Contains(s.Namespaces, ns) {
			out = append(out, name)
		}
	}
	return out
}

// move has a namespace's pods come to one Subnet and to none of others.
func move(all map[string]*logical.Subnet, ns string, from []string, to string) {
	for _, name := range from {
		s := *all[name]
		s.Namespaces = slices.DeleteFunc(slices.Clone(s.Namespaces), func(n string) bool { return n == ns })
		all[name] = &s
	}
	s := *all[to]
	s.Namespaces = append(slices.Clone(s.Namespaces), ns)
	all[to] = &s
}

// unhoused is what is wrong with a Vpc's default Subnet and namespaces: nil for
// nothing.
func unhoused(vpc string, spec v1.VpcSpec, home string, homeless map[string]string) error {
	if vpc != v1.DefaultVpc && spec.DefaultSubnet != "" && spec.DefaultSubnet != home {
		return fmt.Errorf("spec.defaultSubnet: Subnet %s is not there, is of another Vpc or provider, or its condition says why it is not in force", spec.DefaultSubnet)
	}
	for _, ns := range spec.Namespaces {
		if homeless[ns] == vpc {
			return fmt.Errorf("spec.namespaces: pods of namespace %s have no Subnet: name one of this Vpc in spec.defaultSubnet, or the namespace in a Subnet's", ns)
		}
	}
	return nil
}

// Unheeded are the fields about pods' Subnets that are set of the default Vpc, where
// they say nothing: who chooses no Subnet is there, in the default one.
func Unheeded(vpc string, spec v1.VpcSpec, home string) (out []string) {
	if vpc != v1.DefaultVpc {
		return nil
	}
	if spec.DefaultSubnet != "" && spec.DefaultSubnet != home {
		out = append(out, "spec.defaultSubnet (of Vpc "+v1.DefaultVpc+" it is the Subnet with default: true)")
	}
	if len(spec.Namespaces) > 0 {
		out = append(out, "spec.namespaces (pods of all that no other Vpc and no Subnet names are in Vpc "+v1.DefaultVpc+")")
	}
	return out
}
