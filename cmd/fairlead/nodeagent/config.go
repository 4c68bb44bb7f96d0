package nodeagent

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/install/conf"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// agentSocket is the socket's name in a directory that a configuration names.
const agentSocket = "agent.sock"

// readConfig reads --config, a file in the form of Multus' daemon-config.json.
// What the command line says counts more; changed tells which flags it has.
func (o *options) readConfig(changed func(flag string) bool) error {
	if o.ConfigFile == "" {
		return nil
	}
	data, err := hostfile.Read(o.ConfigFile, hostfile.Limit)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if o.File, err = cniconf.ParseDaemon(data); err != nil {
		return fmt.Errorf("--config %s: %w", o.ConfigFile, err)
	}
	o.adopt(o.File, changed)
	o.confFromFile(changed)
	return nil
}

// confFromFile is what --config says of the runtime's configuration where the
// command line says nothing. A file without multusConfigFile has none written.
func (o *options) confFromFile(changed func(flag string) bool) {
	d := o.File
	if d.ConfigFile == "" || changed("cni-conf") {
		return
	}
	o.CNIConf = d.ConfigFile
	if o.CNIConf != agent.ConfAuto || changed("cni-master") {
		return
	}
	if o.CNIMaster = d.MasterCNI; o.CNIMaster == "" && !o.NetworkInFile() {
		o.CNIMaster = conf.Auto
	}
}

// adopt takes what the file says where the command line says nothing.
func (o *options) adopt(d cniconf.Daemon, changed func(flag string) bool) {
	if d.SocketDir != "" && !changed("socket") {
		o.Socket = filepath.Join(d.SocketDir, agentSocket)
	}
	if d.MetricsPort != 0 && !changed("http") {
		o.HTTP = net.JoinHostPort("", strconv.Itoa(d.MetricsPort))
	}
	if o.Objects != "" || o.Kubeconfig != "" || o.Bootstrap != "" {
		return
	}
	c := d.PerNodeCertificate
	if !c.Enabled {
		o.Kubeconfig = d.Kubeconfig
		return
	}
	o.Bootstrap, o.CertDir = c.BootstrapKubeconfig, cmp.Or(o.CertDir, c.CertDir)
	if !changed("cert-duration") {
		o.CertDuration = c.CertDuration
	}
}
