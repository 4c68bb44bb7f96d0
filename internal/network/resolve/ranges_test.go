package resolve

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

// ranged resolves a pod that asks for default/ranged, whose ipam is whereabouts with more
// keys, on a node where the agent carries out calls of those plugins itself.
func (w *world) ranged(t *testing.T, keys, asks string, inside []string, all ...string) (core.Want, error) {
	t.Helper()
	w.nad("default/ranged", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1","vlan":7,"capabilities":{"ips":true},"ipam":{"type":"whereabouts",`+keys+`}}`)
	w.note("k8s.v1.cni.cncf.io/networks", asks)
	in := Input{Request: request(), Inside: func(x core.Exec) bool { return slices.Contains(inside, x.Type) }}
	if all != nil {
		in.Declared = said(all)
	}
	wants, err := Resolve(t.Context(), w, in)
	if err != nil {
		return core.Want{}, err
	}
	return wants[len(wants)-1], nil
}

// TestRanged: a network with ranges of whereabouts claims an address of each, and static
// stands for the plugin; what is declared takes the place of one, in the same domain.
func TestRanged(t *testing.T) {
	const both = `"ipRanges":[{"range":"10.7.0.0/24"},{"range":"fd07::/64"}],"gateway":"10.7.0.1"`
	inside := []string{"macvlan", "whereabouts"}
	w := standard()
	got, err := w.ranged(t, both, "ranged", inside)
	require.NoError(t, err)
	require.Contains(t, string(got.Steps[0].Exec.Conf), `"ipam":{"type":"static"}`)
	require.Len(t, got.Claims, 2)
	require.Equal(t, "whereabouts", got.Claims[0].Domain)
	require.Equal(t, "an address of range 10.7.0.0/24 of network default/ranged", got.Claims[0].String())
	require.Equal(t, "10.7.0.2", got.Claims[0].Pool.Ranges[0].From.String())
	require.Equal(t, 64, got.Claims[1].Pool.Bits)

	t.Run("declared", func(t *testing.T) {
		got, err := standard().ranged(t, both, "ranged", inside, `{"interface":"net1","ip":"10.7.0.9/24","mac":"02:00:00:00:00:09"}`, `{"network":"default/ranged","ip":"fd07::1"}`)
		require.NoError(t, err)
		require.Contains(t, string(got.Steps[0].Exec.Conf), `"ipam":{"addresses":[{"address":"10.7.0.9/24","gateway":"10.7.0.1"}],"type":"static"}`)
		require.Len(t, got.Claims, 3)
		require.Equal(t, "fd07::2", got.Claims[0].Pool.Ranges[0].From.String(), "another pod's is not given")
		require.Equal(t, []string{"whereabouts", "10.7.0.9"}, []string{got.Claims[1].Domain, got.Claims[1].Addr.String()})
		require.Equal(t, []string{"default.ranged.vlan7", "MAC 02:00:00:00:00:09"}, []string{got.Claims[2].Domain, got.Claims[2].String()})
	})
	t.Run("declared of no network, and of another that shares the pool", func(t *testing.T) {
		for _, other := range []string{`{"ip":"10.7.0.2"}`, `{"network":"default/alike","ip":"10.7.0.2"}`} {
			w := standard()
			w.nad("default/alike", `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"whereabouts","range":"10.7.0.0/16"}}`)
			w.nad("default/apart", `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"whereabouts","range":"10.7.0.0/16","network_name":"x"}}`)
			got, err := w.ranged(t, both, "ranged", inside, `{"interface":"eth0","vlan":0}`, other, `{"network":"default/apart","ip":"10.7.0.3"}`)
			require.NoError(t, err)
			require.Equal(t, "10.7.0.3", got.Claims[0].Pool.Ranges[0].From.String(), other)
		}
	})
	t.Run("the NAD's domain", func(t *testing.T) {
		w := standard()
		_, err := w.ranged(t, both, "ranged", inside)
		require.NoError(t, err)
		w.nads["default/ranged"].Annotations = map[string]string{v1alpha1.AnnL2Domain: "racks"}
		wants, err := Resolve(t.Context(), w, Input{Request: request(), Inside: func(core.Exec) bool { return true }})
		require.NoError(t, err)
		require.Equal(t, "racks.vlan7", wants[1].Claims[0].Domain)
	})
	t.Run("an IPAMClaim", func(t *testing.T) {
		const asks = `[{"name":"ranged","ipam-claim-reference":"vm"}]`
		got, err := standard().ranged(t, both, asks, inside, `{"interface":"net1","mac":"02:00:00:00:00:09"}`)
		require.NoError(t, err)
		require.Len(t, got.Claims, 3)
		for _, c := range got.Claims[:2] {
			require.Equal(t, "IPAMClaim default/vm", c.Declared)
			require.Equal(t, &core.IPAMClaim{
				Namespace: "default", Name: "vm", Field: networks + "[0].ipam-claim-reference", Networks: []string{"ranged", "default/ranged", "ranged"},
			}, c.Pool.For)
		}
		require.Equal(t, "ConfigMap default/m0, key p", got.Claims[2].Declared)
		_, err = standard().ranged(t, both, asks, inside, `{"interface":"net1","ip":"10.7.0.9/24"}`)
		require.Equal(t, core.ReasonAnnotationConflict, core.ReasonOf(err), err)
		require.Equal(t, core.CodeConflict, core.CodeOf(err))
	})
	for name, inside := range map[string][]string{"its program is there": {"macvlan"}, "somebody's own macvlan": {"whereabouts"}, "no agent": nil} {
		t.Run(name, func(t *testing.T) {
			got, err := standard().ranged(t, both, "ranged", inside)
			require.NoError(t, err)
			require.Empty(t, got.Claims)
			require.Contains(t, string(got.Steps[0].Exec.Conf), `"type":"whereabouts"`)
		})
	}
	for _, bad := range []struct {
		keys, asks, declared string
		code                 uint
		want                 string
	}{
		{`"range":"10.7.0.0/24","node_slice_size":"/28"`, "ranged", "", core.CodeConfig, `key "node_slice_size" is not known`},
		{`"range":"10.7.0/24"`, "ranged", "", core.CodeConfig, `key "range"`},
		{both, `[{"name":"ranged","ips":["10.7.0.9/24"]}]`, "", core.CodeValue, "network default/ranged gives addresses of its ranges"},
		{both, `[{"name":"ranged","cni-args":{"ips":["10.7.0.9/24"]}}]`, "", core.CodeValue, "network default/ranged gives addresses of its ranges"},
		{both, "ranged", `{"interface":"net1","ip":"10.8.0.9/24"}`, core.CodeAddress, "AddressOutsideSubnet"},
		{both, "ranged", `{"interface":"net1","ip":"10.7.0.9/16"}`, core.CodeAddress, "its network has subnet 10.7.0.0/24"},
		{both, "ranged", `{"interface":"net1","ip":"10.7.0.1"}`, core.CodeAddress, "AddressOutsideSubnet"},
		{both, "ranged", `{"interface":"net1","ip":"10.7.0.255"}`, core.CodeAddress, "AddressOutsideSubnet"},
	} {
		var all []string
		if bad.declared != "" {
			all = []string{bad.declared}
		}
		_, err := standard().ranged(t, bad.keys, bad.asks, inside, all...)
		require.ErrorContains(t, err, bad.want)
		require.Equal(t, bad.code, core.CodeOf(err), err)
	}
}
