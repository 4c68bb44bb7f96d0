package cniconf

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// multusRecord is what Multus v4.3.0 wrote for a pod with four networks: a
// list from disk, a NAD with requests, a device, the auxiliary chain.
func multusRecord(t *testing.T) []MultusDelegate {
	t.Helper()
	data, err := os.ReadFile("testdata/multus-v4.3.0.json")
	require.NoError(t, err)
	list, err := ParseMultusCache(data, "eth0")
	require.NoError(t, err)
	require.Len(t, list, 4)
	return list
}

func TestMultusRecordTellsNetworksAndInterfaces(t *testing.T) {
	list := multusRecord(t)
	var got []string
	for _, d := range list {
		got = append(got, d.Network+" "+d.IfName+" "+d.Chain.Name)
	}
	require.Equal(t, []string{
		"kube-ovn eth0 kube-ovn", "default/macvlan1-config net1 macvlan1-config", "ns1/sriov fast0 sriov", "aux net3 aux",
	}, got)
	require.True(t, list[0].Default)
	require.False(t, list[1].Default)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.1.1.254")}, list[1].Gateways)
	require.Equal(t, "0000:03:02.1 intel.com/vf", list[2].Device+" "+list[2].Resource)
	require.True(t, list[2].Chain.Single)
}

// TestMultusRecordGivesTheCallsOfTheADD: keys that Multus does not know, what
// the pod asked for, the device, and what only libcni kept.
func TestMultusRecordGivesTheCallsOfTheADD(t *testing.T) {
	list := multusRecord(t)
	ports, err := ParseLibcniCache([]byte(`{"kind":"cniCacheV1","containerId":"c1","config":"e30=","ifName":"eth0","networkName":"kube-ovn",
		"netns":"/run/netns/a","cniArgs":[["IgnoreUnknown","true"],["K8S_POD_NAME","p"]],
		"capabilityArgs":{"portMappings":[{"hostPort":8080}]},
		"result":{"cniVersion":"0.3.1","interfaces":[{"name":"eth0","sandbox":"/run/netns/a"}],"ips":[{"version":"4","interface":0,"address":"10.16.0.5/16"}],"dns":{}}}`))
	require.NoError(t, err)
	require.Equal(t, "kube-ovn-c1-eth0", LibcniCacheName(ports.Network, core.Key{Container: ports.Container, IfName: ports.IfName}))

	calls, err := list[0].Execs(ports, "IgnoreUnknown=1")
	require.NoError(t, err)
	require.Len(t, calls, 1, "kube-ovn is served in process")
	require.Equal(t, "portmap", calls[0].Type)
	require.Equal(t, "IgnoreUnknown=true;K8S_POD_NAME=p", calls[0].Args)
	require.JSONEq(t, `{"type":"portmap","name":"kube-ovn","cniVersion":"0.3.1","snat":true,"capabilities":{"portMappings":true},
		"runtimeConfig":{"portMappings":[{"hostPort":8080}]}}`, string(calls[0].Conf))
	require.Contains(t, string(calls[0].Prev), "10.16.0.5/16")

	calls, err = list[1].Execs(LibcniCache{}, "IgnoreUnknown=1")
	require.NoError(t, err)
	require.Equal(t, []string{"macvlan", "tuning"}, []string{calls[0].Type, calls[1].Type})
	require.Equal(t, "IgnoreUnknown=1", calls[1].Args)
	require.JSONEq(t, `{"type":"macvlan","name":"macvlan1-config","cniVersion":"1.0.0","master":"bond0","capabilities":{"ips":true,"mac":true},
		"ipam":{"type":"static"},"args":{"cni":{"foo":"bar"}},"runtimeConfig":{"ips":["10.1.1.11/24"],"mac":"02:00:00:00:00:77"}}`, string(calls[0].Conf))
	require.Empty(t, calls[0].Prev)

	calls, err = list[2].Execs(LibcniCache{}, "")
	require.NoError(t, err)
	require.Contains(t, string(calls[0].Conf), `"pciBusID":"0000:03:02.1"`)

	calls, err = list[3].Execs(LibcniCache{}, "")
	require.NoError(t, err)
	require.Equal(t, "tuning", calls[0].Type, "passthru is Multus' own and does nothing")
	require.Contains(t, string(calls[0].Conf), "arp_filter")
}

// TestComplaint_TornCache: a record that a power loss cut, or somebody's junk,
// is an error and nothing else.
func TestComplaint_TornCache(t *testing.T) {
	data, err := os.ReadFile("testdata/multus-v4.3.0.json")
	require.NoError(t, err)
	whole := strings.TrimSpace(string(data))
	for _, junk := range []string{"", "null", "{}", "[null]", "[1]", `[{"Bytes":"!"}]`, `[{"Name":1}]`, `[{}]`,
		`[{"Bytes":"e30="}]`, `[{"CNINetworkConfigList":{"Plugins":[null]}}]`, `[{"CNINetworkConfigList":7}]`, whole[:len(whole)/2]} {
		_, err := ParseMultusCache([]byte(junk), "eth0")
		require.Error(t, err, junk)
		require.Contains(t, []uint{core.CodeDecode, core.CodeConfig}, core.CodeOf(err), junk)
	}
	for _, junk := range []string{"", "null", "[]", `{"kind":"x"}`, `{"kind":"cniCacheV1","result":{"cniVersion":"1.0.0","ips":[null]}}`, `{"kind":"cniCacheV1","cniArgs":[1]}`} {
		_, err := ParseLibcniCache([]byte(junk))
		require.Error(t, err, junk)
	}
	empty, err := ParseMultusCache([]byte("[]"), "eth0")
	require.NoError(t, err)
	require.Empty(t, empty)
}

func FuzzParseMultusCache(f *testing.F) {
	data, err := os.ReadFile("testdata/multus-v4.3.0.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ParseMultusCache(data, "eth0")
		if err != nil {
			return
		}
		for _, d := range list {
			calls, err := d.Execs(LibcniCache{}, "")
			require.NoError(t, err)
			require.LessOrEqual(t, len(calls), len(d.Chain.Plugins))
		}
	})
}
