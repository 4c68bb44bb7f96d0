// Package nodeagent is the command `fairlead agent`: its flags and its
// configuration file. What the agent does is package agent's.
package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/agent/server"
	control "github.com/fairlead/fairlead/internal/controller/machine"
	"github.com/fairlead/fairlead/internal/install/conf"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/source/device"
	"github.com/fairlead/fairlead/internal/source/local"
)

// Defaults of flags that others have too.
const (
	DefaultOVSDB    = "unix:/run/openvswitch/db.sock"
	DefaultBridge   = "br-int"
	DefaultStateDir = "/var/lib/fairlead"
	DefaultNB       = "unix:/run/ovn/ovnnb_db.sock"
)

// options are the agent's flags.
type options struct {
	agent.Config
	nb string
}

// Command is `fairlead agent`; the root command has its flag --socket.
func Command(b agent.Build) *cobra.Command {
	o := options{Config: machine(b)}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the node agent",
		Long: `Run the node agent: it serves the CNI plugin on a unix socket, keeps its
journal in the state directory and its ports on one Open vSwitch bridge.

SIGTERM lets running operations finish and leaves every pod's network as it is.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Socket, _ = cmd.Flags().GetString("socket") // the root command's flag
			if err := o.readConfig(cmd.Flags().Changed); err != nil {
				return err
			}
			o.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("node", o.NodeName)
			if o.nb != "" && !o.Alone() {
				return hint.Usagef("--nb goes with --objects and --ovn: in a cluster it is fairlead-controller's")
			}
			return Run(cmd.Context(), WithController(o.Config, o.nb))
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// machine is what an agent is told by the process that it runs in.
func machine(b agent.Build) agent.Config {
	return agent.Config{Build: b, Shell: usage.Shell(), InCluster: os.Getenv("KUBERNETES_SERVICE_HOST") != "", Police: doctor.Police, Netem: doctor.Netem}
}

// Defaults are what flags say that are not given.
func Defaults(b agent.Build) agent.Config {
	o := options{Config: machine(b)}
	o.flags(pflag.NewFlagSet("", pflag.ContinueOnError))
	o.Socket = cni.DefaultSocket
	return o.Config
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.CompatSockets, "compat-socket", nil, "serve this socket too, e.g. Kube-OVN's /run/openvswitch/kube-ovn-daemon.sock (repeatable)")
	f.StringVar(&o.StateDir, "state-dir", DefaultStateDir, "journal and ballast")
	f.StringVar(&o.Objects, "objects", "", "folder of Pod, NetworkAttachmentDefinition, Subnet and Vlan YAML, with --ovn also NetworkPolicy, Service and others (none: every pod gets the built-in default network)")
	f.StringVar(&o.OVSDB, "ovsdb", DefaultOVSDB, "Open vSwitch database")
	f.StringVar(&o.Bridge, "bridge", DefaultBridge, "integration bridge")
	f.BoolVar(&o.OVN, "ovn", false, "OVN carries pods' networks: a controller gives their addresses (fairlead-controller; with --objects the agent itself), ovn-controller makes the bridge's flows")
	f.StringVar(&o.nb, "nb", "", "with --objects and --ovn, OVN's northbound database, of this machine alone (default: "+DefaultNB+")")
	f.StringVar(&o.NodeName, "node-name", hostname(), "name of this node")
	c := &o.Chassis
	f.StringVar(&c.Remote, "ovn-remote", "", "southbound database, ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, of a cluster all members with commas between: the agent makes the node a chassis of it (none: external ids of Open vSwitch that no other flag is about stay as they are)")
	f.StringVar(&c.Kind, "network-type", "", "tunnels between nodes: geneve or vxlan (default geneve)")
	f.Var(&c.Checksum, "encap-checksum", "whether tunnels' outer packets have checksums (default: as Open vSwitch has it)")
	f.Var(&o.MirrorAll, "enable-mirror", "whether port mirror0 hears all ports of the bridge, not only those of pods that ask for it (default: as it is)")
	f.StringVar(&o.Filter.Netfilter, "netfilter", "auto", "what keeps the rules of the packet filter: iptables (with ipset), nft, or auto (iptables on a node of OVN, if it is installed; else nft)")
	f.StringVar(&o.Filter.MSS, "mss", "", "largest segment of TCP connections that leave by the underlay interface, in bytes; 0: as the path's MTU allows (default: as they ask for)")
	f.BoolVar(&o.Filter.Probes, "enable-tproxy", false, "lead kubelet's TCP, HTTP and gRPC probes to this node's pods in Vpcs of their own, to whose addresses the node has no route")
	f.Lookup("encap-checksum").NoOptDefVal, f.Lookup("enable-mirror").NoOptDefVal = "true", "true"
	f.DurationVar(&c.Recompute, "recompute-interval", 0, "have ovn-controller compute all flows anew so often (0: never)")
	f.StringVar(&c.RunDir, "ovn-rundir", chassis.DefaultRunDir, "where ovn-controller's control socket is")
	f.StringVar(&c.Namespace, "namespace", "kube-system", "Fairlead's namespace, where its controller publishes the CA of OVN's databases")
	f.StringVar(&c.ServiceRange, "service-cluster-ip-range", "", "networks of Services, with commas between, for rules of the packet filter about them (none: kube-proxy's alone)")
	f.StringVar(&c.DefaultNIC, "default-interface-name", "", "Kube-OVN's; has no effect: a ProviderNetwork names its interfaces")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(chassis.Called(name))
	})
	f.StringVar(&o.Iface, "iface", "", "underlay interface, for tunnels and the pods' MTU: NAME, regular expression or ADDRESS; of several with commas between the first (default: that of the default route)")
	f.IntVar(&o.MTU, "mtu", 0, "MTU of pods in bytes (default: the underlay interface's less 100, for vxlan less 50; 20 less where tunnels run over IPv6)")
	f.StringArrayVar(&o.CNIBinDirs, "cni-bin-dir", []string{runtimes.DefaultBinDir}, "where foreign CNI plugins are (repeatable)")
	f.StringVar(&o.ConfDir, "conf-dir", runtimes.DefaultConfDir, "the runtime's CNI configurations, for NADs without spec.config")
	f.StringVar(&o.KubeletRoot, "kubelet-root", device.DefaultRoot, "kubelet's folder: it tells the devices of pods, for NADs with a resourceName")
	f.StringVar(&o.ConfigFile, "config", "", "configuration in the form of Multus' daemon-config.json; flags count more")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "read the Kubernetes API as this file says (default: the cluster the agent runs in, else what the first runtime configuration names)")
	f.StringVar(&o.Bootstrap, "bootstrap-kubeconfig", "", "request a client certificate of this node's own, as system:fairlead:NODE, with these credentials")
	f.StringVar(&o.CertDir, "cert-dir", "", "where that certificate is kept (default: pki in the state directory)")
	f.DurationVar(&o.CertDuration, "cert-duration", 24*time.Hour, "how long it is asked to be valid; the signer decides")
	f.StringVar(&o.CNIConf, "cni-conf", agent.ConfOff, "the runtime's configuration "+conf.Name+" in --conf-dir: auto (the agent writes and keeps it), FILE (it installs that one), or off")
	f.StringVar(&o.CNIMaster, "cni-master", "", "with --cni-conf auto, the default network: none for Fairlead's own, auto for the first other configuration in --conf-dir, or the name of a file there")
	portFlags(f, &o.HostPorts)
	f.StringVar(&o.VFs.List, "resource-list", "", "virtual functions of cards that kubelet gives pods, as the usual device plugin's config.json says, beside those of NodeVFPolicies")
	f.StringVar(&o.VFs.CDIDir, "cdi-dir", "", "where CDI's specifications are, e.g. /var/run/cdi: pods get device nodes of their virtual functions by these (default: from kubelet)")
	f.StringSliceVar(&o.PodNetworkNamespaces, "pod-network-namespaces", nil, "namespaces whose ConfigMaps with label net.fairlead.io/pod-network=true declare settings of their pods; those of --namespace, if it is among them, of all pods")
	f.BoolVar(&o.SelfFence, "self-fence", false, "take what pods lease off the network when the node's heartbeat in the cluster cannot be renewed, so that other nodes may have it then")
	f.BoolVar(&o.PodMetrics, "pod-metrics", false, "metrics have packets, bytes and drops of each interface of each pod")
	f.StringVar(&o.HTTP, "http", "", "serve /metrics, /livez and /readyz on this address, e.g. 127.0.0.1:10665")
}

// WithController gives an agent of a folder with OVN its controller, on a northbound
// database; "" is DefaultNB.
func WithController(c agent.Config, nb string) agent.Config {
	if !c.Alone() {
		return c
	}
	c.NB = cmp.Or(nb, DefaultNB)
	c.Controller = func(ctx context.Context, m *local.Machine) error {
		return control.Run(ctx, control.Config{Machine: m, NB: c.NB, Log: c.Log})
	}
	return c
}

func hostname() string {
	if h, err := os.Hostname(); err == nil {
		return h
	}
	return "localhost"
}

// Run runs an agent until ctx ends, unless flags make no sense. An error has a
// hint where there is one.
func Run(ctx context.Context, c agent.Config) error {
	if err := validate(c); err != nil {
		return err
	}
	d, err := agent.New(c)
	if err == nil {
		err = d.Run(ctx)
	}
	if err != nil {
		return hint.On(err, startHint(c.Objects, err))
	}
	return nil
}

// startHint is what to do about an agent that did not start; objects is its
// folder, or "".
func startHint(objects string, err error) string {
	switch {
	case errors.Is(err, journal.ErrBusy), errors.Is(err, server.ErrServed):
		return "one agent runs already: stop it (`systemctl stop fairlead`), or give this one its own --state-dir, --socket and --bridge"
	case errors.Is(err, fs.ErrNotExist) && objects != "" && missing(objects):
		return "`mkdir -p " + objects + "`, or name the folder with --objects"
	}
	return "`fairlead doctor` examines this machine"
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
