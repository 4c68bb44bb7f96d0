package cniconf

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/fairlead/fairlead/internal/core"
)

// autoFile as multusConfigFile has the configuration generated.
const autoFile = "auto"

// Daemon is the agent's configuration file, in the form of Multus'
// daemon-config.json (v4.3.0, docs/thick-plugin.md). A key that is absent
// leaves its zero value, but for CNIConfigDir and CertDuration.
type Daemon struct {
	// SocketDir is where the agent's socket stands.
	SocketDir string
	// MetricsPort is a TCP port, 0 for none.
	MetricsPort int
	// ConnectionLimit bounds the operations at the same time, 0 for our own bound.
	ConnectionLimit    int
	PerNodeCertificate PerNodeCertificate
	Kubeconfig         string

	// CNIConfigDir is where the generated configuration is written, and
	// AutoconfigDir where the file of the default network is looked for;
	// without it the same.
	CNIConfigDir, AutoconfigDir string
	// ConfigFile is the path of a configuration to install as it is, or "auto":
	// one is generated. "" says nothing of it.
	ConfigFile string
	// MasterCNI is the file name of the default network in AutoconfigDir; ""
	// means the first.
	MasterCNI string
	// ForceCNIVersion gives the default network the CNIVersion below;
	// OverrideNetworkName gives the generated configuration its name.
	ForceCNIVersion, OverrideNetworkName bool
	CNIVersion                           string
	Capabilities                         map[string]bool

	// Unknown are keys that mean nothing here, sorted: to be warned about.
	Unknown []string

	conf core.Conf
	set  map[string]bool // keys that have a value
}

// PerNodeCertificate is how the agent gets a client certificate of its own.
type PerNodeCertificate struct {
	Enabled             bool
	BootstrapKubeconfig string
	CertDir             string
	CertDuration        time.Duration
}

// defaultCertDuration is Multus' (pkg/server).
const defaultCertDuration = 10 * time.Minute

// overrides are the keys of a daemon's file that replace what a runtime's
// configuration says, as Multus' daemon has it.
var overrides = []struct {
	key  string
	copy func(to, from *core.Conf)
}{
	{"clusterNetwork", func(to, from *core.Conf) { to.ClusterNetwork, to.Delegates = from.ClusterNetwork, nil }},
	{"delegates", func(to, from *core.Conf) {
		to.Delegates, to.ClusterNetwork, to.DefaultNetworks = from.Delegates, "", nil
	}},
	{"defaultNetworks", func(to, from *core.Conf) { to.DefaultNetworks = from.DefaultNetworks }},
	{"multusNamespace", func(to, from *core.Conf) { to.MultusNamespace = from.MultusNamespace }},
	{"systemNamespaces", func(to, from *core.Conf) { to.SystemNamespaces = from.SystemNamespaces }},
	{"namespaceIsolation", func(to, from *core.Conf) { to.NamespaceIsolation = from.NamespaceIsolation }},
	{"globalNamespaces", func(to, from *core.Conf) { to.GlobalNamespaces = from.GlobalNamespaces }},
	{"auxiliaryCNIChainName", func(to, from *core.Conf) { to.AuxChain = from.AuxChain }},
	{"readinessindicatorfile", func(to, from *core.Conf) { to.ReadinessFile = from.ReadinessFile }},
	{"confDir", func(to, from *core.Conf) { to.ConfDir = from.ConfDir }},
	{"binDir", func(to, from *core.Conf) { to.BinDir = from.BinDir }},
	{"cniDir", func(to, from *core.Conf) { to.CNIDir = from.CNIDir }},
	{"kubeconfig", func(to, from *core.Conf) { to.Kubeconfig = from.Kubeconfig }},
}

// daemonKeys are the other keys that a daemon's file may have. Not among them,
// as they have no effect: chrootDir, because plugins see the host's folders where
// the agent does, and enablePprof.
var daemonKeys = []string{
	"socketDir", "metricsPort", "connectionLimit", "perNodeCertificate", "cniConfigDir",
	"multusAutoconfigDir", "multusConfigFile", "multusMasterCNI", "forceCNIVersion", "overrideNetworkName",
	"cniVersion", "name", "type", "capabilities", "daemonSocketDir", "retryDeleteOnError",
	"logFile", "logLevel", "logToStderr", "logOptions",
}

