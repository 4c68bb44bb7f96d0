// Package nodeup is the commands `fairlead up` and `fairlead down`: their flags.
// How the agent and the shim are run is told by whoever makes the commands; the
// rest is package up's.
package nodeup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	docker "github.com/moby/moby/client"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/up"
)

func flags(f *pflag.FlagSet, c *up.Config) {
	f.StringVar(&c.Dir, "dir", "/etc/fairlead/objects", "folder of Pod, Subnet, NetworkAttachmentDefinition and Vlan YAML")
	f.StringVar(&c.Runtime, "runtime", up.Auto, "auto (containerd if that runs containers, else Docker), docker, containerd, or a CRI endpoint")
	f.StringVar(&c.DockerHost, "docker-host", "", "Docker's socket (default: DOCKER_HOST, else Docker's own)")
	f.StringVar(&c.SandboxImage, "sandbox-image", "registry.k8s.io/pause:3.10", "with Docker, image of the process that keeps a pod's namespaces")
	f.StringVar(&c.NodeName, "node-name", "", "name of this node, a part of its pods' names (default: the host's)")
	f.StringVar(&c.OVSDB, "ovsdb", nodeagent.DefaultOVSDB, "Open vSwitch database")
	f.StringVar(&c.Bridge, "bridge", nodeagent.DefaultBridge, "integration bridge")
	f.BoolVar(&c.OVN, "ovn", false, "OVN carries the networks, which are as declared in the folder (NetworkPolicy, Service, private Subnets, Vpcs)")
	f.StringVar(&c.NB, "nb", "", "with --ovn, OVN's northbound database, of this machine alone (default: "+nodeagent.DefaultNB+")")
	f.StringVar(&c.Iface, "iface", "", "underlay interface, for the pods' MTU (default: that of the default route)")
	f.StringVar(&c.StateDir, "state-dir", nodeagent.DefaultStateDir, "journal, checkpoints, volumes, and what is up")
	f.StringVar(&c.LogDir, "log-dir", "/var/log/pods", "logs of containers")
	f.StringVar(&c.CgroupRoot, "cgroup-root", "", "cgroup of all pods, with the cgroupfs driver (default: the runtime's)")
	f.StringVar(&c.ConfDir, "cni-conf-dir", "", "where the runtime reads CNI configurations (default: what it says, else "+runtimes.DefaultConfDir+")")
	f.StringArrayVar(&c.BinDirs, "cni-bin-dir", nil, "where CNI plugins are; the first gets ours if it is missing (repeatable; default: what the runtime says, else "+runtimes.DefaultBinDir+")")
	f.StringVar(&c.LogFile, "log-file", "", "where the log goes (default: standard error; with --detach /var/log/fairlead-up.log)")
}

// Command is `fairlead up`; the root command has its flags --socket and --timeout.
func Command(p up.Parts) *cobra.Command {
	c, detach, install := up.Config{Parts: p}, false, false
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the pods of a folder, with all their networks, on this machine",
		Long: `Run the pods of a folder, with all their networks, on this machine: the agent,
the node loop and, over Docker, our CRI in one process. Pods, Subnets,
NetworkAttachmentDefinitions and Vlans stand in the folder, and what changes
there changes on the machine.

The command stays in the foreground. Ctrl-C and SIGTERM leave every pod as it
is, and the next "up" goes on with them; "fairlead down" removes them.`,
		Example: "  fairlead up --dir ./pods --detach && fairlead get pods\n  fairlead down",
		Args:    usage.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	flags(f, &c)
	f.BoolVarP(&detach, "detach", "d", false, "return when all pods are ready, or after --timeout say which are not, and why")
	f.BoolVar(&install, "install", false, "write a systemd unit that runs this at every boot, and start it")
	cmd.MarkFlagsMutuallyExclusive("detach", "install")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := complete(cmd, &c); err != nil {
			return err
		}
		switch {
		case install:
			return c.Install(cmd.Context(), cmd.OutOrStdout())
		case detach:
			limit, err := cmd.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return c.Detach(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}
		return c.Run(cmd.Context(), cmd.OutOrStdout())
	}
	return cmd
}

// kept are the flags that say how, not what: they are not for others.
var kept = []string{"detach", "install", "uninstall", "timeout", "help"}

// complete fills in what does not depend on the runtime.
func complete(cmd *cobra.Command, c *up.Config) error {
	c.Socket, _ = cmd.Flags().GetString("socket") // the root command's flag
	c.Given = map[string][]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(kept, f.Name) {
			return
		}
		c.Given[f.Name] = []string{f.Value.String()}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			c.Given[f.Name] = many.GetSlice()
		}
	})
	if host := os.Getenv(docker.EnvOverrideHost); host != "" && c.DockerHost == "" {
		c.DockerHost = host
		c.Given["docker-host"] = []string{host}
	}
	abs, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	c.Dir, c.Given["dir"] = abs, []string{abs}
	return settle(c)
}

// settle makes defaults of what flags leave open.
func settle(c *up.Config) error {
	if c.NB != "" && !c.OVN {
		return hint.Usagef("--nb goes with --ovn")
	}
	if c.Socket == "" {
		c.Socket = cni.DefaultSocket
	}
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of the host: %w", err)
		}
		c.NodeName = name
	}
	c.NodeName = strings.ToLower(c.NodeName)
	return nil
}

// recorded is what `fairlead up` was told, by its record.
func recorded(p up.Parts, r *up.Record) (up.Config, error) {
	c := up.Config{Parts: p}
	f := pflag.NewFlagSet("up", pflag.ContinueOnError)
	flags(f, &c)
	f.StringVar(&c.Socket, "socket", "", "")
	for name, values := range r.Flags {
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				return c, fmt.Errorf("what is up: %w", err)
			}
		}
	}
	c.Dir, c.Runtime, c.Given = r.Dir, r.Runtime, r.Flags
	err := settle(&c)
	return c, err
}

// downLimit is how long `down` may take, unless --timeout says otherwise: pods
// have their grace periods.
const downLimit = 10 * time.Minute

// DownCommand is `fairlead down`.
func DownCommand(p up.Parts) *cobra.Command {
	d := up.Down{Recorded: func(r *up.Record) (up.Config, error) { return recorded(p, r) }}
	uninstall := false
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the pods that \"fairlead up\" runs, and their networks",
		Long: `Remove the pods that "fairlead up" runs, and their networks: its process ends,
pods end in order, each within its grace period, and what was made for the
runtime's sake goes. It works whatever has become of the process, also after
a reboot, and may be repeated.`,
		Args: usage.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&d.Dir, "dir", "", "the folder (default: the one that is up)")
	f.StringVar(&d.StateDir, "state-dir", nodeagent.DefaultStateDir, "as for \"fairlead up\"")
	f.BoolVarP(&d.Verbose, "verbose", "v", false, "the log of the parts on standard error")
	f.BoolVar(&uninstall, "uninstall", false, "remove the systemd unit of \"fairlead up --install\" too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		limit, err := cmd.Flags().GetDuration("timeout")
		if err != nil || !cmd.Flags().Changed("timeout") {
			limit = downLimit
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), limit)
		defer cancel()
		if err := up.StopUnit(cmd.Context(), cmd.OutOrStdout(), uninstall); err != nil {
			return err
		}
		return d.Run(ctx, cmd.OutOrStdout())
	}
	return cmd
}
