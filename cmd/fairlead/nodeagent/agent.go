// Package nodeagent is the command `fairlead agent`: its flags, its configuration
// file, and the wiring of the node daemon's parts. What the parts do is theirs.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/device"
	"github.com/fairlead/fairlead/internal/doctor"
	"github.com/fairlead/fairlead/internal/hint"
	"github.com/fairlead/fairlead/internal/hostruntime"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/server"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// agentOptions are the agent's flags.
type agentOptions struct {
	clusterOptions
	confOptions
	socket      string
	compat      []string
	stateDir    string
	objects     string
	folder      *folder.Folder // of objects, if other parts of the process read it too
	ovsdb       string
	bridge      string
	nodeName    string
	iface       string
	mtu         int
	cniBinDirs  []string
	confDir     string
	kubeletRoot string
	portOptions
	http string

	config string
	file   cniconf.Daemon // what config says
	build  Build
	shell  hint.Shell // how those who read its hints call `fairlead`
	part   bool       // of a process that tells systemd itself how it is
}

// Build is what the program knows of itself.
type Build struct {
	Version string
	Commit  string // "" when not known
}

// Command is `fairlead agent`; the root command has its flag --socket.
func Command(b Build) *cobra.Command {
	o := agentOptions{build: b, shell: usage.Shell()}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the node agent",
		Long: `Run the node agent: it serves the CNI plugin on a unix socket, keeps its
journal in the state directory and its ports on one Open vSwitch bridge.

SIGTERM lets running operations finish and leaves every pod's network as it is.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.socket, _ = cmd.Flags().GetString("socket") // the root command's flag
			if err := o.readConfig(cmd.Flags().Changed); err != nil {
				return err
			}
			return runAgent(cmd.Context(), o, slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("node", o.nodeName))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.compat, "compat-socket", nil, "serve this socket too, e.g. Kube-OVN's /run/openvswitch/kube-ovn-daemon.sock (repeatable)")
	f.StringVar(&o.stateDir, "state-dir", DefaultStateDir, "journal and ballast")
	f.StringVar(&o.objects, "objects", "", "folder of Pod, NetworkAttachmentDefinition, Subnet and Vlan YAML (none: every pod gets the built-in default network)")
	f.StringVar(&o.ovsdb, "ovsdb", DefaultOVSDB, "Open vSwitch database")
	f.StringVar(&o.bridge, "bridge", DefaultBridge, "integration bridge")
	f.StringVar(&o.nodeName, "node-name", hostname(), "name of this node")
	f.StringVar(&o.iface, "iface", "", "underlay interface, for the pods' MTU (default: that of the default route)")
	f.IntVar(&o.mtu, "mtu", 0, "MTU of pods in bytes (default: the underlay interface's less 100)")
	f.StringArrayVar(&o.cniBinDirs, "cni-bin-dir", []string{hostruntime.DefaultBinDir}, "where foreign CNI plugins are (repeatable)")
	f.StringVar(&o.confDir, "conf-dir", hostruntime.DefaultConfDir, "the runtime's CNI configurations, for NADs without spec.config")
	f.StringVar(&o.kubeletRoot, "kubelet-root", device.DefaultRoot, "kubelet's folder: it tells the devices of pods, for NADs with a resourceName")
	f.StringVar(&o.config, "config", "", "configuration in the form of Multus' daemon-config.json; flags count more")
	o.clusterOptions.flags(f)
	o.confOptions.flags(f)
	o.portOptions.flags(f)
	f.StringVar(&o.http, "http", "", "serve /metrics, /livez and /readyz on this address, e.g. 127.0.0.1:10665")
	return cmd
}

// validate refuses flags that cannot work, before anything is opened.
func (o agentOptions) validate() error {
	var errs []error
	if o.mtu != 0 && (o.mtu < 576 || o.mtu > 65535) {
		errs = append(errs, usage.Errorf("--mtu %d is not between 576 and 65535", o.mtu))
	}
	if o.bridge == "" || len(o.bridge) > 15 {
		errs = append(errs, usage.Errorf("--bridge %q is not an interface name", o.bridge))
	}
	if o.socket == "" {
		errs = append(errs, usage.Errorf("--socket is empty; the default is %s", cni.DefaultSocket))
	}
	errs = append(errs, o.confOptions.validate()...)
	return errors.Join(append(errs, o.validateCluster()...)...)
}

func runAgent(ctx context.Context, o agentOptions, log *slog.Logger) error {
	if err := o.validate(); err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	if o.certDir == "" {
		o.certDir = filepath.Join(o.stateDir, "pki")
	}
	if o.objects != "" { // status names it to people in other folders
		abs, err := filepath.Abs(o.objects)
		if err != nil {
			return fmt.Errorf("--objects: %w", err)
		}
		o.objects = abs
	}
	if inCluster() {
		if err := openSysctls(); err != nil {
			log.Warn("sysctls cannot be set", "err", err)
		}
	}
	d, err := newDaemon(o, log)
	if err != nil {
		return usage.Hint(err, o.startHint(err))
	}
	for _, key := range o.file.Unknown {
		log.Warn("key of the configuration file means nothing here", "file", o.config, "key", key)
	}
	d.policed(doctor.Police())
	if err := d.run(ctx); err != nil {
		return usage.Hint(err, o.startHint(err))
	}
	return nil
}

// startHint is what to do about an agent that did not start.
func (o agentOptions) startHint(err error) string {
	switch {
	case errors.Is(err, journal.ErrBusy), errors.Is(err, server.ErrServed):
		return "one agent runs already: stop it (`systemctl stop fairlead`), or give this one its own --state-dir, --socket and --bridge"
	case errors.Is(err, fs.ErrNotExist) && o.objects != "" && missing(o.objects):
		return "`mkdir -p " + o.objects + "`, or name the folder with --objects"
	}
	return "`fairlead doctor` examines this machine"
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
