package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/multus/migrate"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/whereabouts"
)

// importTimeout bounds an import unless --timeout says otherwise: a CHECK of
// every container of the node is in it.
const importTimeout = 10 * time.Minute

// importOptions are the flags of `import multus`.
type importOptions struct {
	plan, apply, rollback, force bool
	conf                         migrate.Config
}

func importCommand() *cobra.Command {
	o := importOptions{}
	cmd := &cobra.Command{
		Use:   "multus",
		Short: "Take this node over from Multus, with its running pods, or give it back",
		Long: `Take this node over from Multus, with its running pods, or give it back.

--plan, which is the default, says what is there and what would happen, and
changes nothing: exit code 0 when --apply would work, 1 when something is in the
way. --apply may be killed at any instant and run again. --rollback undoes it,
also for pods that came since, but for those with interfaces of Fairlead's own.`,
		Args: usage.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.BoolVar(&o.plan, "plan", false, "look and change nothing (default)")
	f.BoolVar(&o.apply, "apply", false, "take the node over")
	f.BoolVar(&o.rollback, "rollback", false, "give it back")
	f.BoolVar(&o.force, "force", false, "with --rollback: also while pods live that Multus cannot detach")
	f.StringVar(&o.conf.ConfDir, "conf-dir", runtimes.DefaultConfDir, "the runtime's CNI configurations")
	f.StringVar(&o.conf.BinDir, "cni-bin-dir", runtimes.DefaultBinDir, "the runtime's CNI plugins")
	f.StringVar(&o.conf.StateDir, "import-dir", nodeagent.DefaultStateDir+"/import", "backup, and how far an import is")
	f.StringVar(&o.conf.Plugin, "from", "", "Fairlead's plugin (default: fairlead-cni beside this program)")
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.plan && o.apply || o.plan && o.rollback || o.apply && o.rollback {
			return hint.Usagef("give one of --plan, --apply and --rollback")
		}
		if o.force && !o.rollback {
			return hint.Usagef("--force goes with --rollback")
		}
		return o.run(cmd, out)
	}
	return group("import", "Take over what another project runs", append(questions("import"), cmd, importSRIOVCommand(), questionCommand(whereabouts.Question()))...)
}

func (o importOptions) run(cmd *cobra.Command, out *format) error {
	limit := importTimeout
	if cmd.Flags().Changed("timeout") {
		limit, _ = cmd.Flags().GetDuration("timeout") // the root command's flag
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	m, err := o.migration(cmd)
	if err != nil {
		return err
	}
	if !o.apply && !o.rollback {
		return showPlan(ctx, cmd, m, out)
	}
	var rep migrate.Report
	if o.apply {
		rep, err = m.Apply(ctx)
	} else {
		rep, err = m.Rollback(ctx, o.force)
	}
	if err != nil && len(rep.Done)+len(rep.Containers) == 0 {
		return err
	}
	printed := out.print(cmd.OutOrStdout(), rep, func(w io.Writer, _ view.Options) error { return rep.Text(w) })
	if err == nil {
		err = printed
	}
	return err
}

func (o importOptions) migration(cmd *cobra.Command) (*migrate.Migration, error) {
	c, client := o.conf, agentOf(cmd)
	c.Agent, c.Proc = client, "/proc"
	if client.Socket() != cni.DefaultSocket {
		c.Socket = client.Socket()
	}
	if c.Plugin == "" {
		var err error
		if c.Plugin, err = beside("fairlead-cni"); err != nil {
			return nil, err
		}
	}
	return migrate.New(c), nil
}

func showPlan(ctx context.Context, cmd *cobra.Command, m *migrate.Migration, out *format) error {
	p, err := m.Plan(ctx)
	if err != nil {
		return err
	}
	err = out.print(cmd.OutOrStdout(), p, func(w io.Writer, _ view.Options) error { return p.Text(w) })
	if err == nil && len(p.Blocks) > 0 {
		return silentError{exitFailed}
	}
	return err
}
