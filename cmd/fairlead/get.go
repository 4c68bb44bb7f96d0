package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// tabled is what all `get` commands share: ask, then print.
type tabled[T any] struct {
	use, short string
	aliases    []string
	spaced     bool // stands in namespaces: has -n and -A
	ask        func(client.Origin, context.Context) (T, error)
	text       func(io.Writer, T, view.Options) error
	size       func(T) int
	note       func(T) string // for standard error, below the table; may be nil
	keep       func(*T, func(names ...string) bool)
}

func (t tabled[T]) command() *cobra.Command {
	cmd := &cobra.Command{Use: t.use + " [NAME...]", Short: t.short, Aliases: t.aliases}
	out, from := outputFlag(cmd, asTable, asWide, asJSON, asYAML), &originFlags{}
	from.add(cmd)
	if t.spaced {
		cmd.Long += spacedHelp
		cmd.Flags().StringVarP(&from.namespace, "namespace", "n", "", "only this `namespace`")
		cmd.Flags().BoolVarP(&from.all, "all-namespaces", "A", false, "all namespaces; overrides -n")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from.all = from.all || !t.spaced
		o, err := from.open(cmd, args)
		if err != nil {
			return err
		}
		return t.run(cmd, o, args, out)
	}
	return cmd
}

func (t tabled[T]) run(cmd *cobra.Command, o client.Origin, args []string, out *format) error {
	ctx, cancel := within(cmd)
	defer cancel()
	list, err := t.ask(o, ctx)
	if err != nil {
		return o.Explain(err)
	}
	if len(args) > 0 {
		if err := t.only(&list, args, o); err != nil {
			return err
		}
	}
	if t.size(list) == 0 && (out.value == asTable || out.value == asWide) {
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no %s%s\n", t.use, o.Place())
		return err
	}
	if o.Fell && t.spaced && cmd.Flags().Changed("all-namespaces") {
		note(cmd, "only what is"+o.Place())
	}
	return out.print(cmd.OutOrStdout(), list, func(w io.Writer, v view.Options) error {
		v.Cluster = o.API != nil
		return errors.Join(t.text(w, list, v), t.footnote(cmd.ErrOrStderr(), list))
	})
}

// only keeps what the arguments name; each must name something.
func (t tabled[T]) only(list *T, args []string, o client.Origin) error {
	found := map[string]bool{}
	t.keep(list, func(names ...string) (named bool) {
		for _, n := range names {
			if slices.Contains(args, n) {
				found[n], named = true, true
			}
		}
		return named
	})
	for _, arg := range args {
		if !found[arg] {
			return hint.On(unknown(fmt.Sprintf("%s: none%s is named %q", t.use, o.Place(), arg)), "`fairlead get "+t.use+"` lists all")
		}
	}
	return nil
}

// unknown is a thing that this node does not know: it is core.ErrNotFound.
type unknown string

func (e unknown) Error() string { return string(e) }

// Is gives the exit code for what is not known.
func (e unknown) Is(target error) bool { return target == core.ErrNotFound }

func (t tabled[T]) footnote(w io.Writer, list T) (err error) {
	if t.note == nil {
		return nil
	}
	if text := t.note(list); text != "" {
		_, err = fmt.Fprintln(w, text)
	}
	return err
}

