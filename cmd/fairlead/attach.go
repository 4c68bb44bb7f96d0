package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	docker "github.com/moby/moby/client"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/client"
	"github.com/fairlead/fairlead/internal/client/view"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/hostruntime"
)

// Defaults of the commands that call the agent as a plugin does.
const (
	defaultIfName = "eth0"
	namedNetns    = "/run/netns" // of `ip netns`
)

// byHand are the flags of attach, detach and check.
type byHand struct {
	netns, pod, ifName, id, conf, container, dockerHost string
	binDirs                                             []string
}

func handFlags(cmd *cobra.Command) *byHand {
	h := &byHand{}
	f := cmd.Flags()
	f.StringVar(&h.netns, "netns", "", "`PATH` of the network namespace, or its name in ip netns")
	f.StringVar(&h.pod, "pod", "", "`NAMESPACE/NAME` of the pod; its annotations decide the networks")
	f.StringVar(&h.ifName, "ifname", defaultIfName, "name of the first interface in the namespace")
	f.StringVar(&h.id, "container-id", "", "container id (default: made from --netns)")
	f.StringVar(&h.conf, "conf", "", "CNI configuration, a .conf or .conflist (default: our own default network)")
	f.StringVar(&h.container, "container", "", "name or id of a Docker container started with --network none")
	f.StringVar(&h.dockerHost, "docker-host", "", "Docker's socket (default: DOCKER_HOST, else Docker's own)")
	f.StringSliceVar(&h.binDirs, "cni-bin-dir", []string{hostruntime.DefaultBinDir}, "where delegates' binaries are; repeatable")
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
			return h.inTheWay(err)
		}
		if err := h.noteUnknown(cmd, target.Pod); err != nil {
			return err
		}
		if out.value == asJSON {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", bytes.TrimSpace(result))
			return err
		}
		if _, found := recorded(cmd, target, h.ifName); found != nil {
			return view.Interfaces(cmd.OutOrStdout(), found.Interfaces)
		}
		return view.Attached(cmd.OutOrStdout(), result) // of the default network only
	}
	return cmd
}

// inTheWay names the command that removes what an ADD by hand ran into.
func (h *byHand) inTheWay(err error) error {
	refusal := (*client.CNIError)(nil)
	if !errors.As(err, &refusal) || refusal.Obj.Code != core.CodeConflict || h.conf != "" {
		return err
	}
	flags := "--netns " + h.netns
	if h.container != "" {
		flags = "--container " + h.container
	} else if h.id != "" {
		flags += " --container-id " + h.id
	}
	if h.ifName != defaultIfName {
		flags += " --ifname " + h.ifName
	}
	return usage.Hint(err, "if an earlier attach made it: `fairlead detach "+flags+"`")
}

// noteUnknown says when no object tells what the pod of --pod wants: it is
// easily mistyped, and the default network alone looks like success.
func (h *byHand) noteUnknown(cmd *cobra.Command, pod core.Pod) error {
	if h.pod == "" {
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

// recorded is the attachment that the agent has of a target, with its pod; nil
// when it cannot be had.
func recorded(cmd *cobra.Command, target client.Target, ifName string) (core.Pod, *agent.Attachment) {
	ctx, cancel := within(cmd)
	defer cancel()
	pods, err := agentOf(cmd).Pods(ctx, target.Pod.Namespace)
	if err != nil {
		return core.Pod{}, nil
	}
	for _, p := range pods.Items {
		for _, a := range p.Attachments {
			if a.Container == target.Container && a.IfName == ifName {
				return core.Pod{Namespace: p.Namespace, Name: p.Name}, &a
			}
		}
	}
	return core.Pod{}, nil
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
			return h.force(cmd, out)
		}
		_, err := h.run(cmd, core.Del, nothing)
		return err
	}
	return cmd
}

// force detaches a target and says what is left of it.
func (h *byHand) force(cmd *cobra.Command, out *format) error {
	if err := h.validate(core.Del); err != nil {
		return err
	}
	ctx, cancel := within(cmd)
	defer cancel()
	c := agentOf(cmd)
	target, err := h.target(ctx, c, core.Del)
	if err != nil {
		return err
	}
	result, err := c.Detach(ctx, target.Container, h.ifName)
	if err != nil {
		return err
	}
	return out.print(cmd.OutOrStdout(), result, func(w io.Writer, _ view.Options) error { return view.Detach(w, result) })
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
		if len(args) == 0 && h.netns == "" && h.container == "" && h.id == "" && h.pod != "" {
			args = []string{h.pod}
		}
		if len(args) == 1 {
			return checkPod(cmd, args[0], *namespace, out)
		}
		target, err := h.run(cmd, core.Check, nothing)
		if err != nil {
			return err
		}
		return h.proved(cmd, target, out)
	}
	return cmd
}

