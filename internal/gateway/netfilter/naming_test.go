package netfilter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// TestNames: rules of both packet filters that name a link are found, however they name it;
// those that name the other link too, or have a fellow that does, see its packets.
func TestNames(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	sh(t, ns, `set -e; ip link add eth1 type veth peer name far
		for p in iptables-nft ip6tables-nft iptables-legacy; do $p -N lan; $p -A lan -j ACCEPT; done
		iptables-nft -A INPUT -i eth1 -p tcp -j DROP
		ip6tables-nft -t mangle -A POSTROUTING ! -o eth+ -j ACCEPT
		iptables-legacy -A FORWARD -i eth1 -o lo -j lan
		iptables-nft -A FORWARD -i eth1 -j lan; iptables-nft -A FORWARD -i br-net1 -j lan
		iptables-nft -A FORWARD -i eth10 -j lan; iptables-nft -A FORWARD -m comment --comment eth1 -i + -j lan
		nft add table inet fw; nft add chain inet fw input '{ type filter hook input priority 0; }'
		nft add set inet fw zone '{ type ifname; elements = { eth1, eth7 }; }'
		nft add set inet fw both '{ type ifname; elements = { eth1, br-net1 }; }'
		nft add rule inet fw input iifname eth1 icmp type echo-request counter drop
		nft add rule inet fw input iif eth1 tcp dport 22 accept
		nft add rule inet fw input iifname @zone tcp dport 23 accept
		nft add rule inet fw input iifname vmap '{ eth1 : drop }'
		nft add rule inet fw input 'iifname "eth*"' tcp dport 24 accept
		nft add rule inet fw input iifname @both tcp dport 25 accept
		nft add rule inet fw input iifname '{ eth1, br-net1 }' tcp dport 26 accept
		nft add rule inet fw input iifname eth1 tcp dport 27 counter accept; nft add rule inet fw input iifname br-net1 tcp dport 27 counter accept
		nft add rule inet fw input iifname eth10 log prefix eth1 accept`)
	found, err := netfilter.Names(t.Context(), ns, "eth1", "br-net1")
	require.NoError(t, err)
	inet := "nft table inet fw, chain input"
	require.ElementsMatch(t, []netfilter.Naming{
		{Where: "iptables-nft -t filter, chain INPUT", Text: "-i eth1 -p tcp -j DROP"},
		{Where: "ip6tables-nft -t mangle, chain POSTROUTING", Text: "! -o eth+ -j ACCEPT"},
		{Where: "iptables-legacy -t filter, chain FORWARD", Text: "-i eth1 -o lo -j lan"},
		{Where: inet, Text: `iifname "eth1" icmp type echo-request counter packets 0 bytes 0 drop`},
		{Where: inet, Text: `iif "eth1" tcp dport 22 accept`},
		{Where: inet, Text: `iifname @zone tcp dport 23 accept`},
		{Where: inet, Text: `iifname vmap { "eth1" : drop }`},
		{Where: inet, Text: `iifname "eth*" tcp dport 24 accept`},
	}, found)
}
