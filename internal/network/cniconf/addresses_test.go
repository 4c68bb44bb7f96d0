package cniconf

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestAddressesOfAnIPAMPlugin: no interfaces and no index, in every version.
func TestAddressesOfAnIPAMPlugin(t *testing.T) {
	l := core.Link{
		IfName:   "net1",
		Addrs:    []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24"), netip.MustParsePrefix("fd00::9/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		PodSide: core.PodSide{
			MAC:    core.MAC{2, 0, 0, 0, 0, 1},
			Routes: []core.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16")}},
			DNS:    core.DNS{Nameservers: []string{"10.96.0.10"}},
		},
	}
	out, err := Addresses(l, "1.1.0")
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.9/24","gateway":"10.0.0.1"},{"address":"fd00::9/64","gateway":"fd00::1"}],
		"routes":[{"dst":"10.9.0.0/16"}],"dns":{"nameservers":["10.96.0.10"]}}`, string(out))
	out, err = Addresses(l, "0.3.1")
	require.NoError(t, err)
	require.Contains(t, string(out), `"version":"4"`)
	require.NotContains(t, string(out), "interface")
	out, err = Addresses(l, "0.2.0")
	require.NoError(t, err)
	require.Contains(t, string(out), `"ip4":{"ip":"10.0.0.9/24","gateway":"10.0.0.1"`)
	_, err = Addresses(l, "9.9.9")
	require.Equal(t, core.CodeVersion, core.CodeOf(err))
}
