package cniconf

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

const multusConf = `{
  "cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus",
  "capabilities": {"portMappings": true},
  "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig",
  "delegates": [{"name": "kube-ovn", "cniVersion": "0.3.1", "plugins": [
    {"type": "kube-ovn", "server_socket": "/run/openvswitch/kube-ovn-daemon.sock"},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}]
}`

func TestParseReadsAMultusConfiguration(t *testing.T) {
	c, err := Parse([]byte(multusConf))
	require.NoError(t, err)
	require.Equal(t, "multus", c.Type)
	require.Equal(t, "0.3.1", c.CNIVersion)
	require.Equal(t, map[string]bool{"portMappings": true}, c.Capabilities)
	require.Len(t, c.Delegates, 1)
	chain := c.Delegates[0]
	require.Equal(t, "kube-ovn", chain.Name)
	require.False(t, chain.Single)
	require.True(t, chain.Plugins[0].Own())
	require.False(t, chain.Plugins[1].Own())
	require.True(t, chain.Plugins[1].Capabilities["portMappings"])
	require.False(t, c.HasValid)
}

func TestParseReadsOurOwnKeys(t *testing.T) {
	c, err := Parse([]byte(`{"cniVersion":"1.1.0","name":"net","type":"kube-ovn","provider":"a.b.ovn",
	 "routes":[{"dst":"10.1.2.3/16","gw":"10.0.0.1"},{"dst":"fd00::/8"}],
	 "dns":{"nameservers":["1.1.1.1"],"domain":"d","search":["s"],"options":["o"]},
	 "runtimeConfig":{"portMappings":[{"hostPort":1}]},"namespaceIsolation":true,"binDir":"/opt/bin",
	 "prevResult":{"cniVersion":"1.1.0"},
	 "cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}],"unknown":[1,2]}`))
	require.NoError(t, err)
	require.Equal(t, "a.b.ovn", c.Provider)
	require.Equal(t, []core.Route{
		{Dst: netip.MustParsePrefix("10.1.0.0/16"), GW: netip.MustParseAddr("10.0.0.1")},
		{Dst: netip.MustParsePrefix("fd00::/8")},
	}, c.Routes)
	require.Equal(t, core.DNS{Nameservers: []string{"1.1.1.1"}, Domain: "d", Search: []string{"s"}, Options: []string{"o"}}, c.DNS)
	require.JSONEq(t, `[{"hostPort":1}]`, string(c.RuntimeConfig["portMappings"]))
	require.Equal(t, []string{"default"}, c.GlobalNamespaces)
	require.Equal(t, "/opt/bin", c.BinDir)
	require.NotEmpty(t, c.PrevResult)
	require.True(t, c.HasValid)
	require.Equal(t, []core.Key{{Container: "c", IfName: "eth0"}}, c.Valid)
}

func TestParseServesAsIPAMOfAnotherType(t *testing.T) {
	c, err := Parse([]byte(`{"cniVersion":"0.3.1","name":"n","type":"macvlan",
	 "ipam":{"type":"kube-ovn","server_socket":"/s","provider":"p.ns","routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]}}`))
	require.NoError(t, err)
	require.Equal(t, "macvlan", c.Type)
	require.Equal(t, "p.ns", c.Provider)
	require.Len(t, c.Routes, 1)
}

func TestParseTellsAnEmptyListFromAMissingOne(t *testing.T) {
	for text, want := range map[string]bool{
		`"cni.dev/valid-attachments":[]`:   true,
		`"cni.dev/valid-attachments":null`: false, // as cnitool gc has it
		`"cni.dev/attachments":[]`:         true,
		`"x":1`:                            false,
	} {
		c, err := Parse([]byte(`{"name":"n","type":"fairlead",` + text + `}`))
		require.NoError(t, err, text)
		require.Equal(t, want, c.HasValid, text)
		require.Empty(t, c.Valid)
		require.Equal(t, "0.1.0", c.CNIVersion)
	}
}

