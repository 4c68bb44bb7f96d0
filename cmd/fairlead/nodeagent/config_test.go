package nodeagent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestConfigFile: what the file says serves where the command line says nothing.
func TestConfigFile(t *testing.T) {
	const perNode = `"perNodeCertificate": {"enabled": true, "bootstrapKubeconfig": "/boot", "certDir": "/certs", "certDuration": "24h"}`
	for _, c := range []struct {
		name, file string
		flags      agentOptions
		changed    []string
		want       func(o *agentOptions)
	}{
		{name: "nothing", file: `{}`, want: func(*agentOptions) {}},
		{
			name: "all", file: `{"socketDir": "/run/multus", "metricsPort": 9091, "kubeconfig": "/kube"}`,
			want: func(o *agentOptions) { o.socket, o.http, o.kubeconfig = "/run/multus/agent.sock", ":9091", "/kube" },
		},
		{
			name: "flags count more", file: `{"socketDir": "/run/multus", "metricsPort": 9091, "kubeconfig": "/kube"}`,
			flags:   agentOptions{socket: "/mine", http: "127.0.0.1:1", clusterOptions: clusterOptions{kubeconfig: "/other"}},
			changed: []string{"socket", "http"},
			want:    func(o *agentOptions) { o.socket, o.http, o.kubeconfig = "/mine", "127.0.0.1:1", "/other" },
		},
		{
			name: "the runtime's configuration, as Multus' daemon writes it", file: `{"multusConfigFile": "auto", "multusMasterCNI": "10-x.conf"}`,
			want: func(o *agentOptions) { o.cniConf, o.cniMaster = "auto", "10-x.conf" },
		},
		{
			name: "it lies over what is there", file: `{"multusConfigFile": "auto"}`,
			want: func(o *agentOptions) { o.cniConf, o.cniMaster = "auto", "auto" },
		},
		{
			name: "it lies over the network that the file names", file: `{"multusConfigFile": "auto", "clusterNetwork": "x"}`,
			want: func(o *agentOptions) { o.cniConf = "auto" },
		},
		{
			name: "the flag counts more", file: `{"multusConfigFile": "auto"}`, changed: []string{"cni-conf"},
			flags: agentOptions{confOptions: confOptions{cniConf: "off"}},
			want:  func(o *agentOptions) { o.cniConf = "off" },
		},
		{
			name: "a folder of objects needs no API server", file: `{"kubeconfig": "/kube", ` + perNode + `}`,
			flags: agentOptions{objects: "/objects"}, want: func(o *agentOptions) { o.objects = "/objects" },
		},
		{
			name: "a certificate in place of credentials", file: `{"kubeconfig": "/kube", ` + perNode + `}`,
			want: func(o *agentOptions) {
				o.bootstrap, o.certDir, o.certDuration = "/boot", "/certs", 24*time.Hour
			},
		},
		{
			name: "flags of the certificate", file: `{` + perNode + `}`, changed: []string{"cert-duration"},
			flags: agentOptions{clusterOptions: clusterOptions{certDir: "/mine", certDuration: time.Hour}},
			want: func(o *agentOptions) {
				o.bootstrap, o.certDir, o.certDuration = "/boot", "/mine", time.Hour
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, want := c.flags, agentOptions{}
			o.config = filepath.Join(t.TempDir(), "daemon-config.json")
			require.NoError(t, os.WriteFile(o.config, []byte(c.file), 0o600))
			require.NoError(t, o.readConfig(func(flag string) bool {
				for _, f := range c.changed {
					if f == flag {
						return true
					}
				}
				return false
			}))
			c.want(&want)
			want.config, want.file = o.config, o.file
			require.Equal(t, want, o)
		})
	}
}

func TestConfigFileThatIsWrong(t *testing.T) {
	never := func(string) bool { return false }
	o := agentOptions{config: filepath.Join(t.TempDir(), "none")}
	require.ErrorIs(t, o.readConfig(never), os.ErrNotExist)
	require.NoError(t, os.WriteFile(o.config, []byte(`{"metricsPort": "x"}`), 0o600))
	err := o.readConfig(never)
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, "--config "+o.config)
	require.ErrorContains(t, err, "metricsPort")
}
