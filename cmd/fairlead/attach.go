package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// byHand are the flags of attach, detach and check.
type byHand struct{ client.ByHand }

func handFlags(cmd *cobra.Command) *byHand {
	h := &byHand{}
	f := cmd.Flags()
	f.StringVar(&h.Netns, "netns", "", "`PATH` of the network namespace, or its name in ip netns")
	f.StringVar(&h.Pod, "pod", "", "`NAMESPACE/NAME` of the pod; its annotations decide the networks")
	f.StringVar(&h.IfName, "ifname", client.DefaultIfName, "name of the first interface in the namespace")
	f.StringVar(&h.ID, "container-id", "", "container id (default: made from --netns)")
	f.StringVar(&h.Conf, "conf", "", "CNI configuration, a .conf or .conflist (default: our own default network)")
	f.StringVar(&h.Container, "container", "", "name or id of a Docker container started with --network none")
	f.StringVar(&h.DockerHost, "docker-host", "", "Docker's socket (default: DOCKER_HOST, else Docker's own)")
	f.StringSliceVar(&h.BinDirs, "cni-bin-dir", []string{runtimes.DefaultBinDir}, "where delegates' binaries are; repeatable")
	_ = cmd.MarkFlagFilename("conf", "conf", "conflist", "json") // fails only for an unknown flag
	return h
}

func attachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "attach (--netns PATH --pod NAMESPACE/NAME | --container ID)", Short: "Give a network namespace or a Docker container its networks",
		Long: `Give a network namespace or a Docker container its networks: the CNI call ADD,
without a runtime. The attachment stays until "fairlead detach" with the same
flags; a runtime's GC does not remove it.`,
		Example: "  ip netns add blue && fairlead attach --netns blue --pod default/blue\n  docker run -d --name web --network none nginx && fairlead attach --container web",
		Args:    usage.Args(cobra.NoArgs),
	}
	h, out := handFlags(cmd), outputFlag(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var result []byte
		target, err := h.run(cmd, core.Add, func(r []byte) error { result = r; return nil })
		if err != nil {
			return h.InTheWay(err)
		}
		if err := h.noteUnknown(cmd, target.Pod); err != nil {
			return err
		}
		if out.value == asJSON {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", bytes.TrimSpace(result))
			return err
		}
		ctx, cancel := within(cmd)
		defer cancel()
		if _, found := h.Recorded(ctx, agentOf(cmd), target); found != nil {
			return view.Interfaces(cmd.OutOrStdout(), found.Interfaces)
		}
		return view.Attached(cmd.OutOrStdout(), result) // of the default network only
	}
	return cmd
}

// noteUnknown says when no object tells what the pod of --pod wants: it is
// easily mistyped, and the default network alone looks like success.
func (h *byHand) noteUnknown(cmd *cobra.Command, pod core.Pod) error {
	if h.Pod == "" {
		return nil
	}
	ctx, cancel := within(cmd)
	defer cancel()
	found, err := agentOf(cmd).Pod(ctx, pod)
	if err != nil || found.Known {
		return nil // the attachment stands, whatever this question came to
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "note: no Pod %s in the objects: default network\n", pod)
	return err
}

func detachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "detach (--netns PATH | --container ID | --container-id ID)",
		Short: "Take the networks away again; also for a container or namespace that is gone",
		Long: `Take the networks away again; also for a container or namespace that is gone.
With --force what cannot be undone, because a plugin refuses or hangs, is
dropped from the agent's records: its addresses are free, nobody tries again,
and each thing that is left is said. "fairlead status" lists the orphans.`,
		Args: usage.Args(cobra.NoArgs),
	}
	h, force := handFlags(cmd), cmd.Flags().Bool("force", false, "drop what cannot be undone, and say what is left")
	out := outputFlag(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *force {
			ctx, cancel := within(cmd)
			defer cancel()
			result, err := h.Force(ctx, agentOf(cmd))
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), result, func(w io.Writer, _ view.Options) error { return view.Detach(w, result) })
		}
		_, err := h.run(cmd, core.Del, nothing)
		return err
	}
	return cmd
}

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "check ([NAMESPACE/]NAME | --netns PATH | --container ID)",
		Short:             "Prove that the networks are as they were made; exit code 1 when not",
		Args:              usage.Args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completePods,
	}
	h, out := handFlags(cmd), outputFlag(cmd, asTable, asJSON, asYAML)
	namespace := cmd.Flags().StringP("namespace", "n", "default", "namespace of a NAME without one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && h.Netns == "" && h.Container == "" && h.ID == "" && h.Pod != "" {
			args = []string{h.Pod}
		}
		if len(args) == 1 {
			return checkPod(cmd, args[0], *namespace, out)
		}
		target, err := h.run(cmd, core.Check, nothing)
		if err != nil {
			return err
		}
		ctx, cancel := within(cmd)
		defer cancel()
		result := h.Proved(ctx, agentOf(cmd), target)
		return out.print(cmd.OutOrStdout(), result, func(w io.Writer, _ view.Options) error { return view.Check(w, result) })
	}
	return cmd
}

// checkPod has the agent check every attachment of a pod.
func checkPod(cmd *cobra.Command, arg, namespace string, out *format) error {
	pod, err := client.ParsePod(arg, namespace)
	if err != nil {
		return err
	}
	ctx, cancel := within(cmd)
	defer cancel()
	result, err := agentOf(cmd).Check(ctx, pod)
	if err != nil {
		return podError(pod, err)
	}
	err = out.print(cmd.OutOrStdout(), result, func(w io.Writer, _ view.Options) error { return view.Check(w, result) })
	if err == nil && !result.OK {
		return silentError{exitFailed}
	}
	return err
}

func nothing([]byte) error { return nil }

// run makes the call.
func (h *byHand) run(cmd *cobra.Command, op core.Op, deliver func([]byte) error) (client.Target, error) {
	ctx, cancel := within(cmd)
	defer cancel()
	return h.Call(ctx, agentOf(cmd), op, cmd.ErrOrStderr(), deliver)
}