// refusals: what stands in the object beside a valid name and type (which the
// text may repeat to replace them), the code, and what the message must name.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		conf string
		code uint
		name string
	}{
		{``, 6, "JSON"},
		{`{`, 6, "JSON"},
		{`null`, 6, "null"},
		{`[]`, 6, "array"},
		{`"x"`, 6, "string"},
		{`{} {}`, 6, "JSON"},
		{"{\"name\":\"\xff\"}", 6, "UTF-8"},
		{`{"type":"fairlead"}`, 7, "name"},
		{`{"name":"","type":"fairlead"}`, 7, "name"},
		{`{"name":"a/b","type":"fairlead"}`, 7, "name"},
		{`{"name":"../x","type":"fairlead"}`, 7, "name"},
		{`{"name":7,"type":"fairlead"}`, 7, "name"},
		{`{"name":"n"}`, 7, "type"},
		{`{"name":"n","type":["fairlead"]}`, 7, "type"},
		{`{"name":"n","type":"bridge"}`, 7, "type"},
		{`{"name":"n","type":"../fairlead"}`, 7, "type"},
		{`{"name":"n","type":"bridge","ipam":{"type":"host-local"}}`, 7, "ipam.type"},
		{`{"name":"n","type":"fairlead","cniVersion":"9.9.9"}`, 1, "cniVersion"},
		{`{"name":"n","type":"fairlead","cniVersion":"abc"}`, 1, "cniVersion"},
		{`{"name":"n","type":"fairlead","cniVersion":1.0}`, 7, "cniVersion"},
		{`{"name":"n","type":"fairlead","name":"m"}`, 7, "name"},
		{`{"name":"n","type":"fairlead","x":{"y":1,"y":2}}`, 7, "x.y"},
		{`{"name":"n","type":"fairlead","deep":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, 7, "deep"},
		{`{"name":"n","type":"fairlead","capabilities":"portMappings"}`, 7, "capabilities"},
		{`{"name":"n","type":"fairlead","capabilities":{"ips":"yes"}}`, 7, "capabilities"},
		{`{"name":"n","type":"fairlead","runtimeConfig":[]}`, 7, "runtimeConfig"},
		{`{"name":"n","type":"fairlead","prevResult":"x"}`, 7, "prevResult"},
		{`{"name":"n","type":"fairlead","prevResult":{"cniVersion":"7.0.0"}}`, 7, "prevResult"},
		{`{"name":"n","type":"fairlead","cniVersion":"1.0.0","prevResult":{"interfaces":[null]}}`, 7, "prevResult"},
		{`{"name":"n","type":"fairlead","provider":3}`, 7, "provider"},
		{`{"name":"n","type":"fairlead","provider":"a b"}`, 7, "provider"},
		{`{"name":"n","type":"fairlead","routes":{}}`, 7, "routes"},
		{`{"name":"n","type":"fairlead","routes":[null]}`, 7, "routes[0]"},
		{`{"name":"n","type":"fairlead","routes":[{"dst":"10.0.0.0"}]}`, 7, "routes[0].dst"},
		{`{"name":"n","type":"fairlead","routes":[{"dst":"10.0.0.0/8","gw":"fd00::1"}]}`, 7, "routes[0].gw"},
		{`{"name":"n","type":"fairlead","dns":[]}`, 7, "dns"},
		{`{"name":"n","type":"fairlead","dns":{"search":"x"}}`, 7, "dns.search"},
		{`{"name":"n","type":"fairlead","confDir":"etc"}`, 7, "confDir"},
		{`{"name":"n","type":"fairlead","binDir":{}}`, 7, "binDir"},
		{`{"name":"n","type":"fairlead","namespaceIsolation":"true"}`, 7, "namespaceIsolation"},
		{`{"name":"n","type":"fairlead","globalNamespaces":["a"]}`, 7, "globalNamespaces"},
		{`{"name":"n","type":"fairlead","kubeconfig":{}}`, 7, "kubeconfig"},
		{`{"name":"n","type":"fairlead","server_socket":1}`, 7, "server_socket"},
		{`{"name":"n","type":"fairlead","logToStderr":"no"}`, 7, "logToStderr"},
		{`{"name":"n","type":"fairlead","logOptions":3}`, 7, "logOptions"},
		{`{"name":"n","type":"fairlead","ipam":"x"}`, 7, "ipam"},
		{`{"name":"n","type":"fairlead","systemNamespaces":"kube-system"}`, 7, "systemNamespaces"},
		{`{"name":"n","type":"fairlead","systemNamespaces":["a/b"]}`, 7, "systemNamespaces"},
		{`{"name":"n","type":"fairlead","kubeconfig":"k"}`, 7, "kubeconfig"},
		{`{"name":"n","type":"fairlead","cniDir":"var"}`, 7, "cniDir"},
		{`{"name":"n","type":"fairlead","readinessindicatorfile":"x"}`, 7, "readinessindicatorfile"},
		{`{"name":"n","type":"fairlead","readinessindicatorfile":true}`, 7, "readinessindicatorfile"},
		{`{"name":"n","type":"fairlead","multusNamespace":"A"}`, 7, "multusNamespace"},
		{`{"name":"n","type":"fairlead","globalNamespaces":"a,b/c"}`, 7, "globalNamespaces"},
		{`{"name":"n","type":"fairlead","retryDeleteOnError":"yes"}`, 7, "retryDeleteOnError"},
		{`{"name":"n","type":"fairlead","auxiliaryCNIChainName":"../x"}`, 7, "auxiliaryCNIChainName"},
		{`{"name":"n","type":"fairlead","auxiliaryCNIChainName":["x"]}`, 7, "auxiliaryCNIChainName"},
		{`{"name":"n","type":"fairlead","logFile":"multus.log"}`, 7, "logFile"},
		{`{"name":"n","type":"fairlead","logLevel":"loud"}`, 7, "logLevel"},
		{`{"name":"n","type":"fairlead","logOptions":{"maxAge":"5"}}`, 7, "logOptions.maxAge"},
		{`{"name":"n","type":"fairlead","logOptions":{"maxSize":-1}}`, 7, "logOptions.maxSize"},
		{`{"name":"n","type":"fairlead","logOptions":{"maxBackups":1.5}}`, 7, "logOptions.maxBackups"},
		{`{"name":"n","type":"fairlead","logOptions":{"compress":1}}`, 7, "logOptions.compress"},
		{`{"name":"n","type":"multus","clusterNetwork":["net"]}`, 7, "clusterNetwork"},
		{`{"name":"n","type":"multus","clusterNetwork":"ns/net"}`, 7, "clusterNetwork"},
		{`{"name":"n","type":"multus","clusterNetwork":"net","delegates":[{"name":"d","type":"bridge"}]}`, 7, "delegates"},
		{`{"name":"n","type":"multus","defaultNetworks":"a"}`, 7, "defaultNetworks"},
		{`{"name":"n","type":"multus","defaultNetworks":[""]}`, 7, "defaultNetworks"},
		{`{"name":"n","type":"multus","defaultNetworks":["./a"]}`, 7, "defaultNetworks"},
		{`{"name":"n","type":"multus","defaultNetworks":["a"],"delegates":[{"name":"d","type":"bridge"}]}`, 7, "defaultNetworks"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","type":"fairlead","clusterNetwork":"x"}]}`, 7, "delegates[0].clusterNetwork"},
		{`{"name":"n","type":"fairlead","cni.dev/valid-attachments":{}}`, 7, "cni.dev/valid-attachments"},
		{`{"name":"n","type":"fairlead","cni.dev/attachments":[{"containerID":"c"}]}`, 7, "cni.dev/attachments[0]"},
		{`{"name":"n","type":"fairlead","cni.dev/attachments":[null]}`, 7, "cni.dev/attachments[0]"},
		{`{"name":"n","type":"multus","delegates":{}}`, 7, "delegates"},
		{`{"name":"n","type":"multus","delegates":[]}`, 7, "delegates"},
		{`{"name":"n","type":"multus","delegates":[null]}`, 7, "delegates[0]"},
		{`{"name":"n","type":"multus","delegates":["bridge"]}`, 7, "delegates[0]"},
		{`{"name":"n","type":"multus","delegates":[{"type":"bridge"}]}`, 7, "delegates[0].name"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d"}]}`, 7, "delegates[0].type"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":[]}]}`, 7, "delegates[0].plugins"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":null}]}`, 7, "delegates[0].plugins"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":"x"}]}`, 7, "delegates[0].plugins"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":[null]}]}`, 7, "delegates[0].plugins[0]"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":[{}]}]}`, 7, "delegates[0].plugins[0].type"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":[{"type":"a/b"}]}]}`, 7, "delegates[0].plugins[0].type"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":[{"type":".."}]}]}`, 7, "delegates[0].plugins[0].type"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":[{"type":"a","capabilities":[]}]}]}`, 7, "capabilities"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","cniVersion":"8.0.0","plugins":[{"type":"a"}]}]}`, 1, "cniVersion"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","disableCheck":3,"plugins":[{"type":"a"}]}]}`, 7, "disableCheck"},
		{`{"name":"n","type":"multus","delegates":[{"name":"d","type":"multus","delegates":[{"name":"e","type":"bridge"}]}]}`, 7, "delegates[0].delegates"},
	} {
		_, err := Parse([]byte(c.conf))
		var e *core.Error
		require.True(t, errors.As(err, &e), "%s: %v", c.conf, err)
		require.Equal(t, c.code, e.Code, "%s: %v", c.conf, err)
		require.Contains(t, e.Error(), c.name, c.conf)
	}
}

// TestParseReadsTheKeysOfAMetaPlugin is the example of Multus' reference.
func TestParseReadsTheKeysOfAMetaPlugin(t *testing.T) {
	c, err := Parse([]byte(`{"cniVersion":"0.3.1","name":"node-cni-network","type":"multus",
		"kubeconfig":"/etc/kubernetes/node-kubeconfig.yaml","confDir":"/etc/cni/multus/net.d","cniDir":"/var/lib/cni/multus","binDir":"/opt/cni/bin",
		"logFile":"/var/log/multus.log","logLevel":"Debug","logToStderr":false,
		"logOptions":{"maxAge":5,"maxSize":100,"maxBackups":5,"compress":true},"capabilities":{"portMappings":true},
		"namespaceIsolation":false,"clusterNetwork":"/etc/cni/net.d/99-flannel.conf","defaultNetworks":["sidecarCRD","exampleNetwork"],
		"systemNamespaces":["kube-system","admin"],"multusNamespace":"kube-system","auxiliaryCNIChainName":"cni-chain-config",
		"readinessindicatorfile":"/run/ready","retryDeleteOnError":true,"allowTryDeleteOnErr":false}`))
	require.NoError(t, err)
	require.Equal(t, "/etc/cni/net.d/99-flannel.conf", c.ClusterNetwork)
	require.Equal(t, []string{"sidecarCRD", "exampleNetwork"}, c.DefaultNetworks)
	require.Equal(t, []string{"kube-system", "admin"}, c.SystemNamespaces)
	require.Equal(t, "kube-system", c.MultusNamespace)
	require.Equal(t, "cni-chain-config", c.AuxChain)
	require.Equal(t, "/run/ready", c.ReadinessFile)
	require.Equal(t, "/etc/cni/multus/net.d /opt/cni/bin /var/lib/cni/multus", c.ConfDir+" "+c.BinDir+" "+c.CNIDir)
	require.Equal(t, "/etc/kubernetes/node-kubeconfig.yaml", c.Kubeconfig)
	require.Nil(t, c.GlobalNamespaces)

	c, err = Parse([]byte(`{"name":"n","type":"multus","systemNamespaces":[],"clusterNetwork":"","globalNamespaces":"default, a ,b","namespaceIsolation":true}`))
	require.NoError(t, err)
	require.Equal(t, []string{}, c.SystemNamespaces, "an empty list is a list")
	require.Equal(t, []string{"default", "a", "b"}, c.GlobalNamespaces)
}

// TestParseFile: the rules of lists in files (CNI spec 1.1, "Configuration
// format"), whose plugins may stand in a folder of their own.
func TestParseFile(t *testing.T) {
	f, err := ParseFile("10-net.conflist", []byte(`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"a"}]}`))
	require.NoError(t, err)
	require.True(t, f.Folder)
	require.NoError(t, Append(&f.Chain, []byte(`{"name":"x","type":"tuning"}`)))
	require.Equal(t, "tuning", f.Chain.Plugins[1].Type)

	f, err = ParseFile("10-net.conflist", []byte(`{"cniVersion":"1.0.0","name":"net"}`))
	require.NoError(t, err, "all plugins may stand in the folder")
	require.True(t, f.Folder)
	require.Empty(t, f.Chain.Plugins)
	require.Equal(t, "1.0.0", f.Chain.CNIVersion)

	for _, only := range []string{`true`, `"true"`} {
		f, err = ParseFile("10-net.conflist", []byte(`{"name":"net","loadOnlyInlinedPlugins":`+only+`,"plugins":[{"type":"a"}]}`))
		require.NoError(t, err)
		require.False(t, f.Folder)
	}
	f, err = ParseFile("10-net.conf", []byte(`{"name":"net","type":"a"}`))
	require.NoError(t, err)
	require.False(t, f.Folder)
	require.True(t, f.Chain.Single)

	for _, bad := range []string{"", "null", "[]", `{"plugins":[{"type":"a"}]}`, `{"name":"net","plugins":[]}`, `{"name":"net","plugins":[null]}`,
		`{"name":"net","loadOnlyInlinedPlugins":true}`, `{"name":"net","loadOnlyInlinedPlugins":7}`, `{"name":"net","cniVersion":"9.0.0"}`} {
		_, err := ParseFile("10-net.conflist", []byte(bad))
		refusedWell(t, err)
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"", "null", "[]", `{}`, `{"type":"a/b"}`, `{"type":"multus","delegates":[]}`} {
		refusedWell(t, Append(&f.Chain, []byte(bad)))
		require.Error(t, Append(&f.Chain, []byte(bad)), bad)
	}
}

func TestParseChainKeepsNumbersAndNegotiates(t *testing.T) {
	c, err := ParseChain([]byte(`{"cniVersions":["0.4.0","1.0.0","99.0.0"],"cniVersion":"0.3.1","disableCheck":"true","disableGC":true,
	 "plugins":[{"type":"x","big":9007199254740993}]}`), "nad")
	require.NoError(t, err)
	require.Equal(t, "nad", c.Name)
	require.Equal(t, "1.0.0", c.CNIVersion)
	require.True(t, c.DisableCheck)
	require.True(t, c.DisableGC)
	require.Contains(t, string(c.Plugins[0].Raw), "9007199254740993")

	c, err = ParseChain([]byte(`{"type":"bridge","name":"own"}`), "nad")
	require.NoError(t, err)
	require.Equal(t, "own", c.Name)
	require.True(t, c.Single)
	require.Equal(t, "0.1.0", c.CNIVersion)

	_, err = ParseChain([]byte(`{"type":"bridge"}`), "")
	require.ErrorContains(t, err, "name")
}

func TestPluginConf(t *testing.T) {
	chain, err := ParseChain([]byte(`{"name":"net","cniVersion":"0.4.0","plugins":[{"type":"p","x":9007199254740993,
	 "capabilities":{"ips":true,"mac":false},"args":{"other":1,"cni":{"a":1,"b":2}},"prevResult":{}}]}`), "")
	require.NoError(t, err)
	raw, err := PluginConf(chain, chain.Plugins[0], Inject{
		RuntimeConfig: map[string]json.RawMessage{"ips": json.RawMessage(`["1.2.3.4/8"]`), "mac": json.RawMessage(`"m"`), "no": json.RawMessage(`1`)},
		CNIArgs:       map[string]json.RawMessage{"b": json.RawMessage(`3`)},
		DeviceID:      "0000:01:00.1",
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"net","cniVersion":"0.4.0","type":"p","x":9007199254740993,
	 "capabilities":{"ips":true,"mac":false},"args":{"other":1,"cni":{"a":1,"b":3}},
	 "runtimeConfig":{"ips":["1.2.3.4/8"]},"deviceID":"0000:01:00.1","pciBusID":"0000:01:00.1"}`, string(raw))
	require.Contains(t, string(raw), "9007199254740993")

	raw, err = WithPrev(raw, json.RawMessage(`{"cniVersion":"0.4.0"}`))
	require.NoError(t, err)
	require.Contains(t, string(raw), `"prevResult":{"cniVersion":"0.4.0"}`)

	raw, err = WithValid(json.RawMessage(`{}`), []core.Key{{Container: "c", IfName: "i"}})
	require.NoError(t, err)
	require.JSONEq(t, `{"cni.dev/valid-attachments":[{"containerID":"c","ifname":"i"}],
	 "cni.dev/attachments":[{"containerID":"c","ifname":"i"}]}`, string(raw))

	_, err = PluginConf(chain, core.Plugin{Type: "p", Raw: json.RawMessage(`{"args":3}`)},
		Inject{CNIArgs: map[string]json.RawMessage{"b": json.RawMessage(`3`)}})
	require.ErrorContains(t, err, "args")
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
}

