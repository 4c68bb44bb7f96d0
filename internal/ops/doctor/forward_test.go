package doctor

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForwardRulesThatAccept(t *testing.T) {
	nets := []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16"), netip.MustParsePrefix("fd00::/112")}
	nft := gate{family: "inet", insert: "nft insert rule inet fw gate"}
	require.Equal(t, []string{
		"nft insert rule inet fw gate ip saddr 10.16.0.0/16 accept", "nft insert rule inet fw gate ip daddr 10.16.0.0/16 accept",
		"nft insert rule inet fw gate ip6 saddr fd00::/112 accept", "nft insert rule inet fw gate ip6 daddr fd00::/112 accept",
	}, nft.missing(nets))
	nft.rules = "\t\tip saddr 10.16.0.0/16 accept\n\t\tip daddr 10.16.0.0/16 counter packets 3 bytes 7 accept\n" +
		"\t\tip6 saddr fd00::/112 tcp dport 80 accept\n\t\tip6 daddr fd00::/112 drop\n"
	require.Len(t, nft.missing(nets), 2, "a rule with another condition, or another verdict, is none")

	legacy := gate{family: "ip", insert: "iptables -I FORWARD", legacy: true, iptables: true, rules: "-P FORWARD DROP\n-A FORWARD -s 10.16.0.0/16 -j ACCEPT\n"}
	require.Equal(t, []string{"iptables -I FORWARD -d 10.16.0.0/16 -j ACCEPT"}, legacy.missing(nets))
	require.Contains(t, legacy.examples()[0], "CIDR")
}
