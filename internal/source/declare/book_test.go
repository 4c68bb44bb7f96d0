package declare_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

func subnet(t *testing.T, name, cidr string, change func(*v1.SubnetSpec)) declare.Subnet {
	t.Helper()
	spec := v1.SubnetSpec{CIDRBlock: cidr}
	if change != nil {
		change(&spec)
	}
	s, faults := declare.ReadSubnet(name, spec)
	require.Empty(t, faults)
	return s
}

func names(all []core.Subnet) (out []string) {
	for _, s := range all {
		if s.Default {
			s.Name += "+"
		}
		out = append(out, s.Name)
	}
	return out
}

// A changed Subnet that contradicts another keeps its last good version, and is
// then as much in force as those that did not change.
func TestTheLastGoodVersionStays(t *testing.T) {
	a, b := subnet(t, "a", "10.1.0.0/16", nil), subnet(t, "b", "10.2.0.0/16", nil)
	first, refused := declare.Book{}.Next([]declare.Subnet{a, b}, nil)
	require.Empty(t, refused)

	moved := subnet(t, "a", "10.2.0.0/24", nil)
	intruder := subnet(t, "c", "10.1.1.0/24", nil)
	next, refused := first.Next([]declare.Subnet{moved, b, intruder}, nil)
	require.Equal(t, "spec.cidrBlock: 10.2.0.0/24 overlaps 10.2.0.0/16 of Subnet b", refused["a"].String())
	require.Contains(t, refused["c"].Reason, "overlaps 10.1.0.0/16 of Subnet a", "what a falls back to counts")
	require.True(t, next.Has("a") && next.Has("b") && !next.Has("c"))
}

// A Subnet in force may change although another, older one waits for its addresses.
func TestWhatIsInForceMayChange(t *testing.T) {
	b := subnet(t, "b", "10.2.0.0/16", nil)
	first, refused := declare.Book{}.Next([]declare.Subnet{b}, nil)
	require.Empty(t, refused)
	waiting := subnet(t, "a", "10.2.1.0/24", nil)
	changed := subnet(t, "b", "10.2.0.0/16", func(s *v1.SubnetSpec) { s.ExcludeIps = []string{"10.2.0.9"} })
	next, refused := first.Next([]declare.Subnet{waiting, changed}, nil)
	require.Equal(t, changed, next.Declared("b"))
	require.Equal(t, "spec.cidrBlock: 10.2.1.0/24 overlaps 10.2.0.0/16 of Subnet b", refused["a"].String())
	require.Len(t, refused, 1)
}

// A Subnet keeps its VLAN when the Vlan object goes, and takes another id.
func TestVlans(t *testing.T) {
	s := subnet(t, "s", "10.1.0.0/16", func(spec *v1.SubnetSpec) { spec.Vlan = "v" })
	_, refused := declare.Book{}.Next([]declare.Subnet{s}, nil)
	require.Equal(t, `spec.vlan: there is no Vlan "v"`, refused["s"].String())
	book, _ := declare.Book{}.Next([]declare.Subnet{s}, map[string]int{"v": 7})
	kept, refused := book.Next([]declare.Subnet{s}, nil)
	require.Contains(t, refused, "s")
	all, _ := kept.Serving(true)
	require.Equal(t, 7, all[0].VLAN)
	changed, refused := kept.Next([]declare.Subnet{s}, map[string]int{"v": 8})
	require.Empty(t, refused)
	all, _ = changed.Serving(true)
	require.Equal(t, 8, all[0].VLAN)
}

func TestOneDefault(t *testing.T) {
	serving := func(withheld bool, list ...declare.Subnet) ([]string, string) {
		book, _ := declare.Book{}.Next(list, nil)
		all, blamed := book.Serving(withheld)
		return names(all), blamed
	}
	got, blamed := serving(false)
	require.Equal(t, []string{"ovn-default+"}, got)
	require.Empty(t, blamed)
	got, _ = serving(true)
	require.Empty(t, got, "a Subnet that is wrong is meant to be the default")
	got, blamed = serving(false, subnet(t, "a", "10.16.1.0/24", nil))
	require.Equal(t, []string{"a"}, got)
	require.Equal(t, "a", blamed)
	first := func(spec *v1.SubnetSpec) { spec.Default = true }
	got, _ = serving(false, subnet(t, "a", "10.1.0.0/16", first), subnet(t, "b", "10.2.0.0/16", first))
	require.Equal(t, []string{"a+"}, got, "the second default is refused")
	got, _ = serving(false, subnet(t, "ovn-default", "10.1.0.0/16", nil))
	require.Equal(t, []string{"ovn-default+"}, got)
}

