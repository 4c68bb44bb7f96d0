package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/client"
	"github.com/fairlead/fairlead/internal/client/view"
	"github.com/fairlead/fairlead/internal/core"
)

// tabled is what all `get` commands share: ask, then print.
type tabled[T any] struct {
	use, short string
	aliases    []string
	spaced     bool // has -n
	ask        func(ctx context.Context, c *client.Client, namespace string) (T, error)
	text       func(io.Writer, T, view.Options) error
	size       func(T) int
	note       func(T) string // for standard error, below the table; may be nil
	keep       func(*T, func(names ...string) bool)
}

func (t tabled[T]) command() *cobra.Command {
	cmd := &cobra.Command{Use: t.use + " [NAME...]", Short: t.short, Aliases: t.aliases}
	out := outputFlag(cmd, asTable, asWide, asJSON, asYAML)
	namespace, all := new(string), false
	if t.spaced {
		cmd.Flags().StringVarP(namespace, "namespace", "n", "", "only this `namespace` (all without)")
		cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "all namespaces, as without -n, which it overrides")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := within(cmd)
		defer cancel()
		if all {
			*namespace = ""
		}
		list, err := t.ask(ctx, agentOf(cmd), *namespace)
		if err != nil {
			return err
		}
		if len(args) > 0 {
			if err := t.only(&list, args); err != nil {
				return err
			}
		}
		if t.size(list) == 0 && (out.value == asTable || out.value == asWide) {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no %s\n", t.use)
			return err
		}
		return out.print(cmd.OutOrStdout(), list, func(w io.Writer, o view.Options) error {
			return errors.Join(t.text(w, list, o), t.footnote(cmd.ErrOrStderr(), list))
		})
	}
	return cmd
}

// only keeps what the arguments name; each must name something.
func (t tabled[T]) only(list *T, args []string) error {
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
			return hinted{unknown(fmt.Sprintf("%s: none is named %q", t.use, arg)), "`fairlead get " + t.use + "` lists all"}
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
	return group("get", "List pods, networks, subnets or addresses",
		tabled[podList]{
			use: "pods", short: "Every interface of every pod on this node", aliases: []string{"pod", "po"}, spaced: true,
			ask:  func(ctx context.Context, c *client.Client, ns string) (podList, error) { return c.Pods(ctx, ns) },
			text: view.Pods, size: func(l podList) int { return len(l.Items) }, note: view.PodsNote,
			keep: func(l *podList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(p agent.Pod) bool { return !named(p.Name, p.Namespace+"/"+p.Name) })
			},
		}.command(),
		tabled[netList]{
			use: "nets", short: "The networks that a pod can name", aliases: []string{"net", "networks"},
			ask:  func(ctx context.Context, c *client.Client, _ string) (netList, error) { return c.Nets(ctx) },
			text: view.Nets, size: func(l netList) int { return len(l.Items) },
			keep: func(l *netList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(n agent.Net) bool { return !named(n.Name, path.Base(n.Name)) })
			},
		}.command(),
		tabled[subnetList]{
			use: "subnets", short: "Pools of addresses and their use", aliases: []string{"subnet"},
			ask:  func(ctx context.Context, c *client.Client, _ string) (subnetList, error) { return c.Subnets(ctx) },
			text: view.Subnets, size: func(l subnetList) int { return len(l.Items) },
			keep: func(l *subnetList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(s agent.Subnet) bool { return !named(s.Name) })
			},
		}.command(),
		tabled[ipList]{
			use: "ips", short: "Every address that is held", aliases: []string{"ip"}, spaced: true,
			ask:  func(ctx context.Context, c *client.Client, ns string) (ipList, error) { return c.IPs(ctx, ns) },
			text: view.IPs, size: func(l ipList) int { return len(l.Items) },
			keep: func(l *ipList, named func(...string) bool) {
				l.Items = slices.DeleteFunc(l.Items, func(i agent.IP) bool { return !named(i.Address.String()) })
			},
		}.command(),
	)
}

func describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pod [NAMESPACE/]NAME", Short: "All that is known of a pod: interfaces, timeline, last failure",
		Aliases: []string{"pods", "po"}, Args: usageArgs(one("[NAMESPACE/]NAME")), ValidArgsFunction: completePods,
	}
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	namespace := cmd.Flags().StringP("namespace", "n", "default", "namespace of a NAME without one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pod, err := parsePod(args[0], *namespace)
		if err != nil {
			return err
		}
		ctx, cancel := within(cmd)
		defer cancel()
		found, err := agentOf(cmd).Pod(ctx, pod)
		if err != nil {
			return podError(pod, err)
		}
		return out.print(cmd.OutOrStdout(), found, func(w io.Writer, o view.Options) error { return view.Describe(w, found, o) })
	}
	return group("describe", "Show one thing in full", cmd)
}

func ipCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "who ADDRESS", Short: "Which pod has this address, through which port", Args: usageArgs(one("ADDRESS"))}
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		addr, err := netip.ParseAddr(args[0])
		if err != nil {
			return usagef("%q is not an IP address", args[0])
		}
		ctx, cancel := within(cmd)
		defer cancel()
		who, err := agentOf(cmd).Who(ctx, addr.Unmap().String())
		if err != nil {
			return err
		}
		err = out.print(cmd.OutOrStdout(), who, func(w io.Writer, _ view.Options) error { return view.Who(w, who) })
		if err == nil && len(who.Items) == 0 {
			return silentError{exitNotFound}
		}
		return err
	}
	return group("ip", "Ask about addresses", cmd)
}

// parsePod reads "namespace/name", or a name in the namespace given.
func parsePod(arg, namespace string) (core.Pod, error) {
	pod := core.Pod{Namespace: namespace, Name: arg}
	if ns, name, ok := strings.Cut(arg, "/"); ok {
		pod = core.Pod{Namespace: ns, Name: name}
	}
	if pod.Namespace == "" || pod.Name == "" || strings.Contains(pod.Name, "/") {
		return core.Pod{}, usagef("%q is not a pod: write NAMESPACE/NAME", arg)
	}
	return pod, nil
}

func podError(pod core.Pod, err error) error {
	if !errors.Is(err, core.ErrNotFound) {
		return err
	}
	return hinted{
		unknown("pod " + pod.String() + " is not known on this node"),
		"`fairlead get pods` lists what is attached here",
	}
}

// completePods offers the pods of this node.
func completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := within(cmd)
	defer cancel()
	list, err := agentOf(cmd).Pods(ctx, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, len(list.Items))
	for i, p := range list.Items {
		names[i] = p.Namespace + "/" + p.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Short names for the lists, for the constructors above.
type (
	podList    = agent.PodList
	netList    = agent.NetList
	subnetList = agent.SubnetList
	ipList     = agent.IPList
)
