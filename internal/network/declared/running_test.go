package declared

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
)

// TestRestart: what is declared otherwise now needs a new pod, but for what is changed in
// a running one and for what nobody can tell.
func TestRestart(t *testing.T) {
	s := func(i v1alpha1.PodInterface) *Settings {
		i.Name = "net1"
		return &Settings{Interface: Interface{PodInterface: i}}
	}
	have := &Running{Network: "bank/db", IPs: []netip.Addr{netip.MustParseAddr("10.9.0.17"), netip.MustParseAddr("fd00::17")}, MAC: "02:0a:09:00:00:11", PF: "ens1f0"}
	for _, same := range []v1alpha1.PodInterface{
		{},
		{Network: "bank/db", IPs: []string{"10.9.0.17/24"}, MAC: "02:0A:09:00:00:11", SRIOV: &v1alpha1.SRIOV{PF: []string{"ens1f1", "ens1f0"}}},
		{Network: "subnet", IPs: []string{"fd00:0::17"}, VLAN: &v1alpha1.VLAN{ID: 9}},
	} {
		require.Empty(t, s(same).Restart(have), "%v", same)
	}
	require.Equal(t, []string{"network bank/other of interface net1", "ips [10.9.0.18/24] of interface net1", "mac 02:0a:09:00:00:12 of interface net1", "sriov.pf [ens1f1] of interface net1"},
		s(v1alpha1.PodInterface{Network: "bank/other", IPs: []string{"10.9.0.18/24"}, MAC: "02:0a:09:00:00:12", SRIOV: &v1alpha1.SRIOV{PF: []string{"ens1f1"}}}).Restart(have))
	unknown := *have
	unknown.PF = ""
	require.Empty(t, s(v1alpha1.PodInterface{SRIOV: &v1alpha1.SRIOV{PF: []string{"ens1f1"}}}).Restart(&unknown))
	require.Equal(t, []string{"interface net1"}, s(v1alpha1.PodInterface{}).Restart(nil))
}
