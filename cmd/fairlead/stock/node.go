package stock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/install/conf"
	"github.com/fairlead/fairlead/internal/install/node"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// nodeInstallOptions are the flags of `install node` and `uninstall node`.
type nodeInstallOptions struct {
	Tools
	conf   node.Config
	master string
	dryRun bool
	force  bool
}

func (o *nodeInstallOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.conf.Socket, "runtime", "", "the runtime's CRI socket (default: the one that answers)")
	f.StringVar(&o.conf.Dir, "conf-dir", "", "the runtime's CNI configurations (default: as it says)")
	f.StringVar(&o.conf.BinDir, "cni-bin-dir", "", "the runtime's CNI plugins (default: as it says)")
	f.StringVar(&o.conf.StateDir, "install-dir", o.StateDir+"/install", "backup, and what was done")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and change nothing")
}

// InstallNode is `install node`.
func (t Tools) InstallNode() *cobra.Command {
	o := nodeInstallOptions{Tools: t}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Have this machine's container runtime use Fairlead",
		Long: `Have the container runtime of this machine, containerd or CRI-O, use Fairlead:
the plugin by rename, then the configuration ` + conf.Name + ` in the way that
every runtime notices, in the folders that the runtime names. Nothing is changed
unless an agent is ready and our configuration would win by the runtime's rules
(fairlead conf explain). It ends when the runtime reports the network ready.
Run it again to upgrade; fairlead uninstall node puts back what was there.`,
		Args: usage.Args(cobra.NoArgs),
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.conf.Plugin, "from", "", "the plugin's binary (default: fairlead-cni beside this program)")
	f.BoolVar(&o.conf.Replace, "replace", false, "replace another project's plugin of our name")
	f.StringVar(&o.master, "cni-master", "", "the default network: none for Fairlead's own, auto for the first other configuration of the folder, or the name of a file there")
	out := o.Output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.install(cmd, out) }
	return cmd
}

// UninstallNode is `uninstall node`.
func (t Tools) UninstallNode() *cobra.Command {
	o := nodeInstallOptions{Tools: t}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Undo fairlead install node on this machine",
		Long: `Undo fairlead install node on this machine: former files come back, those that
were not there go, and what somebody else has written since is left alone. It
refuses while pods have Fairlead's network. Agent and journal stay.`,
		Args: usage.Args(cobra.NoArgs),
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.force, "force", false, "also while pods have Fairlead's network")
	out := o.Output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.uninstall(cmd, out) }
	return cmd
}

// node completes the configuration by what the machine has.
func (o *nodeInstallOptions) node(ctx context.Context, cmd *cobra.Command) (*node.Node, error) {
	c, client := o.conf, o.Agent(cmd)
	c.Agent, c.RunPlugin, c.Places, c.Name = client, o.RunPlugin, runtimes.Usual(), conf.Name
	if o.master != filepath.Base(o.master) && o.master != "" {
		return nil, hint.Usagef("--cni-master %q is a file's name, without its folder", o.master)
	}
	var err error
	if c.Plugin == "" {
		if c.Plugin, err = o.Beside("fairlead-cni"); err != nil {
			return nil, err
		}
	}
	if c.Socket == "" {
		c.Socket, err = runtimes.Find(ctx, runtimes.Sockets())
	}
	if errors.Is(err, runtimes.ErrNone) {
		return nil, hint.On(err, "start the runtime, or name its socket with --runtime")
	}
	options := conf.Options{}
	if client.Socket() != cni.DefaultSocket {
		options.Socket = client.Socket()
	}
	c.Conf = func(dir string) ([]byte, error) {
		b, _, err := conf.New(conf.Config{Dir: dir, Master: o.master, Options: options, Log: slog.New(slog.DiscardHandler)}).Wanted()
		return b, err
	}
	return node.New(c), err
}

func (o *nodeInstallOptions) install(cmd *cobra.Command, out Print) error {
	ctx, cancel := o.Within(cmd)
	defer cancel()
	n, err := o.node(ctx, cmd)
	if err != nil {
		return err
	}
	do := n.Install
	if o.dryRun {
		do = n.Plan
	}
	r, err := do(ctx)
	return o.show(cmd, out, r, err)
}

func (o *nodeInstallOptions) uninstall(cmd *cobra.Command, out Print) error {
	ctx, cancel := o.Within(cmd)
	defer cancel()
	n, err := o.node(ctx, cmd)
	if err != nil {
		return err
	}
	r, err := n.Uninstall(ctx, o.force, o.dryRun)
	return o.show(cmd, out, r, err)
}

// show prints a report that says something, and then what ended it.
func (o *nodeInstallOptions) show(cmd *cobra.Command, out Print, r node.Report, err error) error {
	if r.Runtime.Name == "" {
		return err
	}
	blocked := errors.As(err, new(node.BlockedError)) || !r.OK()
	printed := out(cmd.OutOrStdout(), r, func(w io.Writer, _ view.Options) error { return r.Text(w) })
	switch {
	case printed != nil:
		return printed
	case blocked: // the report says it
		return o.Failed
	}
	return err
}
