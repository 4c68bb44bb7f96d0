package netfilter_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

func chainOf(t *testing.T, inv netfilter.Inventory, table, name string) netfilter.ChainEntry {
	t.Helper()
	i := slices.IndexFunc(inv.Chains, func(c netfilter.ChainEntry) bool { return !c.V6 && c.Table == table && c.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return inv.Chains[i]
}

func setOf(t *testing.T, inv netfilter.Inventory, name string) netfilter.SetEntry {
	t.Helper()
	i := slices.IndexFunc(inv.Sets, func(s netfilter.SetEntry) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return inv.Sets[i]
}

// TestInventoryOfIPTables: rules and sets of ours with what they do, those that somebody
// changed, and those of others that decide before them; not what cannot concern pods.
func TestInventoryOfIPTables(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	f := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.IPTables, Table: table})
	node := sample()
	node.World = []string{"eth0"}
	require.NoError(t, f.Apply(t.Context(), sample()))
	inv, err := f.Inventory(t.Context(), node)
	require.NoError(t, err)
	require.Contains(t, inv.By, "iptables (")
	require.Empty(t, inv.Above)
	require.Empty(t, inv.Found)
	nat := chainOf(t, inv, rules.NAT, "OVN-POSTROUTING")
	require.Equal(t, netfilter.ByUs, nat.Writer)
	last := nat.Rules[len(nat.Rules)-1]
	require.Equal(t, "-m set --match-set ovn40subnets-nat src -m set ! --match-set ovn40subnets dst -j OVN-MASQUERADE", last.Text)
	require.Contains(t, last.Does, "natOutgoing")
	require.Equal(t, netfilter.SetEntry{Name: "ovn40subnets-nat", Does: "networks with natOutgoing", Writer: netfilter.ByUs, Members: prefixes("10.16.0.0/16")}, setOf(t, inv, "ovn40subnets-nat"))

	for _, r := range []string{ // which are no matter: other sources, other devices, what belongs to no connection, what comes back, kube-proxy's
		"-t nat -I POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE", "-I FORWARD -i docker0 -o eth0 -j DROP", "-I FORWARD -o docker0 -j DROP", "-t nat -I POSTROUTING -o lo -j ACCEPT", "-I FORWARD -m conntrack --ctstate INVALID -j DROP",
		"-t nat -N KUBE-POSTROUTING", "-t nat -A KUBE-POSTROUTING -j MASQUERADE", "-t nat -I POSTROUTING -j KUBE-POSTROUTING", "-N DOCKER-USER", "-A DOCKER-USER -j RETURN", "-I FORWARD -j DOCKER-USER",
		"-t nat -A POSTROUTING -j MASQUERADE", "-I FORWARD -j ACCEPT", "-I FORWARD -i eth0 -o docker0 -j DROP", "-I FORWARD -i eth1 -j DROP", "-I INPUT -i eth0 -j DROP",
		// and those that are one
		"-t nat -I POSTROUTING -o eth0 -j ACCEPT", "-t nat -I POSTROUTING -d 198.51.100.0/24 -j RETURN", "-t nat -N site", "-t nat -A site -s 10.16.0.0/12 -j SNAT --to-source 192.0.2.7", "-t nat -I POSTROUTING -j site", "-I FORWARD -d 203.0.113.0/24 -j DROP",
		"-I FORWARD -o eth0 -j DROP", "-I FORWARD -i ovn0 -o eth0 -p udp -j DROP", "-I FORWARD -i eth+ -o ovn0 -j REJECT", "-I FORWARD -i ovn+ -j DROP",
	} {
		sh(t, ns, "iptables-nft "+r)
	}
	sh(t, ns, "iptables-nft -t nat -A OVN-MASQUERADE -j ACCEPT; ipset destroy ovn60subnets-in || ipset flush ovn40subnets-nat")
	inv, err = f.Inventory(t.Context(), node)
	require.NoError(t, err)
	var above, remove []string
	for _, r := range inv.Above {
		above, remove = append(above, r.Table+" "+r.Chain+" "+r.Text+" > "+r.Hides), append(remove, r.Remove)
	}
	require.ElementsMatch(t, []string{
		"nat POSTROUTING -o eth0 -j ACCEPT > OVN-POSTROUTING", "nat POSTROUTING -j site > OVN-POSTROUTING", "nat POSTROUTING -d 198.51.100.0/24 -j RETURN > OVN-POSTROUTING", "filter FORWARD -d 203.0.113.0/24 -j DROP > OVN-FORWARD",
		"filter FORWARD -o eth0 -j DROP > OVN-FORWARD", "filter FORWARD -i ovn0 -o eth0 -p udp -j DROP > OVN-FORWARD",
		"filter FORWARD -i eth+ -o ovn0 -j REJECT --reject-with icmp-port-unreachable > OVN-FORWARD", "filter FORWARD -i ovn+ -j DROP > OVN-FORWARD",
	}, above)
	require.Equal(t, netfilter.ByOthers, chainOf(t, inv, rules.NAT, "OVN-MASQUERADE").Writer)
	require.Empty(t, setOf(t, inv, "ovn40subnets-nat").Members)
	require.Len(t, inv.Found, 2)
	for _, command := range remove { // they can be run
		sh(t, ns, command)
	}
	inv, err = f.Inventory(t.Context(), node)
	require.NoError(t, err)
	require.Empty(t, inv.Above)
}

// TestInventoryOfNFTables: ours are there with what they do, and beside them what a
// Kube-OVN left, which stays its own.
func TestInventoryOfNFTables(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	sh(t, ns, "ipset create ovn40subnets hash:net; ipset add ovn40subnets 10.50.0.0/16; iptables-nft -t nat -N OVN-POSTROUTING; iptables-nft -t nat -A OVN-POSTROUTING -m set --match-set ovn40subnets src -j MASQUERADE")
	f := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.NFTables, Table: table})
	in := sample()
	in.Join = ""
	require.NoError(t, f.Apply(t.Context(), in))
	inv, err := f.Inventory(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "nftables", inv.By)
	require.Empty(t, inv.Found)
	var writers []string
	for _, s := range inv.Sets {
		if s.Name == "ovn40subnets" {
			writers = append(writers, s.Writer)
		}
	}
	require.Equal(t, []string{netfilter.ByKubeOVN, netfilter.ByUs}, writers)
	writers = nil
	for _, c := range inv.Chains {
		if c.Name == "OVN-POSTROUTING" && c.Table == rules.NAT && !c.V6 {
			writers = append(writers, c.Writer)
		}
	}
	require.Equal(t, []string{netfilter.ByUs, netfilter.ByKubeOVN}, writers)
}

