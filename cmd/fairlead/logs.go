package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	nodeclient "github.com/fairlead/fairlead/internal/node/client"
	"github.com/fairlead/fairlead/internal/ops/client"
)

// nodeSocketFlag adds --node-socket; what it gives is asked once flags are read.
func nodeSocketFlag(cmd *cobra.Command) func() string {
	named := cmd.Flags().String("node-socket", "", "the socket of fairlead up or fairlead node (default: node.sock beside --socket)")
	return func() string {
		if *named != "" {
			return *named
		}
		return filepath.Join(filepath.Dir(agentOf(cmd).Socket()), "node.sock")
	}
}

// podFlags name a container of a pod that this node's loop runs.
type podFlags struct {
	socket               func() string
	namespace, container string
}

func (f *podFlags) add(cmd *cobra.Command) {
	f.socket = nodeSocketFlag(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "`namespace` of a NAME without one")
	cmd.Flags().StringVarP(&f.container, "container", "c", "", "container (default: the pod's first)")
}

// open finds the pod, and the container if none is named.
func (f *podFlags) open(cmd *cobra.Command, arg string) (*nodeclient.Client, nodeclient.Target, error) {
	pod, err := client.ParsePod(arg, f.namespace)
	if err != nil {
		return nil, nodeclient.Target{}, err
	}
	c := nodeclient.New(f.socket())
	ctx, cancel := within(cmd)
	defer cancel()
	run, err := c.Run(ctx, pod)
	if err != nil {
		return nil, nodeclient.Target{}, unknownHere(pod, err)
	}
	t := nodeclient.Target{Pod: core.Pod{Namespace: run.Namespace, Name: run.Name}, Container: f.container}
	if t.Container != "" {
		return c, t, nil
	}
	main := slices.DeleteFunc(run.Containers, func(c agent.ContainerRun) bool { return c.Init })
	if len(main) == 0 {
		return nil, t, fmt.Errorf("pod %s has no container yet: %s", pod, run.Phase)
	}
	if t.Container = main[0].Name; len(main) > 1 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "container %s, of %d; -c names another\n", t.Container, len(main))
	}
	return c, t, nil
}

func unknownHere(pod core.Pod, err error) error {
	if !errors.Is(err, core.ErrNotFound) {
		return err
	}
	return hint.On(unknown("this node's loop runs no pod "+pod.String()), "`fairlead get pods` lists what is attached here")
}

func logsCommand() *cobra.Command {
	f, o := podFlags{}, nodeclient.LogOptions{}
	cmd := &cobra.Command{
		Use: "logs [NAMESPACE/]POD", Short: "What a container of a pod has said (fairlead up, fairlead node)",
		Long: `What a container of a pod has said, of pods that run without kubelet. The node's
part at the end of a static pod's name may be left out.`,
		Args: usage.Args(one("[NAMESPACE/]POD")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Tail < -1 || o.Since < 0 {
				return hint.Usagef("--tail and --since are not negative")
			}
			c, t, err := f.open(cmd, args[0])
			if err != nil {
				return err
			}
			from, err := c.Logs(cmd.Context(), t, o)
			if err != nil {
				return err
			}
			defer from.Close()
			_, err = io.Copy(cmd.OutOrStdout(), from)
			if err != nil && cmd.Context().Err() == nil {
				return fmt.Errorf("log of %s: %w", t.Container, err)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on as long as the container runs")
	cmd.Flags().BoolVarP(&o.Previous, "previous", "p", false, "of the instance before the one that runs")
	cmd.Flags().IntVar(&o.Tail, "tail", -1, "the last `N` lines only (-1: all)")
	cmd.Flags().DurationVar(&o.Since, "since", 0, "what was said in the last `DURATION` only, 90s or 5m")
	cmd.Flags().BoolVar(&o.Timestamps, "timestamps", false, "each line with its time")
	return cmd
}

func execCommand() *cobra.Command {
	f := podFlags{}
	stdin, tty := false, false
	cmd := &cobra.Command{
		Use: "exec [NAMESPACE/]POD -- COMMAND [ARGUMENT...]", Short: "Run a command in a container of a pod (fairlead up, fairlead node)",
		Long: `Run a command in a container of a pod that runs without kubelet. Its exit code is
the command's; 1 also says that it could not be run.`,
		Args: usage.Args(func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return fmt.Errorf("%s needs [NAMESPACE/]POD -- COMMAND", cmd.CommandPath())
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, t, err := f.open(cmd, args[0])
			if err != nil {
				return err
			}
			run := nodeclient.Command{Argv: args[1:], Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), TTY: tty}
			if stdin {
				run.Stdin = cmd.InOrStdin()
			}
			code, err := c.ExecInTerminal(cmd.Context(), t, run)
			if err == nil && code != 0 {
				err = silentError{code}
			}
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "the command reads standard input")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "the command has a terminal")
	return cmd
}

// joinTimeout is how long describe waits for a loop that may not be there.
const joinTimeout = 5 * time.Second

// runOf is what this node's loop knows of a pod; nil when there is no loop, or
// it does not run the pod.
func runOf(ctx context.Context, socket string, pod core.Pod) *agent.PodRun {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	run, err := nodeclient.New(socket).Run(ctx, pod)
	if err != nil {
		return nil
	}
	return &run
}
