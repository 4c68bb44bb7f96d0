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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/loop"
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
			return loop.Run(cmd.Context(), c)
		},
	}, version)
	flags(root.Flags(), &c)
	return root
}

func flags(f *pflag.FlagSet, c *loop.Config) {
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "file that leads to the API server (default: the cluster that the controller runs in)")
	f.StringVar(&c.NB, "nb", "", "OVN's northbound database: tcp:ADDRESS:PORT, unix:PATH; of a cluster all members, with commas between")
	f.StringVar(&c.JoinCIDR, "join-cidr", "100.64.0.0/16,fd00:100:64::/112", "the nodes' network, one prefix of each family at most, where no Subnet `join` declares it")
	f.StringVar(&c.Namespace, "lease-namespace", "kube-system", "namespace of the Lease that says who leads")
	f.StringVar(&c.LeaseName, "lease-name", "fairlead-controller", "name of that Lease")
	f.DurationVar(&c.Lease, "lease-duration", kube.DefaultLease, "how long a leader that renews it no more is waited for, in whole seconds")
	f.StringVar(&c.ID, "id", "", "this controller's name in the Lease (default: one made of the host's)")
	f.IntVar(&c.Workers, "workers", 8, "objects that are worked on at once")
	f.StringVar(&c.HTTP, "http", "127.0.0.1:10666", "serve /metrics, /livez and /readyz on this address; empty for none")
}
