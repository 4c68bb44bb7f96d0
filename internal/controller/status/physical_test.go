package status

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// TestPhysicalGateway: what leads pods out by nodes does nothing for a Subnet whose pods leave
// by a machine of its VLAN, and is named; with a logical gateway it is carried out.
func TestPhysicalGateway(t *testing.T) {
	spec := v1.SubnetSpec{Vlan: "v", NatOutgoing: true, GatewayType: v1.GatewayCentralized, GatewayNode: "n1"}
	require.Equal(t, []string{"spec.natOutgoing" + byPhysical, "spec.gatewayType: centralized" + byPhysical}, UndoneSubnet(spec))
	egress := v1.SubnetSpec{Vlan: "v", ExternalEgressGateway: "192.0.2.1", PolicyRoutingTableID: 1}
	require.Equal(t, []string{"spec.externalEgressGateway" + byPhysical}, UndoneSubnet(egress))
	spec.LogicalGateway, egress.LogicalGateway = true, true
	require.Empty(t, append(UndoneSubnet(spec), UndoneSubnet(egress)...))
}
