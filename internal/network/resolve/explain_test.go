package resolve

import (
	"testing"

	"github.com/stretchr/testify/require"

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
