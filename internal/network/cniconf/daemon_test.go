package cniconf

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestParseDaemonReadsMultusFiles: the file of upstream's manifest, with every
// other key that it may have.
func TestParseDaemonReadsMultusFiles(t *testing.T) {
	d, err := ParseDaemon([]byte(`{"chrootDir":"/hostroot","cniVersion":"0.3.1","logLevel":"verbose","logToStderr":true,"logFile":"/tmp/multus.log",
		"cniConfigDir":"/host/etc/cni/net.d","multusAutoconfigDir":"/host/etc/cni/net.d","multusConfigFile":"auto","socketDir":"/host/run/multus/",
		"metricsPort":9091,"connectionLimit":200,"forceCNIVersion":true,"overrideNetworkName":true,"multusMasterCNI":"10-kindnet.conflist",
		"perNodeCertificate":{"enabled":true,"bootstrapKubeconfig":"/var/lib/kubelet/kubeconfig","certDir":"/etc/cni/net.d/multus.d/certs","certDuration":"24h"},
		"capabilities":{"portMappings":true},"auxiliaryCNIChainName":"vendor-cni-chain","enablePprof":true,"tpyo":1}`))
	require.NoError(t, err)
	require.Equal(t, "/host/run/multus/", d.SocketDir)
	require.Equal(t, []int{9091, 200}, []int{d.MetricsPort, d.ConnectionLimit})
	require.Equal(t, PerNodeCertificate{true, "/var/lib/kubelet/kubeconfig", "/etc/cni/net.d/multus.d/certs", 24 * time.Hour}, d.PerNodeCertificate)
	require.Equal(t, "/host/etc/cni/net.d", d.CNIConfigDir)
	require.Equal(t, "/host/etc/cni/net.d", d.AutoconfigDir)
	require.Equal(t, "auto", d.ConfigFile)
	require.Equal(t, "10-kindnet.conflist 0.3.1", d.MasterCNI+" "+d.CNIVersion)
	require.True(t, d.ForceCNIVersion && d.OverrideNetworkName && d.Capabilities["portMappings"])
	require.Equal(t, []string{"chrootDir", "enablePprof", "tpyo"}, d.Unknown)

	d, err = ParseDaemon([]byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, Daemon{
		CNIConfigDir: "/etc/cni/net.d", AutoconfigDir: "/etc/cni/net.d",
		PerNodeCertificate: PerNodeCertificate{CertDuration: 10 * time.Minute}, set: map[string]bool{},
	}, d)
}

// TestDaemonOverridesTheConfiguration: the agent's file wins, key by key.
func TestDaemonOverridesTheConfiguration(t *testing.T) {
	d, err := ParseDaemon([]byte(`{"clusterNetwork":"/etc/cni/net.d/10-kindnet.conflist","confDir":"/a","namespaceIsolation":true,"systemNamespaces":[],"binDir":null}`))
	require.NoError(t, err)
	c := d.Over(core.Conf{
		Name: "n", Delegates: []core.Chain{{Name: "x"}}, ConfDir: "/b", BinDir: "/bin", AuxChain: "aux", SystemNamespaces: []string{"kube-system"},
	})
	require.Equal(t, core.Conf{
		Name: "n", ClusterNetwork: "/etc/cni/net.d/10-kindnet.conflist", ConfDir: "/a", BinDir: "/bin", AuxChain: "aux",
		NamespaceIsolation: true, SystemNamespaces: []string{},
	}, c)

	d, err = ParseDaemon([]byte(`{"delegates":[{"name":"d","type":"bridge"}]}`))
	require.NoError(t, err)
	c = d.Over(core.Conf{ClusterNetwork: "x", DefaultNetworks: []string{"y"}})
	require.Empty(t, c.ClusterNetwork)
	require.Empty(t, c.DefaultNetworks)
	require.Equal(t, "d", c.Delegates[0].Name)
}

func TestParseDaemonNamesTheKey(t *testing.T) {
	for _, c := range []struct {
		conf string
		code uint
		name string
	}{
		{``, 6, "JSON"}, {`null`, 6, "null"}, {`[]`, 6, "array"}, {`{"a":1,"a":2}`, 7, `"a"`},
		{`{"chrootDir":"x"}`, 7, "chrootDir"},
		{`{"enablePprof":1}`, 7, "enablePprof"},
		{`{"socketDir":1}`, 7, "socketDir"},
		{`{"metricsPort":"9091"}`, 7, "metricsPort"},
		{`{"metricsPort":70000}`, 7, "metricsPort"},
		{`{"metricsPort":0}`, 7, "metricsPort"},
		{`{"connectionLimit":-1}`, 7, "connectionLimit"},
		{`{"perNodeCertificate":true}`, 7, "perNodeCertificate"},
		{`{"perNodeCertificate":{"enabled":true}}`, 7, "perNodeCertificate.bootstrapKubeconfig"},
		{`{"perNodeCertificate":{"enabled":true,"bootstrapKubeconfig":"/k"}}`, 7, "perNodeCertificate.certDir"},
		{`{"perNodeCertificate":{"certDuration":"soon"}}`, 7, "perNodeCertificate.certDuration"},
		{`{"perNodeCertificate":{"certDuration":"-1h"}}`, 7, "perNodeCertificate.certDuration"},
		{`{"cniConfigDir":"etc"}`, 7, "cniConfigDir"},
		{`{"multusAutoconfigDir":{}}`, 7, "multusAutoconfigDir"},
		{`{"multusConfigFile":"00-multus.conf"}`, 7, "multusConfigFile"},
		{`{"multusConfigFile":"/a/00-multus.conf","multusMasterCNI":"10-x.conf"}`, 7, "multusConfigFile"},
		{`{"multusMasterCNI":"/etc/cni/net.d/10-x.conf"}`, 7, "multusMasterCNI"},
		{`{"multusMasterCNI":".."}`, 7, "multusMasterCNI"},
		{`{"forceCNIVersion":"true"}`, 7, "forceCNIVersion"},
		{`{"forceCNIVersion":true}`, 7, "forceCNIVersion"},
		{`{"overrideNetworkName":1}`, 7, "overrideNetworkName"},
		{`{"cniVersion":"9.9.9"}`, 1, "cniVersion"},
		{`{"capabilities":[]}`, 7, "capabilities"},
		{`{"logLevel":"loud"}`, 7, "logLevel"},
		{`{"clusterNetwork":"x","delegates":[{"name":"d","type":"bridge"}]}`, 7, "delegates"},
	} {
		_, err := ParseDaemon([]byte(c.conf))
		require.Error(t, err, c.conf)
		require.Equal(t, c.code, core.CodeOf(err), "%s: %v", c.conf, err)
		require.Contains(t, err.Error(), c.name, c.conf)
	}
}

func FuzzParseDaemon(f *testing.F) {
	f.Add([]byte(`{"perNodeCertificate":{"enabled":true},"delegates":[null]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := ParseDaemon(in)
		refusedWell(t, err)
		if err == nil {
			d.Over(core.Conf{})
		}
	})
}