// checkPod has the agent check every attachment of a pod.
func checkPod(cmd *cobra.Command, arg, namespace string, out *format) error {
	pod, err := parsePod(arg, namespace)
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

// proved lists what a CHECK found to be as it was made.
func (h *byHand) proved(cmd *cobra.Command, target client.Target, out *format) error {
	item := agent.CheckAttachment{OK: true, Interfaces: []string{}, AttachmentRef: agent.AttachmentRef{
		Namespace: target.Pod.Namespace, Pod: target.Pod.Name, Container: target.Container, IfName: h.ifName,
	}}
	if pod, found := recorded(cmd, target, h.ifName); found != nil {
		item.Namespace, item.Pod = pod.Namespace, pod.Name
		for _, i := range found.Interfaces {
			item.Interfaces = append(item.Interfaces, i.Name)
		}
	}
	result := agent.CheckResult{Namespace: item.Namespace, Pod: item.Pod, OK: true, Attachments: []agent.CheckAttachment{item}}
	return out.print(cmd.OutOrStdout(), result, func(w io.Writer, _ view.Options) error { return view.Check(w, result) })
}

func nothing([]byte) error { return nil }

// run finds the target and makes the call.
func (h *byHand) run(cmd *cobra.Command, op core.Op, deliver func([]byte) error) (client.Target, error) {
	if err := h.validate(op); err != nil {
		return client.Target{}, err
	}
	config, err := h.config(cmd.ErrOrStderr())
	if err != nil {
		return client.Target{}, err
	}
	ctx, cancel := within(cmd)
	defer cancel()
	c := agentOf(cmd)
	target, err := h.target(ctx, c, op)
	if err != nil {
		return target, err
	}
	return target, c.Do(ctx, client.Call{Op: op, Target: target, IfName: h.ifName, Path: h.binDirs, Config: config}, deliver)
}

// validate refuses combinations of flags that name no target, or two.
func (h *byHand) validate(op core.Op) error {
	if h.container != "" {
		if h.netns != "" || h.id != "" {
			return usage.Errorf("--container finds the namespace and the id itself: leave --netns and --container-id out")
		}
		return nil
	}
	if h.netns == "" && (op != core.Del || h.id == "") {
		return nothingNamed(op)
	}
	switch {
	case op == core.Add && h.pod == "":
		return usage.Errorf("--pod NAMESPACE/NAME is missing: it decides the networks")
	case strings.Contains(h.netns, "/") && !filepath.IsAbs(h.netns):
		return usage.Errorf("--netns %q must be an absolute path or a name of `ip netns`", h.netns)
	}
	return nil
}

func nothingNamed(op core.Op) error {
	if op == core.Check {
		return usage.Errorf("name what to check: NAMESPACE/NAME, --netns PATH or --container ID")
	}
	return usage.Errorf("name what to %s: --netns PATH or --container ID", verb(op))
}

func verb(op core.Op) string {
	return map[core.Op]string{core.Add: "attach", core.Del: "detach", core.Check: "check"}[op]
}

// target is the sandbox that the flags name.
func (h *byHand) target(ctx context.Context, agent *client.Client, op core.Op) (t client.Target, err error) {
	if h.container != "" {
		t, err = h.docker(ctx, agent, op)
	} else {
		t = h.plain()
	}
	if err == nil && h.pod != "" {
		t.Pod, err = parsePod(h.pod, "default")
	}
	return t, err
}

// plain is a target that no runtime made.
func (h *byHand) plain() client.Target {
	t := client.Target{Container: h.id, Netns: h.netns}
	if t.Netns != "" && !filepath.IsAbs(t.Netns) {
		t.Netns = filepath.Join(namedNetns, t.Netns)
	}
	if t.Container == "" {
		t.Container = client.ContainerOf(t.Netns)
	}
	return t
}

// docker looks the container up; for DEL the agent's records do where Docker
// has forgotten it.
func (h *byHand) docker(ctx context.Context, agent *client.Client, op core.Op) (client.Target, error) {
	opts := []docker.Opt{docker.FromEnv}
	if h.dockerHost != "" {
		opts = append(opts, docker.WithHost(h.dockerHost))
	}
	engine, err := client.NewDocker(opts...)
	if err != nil {
		return client.Target{}, err
	}
	defer func() { _ = engine.Close() }()
	c, err := engine.Container(ctx, h.container)
	switch {
	case err != nil && op == core.Del:
		return agent.Recorded(ctx, h.container)
	case errors.Is(err, core.ErrUnavailable):
		return client.Target{}, usage.Hint(err, "start Docker (`systemctl start docker`), or name its socket with --docker-host; --netns needs no Docker")
	case err != nil:
		return client.Target{}, usage.Hint(err, "`docker ps` lists the running containers")
	case op == core.Del:
		return c.Target, nil
	}
	return c.Target, h.usable(c)
}

// usable tells why a container cannot be attached.
func (h *byHand) usable(c client.Container) error {
	switch {
	case !c.Running:
		return usage.Hint(fmt.Errorf("container %s is not running: it has no network namespace", h.container), "`docker start "+h.container+"`")
	case c.Mode == "host":
		return usage.Hint(fmt.Errorf("container %s uses the host's network", h.container), "start it again with --network none")
	case c.Mode != "none" && h.ifName == defaultIfName:
		return usage.Hint(fmt.Errorf("container %s has Docker's network %q on %s", h.container, c.Mode, defaultIfName), "start it again with --network none, or name another interface with --ifname")
	}
	return nil
}

// config reads --conf; nil without.
func (h *byHand) config(stderr io.Writer) ([]byte, error) {
	if h.conf == "" {
		return nil, nil
	}
	file, err := os.ReadFile(h.conf)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	conf, others, err := client.PluginConfig(file)
	if err != nil {
		return nil, usage.Errorf("%s: %w", h.conf, err)
	}
	if len(others) > 0 {
		_, err = fmt.Fprintf(stderr, "note: %s also lists %s, which only a runtime runs\n", h.conf, strings.Join(others, ", "))
	}
	return conf, err
}
