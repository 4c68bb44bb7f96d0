package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestMacvlanWithoutMaster: the plugin then takes the interface of the node's
// default route; a node without one says so, by the name of the network, and the
// pod gets nothing.
func TestMacvlanWithoutMaster(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": together(
		nadObject("mac", `{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"host-local","dataDir":"/run/ipam","subnet":"10.62.0.0/24"}}`),
		asking("p", "mac"))})
	before := n.Inventory()
	p := n.NewPod("p")
	e := p.CNI("ADD", ownConf).Err()
	require.NotNil(t, e)
	require.Contains(t, e.Msg, `"macvlan"`)
	require.Contains(t, e.Msg, `"mac"`)
	require.Contains(t, e.Msg, "default route")
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	p.Delete()
	n.RequireNoLeaks(before)

	n.Outside()
	before = n.Inventory()
	p = n.NewPod("p")
	added := p.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"10.62.0.2/24"}, addresses(t, p, "net1"))
	require.Equal(t, "macvlan", kind(linkOf(t, p, "net1")))
	require.InDelta(t, linkOf(t, n, testbed.OutsideIf)["ifindex"], linkOf(t, p, "net1")["link_index"], 0)
	p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
	p.CNI("DEL", ownConf).Must()
	p.Delete()
	n.RequireNoLeaks(before)
}
