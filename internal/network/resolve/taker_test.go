package resolve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestEmptyDefaultRoute: the list may be empty, and then asks for the default
// route through the network's own gateway.
func TestEmptyDefaultRoute(t *testing.T) {
	w := standard()
	w.note(networks, `[{"name":"second","default-route":[]},{"name":"plain"}]`)
	wants := resolved(t, w, nil)
	require.Equal(t, addr("10.20.0.1"), wants[1].Gateways, "a network of ours has its Subnet's gateway")
	require.False(t, wants[1].TakesDefault)

	w.note(networks, `[{"name":"second"},{"name":"plain","default-route":[]}]`)
	wants = resolved(t, w, nil)
	require.True(t, wants[2].TakesDefault)
	require.Empty(t, wants[2].Gateways)

	w.note(networks, `[{"name":"second"},{"name":"plain","default-route":null}]`)
	require.False(t, resolved(t, w, nil)[2].TakesDefault)

	for _, both := range []string{
		`[{"name":"plain","default-route":[]},{"name":"second","default-route":["10.20.0.1"]}]`,
		`[{"name":"plain","default-route":[]},{"name":"plain","default-route":[]}]`,
	} {
		w.note(networks, both)
		_, err := Resolve(t.Context(), w, Input{Request: request()})
		require.Equal(t, core.CodeConflict, core.CodeOf(err))
		require.ErrorContains(t, err, networks+"[1].default-route")
	}
}

// TestFormerNameOfInterface: Multus reads interfaceRequest where interface is
// absent.
func TestFormerNameOfInterface(t *testing.T) {
	w := standard()
	w.note(networks, `[{"name":"second","interfaceRequest":"old0"},{"name":"plain","interfaceRequest":"old1","interface":"new1"}]`)
	wants := resolved(t, w, nil)
	require.Equal(t, "old0 new1", wants[1].IfName+" "+wants[2].IfName)
}
