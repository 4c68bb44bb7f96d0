package nodeagent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/core"
)

// TestConfigFile: what the file says serves where the command line says nothing.
func TestConfigFile(t *testing.T) {
	const perNode = `"perNodeCertificate": {"enabled": true, "bootstrapKubeconfig": "/boot", "certDir": "/certs", "certDuration": "24h"}`
	for _, c := range []struct {
		name, file string
		flags      options
		changed    []string
		want       func(o *options)
	}{
		{name: "nothing", file: `{}`, want: func(*options) {}},
		{
			name: "all", file: `{"socketDir": "/run/multus", "metricsPort": 9091, "kubeconfig": "/kube"}`,
			want: func(o *options) { o.Socket, o.HTTP, o.Kubeconfig = "/run/multus/agent.sock", ":9091", "/kube" },
		},
		{
			name: "flags count more", file: `{"socketDir": "/run/multus", "metricsPort": 9091, "kubeconfig": "/kube"}`,
			flags:   options{Config: agent.Config{Socket: "/mine", HTTP: "127.0.0.1:1", Kubeconfig: "/other"}},
			changed: []string{"socket", "http"},
			want:    func(o *options) { o.Socket, o.HTTP, o.Kubeconfig = "/mine", "127.0.0.1:1", "/other" },
		},
		{
			name: "the runtime's configuration, as Multus' daemon writes it", file: `{"multusConfigFile": "auto", "multusMasterCNI": "10-x.conf"}`,
			want: func(o *options) { o.CNIConf, o.CNIMaster = "auto", "10-x.conf" },
		},
		{
			name: "it lies over what is there", file: `{"multusConfigFile": "auto"}`,
			want: func(o *options) { o.CNIConf, o.CNIMaster = "auto", "auto" },
		},
		{
			name: "it lies over the network that the file names", file: `{"multusConfigFile": "auto", "clusterNetwork": "x"}`,
			want: func(o *options) { o.CNIConf = "auto" },
		},
		{
			name: "the flag counts more", file: `{"multusConfigFile": "auto"}`, changed: []string{"cni-conf"},
			flags: options{Config: agent.Config{CNIConf: "off"}},
			want:  func(o *options) { o.CNIConf = "off" },
		},
		{
			name: "a folder of objects needs no API server", file: `{"kubeconfig": "/kube", ` + perNode + `}`,
			flags: options{Config: agent.Config{Objects: "/objects"}}, want: func(o *options) { o.Objects = "/objects" },
		},
		{
			name: "a certificate in place of credentials", file: `{"kubeconfig": "/kube", ` + perNode + `}`,
			want: func(o *options) {
				o.Bootstrap, o.CertDir, o.CertDuration = "/boot", "/certs", 24*time.Hour
			},
		},
		{
			name: "flags of the certificate", file: `{` + perNode + `}`, changed: []string{"cert-duration"},
			flags: options{Config: agent.Config{CertDir: "/mine", CertDuration: time.Hour}},
			want: func(o *options) {
				o.Bootstrap, o.CertDir, o.CertDuration = "/boot", "/mine", time.Hour
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, want := c.flags, options{}
			o.ConfigFile = filepath.Join(t.TempDir(), "daemon-config.json")
			require.NoError(t, os.WriteFile(o.ConfigFile, []byte(c.file), 0o600))
			require.NoError(t, o.readConfig(func(flag string) bool {
				for _, f := range c.changed {
					if f == flag {
						return true
					}
				}
				return false
			}))
			c.want(&want)
			want.ConfigFile, want.File = o.ConfigFile, o.File
			require.Equal(t, want, o)
		})
	}
}

func TestConfigFileThatIsWrong(t *testing.T) {
	never := func(string) bool { return false }
	o := options{Config: agent.Config{ConfigFile: filepath.Join(t.TempDir(), "none")}}
	require.ErrorIs(t, o.readConfig(never), os.ErrNotExist)
	require.NoError(t, os.WriteFile(o.ConfigFile, []byte(`{"metricsPort": "x"}`), 0o600))
	err := o.readConfig(never)
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.ErrorContains(t, err, "--config "+o.ConfigFile)
	require.ErrorContains(t, err, "metricsPort")
}
