package resolve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

const allow = "net.fairlead.io/allow-pod-override"

// TestAnnotationForbidden: on networks of virtual functions, and on those that say so,
// annotations ask only for what the network names; on others they ask for what Kube-OVN's
// may.
func TestAnnotationForbidden(t *testing.T) {
	const networks = "k8s.v1.cni.cncf.io/networks"
	vf := `{"cniVersion":"1.0.0","type":"sriov","deviceID":"0000:01:10.0","capabilities":{"bandwidth":true}}`
	for _, c := range []struct {
		name    string
		nad     string // its annotation, "-" for none
		conf    string
		notes   []string
		refused string
	}{
		{"a VF's rate", "-", vf, []string{networks, `[{"name":"net","bandwidth":{"ingressRate":8000000,"ingressBurst":1}}]`}, "asks for bandwidth on network default/net"},
		{"a VF's rate, allowed", "vlan, bandwidth", vf, []string{networks, `[{"name":"net","bandwidth":{"ingressRate":8000000,"ingressBurst":1}}]`}, ""},
		{"a VF's VLAN", "-", vf, []string{networks, `[{"name":"net","cni-args":{"vlan":5}}]`}, "cni-args.vlan asks for vlan"},
		{"a VF's trust", "vlan", vf, []string{networks, `[{"name":"net","cni-args":{"trust":"on"}}]`}, "asks for trust"},
		{"a VF's source check", "vlan", vf, []string{networks, `[{"name":"net","cni-args":{"spoofchk":"off"}}]`}, "asks for spoofchk"},
		{"a VF's PF", "", vf, []string{networks, `[{"name":"net","cni-args":{"pf":"ens1f0"}}]`}, "asks for pf"},
		{"other words of cni-args", "-", vf, []string{networks, `[{"name":"net","cni-args":{"note":"x"}}]`}, ""},
		{"a VLAN of ours", "-", own("second"), []string{networks, "net", "second.default.ovn.kubernetes.io/vlan_id", "5"}, ""},
		{"a VLAN of ours, confined", "bandwidth", own("second"), []string{networks, "net", "second.default.ovn.kubernetes.io/vlan_id", "5"}, "vlan_id asks for vlan"},
		{"a rate of ours, confined", "", own("second"), []string{networks, "net", "second.default.ovn.kubernetes.io/ingress_rate", "5"}, "asks for bandwidth"},
		{"a rate of ours, allowed", "bandwidth", own("second"), []string{networks, "net", "second.default.ovn.kubernetes.io/ingress_rate", "5"}, ""},
		{"Kubernetes' rate, on a default network", "", own("second"), []string{"v1.multus-cni.io/default-network", "default/net", "kubernetes.io/egress-bandwidth", "8M"}, "egress-bandwidth asks for bandwidth"},
		{"no word", "rates", vf, []string{networks, "net"}, `"rates" is none of`},
	} {
		w := standard()
		w.nad("default/net", c.conf)
		if c.nad != "-" {
			w.nads["default/net"].Annotations = map[string]string{allow: c.nad}
		}
		w.note(c.notes...)
		_, err := Resolve(t.Context(), w, Input{Request: request()})
		if c.refused == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, c.refused, c.name)
		if c.name != "no word" {
			require.Equal(t, []any{core.CodeDenied, core.ReasonAnnotationForbidden}, []any{core.CodeOf(err), core.ReasonOf(err)}, c.name)
		}
	}
}

// TestMayTune: a running pod's annotations may not say of rates what a new pod's may not.
func TestMayTune(t *testing.T) {
	w := standard()
	w.nad("default/net", own("second"))
	rates := core.QoS{IngressMbps: 5}
	require.NoError(t, MayTune(t.Context(), w, "default/net", rates))
	w.nads["default/net"].Annotations = map[string]string{allow: "vlan"}
	require.Equal(t, core.ReasonAnnotationForbidden, core.ReasonOf(MayTune(t.Context(), w, "default/net", rates)))
	require.NoError(t, MayTune(t.Context(), w, "default/net", core.QoS{}))
	require.NoError(t, MayTune(t.Context(), w, "fairlead", rates))
}

func own(provider string) string {
	return `{"cniVersion":"1.0.0","type":"kube-ovn","provider":"` + provider + `.default.ovn"}`
}
