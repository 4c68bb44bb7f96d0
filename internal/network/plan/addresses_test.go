package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestLent: addresses with their network's length, its gateways, and a default
// route only where the interface is to carry it and nobody wrote one.
func TestLent(t *testing.T) {
	n := &core.NIC{Subnet: dualSubnet(), Settings: core.Settings{PodSide: core.PodSide{MAC: testMAC}}}
	r := LentRequest(n, core.Owner{Key: testKey})
	require.False(t, r.NoMAC)
	require.True(t, LentRequest(&core.NIC{Subnet: dualSubnet()}, r.Owner).NoMAC)
	l := core.Lease{Subnet: "dual", Owner: r.Owner, IPs: addrs("10.16.0.9", "fd00::9"), MAC: testMAC}
	s, err := Lent(core.Spec{Key: testKey}, n, l)
	require.NoError(t, err)
	require.Equal(t, core.DriverAddresses, s.Driver)
	require.Equal(t, "10.16.0.9/16", s.Lent.Addrs[0].String())
	require.Equal(t, addrs("10.16.0.1", "fd00::1"), s.Lent.Gateways)
	require.Empty(t, s.Lent.Routes)
	require.Equal(t, core.KindLent, s.Kind())
	n.DefaultRoute = true
	n.Routes = []core.Route{{Dst: core.Anywhere(l.IPs[0]), GW: addrs("10.16.0.7")[0]}}
	s, err = Lent(core.Spec{Key: testKey}, n, l)
	require.NoError(t, err)
	require.Len(t, s.Lent.Routes, 2)
	require.Equal(t, addrs("10.16.0.7")[0], s.Lent.Routes[0].GW)
	require.Equal(t, addrs("fd00::1")[0], s.Lent.Routes[1].GW)
	l.IPs = addrs("10.99.0.9")
	_, err = Lent(core.Spec{Key: testKey}, n, l)
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
}
