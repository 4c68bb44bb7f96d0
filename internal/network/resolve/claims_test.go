package resolve

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/lease"
)

// TestClaims: what is declared of an interface without Subnet is claimed in the domain of
// layer 2 that its NAD names, else in one of the NAD's own name, by VLAN.
func TestClaims(t *testing.T) {
	s := &declared.Settings{From: map[string]string{declared.IPs: "PodNetwork a/b", declared.MAC: "ConfigMap a/c"}}
	s.IPs, s.MAC = []string{"10.9.0.17/24", "fd00::17"}, "02:0A:09:00:00:11"
	n := &network{label: "bank/DB", declared: s, chain: core.Chain{Plugins: []core.Plugin{{Type: "macvlan", Raw: []byte(`{"master":"eth1","vlan":7}`)}}}}
	r := &resolution{}
	domains := func() (out []string) {
		claims, err := r.claims(t.Context(), n, []core.Step{{Exec: &core.Exec{}}})
		require.NoError(t, err)
		for _, c := range claims {
			out = append(out, c.Domain+" "+c.String()+" "+c.Declared)
			require.Equal(t, c.Domain, lease.InVLAN(c, n.vlan()).Domain)
			require.Equal(t, strings.ToLower(c.Wire)+".vlan9", lease.InVLAN(c, 9).Domain, "as it is claimed when the interface is in another VLAN")
		}
		return out
	}
	require.Equal(t, []string{
		"bank.db.vlan7 address 10.9.0.17 PodNetwork a/b", "bank.db.vlan7 address fd00::17 PodNetwork a/b", "bank.db.vlan7 MAC 02:0a:09:00:00:11 ConfigMap a/c",
	}, domains())
	s.VLAN = &v1alpha1.VLAN{ID: 1200}
	require.Contains(t, domains()[0], "bank.db.vlan1200 ", "what is declared counts more")
	s.VLAN, n.domain = &v1alpha1.VLAN{}, "racks"
	require.Contains(t, domains()[0], "racks address ")
	n.domain = "no name"
	_, err := r.claims(t.Context(), n, nil)
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, "net.fairlead.io/l2-domain")
	n.domain, s.From = "", map[string]string{declared.VLAN: "PodNetwork a/b"}
	require.Empty(t, domains(), "a VLAN alone needs no lease")

	s.From = map[string]string{declared.IPs: "PodNetwork a/b"}
	subnet := []core.Step{{NIC: &core.NIC{Subnet: core.Subnet{Name: "db", Underlay: "net1"}, Settings: core.Settings{VLAN: 5}}}}
	claims, err := r.claims(t.Context(), n, subnet)
	require.NoError(t, err)
	require.Equal(t, []string{"net1.vlan5", "net1"}, []string{claims[0].Domain, claims[0].Wire})
	claims, err = r.claims(t.Context(), n, []core.Step{{Exec: &core.Exec{}, Lent: subnet[0].NIC}})
	require.NoError(t, err)
	require.Equal(t, []string{"net1.vlan5", ""}, []string{claims[0].Domain, claims[0].Wire}, "the plugin's VLAN has no say in it")
	r.in.OVN = true
	claims, err = r.claims(t.Context(), n, subnet)
	require.NoError(t, err)
	require.Empty(t, claims, "a controller gives its addresses")

	s.Retain, s.From[declared.Retain] = v1alpha1.RetainForever, "PodNetwork a/b"
	for _, ovn := range []bool{true, false} {
		r.in.OVN = ovn
		_, err = r.claims(t.Context(), n, subnet)
		require.Equal(t, []any{core.CodeValue, core.ReasonDriverCannot}, []any{core.CodeOf(err), core.ReasonOf(err)})
		require.ErrorContains(t, err, "PodNetwork a/b: retain Forever: the addresses of network bank/DB are of a Subnet")
	}
	claims, err = r.claims(t.Context(), n, []core.Step{{Exec: &core.Exec{}}})
	require.NoError(t, err)
	require.True(t, claims[0].Forever)
}

// TestSharedWires: two NADs of one device and VLAN are told, unless they name one domain.
func TestSharedWires(t *testing.T) {
	nad := func(name, conf, domain string) NAD {
		return NAD{Namespace: "a", Name: name, Config: `{"cniVersion":"1.0.0","type":"macvlan",` + conf + `}`, Annotations: map[string]string{v1alpha1.AnnL2Domain: domain}}
	}
	all := []NAD{nad("one", `"master":"eth1"`, ""), nad("two", `"master":"eth1","vlan":7`, ""), nad("three", `"master":"eth2"`, ""), nad("four", `"mode":"bridge"`, "")}
	require.Empty(t, SharedWires(all))
	got := SharedWires(append(all, nad("five", `"master":"eth1"`, "")))
	require.Len(t, got, 1)
	require.Contains(t, got[0].String(), "NetworkAttachmentDefinition a/five: it leads to eth1 as NetworkAttachmentDefinition a/one does")
	require.Empty(t, SharedWires([]NAD{nad("one", `"master":"eth1"`, "x"), nad("five", `"master":"eth1"`, "x")}))
	const ranged = `"master":"eth1","ipam":{"type":"whereabouts","range":`
	require.Empty(t, SharedWires([]NAD{nad("six", ranged+`"10.0.0.0/24"}`, ""), nad("seven", ranged+`"10.0.0.0/16"}`, "")}))
	require.Len(t, SharedWires([]NAD{nad("six", ranged+`"10.0.0.0/24"}`, ""), nad("seven", ranged+`"10.0.0.0/16","network_name":"x"}`, ""), nad("eight", ranged+`"x"}`, "")}), 2)
}
