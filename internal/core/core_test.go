package core_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func TestClip(t *testing.T) {
	require.Equal(t, "äöü", core.Clip("äöü", 6))
	require.Equal(t, "ä...", core.Clip("äöüä", 6), "no half of a character")
	require.Equal(t, "...", core.Clip("äöü", 3))
}

// TestGatewayMAC: of each Subnet its own, whatever its network, and one that a
// station may have.
func TestGatewayMAC(t *testing.T) {
	mac := core.Subnet{Name: "a"}.GatewayMAC()
	require.Len(t, mac, 6)
	require.Equal(t, byte(2), mac[0]&3)
	require.Equal(t, mac, core.Subnet{Name: "a", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.18.0.0/24")}}.GatewayMAC())
	require.NotEqual(t, mac, core.Subnet{Name: "b"}.GatewayMAC())
}

// TestNodePort: the reference's name, and none that a pod's port can have.
func TestNodePort(t *testing.T) {
	require.Equal(t, "node-n1", core.NodePort("n1"))
	dotted := core.NodePort("ip-10-0-0-1.ec2.internal")
	require.NotContains(t, dotted, ".")
	require.NotEqual(t, dotted, core.NodePort("ip-10-0-0-1-ec2.internal"))
}
