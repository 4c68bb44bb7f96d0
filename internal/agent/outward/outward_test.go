package outward_test

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/outward"
	"github.com/fairlead/fairlead/internal/agent/uplink"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	gateway "github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/ovs"
)

// noPorts is a switch without ports: the Subnets here are behind OVN's join port.
type noPorts struct{ standalone.PortMaker }

func (noPorts) PortsWith(string, string) []ovs.PortState      { return nil }
func (noPorts) PortByName(string) (ovs.PortState, bool)       { return ovs.PortState{}, false }
func (noPorts) AddPort(context.Context, ovs.Port) error       { return core.ErrUnavailable }
func (noPorts) WaitPort(context.Context, string) (int, error) { return 0, core.ErrUnavailable }

// shown are transfers as they stand.
type shown []uplink.Shown

func (s shown) Show() ([]uplink.Shown, error) { return s, errors.New("one is not known") }

// TestFaults: what is in the way on a node whose rules are real, each by what was done to
// it, with the command that helps; and nothing where nothing is.
func TestFaults(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	sh := func(script string) {
		t.Helper()
		require.NoError(t, ns.Do(func() error { return exec.CommandContext(t.Context(), "sh", "-ec", script).Run() }), script)
	}
	sh(`ip link set lo up
		ip link add eth0 type veth peer name far0; ip link add eth1.7 type veth peer name far1
		for l in eth0 far0 eth1.7 far1; do ip link set $l up; done
		ip addr add 192.0.2.1/24 dev eth0; ip addr add 2001:db8::1/64 dev eth0 nodad; ip addr add 198.51.100.1/24 dev eth1.7
		ip route add default via 192.0.2.254; ip -6 route add default via 2001:db8::fe
		sysctl -qw net.ipv4.ip_forward=1 net/ipv6/conf/all/forwarding=1 net/ipv4/conf/all/rp_filter=0 net/ipv4/conf/eth1.7/rp_filter=0`)
	gw := standalone.New(standalone.Config{Ports: noPorts{}, Host: ns, Filter: netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.IPTables, Table: "t"})})
	web := core.Subnet{Name: "web", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16"), netip.MustParsePrefix("fd00:10:16::/112")}, NATOutgoing: true, Centralized: true}
	out := core.Subnet{Name: "out", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.17.0.0/16")}, Egress: &core.Egress{Gateways: []netip.Addr{netip.MustParseAddr("198.51.100.9")}, Table: 1000, Priority: 900}}
	_ = gw.Set(t.Context(), standalone.Wanted{Join: &standalone.Join{Subnets: []core.Subnet{web, out}}}) // of the join port there is none
	repairs := []agent.Repair{}
	networks := shown{}
	var probed []agent.OutwardProbe
	look := func() agent.Outward {
		return outward.Node{Name: "n1", Host: ns, Gateway: gw, Uplinks: networks, Repairs: func() []agent.Repair { return repairs }, Probes: func() ([]agent.OutwardProbe, string) { return probed, "" }}.Look(t.Context())
	}
	o := look()
	require.Empty(t, o.Faults)
	require.Equal(t, []string{"provider networks: one is not known"}, o.Unread)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, o.As)
	require.Equal(t, []string{"centralized", "distributed"}, []string{o.Subnets[0].GatewayType, o.Subnets[1].GatewayType})
	require.Equal(t, []agent.OutwardWay{{
		Subnet: "out", From: out.CIDRs[0], Priority: 900, Table: 1000, Via: out.Egress.Gateways[0], Device: "eth1.7", Writer: agent.WriterOurs,
	}}, o.Ways)
	for _, s := range o.Sets {
		if s.Name == "ovn40subnets-nat" {
			require.Equal(t, []string{"web"}, s.Subnets)
		}
	}

	for _, c := range []struct {
		harm, mend string
		part, what string
		next       string
		fatal      bool
	}{
		{"sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1", agent.PartSysctls, "net.ipv4.ip_forward is off: the node forwards no IPv4 of pods", "sysctl -w net.ipv4.ip_forward=1", true},
		{"sysctl -qw net/ipv6/conf/all/forwarding=0", "sysctl -qw net/ipv6/conf/all/forwarding=1", agent.PartSysctls, "net.ipv6.conf.all.forwarding is off", "sysctl -w net.ipv6.conf.all.forwarding=1", true},
		{"sysctl -qw net/ipv4/conf/all/rp_filter=1", "sysctl -qw net/ipv4/conf/eth1.7/rp_filter=2", agent.PartSysctls, "rp_filter of eth1.7 is strict", "sysctl -w net/ipv4/conf/eth1.7/rp_filter=2", true},
		{"iptables-nft -t nat -I POSTROUTING -j ACCEPT", "iptables-nft -t nat -D POSTROUTING -j ACCEPT", agent.PartRules, `"-j ACCEPT" of another program decides before OVN-POSTROUTING does`, "`iptables-nft -t nat -D POSTROUTING -j ACCEPT`", false},
		{"ipset flush ovn40subnets-nat", "ipset add ovn40subnets-nat 10.16.0.0/16", agent.PartRules, "set ovn40subnets-nat lacks 10.16.0.0/16", "fairlead status", true},
		{"ip route del default table 1000 via 198.51.100.9", "ip route add default table 1000 via 198.51.100.9 proto 70", agent.PartWays, "the route by 198.51.100.9 in table 1000, is missing", "ip route get 198.51.100.9", true},
		{"ip rule add from 10.0.0.0/8 lookup 7 priority 950", "ip rule del from 10.0.0.0/8 lookup 7 priority 950", agent.PartWays, "pods of Subnet web leave as table 7 says", "ip rule del from 10.0.0.0/8 priority 950", false},
		{"ip rule add from 10.0.0.0/8 lookup 7 priority 5", "ip rule del from 10.0.0.0/8 lookup 7 priority 5", agent.PartWays, "pods of Subnet web, out leave as table 7 says", "ip rule del from 10.0.0.0/8 priority 5", false},
		{"iptables-nft -I FORWARD -i eth1.7 -o ovn0 -j DROP", "iptables-nft -D FORWARD -i eth1.7 -o ovn0 -j DROP", agent.PartRules, "of another program decides before OVN-FORWARD does", "iptables-nft -t filter -D FORWARD", false},
		{"ip route replace default table 1000 via 198.51.100.8 proto static", "ip route replace default table 1000 via 198.51.100.9 proto 70", agent.PartWays, "do not leave by 198.51.100.9: table 1000 has a route of another program to 0.0.0.0/0 via 198.51.100.8 (protocol 4)", "policyRoutingTableID", true},
		{"ip rule add from 10.17.3.0/24 lookup 7 priority 5", "ip rule del from 10.17.3.0/24 lookup 7 priority 5", agent.PartWays, "pods of Subnet out leave as table 7 says", "ip rule del from 10.17.3.0/24 priority 5", false},
	} {
		sh(c.harm)
		o := look()
		require.NotEmpty(t, o.Faults, c.harm)
		require.Equal(t, c.part, o.Faults[0].Part, c.harm)
		require.Contains(t, o.Faults[0].What, c.what)
		require.Contains(t, o.Faults[0].Next, c.next)
		require.Equal(t, c.fatal, o.Faults[0].Fatal, c.harm)
		sh(c.mend)
		require.Empty(t, look().Faults, c.mend)
	}

	// A firewall that names a NIC which was given away, until it names the bridge too.
	networks = shown{{Shown: gateway.Shown{Uplink: core.Uplink{Network: "well", NIC: "eth3", Port: "eth3", Bridge: "br-well", Phase: core.Taken}}}}
	sh("nft add table inet fw; nft add chain inet fw input '{ type filter hook input priority 0; }'; nft add rule inet fw input iifname eth3 icmp type echo-request drop")
	require.Equal(t, []agent.OutwardFault{{
		Part: agent.PartRules, What: `nft table inet fw, chain input: "iifname \"eth3\" icmp type echo-request drop" names eth3, whose packets come and go by br-well of provider network well: the rule does not see them`,
		Next: "have it name br-well too, or set spec.exchangeLinkName, by which the bridge is called eth3",
	}}, look().Faults)
	sh("nft add rule inet fw input iifname br-well icmp type echo-request drop")
	require.Empty(t, look().Faults)
	networks = nil

	// Kube-OVN's rule for a pod leads where ours does.
	sh("ip rule add from 10.17.0.9 lookup 1000 priority 900")
	o = look()
	require.Empty(t, o.Faults)
	require.Equal(t, agent.WriterKubeOVN, o.Ways[len(o.Ways)-1].Writer)

	for i, u := range []core.Uplink{{Network: "gone", NIC: "eth7", Port: "eth7", Phase: core.Taken}, {Network: "way", NIC: "eth8", Port: "eth8", Phase: core.Returning}, {Network: "none"}, {Network: "well", Phase: core.Taken}} {
		networks = append(networks, uplink.Shown{Shown: gateway.Shown{Uplink: u, Gone: i == 0}, Reason: map[int]string{2: "eth9 is a member of bond0"}[i]})
	}
	repairs = []agent.Repair{
		{What: "a", Times: 2, When: time.Now()}, {What: "b", Times: 3, When: time.Now()}, {What: "c", Times: 9, When: time.Now().Add(-2 * time.Hour)},
		{What: "d", Times: 6, When: time.Now(), Next: time.Now().Add(time.Minute)}, {What: "e", Times: 1, Error: "no space"},
	}
	probed = []agent.OutwardProbe{{Pod: "red/a", To: netip.MustParseAddrPort("10.0.0.5:80"), Open: true}, {Pod: "blue/a", To: netip.MustParseAddrPort("10.0.0.5:80"), Why: "taken"}}
	var faults []string
	for _, f := range look().Faults {
		faults = append(faults, f.Part+" "+f.What[:12])
	}
	require.Equal(t, []string{"networks NIC eth7 of ", "networks NIC eth8 of ", "networks provider net", "rules probes of po", "rules b was put ri", "rules d was put ri", "rules e could not "}, faults)
}