func TestParseArgs(t *testing.T) {
	got, err := ParseArgs("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=a=b;;E=")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"IgnoreUnknown": "1", "K8S_POD_NAMESPACE": "ns", "K8S_POD_NAME": "a=b", "E": ""}, got)
	got, err = ParseArgs("IgnoreUnknown=true;K8S_POD_NAME=p;IgnoreUnknown=1;K8S_POD_NAME=p")
	require.NoError(t, err, "Multus says it twice")
	require.Equal(t, map[string]string{"IgnoreUnknown": "1", "K8S_POD_NAME": "p"}, got)
	for _, bad := range []string{"x", "=v", "A=1;A=2", "A=1;b"} {
		_, err := ParseArgs(bad)
		require.Equal(t, core.CodeEnv, core.CodeOf(err), bad)
		require.ErrorContains(t, err, "CNI_ARGS")
	}
}

func TestSeedConfigurationsParse(t *testing.T) {
	for _, f := range []string{"00-multus.conf", "01-kube-ovn.conflist"} {
		raw, err := os.ReadFile("testdata/" + f)
		require.NoError(t, err)
		if strings.HasSuffix(f, "list") {
			_, err = ParseChain(raw, "")
		} else {
			_, err = Parse(raw)
		}
		require.NoError(t, err, f)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(multusConf))
	for _, notes := range []string{`null`, `{}`, `{"a/b":"c","":"d"}`, `{"k8s.v1.cni.cncf.io/networks":"a,b@c"}`, `{"a":null}`, `[{"a":"b"}]`} {
		f.Add([]byte(`{"name":"n","type":"fairlead","runtimeConfig":{"io.kubernetes.cri.pod-annotations":` + notes + `}}`))
	}
	f.Add([]byte(`{"name":"n","type":"macvlan","ipam":{"type":"kube-ovn"},"prevResult":{"interfaces":[null]}}`))
	f.Add([]byte(`{"name":"n","type":"multus","delegates":[{"name":"d","plugins":[null]}]}`))
	f.Add([]byte(`{"name":"n","type":"fairlead","cniVersion":"0.2.0","prevResult":{"ip4":null}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := Parse(in)
		refusedWell(t, err)
		if err == nil && (c.Name == "" || c.Type == "" || c.CNIVersion == "") {
			t.Fatalf("accepted without name, type or version: %s", in)
		}
		if lasting, lastErr := Lasting(c); err == nil {
			d, err := Parse(lasting)
			if lastErr != nil || err != nil || d.Annotations != nil || d.Name != c.Name || len(d.Delegates) != len(c.Delegates) {
				t.Fatalf("what lasts of %s is %s: %v %v", in, lasting, lastErr, err)
			}
		}
		chain, err := ParseChain(in, "fallback")
		refusedWell(t, err)
		if err != nil {
			return
		}
		for _, p := range chain.Plugins {
			if p.Type == "" || strings.Contains(p.Type, "/") {
				t.Fatalf("accepted type %q", p.Type)
			}
			if _, err := PluginConf(chain, p, Inject{}); err != nil {
				t.Fatalf("no stdin for an accepted plugin: %v", err)
			}
		}
	})
}

func FuzzArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p")
	f.Add(";;=;a=b=c")
	f.Fuzz(func(t *testing.T, in string) {
		_, err := ParseArgs(in)
		refusedWell(t, err)
	})
}

// refusedWell: every refusal has a code of its own and says something.
func refusedWell(t *testing.T, err error) {
	t.Helper()
	var e *core.Error
	if err != nil && (!errors.As(err, &e) || e.Msg == "") {
		t.Fatalf("refused without a code: %v", err)
	}
}
