package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
)

// Our own default network has one name, whatever runtimes call it; networks
// that a configuration delegates to keep theirs.
func TestDefaultNetworkHasOneName(t *testing.T) {
	spec := func(network, version string, def bool) core.Record {
		return core.Record{Network: "k8s-pod-network", Specs: []core.Spec{{Network: network, CNIVersion: version, Default: def}}}
	}
	for want, rec := range map[string]core.Record{
		agent.DefaultNet:  spec("k8s-pod-network", "", true),
		"kube-ovn":        spec("kube-ovn", "0.3.1", true),
		"k8s-pod-network": spec("k8s-pod-network", "1.0.0", true), // a delegate of the same name
		"default/storage": spec("default/storage", "", false),
	} {
		require.Equal(t, want, interfaces(rec)[0].Network)
	}
	require.Equal(t, agent.DefaultNet, interfaces(core.Record{Specs: []core.Spec{{Default: true}}})[0].Network, "adopted")
}

func TestGone(t *testing.T) {
	require.False(t, gone("/proc/self/ns/net"))
	require.True(t, gone(t.TempDir()+"/none"))
	require.True(t, gone(t.TempDir()), "a file that a bind mount left")
}

// What the drivers could not do, and the device, are told to people too.
func TestShapeTellsWarningsAndDevices(t *testing.T) {
	key := core.Key{Container: "c", IfName: "net1"}
	rec := core.Record{
		Specs:    []core.Spec{{Key: key, Exec: &core.Exec{Type: "a"}}, {Key: key, Exec: &core.Exec{Type: "b"}}},
		Links:    []core.Link{{Warnings: []string{"one"}}, {Warnings: []string{"two"}}},
		Statuses: []core.Net{{Name: "ns/n", DeviceInfo: []byte(`{"type":"pci"}`)}},
	}
	require.Equal(t, []string{"one", "two"}, interfaces(rec)[0].Warnings)
	require.JSONEq(t, `{"type":"pci"}`, string(networkStatus(rec.Statuses)[0].DeviceInfo))
}