func getCommand() *cobra.Command {
	return group("get", "List pods, networks, subnets, addresses or virtual functions",
		tabled[podList]{
			use: "pods", short: "Every interface of every pod", aliases: []string{"pod", "po"}, spaced: true,
			ask:  client.Origin.Pods,
			text: view.Pods, size: func(l podList) int { return len(l.Items) }, note: view.PodsNote,
			keep: func(l *podList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(p agent.Pod) bool { return !named(p.Name, p.Namespace+"/"+p.Name) })
			},
		}.command(),
		tabled[netList]{
			use: "nets", short: "The networks that a pod can name", aliases: []string{"net", "networks"},
			spaced: true, ask: client.Origin.Nets,
			text: view.Nets, size: func(l netList) int { return len(l.Items) },
			keep: func(l *netList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(n agent.Net) bool { return !named(n.Name, path.Base(n.Name)) })
			},
		}.command(),
		tabled[podNetworkList]{
			use: "podnetworks", short: "What PodNetworks declare, and which pods have it", aliases: []string{"podnetwork", "pnet"}, spaced: true,
			ask:  client.Origin.PodNetworks,
			text: view.PodNetworks, size: func(l podNetworkList) int { return len(l.Items) },
			keep: func(l *podNetworkList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(n agent.PodNetwork) bool { return !named(n.Name, n.Namespace+"/"+n.Name) })
			},
		}.command(),
		tabled[subnetList]{
			use: "subnets", short: "Pools of addresses and their use", aliases: []string{"subnet"},
			ask:  client.Origin.Subnets,
			text: view.Subnets, size: func(l subnetList) int { return len(l.Items) },
			keep: func(l *subnetList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(s agent.Subnet) bool { return !named(s.Name) })
			},
		}.command(),
		tabled[ipList]{
			use: "ips", short: "Every address that is held", aliases: []string{"ip"}, spaced: true,
			ask:  client.Origin.IPs,
			text: view.IPs, size: func(l ipList) int { return len(l.Items) },
			keep: func(l *ipList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(i agent.IP) bool { return !named(i.Address.String()) })
			},
		}.command(),
	)
}

func describeCommand() *cobra.Command {
	from := &originFlags{}
	cmd := &cobra.Command{
		Use: "pod [NAMESPACE/]NAME", Short: "All that is known of a pod: its containers' states, interfaces; events, or timeline and last failure",
		Aliases: []string{"pods", "po"}, Args: usage.Args(one("[NAMESPACE/]NAME")), ValidArgsFunction: from.complete,
	}
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	from.add(cmd)
	cmd.Flags().StringVarP(&from.namespace, "namespace", "n", "", "`namespace` of a NAME without one (default: the context's; of the agent \"default\")")
	loop := nodeSocketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := from.open(cmd, nil)
		if err != nil {
			return err
		}
		pod, err := client.ParsePod(args[0], o.Usual())
		if err != nil {
			return err
		}
		ctx, cancel := within(cmd)
		defer cancel()
		run := runOf(ctx, loop(), pod)
		if run != nil {
			pod.Name = run.Name // a static pod's in full
		}
		found, err := o.Pod(ctx, pod)
		switch {
		case err == nil:
		case run == nil:
			return absent(o, pod, err)
		default: // it has no network (yet), or there is nobody who would know
			found = agent.Pod{Namespace: run.Namespace, Name: run.Name, UID: run.UID}
		}
		found.Run = run
		return out.print(cmd.OutOrStdout(), found, func(w io.Writer, v view.Options) error {
			v.Cluster = o.API != nil
			return view.Describe(w, found, v)
		})
	}
	return group("describe", "Show one thing in full", append(questions("describe"), cmd)...)
}

// absent says of a pod that is not found where else it may be.
func absent(o client.Origin, pod core.Pod, err error) error {
	if errors.Is(err, core.ErrNotFound) && o.API != nil {
		return hint.On(
			unknown("there is no pod "+pod.String()),
			"`fairlead get pods -A` lists all; what a node still holds for it shows --node-local there")
	}
	return podError(pod, o.Explain(err))
}

func podError(pod core.Pod, err error) error {
	if !errors.Is(err, core.ErrNotFound) {
		return err
	}
	return hint.On(
		unknown("pod "+pod.String()+" is not known on this node"),
		"`fairlead get pods` lists what is attached here")
}

// Short names for the lists, for the constructors above.
type (
	podList    = agent.PodList
	netList    = agent.NetList
	subnetList = agent.SubnetList
	ipList     = agent.IPList

	podNetworkList = agent.PodNetworkList
)
