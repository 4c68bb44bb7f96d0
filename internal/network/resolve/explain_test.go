package resolve

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
)

func (w *world) explain(t *testing.T, all ...string) (Explained, error) {
	t.Helper()
	return Explain(t.Context(), w, Input{Request: request(), Declared: said(all)}, func(core.Want) error { return nil })
}

// TestExplainFields: each field that is declared has its source, and what the network
// says otherwise has lost to it; a pod that is not there is explained as well.
func TestExplainFields(t *testing.T) {
	w := standard()
	w.nad("default/vf", `{"cniVersion":"1.0.0","type":"sriov","vlan":7,"trust":"on","mac":"02:00:00:00:00:01","spoofchk":"on"}`)
	w.pods = nil
	x, err := w.explain(t, `{"interface":"net1","network":"default/vf","ip":"10.9.0.18/24","vlan":1200,"spoofchk":"on","trust":"off"}`)
	require.NoError(t, err)
	require.Len(t, x.Interfaces, 1)
	i := x.Interfaces[0]
	const from = "ConfigMap default/m0, key p"
	require.Equal(t, "net1 default/vf", i.Name+" "+i.Network)
	require.Equal(t, map[string]string{"network": from, "ips": from, "vlan": from, "sriov.spoofchk": from, "sriov.trust": from}, i.From)
	const nad = "NetworkAttachmentDefinition default/vf"
	require.ElementsMatch(t, []declared.Lost{{Field: "vlan", Value: "7", Source: nad}, {Field: "sriov.trust", Value: "on", Source: nad}}, i.Lost)
}

// TestExplainRefusal: what was settled is told beside the reason why the pod is refused.
func TestExplainRefusal(t *testing.T) {
	w := standard()
	x, err := w.explain(t, `{interfaces: [{name: eth0, vlan: {id: 5}}, {name: net1, network: default/foreign, vlan: {id: 5, qos: 3}}]}`)
	require.Equal(t, core.ReasonDriverCannot, core.ReasonOf(err), err)
	require.Len(t, x.Interfaces, 1)
	require.Equal(t, map[string]string{"vlan": "5"}, x.Interfaces[0].Fields())
	require.Len(t, x.Declarations, 1)

	x, err = w.explain(t, `{"interface":"eth0","ip":"10.99.0.1"}`)
	require.Equal(t, core.ReasonAddressOutsideSubnet, core.ReasonOf(err), err)
	require.Len(t, x.Interfaces, 1, "what is declared is told nevertheless")
}

// TestExplainAnnotations: what the pod's annotations ask for otherwise than is declared is
// shown beside what is declared, all of it and not only what the pod is refused for.
func TestExplainAnnotations(t *testing.T) {
	w := standard()
	w.note(v1.AnnNetworks, `[{"name":"foreign","interface":"net1","ips":["10.30.0.8/24"],"mac":"02:00:00:00:00:08","bandwidth":{"ingressRate":5000000,"ingressBurst":1},"cni-args":{"vlan":8,"trust":"on"}}]`,
		"ovn.kubernetes.io/ip_pool", "10.16.0.8;10.16.0.9", "ovn.kubernetes.io/mac_address", "02:00:00:00:00:07", "ovn.kubernetes.io/vlan_id", "7",
		"ovn.kubernetes.io/ingress_rate", "70", "ovn.kubernetes.io/egress_rate", "100", "kubernetes.io/egress-bandwidth", "9M")
	x, err := w.explain(t, `
interfaces:
- {name: eth0, ips: [10.16.0.50], mac: "02:00:00:00:00:07", vlan: {id: 5}, bandwidth: {maxMbps: 100}}
- {name: net1, ips: [10.30.0.9/24], mac: "02:00:00:00:00:09", vlan: {id: 5}, sriov: {trust: false}}
`)
	require.Equal(t, core.ReasonAnnotationConflict, core.ReasonOf(err), err)
	require.Len(t, x.Interfaces, 2)
	require.ElementsMatch(t, []declared.Lost{
		{Field: "ips", Value: "one of 10.16.0.8;10.16.0.9", Source: "annotation ovn.kubernetes.io/ip_pool"},
		{Field: "vlan", Value: "7", Source: "annotation ovn.kubernetes.io/vlan_id"},
		{Field: "bandwidth.maxMbps", Value: "70", Source: "annotation ovn.kubernetes.io/ingress_rate"},
		{Field: "bandwidth.maxMbps", Value: "9", Source: "annotation kubernetes.io/egress-bandwidth"},
	}, x.Interfaces[0].Lost, "the MAC and a rate are what is declared")
	const element = "annotation k8s.v1.cni.cncf.io/networks[0]"
	require.ElementsMatch(t, []declared.Lost{
		{Field: "ips", Value: "[10.30.0.8/24]", Source: element + ".ips"},
		{Field: "mac", Value: "02:00:00:00:00:08", Source: element + ".mac"},
		{Field: "vlan", Value: "8", Source: element + ".cni-args.vlan"},
		{Field: "sriov.trust", Value: "true", Source: element + ".cni-args.trust"},
	}, x.Interfaces[1].Lost, "no rate is declared of it")

	w = standard()
	w.note("ovn.kubernetes.io/ip_pool", "10.16.0.8;10.16.0.9")
	x, err = w.explain(t, `{interfaces: [{name: eth0, ips: [10.16.0.50]}]}`)
	require.NoError(t, err, "a list is left alone where an address is declared")
	require.Equal(t, []declared.Lost{{Field: "ips", Value: "one of 10.16.0.8;10.16.0.9", Source: "annotation ovn.kubernetes.io/ip_pool"}}, x.Interfaces[0].Lost)
}

// TestExplainClaim: an IPAMClaim to which the pod refers is the source of its addresses.
func TestExplainClaim(t *testing.T) {
	w := standard()
	w.nad("default/ranged", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1","ipam":{"type":"whereabouts","range":"10.7.0.0/24"}}`)
	w.note(v1.AnnNetworks, `[{"name":"ranged","ipam-claim-reference":"vm"},{"name":"foreign","ipam-claim-reference":"other"}]`)
	x, err := w.explain(t, `{"interface":"net1","mac":"02:00:00:00:00:09"}`)
	require.NoError(t, err)
	require.Len(t, x.Interfaces, 1)
	i := x.Interfaces[0]
	require.Equal(t, map[string]string{"mac": "02:00:00:00:00:09", "ips": "[those of IPAMClaim vm]"}, i.Fields())
	require.Equal(t, map[string]string{"mac": "ConfigMap default/m0, key p", "ips": "IPAMClaim default/vm"}, i.From)
	require.Empty(t, i.Lost)
}
