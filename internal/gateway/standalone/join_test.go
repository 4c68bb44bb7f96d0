package standalone_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
)

// joined is what a controller gave node n1.
func joined() core.Join {
	return core.Join{
		MAC:      core.MAC{0x02, 0, 0, 0, 0x64, 7},
		Addrs:    []netip.Prefix{netip.MustParsePrefix("100.64.0.7/16"), netip.MustParsePrefix("fd00:100:64::7/112")},
		Gateways: []netip.Addr{netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("fd00:100:64::1")},
	}
}

func inVpc(name, vpc, provider string, cidrs ...string) core.Subnet {
	s := core.Subnet{Name: name, Vpc: vpc, Provider: provider}
	for _, c := range cidrs {
		s.CIDRs = append(s.CIDRs, netip.MustParsePrefix(c))
	}
	return s
}

// TestBehind: the join port leads to what OVN carries in the default Vpc.
func TestBehind(t *testing.T) {
	require.Nil(t, standalone.Behind(core.Join{}, []core.Subnet{inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16")}))
	j := standalone.Behind(joined(), []core.Subnet{
		inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16", "fd16::/64"), inVpc("red", "red", "ovn", "10.17.0.0/16"),
		inVpc("lent", v1.DefaultVpc, "lan.default", "10.18.0.0/16"), inVpc("join", v1.DefaultVpc, "ovn", "100.64.0.0/16", "fd00:100:64::/112"),
		inVpc("more", v1.DefaultVpc, "more.default.ovn", "10.19.0.0/16"),
	})
	var networks []string
	for _, s := range j.Subnets {
		for _, c := range s.CIDRs {
			networks = append(networks, s.Name+" "+c.String())
		}
	}
	require.Equal(t, []string{"web 10.16.0.0/16", "web fd16::/64", "more 10.19.0.0/16"}, networks)
}

// TestJoin: the port that OVN binds to the node, its addresses and routes; what
// somebody changes is found and put right, and it goes when there is nothing to join.
func TestJoin(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	web := inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16", "fd16::/64")
	more := inVpc("more", v1.DefaultVpc, "ovn", "10.17.0.0/16")
	want := standalone.Wanted{Join: standalone.Behind(joined(), []core.Subnet{web, more})}
	set := func() {
		t.Helper()
		require.NoError(t, b.gw.Set(t.Context(), want))
		require.Empty(t, b.gw.Drift(t.Context(), want))
	}
	routes := func() string { return b.sw.In("ip", "route") + b.sw.In("ip", "-6", "route") }
	set()
	require.Equal(t, "node-n1", b.sw.Get("Interface", "ovn0", "external_ids:iface-id"))
	require.Equal(t, "02:00:00:00:64:07", strings.Trim(b.sw.Get("Interface", "ovn0", "mac_in_use"), `"`))
	require.Contains(t, b.sw.In("ip", "addr", "show", "ovn0"), "inet 100.64.0.7/16 ")
	for _, r := range []string{"10.16.0.0/16 via 100.64.0.1 dev ovn0 proto static", "10.17.0.0/16 via 100.64.0.1 dev ovn0 proto static", "fd16::/64 via fd00:100:64::1 dev ovn0 proto static"} {
		require.Contains(t, routes(), r)
	}
	links, err := b.gw.Links(want)
	require.NoError(t, err)
	require.Len(t, links, 1)

	for what, change := range map[string]func(){
		"lacks route 10.17.0.0/16":         func() { b.sw.In("ip", "route", "del", "10.17.0.0/16") },
		"route 10.99.0.0/16 too much":      func() { b.sw.In("ip", "route", "add", "10.99.0.0/16", "via", "100.64.0.1", "dev", "ovn0") },
		"lacks address fd00:100:64::7/112": func() { b.sw.In("ip", "addr", "del", "fd00:100:64::7/112", "dev", "ovn0") },
	} {
		change()
		drift := b.gw.Drift(t.Context(), want)
		require.ErrorIs(t, drift[standalone.JoinPort], core.ErrDrift)
		require.ErrorContains(t, drift[standalone.JoinPort], what)
		set()
	}

	// A Subnet goes, and the node has another address.
	j := joined()
	j.Addrs[0] = netip.MustParsePrefix("100.64.0.8/16")
	want.Join = standalone.Behind(j, []core.Subnet{web})
	set()
	require.NotContains(t, routes(), "10.17.0.0/16")
	require.NotContains(t, b.sw.In("ip", "addr", "show", "ovn0"), "100.64.0.7")

	// natOutgoing is masqueraded, and what goes to pods and nodes is not.
	require.NotContains(t, b.sw.In("nft", "list", "set", "inet", standalone.TableName, "masquerade-ip"), "elements")
	web.NATOutgoing = true
	j.Nodes = []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("fd00:2::9")}
	want.Join = standalone.Behind(j, []core.Subnet{web, more})
	drift := b.gw.Drift(t.Context(), want)
	require.ErrorContains(t, drift[standalone.JoinPort], "way back by the node for node fd00:2::9 is false, want true")
	require.ErrorContains(t, drift[standalone.JoinPort], "masquerade of fd16::/64 is false, want true")
	set()
	table := strings.Join(strings.Fields(b.sw.In("nft", "list", "table", "inet", standalone.TableName)), " ")
	for set, networks := range map[string]string{
		"masquerade-ip": "10.16.0.0/16", "masquerade-ip6": "fd16::/64",
		"direct-ip": `"ovn0" . 10.16.0.0/15, "ovn0" . 192.0.2.9`, "direct-ip6": `"ovn0" . fd00:2::9, "ovn0" . fd16::/64`,
		"internal-ip": "10.16.0.0/15, 100.64.0.0/16", "internal-ip6": "fd00:100:64::/112, fd16::/64",
	} {
		_, in, _ := strings.Cut(table, "set "+set+" {")
		_, in, _ = strings.Cut(in, "elements = { ")
		require.Equal(t, networks, in[:strings.Index(in, " }")], set)
	}
	b.sw.In("nft", "delete", "table", "inet", standalone.TableName)
	require.ErrorIs(t, b.gw.Drift(t.Context(), want)[standalone.JoinPort], core.ErrDrift)
	set()

	want.Join = nil
	set()
	require.Eventually(t, func() bool { return !strings.Contains(b.sw.In("ip", "-o", "link"), "ovn0") }, time.Minute, 10*time.Millisecond,
		"ovs-vswitchd removes it after its row")
	require.NotContains(t, routes(), "10.16.0.0/16")
}
