package rules_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/rules"
)

var update = flag.Bool("update", false, "write testdata")

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// text is a Ruleset as people read it.
func text(r rules.Ruleset) string {
	var b strings.Builder
	for _, f := range r.Families {
		for _, s := range f.Sets {
			fmt.Fprintln(&b, "set", s.Name, map[bool]string{true: "counters"}[s.Counters], s.Members)
		}
		for _, c := range f.Chains {
			fmt.Fprintf(&b, "%s %s %s\n", c.Table, c.Name, c.Parent)
			for _, r := range c.Rules {
				fmt.Fprintln(&b, "  ", r.IPTables())
			}
		}
		b.WriteString("\n")
	}
	for _, c := range r.NFT().Chains {
		fmt.Fprintln(&b, "nft", c.Name)
		for _, r := range c.Rules {
			fmt.Fprintln(&b, "  ", r.Text)
		}
	}
	return b.String()
}

// cluster is a node of a cluster with OVN.
func cluster() rules.Input {
	return rules.Input{
		Subnets: []rules.Subnet{
			{Name: "web", UID: "5f0c61b6-7c0d-4b0e-9a53-0123456789ab", CIDRs: prefixes("10.16.0.0/16", "fd00:10:16::/112"), NAT: true},
			{Name: "data", CIDRs: prefixes("10.17.0.0/16")},
		},
		Nodes: prefixes("100.64.0.0/16", "fd00:100:64::/112"), Pods: addrs("10.16.0.7", "10.16.0.5", "fd00:10:16::5"),
		Own: addrs("192.0.2.1", "2001:db8::1"), Others: addrs("192.0.2.9", "2001:db8::9"), Join: "ovn0",
	}
}

// TestGolden: the Ruleset of each kind of node, as iptables and nft read it.
func TestGolden(t *testing.T) {
	t.Parallel()
	services := cluster()
	services.Services = prefixes("10.96.0.0/12", "fd00:10:96::/112")
	ipvs := services
	ipvs.Proxy = []string{"KUBE-CLUSTER-IP", "KUBE-NODE-PORT-LOCAL-TCP", "KUBE-NODE-PORT-LOCAL-UDP"}
	policy := cluster()
	policy.Subnets[0].Rules = []core.NATRule{
		{Src: prefixes("10.16.0.0/24"), Dst: prefixes("0.0.0.0/0"), Keep: true}, {Dst: prefixes("198.51.100.0/24", "198.51.100.7/32", "203.0.113.0/24")},
		{Dst: prefixes("2001:db8:1::/48"), Keep: true}, {Keep: true},
	}
	policy.Subnets[1].Rules = []core.NATRule{{Keep: true}}
	mss := rules.Input{Subnets: []rules.Subnet{{Name: "a", CIDRs: prefixes("10.0.0.0/24")}}, Clamp: &rules.Clamp{Device: "eth0", Size: 1300}}
	path := mss
	path.Clamp = &rules.Clamp{Device: "eth0"}
	central := services
	central.Subnets = slices.Clone(services.Subnets)
	central.Subnets[0].Centralized = true
	central.Proxy = []string{"KUBE-6-CLUSTER-IP", "KUBE-6-NODE-PORT-LOCAL-TCP"}
	gateway := policy // of a centralized Subnet, with an address of its own in one family
	gateway.Subnets = slices.Clone(policy.Subnets)
	gateway.Subnets[0].As, gateway.Subnets[0].Centralized = addrs("192.0.2.10"), true
	probes := cluster()
	probes.Probes = []rules.Probe{
		{To: netip.MustParseAddrPort("10.0.0.5:8080"), Open: true}, {To: netip.MustParseAddrPort("10.0.0.5:9090")}, {To: netip.MustParseAddrPort("[fd00:1::5]:8080"), Open: true},
	}
	none := cluster()
	none.Subnets[0].NAT = false
	for name, in := range map[string]rules.Input{
		"nothing": {}, "nat": cluster(), "no-nat": none, "services": services, "ipvs": ipvs, "policy": policy, "gateway": gateway, "centralized": central, "alone-mss": mss, "probes": probes, "alone-mss-path": path,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", name+".txt")
			got := text(rules.Compute(in))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// TestMany: as many rules as a Subnet may have are as many lines, in order, with names
// that iptables and ipset take.
func TestMany(t *testing.T) {
	t.Parallel()
	in := cluster()
	for i := range 1000 {
		in.Subnets[0].Rules = append(in.Subnets[0].Rules, core.NATRule{
			Src: prefixes("10.16.0.0/24"), Dst: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32)}, Keep: i%2 == 0,
		})
	}
	r := rules.Compute(in)
	seen := map[string]bool{}
	for _, s := range r.Families[0].Sets {
		require.LessOrEqual(t, len(s.Name), 31, s.Name)
		require.True(t, rules.OwnSet(s.Name), s.Name)
		require.False(t, seen[s.Name], s.Name)
		seen[s.Name] = true
	}
	n := 0
	for _, c := range r.Families[0].Chains {
		require.LessOrEqual(t, len(c.Name), 28, c.Name)
		if !strings.HasPrefix(c.Name, "OVN-NAT-PSUBNET-") {
			continue
		}
		n += len(c.Rules)
		for i, rule := range c.Rules {
			require.Equal(t, map[bool]uint32{true: 0x90002, false: 0x90001}[i%2 == 0], rule.Do.Mark.Value)
		}
	}
	require.Equal(t, 1000, n)
	require.Len(t, r.Families[1].Chains, 7, "no rule is about IPv6")
}

// TestOrderIsNoMatter: the same Subnets make the same sets.
func TestOrderIsNoMatter(t *testing.T) {
	t.Parallel()
	a, b := cluster(), cluster()
	b.Subnets[0], b.Subnets[1] = b.Subnets[1], b.Subnets[0]
	require.Equal(t, rules.Compute(a), rules.Compute(b))
}
