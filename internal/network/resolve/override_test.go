package resolve

import (
	"encoding/json"
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
		{"a VF's rate, allowed", "vlan, bandwidth", vf, []string{networks, `[{"name":"net","bandwidth":{"egressRate":8000000,"egressBurst":1}}]`}, ""},
		{"a VF's VLAN", "-", vf, []string{networks, `[{"name":"net","cni-args":{"vlan":5}}]`}, "cni-args.vlan asks for vlan"},
		{"a VF's trust", "vlan", vf, []string{networks, `[{"name":"net","cni-args":{"trust":"on"}}]`}, "asks for trust"},
		{"a VF's source check", "vlan", vf, []string{networks, `[{"name":"net","cni-args":{"spoofchk":"off"}}]`}, "asks for spoofchk"},
		{"a VF's PF", "", vf, []string{networks, `[{"name":"net","cni-args":{"pf":"ens1f0"}}]`}, "asks for pf"},
		{"a VF's VLAN, by Kube-OVN's annotation", "trust", vf, []string{networks, "net", "net.default.ovn.kubernetes.io/vlan_id", "5"}, "vlan_id asks for vlan"},
		{"a VF's rate, by Kube-OVN's annotation", "vlan", vf, []string{networks, "net", "net.default.ovn.kubernetes.io/egress_rate", "5"}, "asks for bandwidth"},
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

// TestAllowedOfAVF: what a network lets annotations ask for of a virtual function is carried
// out, or refused; none is left out.
func TestAllowedOfAVF(t *testing.T) {
	const (
		all   = "bandwidth,pf,spoofchk,trust,vlan"
		vlan  = "net.default.ovn.kubernetes.io/vlan_id"
		given = "net.default.ovn.kubernetes.io/allocated"
	)
	for _, c := range []struct {
		elem   string   // further keys of the element
		notes  []string // further annotations
		says   string   // what is declared, "" for nothing
		want   string   // further keys of the configuration
		reason string   // or its refusal
		code   uint
	}{
		{`"cni-args":{"vlan":1200,"vlanQoS":3,"vlanProto":"802.1AD","trust":"on","spoofchk":"off","min_tx_rate":20,"max_tx_rate":30}`, nil, "",
			`"vlan":1200,"vlanQoS":3,"vlanProto":"802.1ad","trust":"on","spoofchk":"off","min_tx_rate":20,"max_tx_rate":30`, "", 0},
		{`"cni-args":{"vlan":null,"note":"x"}`, nil, "", `"vlan":7,"trust":"off"`, "", 0},
		{`"bandwidth":{"egressRate":8000001,"egressBurst":1}`, nil, "", `"vlan":7,"trust":"off","max_tx_rate":9`, "", 0},
		{`"cni-args":{"bandwidth":{"egressRate":8000000},"max_tx_rate":8}`, nil, "", `"vlan":7,"trust":"off","max_tx_rate":8`, "", 0},
		{"", []string{vlan, "5", "net.default.ovn.kubernetes.io/egress_rate", "6"}, "", `"vlan":5,"trust":"off","max_tx_rate":6`, "", 0},
		{"", []string{"net.default.net1.kubernetes.io/vlan_id", "5"}, "", `"vlan":7,"trust":"off"`, "", 0},
		{"", []string{"net.default.ovn.net1.kubernetes.io/vlan_id", "5"}, "", `"vlan":5,"trust":"off"`, "", 0},
		{"", []string{vlan, "5", given, "true"}, "", `"vlan":7,"trust":"off"`, "", 0},
		{`"cni-args":{"vlan":9,"pf":["ens1f0"]}`, nil, `"vlan":{"id":9},"sriov":{"pf":["ens1f0"]}`, `"vlan":9,"vlanQoS":0,"vlanProto":"802.1q","trust":"off"`, "", 0},
		{`"cni-args":{"pf":"ens2f0, ens1f0"}`, nil, "", `"vlan":7,"trust":"off"`, "", 0},

		{`"cni-args":{"pf":"ens2f0"}`, nil, "", "", core.ReasonNoVFMatches, 104},
		{`"bandwidth":{"ingressRate":8000000,"ingressBurst":1}`, nil, "", "", core.ReasonDriverCannot, 102},
		{"", []string{"net.default.ovn.kubernetes.io/ingress_rate", "6"}, "", "", core.ReasonDriverCannot, 102},
		{`"cni-args":{"vlan":"x"}`, nil, "", "", "", 102},
		{`"cni-args":{"trust":"yes"}`, nil, "", "", "", 102},
		{`"cni-args":{"vlanProto":1}`, nil, "", "", "", 102},
		{`"cni-args":{"pf":["ens1f0",""]}`, nil, "", "", "", 102},
		{`"cni-args":{"bandwidth":8}`, nil, "", "", "", 102},
		{`"cni-args":{"bandwidth":{"rate":8}}`, nil, "", "", "", 102},
		{`"cni-args":{"vlan":6}`, []string{vlan, "5"}, "", "", "", 105},
		{`"cni-args":{"vlan":6}`, nil, `"vlan":{"id":9}`, "", core.ReasonAnnotationConflict, 105},
		{`"cni-args":{"vlan":6}`, nil, `"ips":["10.9.0.17/24"],"vlan":{"id":9}`, "", core.ReasonAnnotationConflict, 105},
		{`"cni-args":{"trust":"on"}`, nil, `"sriov":{"trust":false}`, "", core.ReasonAnnotationConflict, 105},
		{`"bandwidth":{"egressRate":8000000}`, nil, `"bandwidth":{"maxMbps":9}`, "", core.ReasonAnnotationConflict, 105},
		{`"cni-args":{"pf":"ens1f0"}`, nil, `"sriov":{"pf":["ens1f0","ens1f1"]}`, "", core.ReasonAnnotationConflict, 105},
	} {
		w := standard()
		w.nad("default/net", `{"cniVersion":"1.0.0","type":"sriov","deviceID":"0000:01:10.0","vlan":7,"trust":"off"}`)
		w.nads["default/net"].Annotations = map[string]string{allow: all}
		elem := `[{"name":"net"}]`
		if c.elem != "" {
			elem = `[{"name":"net",` + c.elem + `}]`
		}
		w.note(append([]string{"k8s.v1.cni.cncf.io/networks", elem}, c.notes...)...)
		in := Input{Request: request(), PFOf: func(string) (string, error) { return "ens1f0", nil }}
		if c.says != "" {
			in.Declared = said{`{"interfaces":[{"name":"net1",` + c.says + `}]}`}
		}
		wants, err := Resolve(t.Context(), w, in)
		if c.code != 0 {
			require.Equal(t, []any{c.code, c.reason}, []any{core.CodeOf(err), core.ReasonOf(err)}, "%+v: %v", c, err)
			continue
		}
		require.NoError(t, err, "%+v", c)
		var conf map[string]any
		require.NoError(t, json.Unmarshal(wants[1].Steps[0].Exec.Conf, &conf))
		delete(conf, "args")
		got, err := json.Marshal(conf)
		require.NoError(t, err)
		require.JSONEq(t, `{"cniVersion":"1.0.0","name":"net","type":"sriov","deviceID":"0000:01:10.0",`+c.want+`}`, string(got), "%+v", c)
	}

	w := standard()
	w.nad("default/net", `{"cniVersion":"1.0.0","type":"sriov","deviceID":"0000:01:10.0"}`)
	w.note("k8s.v1.cni.cncf.io/networks", `[{"name":"net"}]`, "net.default.ovn.kubernetes.io/ingress_rate", "6")
	in := Input{Request: request()}
	_, err := Resolve(t.Context(), w, in)
	require.Equal(t, core.ReasonAnnotationForbidden, core.ReasonOf(err))
	in.Request.Op = core.Del
	_, err = Resolve(t.Context(), w, in)
	require.NoError(t, err, "what was not asked for any more is undone all the same")
}

// TestAskedPF: of places a pod gets a function of the physical functions that it may ask for.
func TestAskedPF(t *testing.T) {
	w := equipped()
	w.nad("default/a", `{"cniVersion":"1.0.0","type":"sriov"}`)
	w.nads["default/a"].Annotations = map[string]string{resourceKey: "example.com/nic", allow: "pf,bandwidth"}
	w.note(networks, `[{"name":"a","cni-args":{"pf":["ens1f1"],"min_tx_rate":40}}]`)
	c := &chooser{kubelet: nics("n0-0"), of: map[string]string{"n0-0": "0000:01:10.0"}}
	_, err := Resolve(t.Context(), w, Input{Request: request(), Devices: c, PFOf: func(string) (string, error) { return "ens1f1", nil }})
	require.NoError(t, err)
	require.Equal(t, []any{[]string{"ens1f1"}, 40}, []any{c.wishes[0].PFs, c.wishes[0].MinMbps})

	// A rate of the default network, as Kubernetes has it.
	w.nads["kube-system/main"].Config, w.nads["kube-system/main"].Annotations[allow] = `{"cniVersion":"1.0.0","type":"sriov"}`, "bandwidth"
	w.note(networks, "", defaultKey, "main", "kubernetes.io/egress-bandwidth", "8M")
	wants, err := Resolve(t.Context(), w, Input{Request: request(), Devices: c})
	require.NoError(t, err)
	require.Contains(t, string(wants[0].Steps[0].Exec.Conf), `"max_tx_rate":8`)
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