// TestInventoryOfNFTablesIsWhatIsThere: rules, sets and chains that somebody changed, added
// or removed are shown as they are.
func TestInventoryOfNFTablesIsWhatIsThere(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	f := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.NFTables, Table: table})
	show := func() netfilter.Inventory {
		t.Helper()
		inv, err := f.Inventory(t.Context(), sample())
		require.NoError(t, err)
		return inv
	}
	require.True(t, setOf(t, show(), "ovn40subnets").Missing)
	require.True(t, chainOf(t, show(), rules.NAT, "OVN-POSTROUTING").Missing)
	require.NoError(t, f.Apply(t.Context(), sample()))
	inv := show()
	require.Empty(t, inv.Found)
	for _, c := range inv.Chains {
		require.Equal(t, netfilter.ByUs, c.Writer, c.Name)
		require.False(t, c.Missing, c.Name)
	}
	nat := chainOf(t, inv, rules.NAT, "OVN-POSTROUTING")
	require.Contains(t, nat.Rules[len(nat.Rules)-1].Does, "natOutgoing")
	require.Equal(t, prefixes("10.16.0.0/16"), setOf(t, inv, "ovn40subnets-nat").Members)

	sh(t, ns, "nft add rule inet "+table+" OVN-MASQUERADE accept; nft delete element inet "+table+" ovn40subnets-nat '{ 10.16.0.0/16 }'; nft chain inet "+table+" filter-forward '{ policy drop; }'")
	inv = show()
	require.NotEmpty(t, inv.Found)
	require.Empty(t, setOf(t, inv, "ovn40subnets-nat").Members)
	require.Equal(t, netfilter.ByOthers, chainOf(t, inv, rules.Filter, "OVN-FORWARD").Writer)
	masq := chainOf(t, inv, rules.NAT, "OVN-MASQUERADE")
	require.Equal(t, netfilter.ByOthers, masq.Writer)
	require.Equal(t, `[{"accept": null}]`, masq.Rules[len(masq.Rules)-1].Text)
	require.NoError(t, f.Apply(t.Context(), sample()))
	require.Empty(t, show().Found)
}
