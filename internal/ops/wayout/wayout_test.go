package wayout_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/ops/wayout"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// TestExplain: by which nodes a pod leaves, and as whom the world sees it, where the
// Kubernetes API alone is asked.
func TestExplain(t *testing.T) {
	t.Parallel()
	ip := netip.MustParseAddr
	central := func(node, active string) agent.SubnetDetail {
		d := agent.SubnetDetail{Vpc: "ovn-cluster", GatewayType: "centralized", GatewayNode: node, ActivateGateway: active}
		d.Name, d.Provider, d.NATOutgoing = "web", "ovn", true
		return d
	}
	red, vlan := central("n1", "n1"), central("n1", "n1")
	red.Vpc, vlan.Physical = "red", true
	for _, c := range []struct {
		name string
		of   agent.SubnetDetail
		seen []netip.Addr
		says string
	}{
		{"the node's own address", central("n1,n2", "n1"), []netip.Addr{ip("192.0.2.1")}, "by a tunnel to n1"},
		{"the address that gatewayNode gives", central("n1:172.18.0.50", "n1"), []netip.Addr{ip("172.18.0.50")}, "by a tunnel to n1"},
		{"several gateways", central("n1:172.18.0.50,n2", ""), []netip.Addr{ip("172.18.0.50"), ip("192.0.2.2")}, "by a tunnel to n1 or n2"},
		{"selectors with several gateways", central("", ""), nil, "which its status does not name"},
		{"another Vpc", red, nil, "no node leads it out"},
		{"a physical gateway", vlan, nil, "physical gateway (10.0.0.1)"},
	} {
		f := wayout.Facts{
			Pod: agent.Pod{Node: "n3", Attachments: []agent.Attachment{{Interfaces: []agent.Interface{{
				Name: "eth0", Subnet: "web", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")}, Gateways: []netip.Addr{ip("10.0.0.1")},
			}}}}},
			About: map[string]agent.SubnetDetail{"web": c.of}, Nodes: map[string][]netip.Addr{"n1": {ip("192.0.2.1")}, "n2": {ip("192.0.2.2")}},
		}
		items := wayout.Explain(f).Items
		require.Len(t, items, 1)
		require.Equal(t, c.seen, items[0].SeenAs, c.name)
		require.Contains(t, strings.Join(items[0].Steps, "\n"), c.says, c.name)
	}
}

// TestExternal: as whom the world sees a pod with an address at the external gateway, and
// what becomes of one that is not carried out.
func TestExternal(t *testing.T) {
	t.Parallel()
	ip := netip.MustParseAddr
	about := agent.SubnetDetail{Vpc: "ovn-cluster"}
	about.Name, about.Provider, about.NATOutgoing = "web", "ovn", true
	gw := &declare.External{Nodes: []string{"n7"}, Gateways: []netip.Addr{ip("203.0.113.1")}}
	for _, c := range []struct {
		name   string
		notes  map[string]string
		gw     *declare.External
		events []agent.PodEvent
		seen   netip.Addr
		says   string
	}{
		{"its own", map[string]string{"ovn.kubernetes.io/eip": "fd00::9, 203.0.113.9", "ovn.kubernetes.io/snat": "203.0.113.8"}, gw, nil, ip("203.0.113.9"), "and reaches the pod there"},
		{"shared", map[string]string{"ovn.kubernetes.io/snat": "203.0.113.8"}, gw, nil, ip("203.0.113.8"), "to the external gateway (203.0.113.1) by the first good one of n7"},
		{"no gateway", map[string]string{"ovn.kubernetes.io/eip": "203.0.113.9"}, nil, nil, ip("192.0.2.1"), "enables no external gateway"},
		{"refused", map[string]string{"ovn.kubernetes.io/eip": "203.0.113.9"}, gw, []agent.PodEvent{{Reason: "ExternalAddressRefused", Note: "203.0.113.9 is another pod's already"}}, ip("192.0.2.1"), "is another pod's already"},
		{"another family", map[string]string{"ovn.kubernetes.io/eip": "fd00::9"}, gw, nil, ip("192.0.2.1"), "natOutgoing is on"},
	} {
		items := wayout.Explain(wayout.Facts{
			Pod: agent.Pod{Node: "n1", Requested: c.notes, Events: c.events, Attachments: []agent.Attachment{{Interfaces: []agent.Interface{{
				Name: "eth0", Subnet: "web", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")},
			}}}}},
			About: map[string]agent.SubnetDetail{"web": about}, Nodes: map[string][]netip.Addr{"n1": {ip("192.0.2.1")}}, External: c.gw,
		}).Items
		require.Len(t, items, 1)
		require.Equal(t, []netip.Addr{c.seen}, items[0].SeenAs, c.name)
		require.Contains(t, strings.Join(items[0].Steps, "\n"), c.says, c.name)
	}
}
