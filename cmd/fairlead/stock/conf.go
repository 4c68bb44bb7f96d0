package stock

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// explainOptions are the flags of `conf explain`.
type explainOptions struct {
	Tools
	runtimes       []string
	binDirs        []string
	maxConfNum     int
	defaultNetwork string
}

// explained is what -o json and -o yaml print.
type explained struct {
	Items []explain.Choice `json:"items"`
}

// Explain is `conf explain`.
func (t Tools) Explain() *cobra.Command {
	o := explainOptions{Tools: t}
	cmd := &cobra.Command{
		Use:   "explain [DIR]",
		Short: "Tell which configuration each runtime takes from a folder, and why",
		Long: `Tell which configuration each runtime takes from a folder, and why: what becomes
of each file, which networks a pod gets by which plugins, and (-o wide) what
follows when the folder is changed. Without DIR it is the folder that the
runtime's own configuration names. Plugins are asked for their versions; nothing
else is started and nothing is changed. Exit code 1 where a runtime has no network.

The runtimes are dockershim (cri-dockerd too), containerd, cri-o, and fairlead,
which is ` + "`fairlead cri`" + `, with kubelet or without.`,
		Args: usage.Args(cobra.MaximumNArgs(1)),
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.runtimes, "runtime", names(explain.Dialects()), "whose rules; repeatable")
	f.StringSliceVar(&o.binDirs, "cni-bin-dir", nil, "CNI plugins; repeatable (default: as the runtime's files say)")
	f.IntVar(&o.maxConfNum, "max-conf-num", 1, "containerd's max_conf_num; 0 is all files (default: as its config.toml says)")
	f.StringVar(&o.defaultNetwork, "default-network", "", "CRI-O's cni_default_network (default: as its crio.conf says)")
	_ = cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions(names(explain.Dialects()), cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	out := o.Output(cmd, "table", "wide", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := o.Within(cmd)
		defer cancel()
		all, err := o.explain(ctx, cmd.Flags().Changed, args)
		if err != nil {
			return err
		}
		err = out(cmd.OutOrStdout(), explained{all}, func(w io.Writer, v view.Options) error { return explain.Text(w, all, v.Wide) })
		if err == nil && slices.ContainsFunc(all, func(c explain.Choice) bool { return !c.Ready }) {
			return o.Failed
		}
		return err
	}
	return cmd
}

func names(all []explain.Dialect) (out []string) {
	for _, d := range all {
		out = append(out, string(d))
	}
	return out
}

func (o explainOptions) explain(ctx context.Context, given func(flag string) bool, dir []string) (all []explain.Choice, err error) {
	for _, name := range o.runtimes {
		if !slices.Contains(names(explain.Dialects()), name) {
			return nil, hint.Usagef("--runtime %s is none of %v", name, explain.Dialects())
		}
		n, err := o.network(explain.Dialect(name), given)
		if err != nil {
			return nil, err
		}
		n.CNI = runtimes.Newest(ctx, explain.Dialect(name), runtimes.Sockets())
		if len(dir) == 1 {
			n.Dir = dir[0]
		}
		c, err := explain.Explain(ctx, explain.Dialect(name), n.Settings, explain.NewPlugins(n.BinDirs, o.RunPlugin))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// network is what the runtime's files say, but for the flags that are given.
func (o explainOptions) network(d explain.Dialect, given func(flag string) bool) (runtimes.Network, error) {
	n, err := runtimes.Usual().Network(d)
	if given("cni-bin-dir") {
		n.BinDirs = o.binDirs
	}
	if given("max-conf-num") {
		n.MaxConfNum = o.maxConfNum
	}
	if given("default-network") {
		n.Default = o.defaultNetwork
	}
	return n, err
}