// ParseDaemon reads the agent's configuration file. Every refusal is code 7 (6
// where it is not JSON) and names the key.
func ParseDaemon(data []byte) (Daemon, error) {
	if err := Strict(data); err != nil {
		return Daemon{}, err
	}
	r := newReader(data)
	d := Daemon{
		SocketDir:   r.dir("socketDir"),
		MetricsPort: r.bounded("metricsPort", math.MaxUint16), ConnectionLimit: r.bounded("connectionLimit", math.MaxInt32),
		CNIConfigDir: r.dir("cniConfigDir"), AutoconfigDir: r.dir("multusAutoconfigDir"),
		MasterCNI: r.fileName("multusMasterCNI"), ForceCNIVersion: r.flag("forceCNIVersion"),
		OverrideNetworkName: r.flag("overrideNetworkName"), Capabilities: r.flags("capabilities"),
		set: map[string]bool{},
	}
	for key := range r.keys {
		d.set[key] = r.has(key)
	}
	if d.CNIConfigDir == "" {
		d.CNIConfigDir = "/etc/cni/net.d"
	}
	if d.AutoconfigDir == "" {
		d.AutoconfigDir = d.CNIConfigDir
	}
	if d.ConfigFile = r.text("multusConfigFile"); d.ConfigFile != autoFile {
		d.ConfigFile = r.dir("multusConfigFile")
	}
	if r.has("cniVersion") {
		d.CNIVersion = r.version()
	}
	d.PerNodeCertificate = r.certificate("perNodeCertificate")
	r.meta(&d.conf)
	d.Kubeconfig = d.conf.Kubeconfig
	r.refuseDaemon(&d)
	d.unknown()
	if *r.err != nil {
		return Daemon{}, *r.err
	}
	return d, nil
}

// refuseDaemon checks what only several keys together can get wrong, and keys
// that are accepted without meaning.
func (r *reader) refuseDaemon(d *Daemon) {
	for _, key := range []string{"name", "type", "daemonSocketDir"} {
		r.text(key)
	}
	r.dir("chrootDir")
	r.flag("enablePprof")
	if d.ForceCNIVersion && d.CNIVersion == "" {
		r.refuse("forceCNIVersion", "is set without cniVersion")
	}
	if d.ConfigFile != "" && d.ConfigFile != autoFile && (d.MasterCNI != "" || d.ForceCNIVersion || d.OverrideNetworkName) {
		r.refuse("multusConfigFile", "%q is installed as it is: multusMasterCNI, forceCNIVersion and overrideNetworkName go with \"auto\"", d.ConfigFile)
	}
}

func (d *Daemon) unknown() {
	for key := range d.set {
		known := slices.Contains(daemonKeys, key)
		for _, o := range overrides {
			known = known || o.key == key
		}
		if !known {
			d.Unknown = append(d.Unknown, key)
		}
	}
	slices.Sort(d.Unknown)
}

// Over lays what the file says over a runtime's configuration.
func (d Daemon) Over(c core.Conf) core.Conf {
	for _, o := range overrides {
		if d.set[o.key] {
			o.copy(&c, &d.conf)
		}
	}
	return c
}

func (r *reader) certificate(key string) PerNodeCertificate {
	in := r.in(key)
	c := PerNodeCertificate{
		Enabled: in.flag("enabled"), BootstrapKubeconfig: in.dir("bootstrapKubeconfig"), CertDir: in.dir("certDir"),
		CertDuration: defaultCertDuration,
	}
	if text := in.text("certDuration"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			r.refuse(join(in.path, "certDuration"), "%q is not a duration such as 24h", text)
		}
		c.CertDuration = d
	}
	for _, name := range []string{"bootstrapKubeconfig", "certDir"} {
		if c.Enabled && in.text(name) == "" {
			r.refuse(join(in.path, name), "is missing, and enabled is true")
		}
	}
	return c
}

// bounded reads a whole number from 1 to most, 0 where it is absent.
func (r *reader) bounded(key string, most int) int {
	n := get[int](r, key, "a whole number")
	if r.has(key) && (n < 1 || n > most) {
		r.refuse(join(r.path, key), "%d is not a number from 1 to %d", n, most)
	}
	return n
}

// fileName reads the name of a file in a directory that another key gives.
func (r *reader) fileName(key string) string {
	name := r.text(key)
	if name != "" && (filepath.Base(name) != name || strings.HasPrefix(name, ".") || utils.ValidateNetworkName(name) != nil) {
		r.refuse(join(r.path, key), "%q is not a plain file name", name)
	}
	return name
}
