package cniconf

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// statusOf is the status of one network with one plugin's result.
func statusOf(t *testing.T, isDefault bool, result string) []core.Net {
	t.Helper()
	s := core.Spec{Driver: "exec", Network: "default/n", Key: core.Key{Container: "c", IfName: "net1"}, Default: isDefault, Netns: core.Netns{Path: netns}}
	return Status([]core.Spec{s}, []core.Link{{IfName: "net1", PodSide: core.PodSide{MTU: 9000}, CNIResult: json.RawMessage(result)}})
}

// TestRule7_StatusIsExact: one entry per interface of the sandbox and one for a
// network that made none; what is the network's stands once.
func TestRule7_StatusIsExact(t *testing.T) {
	require.Equal(t, []core.Net{
		{
			Name: "default/n", Interface: "net1", MAC: "02:00:00:00:00:01", MTU: 9000, Default: true, IPs: []string{"10.0.1.2", "fd00::2"},
			Gateway: []string{"fd00::1"}, DNS: core.DNS{Domain: "d"},
		},
		{Name: "default/n", Interface: "net1b", MAC: "02:00:00:00:00:02", MTU: 1300, IPs: []string{"10.0.2.2"}, Gateway: []string{"10.0.2.1"}, DNS: core.DNS{Domain: "d"}},
	}, statusOf(t, true, `{"cniVersion":"1.1.0","interfaces":[{"name":"host"},
		{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"s"},{"name":"net1b","mac":"02:00:00:00:00:02","mtu":1300,"sandbox":"s"}],
		"ips":[{"address":"10.0.1.2/24","interface":1},{"address":"10.0.2.2/24","interface":2},{"address":"fd00::2/64"}],
		"routes":[{"dst":"0.0.0.0/0","gw":"10.0.2.1"},{"dst":"::/0","gw":"fd00::1"}],"dns":{"domain":"d"}}`))

	for name, c := range map[string]struct {
		result string
		want   core.Net
	}{
		"empty":                    {`{"cniVersion":"1.0.0"}`, core.Net{Name: "default/n", Default: true}},
		"an interface of the host": {`{"cniVersion":"1.0.0","interfaces":[{"name":"host"}]}`, core.Net{Name: "default/n", Default: true}},
		"no sandbox": {`{"cniVersion":"1.0.0","interfaces":[{"name":"net1"}],"ips":[{"address":"10.0.1.2/24","interface":0}]}`,
			core.Net{Name: "default/n", Default: true, Interface: "net1", MTU: 9000, IPs: []string{"10.0.1.2"}}},
		"no interfaces": {`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.1.2/24","gateway":"10.0.1.1","routes":[{"dst":"0.0.0.0/0"}]}}`,
			core.Net{Name: "default/n", Default: true, Interface: "net1", MTU: 9000, IPs: []string{"10.0.1.2"}, Gateway: []string{"10.0.1.1"}}},
		"a default route without gateway": {`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"s"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
			core.Net{Name: "default/n", Default: true, Interface: "net1", MTU: 9000}},
		"another name": {`{"cniVersion":"1.0.0","interfaces":[{"name":"x","sandbox":"s"},{"name":"y"}],"ips":[{"address":"10.0.1.2/24"}]}`,
			core.Net{Name: "default/n", Default: true, Interface: "x", IPs: []string{"10.0.1.2"}}},
	} {
		got := statusOf(t, true, c.result)
		require.Equal(t, []core.Net{c.want}, got, name)
		raw, err := json.Marshal(got)
		require.NoError(t, err)
		require.NotContains(t, string(raw), "nil")
	}
	for _, n := range statusOf(t, false, `{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"s"},{"name":"y","sandbox":"s"}]}`) {
		require.False(t, n.Default)
	}
}

// TestStatusPassesDeviceInformationOn: every entry of the network has it.
func TestStatusPassesDeviceInformationOn(t *testing.T) {
	info := json.RawMessage(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:02.0"}}`)
	s := core.Spec{Driver: "exec", Network: "default/n", Key: core.Key{IfName: "net1"}}
	nets := Status([]core.Spec{s}, []core.Link{{IfName: "net1", DeviceInfo: info, CNIResult: json.RawMessage(`{"cniVersion":"1.0.0"}`)}})
	require.Len(t, nets, 1)
	require.JSONEq(t, string(info), string(nets[0].DeviceInfo))
}
