package wayout_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/ops/wayout"
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
