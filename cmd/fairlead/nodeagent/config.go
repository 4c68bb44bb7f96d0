package nodeagent

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/hostfile"
)

// agentSocket is the socket's name in a directory that a configuration names.
const agentSocket = "agent.sock"

// readConfig reads --config, a file in the form of Multus' daemon-config.json.
// What the command line says counts more; changed tells which flags it has.
func (o *agentOptions) readConfig(changed func(flag string) bool) error {
	if o.config == "" {
		return nil
	}
	data, err := hostfile.Read(o.config, hostfile.Limit)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if o.file, err = cniconf.ParseDaemon(data); err != nil {
		return fmt.Errorf("--config %s: %w", o.config, err)
	}
	o.adopt(o.file, changed)
	o.confFromFile(changed)
	return nil
}

// adopt takes what the file says where the command line says nothing.
func (o *agentOptions) adopt(d cniconf.Daemon, changed func(flag string) bool) {
	if d.SocketDir != "" && !changed("socket") {
		o.socket = filepath.Join(d.SocketDir, agentSocket)
	}
	if d.MetricsPort != 0 && !changed("http") {
		o.http = net.JoinHostPort("", strconv.Itoa(d.MetricsPort))
	}
	if o.objects != "" || o.kubeconfig != "" || o.bootstrap != "" {
		return
	}
	c := d.PerNodeCertificate
	if !c.Enabled {
		o.kubeconfig = d.Kubeconfig
		return
	}
	o.bootstrap, o.certDir = c.BootstrapKubeconfig, cmp.Or(o.certDir, c.CertDir)
	if !changed("cert-duration") {
		o.certDuration = c.CertDuration
	}
}
