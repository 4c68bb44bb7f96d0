package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/client/view"
	"github.com/fairlead/fairlead/internal/confexplain"
	"github.com/fairlead/fairlead/internal/doctor"
)

func confCommand() *cobra.Command {
	return group("conf", "The CNI configurations that container runtimes read", confExplainCommand())
}

// explainOptions are the flags of `conf explain`.
type explainOptions struct {
	runtimes   []string
	binDirs    []string
	maxConfNum int
	network    string
}

// explained is what -o json and -o yaml print.
type explained struct {
	Items []confexplain.Choice `json:"items"`
}

func confExplainCommand() *cobra.Command {
	o := explainOptions{}
	cmd := &cobra.Command{
		Use:   "explain [DIR]",
		Short: "Tell which configuration each runtime takes from a folder, and why",
		Long: `Tell which configuration each runtime takes from a folder, and why: what becomes
of each file, which networks a pod gets by which plugins, and (-o wide) what follows
when the folder is changed. Plugins are asked for their versions; nothing else is
started and nothing is changed. Exit code 1 where a runtime has no network.

The runtimes are dockershim (cri-dockerd too), containerd, cri-o, and fairlead,
which is ` + "`fairlead cri`" + `, with kubelet or without.`,
		Args: usage.Args(cobra.MaximumNArgs(1)),
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.runtimes, "runtime", names(confexplain.Dialects()), "whose rules; repeatable")
	f.StringSliceVar(&o.binDirs, "cni-bin-dir", []string{defaultBinDir}, "CNI plugins; repeatable")
	f.IntVar(&o.maxConfNum, "max-conf-num", 1, "containerd's max_conf_num; 0 is all files")
	f.StringVar(&o.network, "default-network", "", "CRI-O's cni_default_network")
	_ = cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions(names(confexplain.Dialects()), cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	out := outputFlag(cmd, asTable, asWide, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := defaultConfDir
		if len(args) == 1 {
			dir = args[0]
		}
		ctx, cancel := within(cmd)
		defer cancel()
		all, err := o.explain(ctx, dir)
		if err != nil {
			return err
		}
		err = out.print(cmd.OutOrStdout(), explained{all}, func(w io.Writer, v view.Options) error { return confexplain.Text(w, all, v.Wide) })
		if err == nil && slices.ContainsFunc(all, func(c confexplain.Choice) bool { return !c.Ready }) {
			return silentError{exitFailed}
		}
		return err
	}
	return cmd
}

func names(all []confexplain.Dialect) (out []string) {
	for _, d := range all {
		out = append(out, string(d))
	}
	return out
}

func (o explainOptions) explain(ctx context.Context, dir string) (all []confexplain.Choice, err error) {
	plugins := confexplain.NewPlugins(o.binDirs, askPlugin)
	for _, name := range o.runtimes {
		if !slices.Contains(names(confexplain.Dialects()), name) {
			return nil, usage.Errorf("--runtime %s is none of %v", name, confexplain.Dialects())
		}
		s := confexplain.Settings{Dir: dir, MaxConfNum: o.maxConfNum, Default: o.network}
		c, err := confexplain.Explain(ctx, confexplain.Dialect(name), s, plugins)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// askPlugin is confexplain's Ask.
func askPlugin(ctx context.Context, path string, env []string, stdin string) ([]byte, error) {
	return runProgram(ctx, doctor.Command{Argv: []string{path}, Env: env, Stdin: stdin})
}