// TestVpcs: addresses and defaults are each Vpc's own, and only the default Vpc's
// Subnet serves pods that choose none.
func TestVpcs(t *testing.T) {
	in := func(vpc string, isDefault bool) func(*v1.SubnetSpec) {
		return func(s *v1.SubnetSpec) { s.Vpc, s.Default = vpc, isDefault }
	}
	book, refused := declare.Book{}.Next([]declare.Subnet{
		subnet(t, "red", "10.1.0.0/16", in("red", true)), subnet(t, "blue", "10.1.0.0/16", in("blue", true)),
		subnet(t, "all", "10.1.0.0/16", in("", true)), subnet(t, "again", "10.1.0.0/24", in("blue", false)),
		subnet(t, "builtin", "10.16.0.0/16", in("red", false)),
	}, nil)
	require.Len(t, refused, 1)
	require.Equal(t, "spec.cidrBlock: 10.1.0.0/24 overlaps 10.1.0.0/16 of Subnet blue", refused["again"].String())
	all, blamed := book.Serving(false)
	require.Empty(t, blamed)
	require.Equal(t, []string{"all+", "blue", "builtin", "red"}, names(all))
	require.Equal(t, "red", book.Declared("builtin").Vpc)
	require.Equal(t, v1.DefaultVpc, book.Declared("all").Vpc)

	alone, _ := declare.Book{}.Next([]declare.Subnet{subnet(t, "red", "10.16.0.0/16", in("red", true))}, nil)
	all, blamed = alone.Serving(false)
	require.Empty(t, blamed, "the built-in Subnet is of another Vpc")
	require.Equal(t, []string{"ovn-default+", "red"}, names(all))
}

// TestNeedsOVN: what only OVN carries out is refused where there is none, and each
// rule is looked at where there is.
func TestNeedsOVN(t *testing.T) {
	spec := v1.SubnetSpec{
		CIDRBlock: "10.1.0.0/16", Private: true, Vpc: "red", AllowSubnets: []string{" 10.2.0.7/16 "}, AllowEWTraffic: true,
		Acls: []v1.ACL{{Direction: v1.ToPort, Priority: 7, Match: " ip4 ", Action: "drop"}},
	}
	s, faults := declare.ReadSubnet("s", spec)
	require.Empty(t, faults)
	require.Equal(t, declare.Access{
		Private: true, Allow: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, EastWest: true,
		Rules: []declare.Rule{{Direction: v1.ToPort, Priority: 7, Match: "ip4", Action: "drop"}},
	}, s.Access)
	var paths []string
	for _, f := range declare.NeedsOVN(spec) {
		paths = append(paths, f.Path)
	}
	require.Equal(t, []string{"spec.private", "spec.acls", "spec.vpc"}, paths)
	require.Empty(t, declare.NeedsOVN(v1.SubnetSpec{Vpc: v1.DefaultVpc, AllowSubnets: []string{"10.2.0.0/16"}}))

	good := spec.Acls[0]
	for path, change := range map[string]func(*v1.ACL){
		"spec.acls[0].direction": func(a *v1.ACL) { a.Direction = "" },
		"spec.acls[0].priority":  func(a *v1.ACL) { a.Priority = 40000 },
		"spec.acls[0].match":     func(a *v1.ACL) { a.Match = " " },
		"spec.acls[0].action":    func(a *v1.ACL) { a.Action = "" },
	} {
		bad := good
		change(&bad)
		spec.Acls = []v1.ACL{bad}
		_, faults := declare.ReadSubnet("s", spec)
		require.Len(t, faults, 1)
		require.Equal(t, path, faults[0].Path)
	}
}
