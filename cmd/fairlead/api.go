package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// originHelp is the rule by which a command chooses whom it asks.
const originHelp = `

With a kubeconfig at hand (--kubeconfig, else $KUBECONFIG, else ~/.kube/config)
this asks the Kubernetes API with your rights, as kubectl does, about every node.
With --node-local or --socket, or where there is no kubeconfig, it asks the agent
of this node over its socket, as root.`

// spacedHelp is how namespaces are chosen.
const spacedHelp = ` Without -n and -A the API is asked
about the context's namespace, the agent about all.`

// originFlags say who is asked, and where to look.
type originFlags struct {
	kubeconfig string
	context    string
	local      bool
	namespace  string
	all        bool
}

func (f *originFlags) add(cmd *cobra.Command) {
	cmd.Long = cmd.Short + "." + originHelp
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "ask the Kubernetes API as this `file` says")
	cmd.Flags().StringVar(&f.context, "context", "", "`context` of the kubeconfig")
	cmd.Flags().BoolVar(&f.local, "node-local", false, "ask the agent of this node, not the Kubernetes API")
}

// files are the kubeconfigs at hand. What is named counts even where it does not
// exist: to pass over it would answer another question than the one asked.
func (f *originFlags) files() []string {
	switch env := os.Getenv("KUBECONFIG"); {
	case f.kubeconfig != "":
		return []string{f.kubeconfig}
	case env != "":
		return filepath.SplitList(env)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	file := filepath.Join(home, ".kube", "config")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []string{file}
}

// open chooses who is asked; names are the command's arguments.
func (f *originFlags) open(cmd *cobra.Command, names []string) (client.Origin, error) {
	local := f.local || cmd.Flags().Changed("socket")
	if local && (f.kubeconfig != "" || f.context != "") {
		return client.Origin{}, hint.Usagef("--node-local and --socket ask the agent: leave out --kubeconfig and --context")
	}
	o, err := client.Choose(client.Choice{
		Options: query.Options{
			Files: f.files(), Context: f.context, UserAgent: "fairlead/" + version,
			Note: func(text string) { note(cmd, text) },
		},
		Socket: agentOf(cmd).Socket(), Local: local, Namespace: f.namespace, All: f.all, Names: names,
	})
	if err != nil {
		return o, hint.On(err, "`kubectl config get-contexts` shows what there is; --node-local asks the agent of this node instead")
	}
	return o, nil
}

// complete offers the pods that the command can be asked about.
func (f *originFlags) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	o, err := f.open(cmd, []string{typed})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := within(cmd)
	defer cancel()
	names, err := o.PodNames(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completePods offers the pods of this node.
func completePods(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return (&originFlags{local: true}).complete(cmd, args, typed)
}

// note tells of something beside the answer.
func note(cmd *cobra.Command, text string) {
	_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "note: "+view.Printable(text))
}
