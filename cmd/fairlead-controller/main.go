// Command fairlead-controller gives the pods of a cluster their addresses and
// makes OVN's networks. It is a program of its own because its Kubernetes
// libraries would cost each node's agent memory. This package parses flags; what
// the controller does is package loop's.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/controller/alive"
	"github.com/fairlead/fairlead/internal/controller/central"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/loop"
	"github.com/fairlead/fairlead/internal/kernel/icmp"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "dev"

func main() { usage.Main(run) }

// run executes one command line and gives its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	usage.Report(stderr, root, err)
	if errors.As(err, new(hint.UsageError)) {
		return usage.ExitUsage
	}
	return usage.ExitFailed
}

func command() *cobra.Command {
	c := loop.Config{Version: version, Revision: usage.Commit()}
	root := usage.Program(&cobra.Command{
		Use:   "fairlead-controller",
		Short: "Give the pods of a cluster their addresses, and make OVN's networks",
		Long: `Give the pods of a cluster their addresses, and make OVN's networks of its Vpcs and
Subnets. Run it twice or more: one leads, and another takes over when it is gone or
has lost the northbound database. Traffic goes on without any.

Exit codes: 0 ended by SIGTERM; 1 failed; 2 wrong command line.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			c.Echo, c.Routers = echo, routers
			return loop.Run(cmd.Context(), c)
		},
	}, version)
	flags(root.Flags(), &c)
	root.AddCommand(centralCommand())
	return root
}

// echo asks by ICMP.
func echo(ctx context.Context, heard func(netip.Addr)) (alive.Line, error) {
	m, err := icmp.OpenMany(ctx, heard)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// routers are those of this machine's default routes; where that cannot be read there are
// fewer who tell whether anybody is heard.
func routers() []netip.Addr {
	conn, err := rtnl.Open(nil)
	if err != nil {
		return nil
	}
	defer conn.Close()
	out, _ := conn.Routers()
	return slices.DeleteFunc(out, netip.Addr.IsLinkLocalUnicast) // which only an interface beside makes one machine's
}

func centralCommand() *cobra.Command {
	c := central.Config{Version: version, Revision: usage.Commit()}
	cmd := &cobra.Command{
		Use:   "central",
		Short: "Run one member of OVN's central part, over TLS",
		Long: `Run one member of OVN's central part: the northbound and the southbound database,
each a member of a cluster (raft), a relay by which chassis reach the southbound one,
and ovn-northd. Its certificate it gets from a fairlead-controller. Run it once on
each of one, three or five machines.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			return central.Run(cmd.Context(), c)
		},
	}
	centralFlags(cmd.Flags(), &c)
	return cmd
}

func centralFlags(f *pflag.FlagSet, c *central.Config) {
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "file that leads to the API server (default: the cluster that this runs in)")
	f.StringVar(&c.Namespace, "namespace", "kube-system", "Fairlead's namespace")
	f.StringVar(&c.Address, "address", "", "address of this member, at which the others and all nodes find it")
	f.StringVar(&c.Members, "members", "", "addresses of all members, with commas between; the first begins the databases, once")
	f.StringVar(&c.Dir, "dir", "/var/lib/fairlead/central", "folder of databases and certificates")
	f.StringVar(&c.RunDir, "run-dir", "/run/fairlead/central", "folder of sockets")
	f.StringVar(&c.HTTP, "http", "127.0.0.1:10668", "serve /metrics, /livez and /readyz on this address; empty for none")
}

func flags(f *pflag.FlagSet, c *loop.Config) {
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "file that leads to the API server (default: the cluster that the controller runs in)")
	f.StringVar(&c.NB, "nb", "", "OVN's northbound database: ssl:ADDRESS:6641, unix:PATH; of a cluster all members, with commas between")
	f.DurationVar(&c.CertificateLife, "certificate-life", 30*24*time.Hour, "how long certificates of OVN's central part and of chassis are good for; they are renewed before")
	f.StringVar(&c.JoinCIDR, "join-cidr", "100.64.0.0/16,fd00:100:64::/112", "the nodes' network, one prefix of each family at most, where no Subnet `join` declares it")
	f.StringVar(&c.Namespace, "lease-namespace", "kube-system", "namespace of the Lease that says who leads")
	f.StringVar(&c.LeaseName, "lease-name", fairlead.ControllerLease, "name of that Lease")
	f.DurationVar(&c.Lease, "lease-duration", kube.DefaultLease, "how long a leader that renews it no more is waited for, in whole seconds")
	f.StringVar(&c.ID, "id", "", "this controller's name in the Lease (default: one made of the host's)")
	f.StringSliceVar(&c.PodNetworkNamespaces, "pod-network-namespaces", nil, "namespaces whose ConfigMaps with label net.fairlead.io/pod-network=true declare settings of their pods; those of --lease-namespace, if it is among them, of all pods")
	f.IntVar(&c.Workers, "workers", 32, "objects that are worked on at once")
	f.StringVar(&c.HTTP, "http", "127.0.0.1:10666", "serve /metrics, /livez and /readyz on this address; empty for none")
}
