package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	docker "github.com/moby/moby/client"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// DefaultIfName is a pod's first interface.
const DefaultIfName = "eth0"

// namedNetns has the namespaces of `ip netns`.
const namedNetns = "/run/netns"

// ByHand is what an operator says of an attachment that no runtime asks for. Its
// fields are the flags of `fairlead attach`, `detach` and `check`.
type ByHand struct {
	Netns, Pod, IfName, ID, Conf, Container, DockerHost string
	BinDirs                                             []string
}

// Call finds the target and makes the call; what is worth a note goes to notes.
func (h *ByHand) Call(ctx context.Context, c *Client, op core.Op, notes io.Writer, deliver func([]byte) error) (Target, error) {
	if err := h.validate(op); err != nil {
		return Target{}, err
	}
	config, err := h.config(notes)
	if err != nil {
		return Target{}, err
	}
	target, err := h.target(ctx, c, op)
	if err != nil {
		return target, err
	}
	return target, c.Do(ctx, Call{Op: op, Target: target, IfName: h.IfName, Path: h.BinDirs, Config: config}, deliver)
}

// Force detaches a target and says what is left of it.
func (h *ByHand) Force(ctx context.Context, c *Client) (agent.DetachResult, error) {
	if err := h.validate(core.Del); err != nil {
		return agent.DetachResult{}, err
	}
	target, err := h.target(ctx, c, core.Del)
	if err != nil {
		return agent.DetachResult{}, err
	}
	return c.Detach(ctx, target.Container, h.IfName)
}

// InTheWay names the command that removes what an ADD ran into.
func (h *ByHand) InTheWay(err error) error {
	refusal := (*CNIError)(nil)
	if !errors.As(err, &refusal) || refusal.Obj.Code != core.CodeConflict || h.Conf != "" {
		return err
	}
	flags := "--netns " + h.Netns
	if h.Container != "" {
		flags = "--container " + h.Container
	} else if h.ID != "" {
		flags += " --container-id " + h.ID
	}
	if h.IfName != DefaultIfName {
		flags += " --ifname " + h.IfName
	}
	return hint.On(err, "if an earlier attach made it: `fairlead detach "+flags+"`")
}

// Recorded is the attachment that the agent has of a target, with its pod; nil
// when it cannot be had.
func (h *ByHand) Recorded(ctx context.Context, c *Client, target Target) (core.Pod, *agent.Attachment) {
	pods, err := c.Pods(ctx, target.Pod.Namespace)
	if err != nil {
		return core.Pod{}, nil
	}
	for _, p := range pods.Items {
		for _, a := range p.Attachments {
			if a.Container == target.Container && a.IfName == h.IfName {
				return core.Pod{Namespace: p.Namespace, Name: p.Name}, &a
			}
		}
	}
	return core.Pod{}, nil
}

// Proved lists what a CHECK of a target found to be as it was made.
func (h *ByHand) Proved(ctx context.Context, c *Client, target Target) agent.CheckResult {
	item := agent.CheckAttachment{OK: true, Interfaces: []string{}, AttachmentRef: agent.AttachmentRef{
		Namespace: target.Pod.Namespace, Pod: target.Pod.Name, Container: target.Container, IfName: h.IfName,
	}}
	if pod, found := h.Recorded(ctx, c, target); found != nil {
		item.Namespace, item.Pod = pod.Namespace, pod.Name
		for _, i := range found.Interfaces {
			item.Interfaces = append(item.Interfaces, i.Name)
		}
	}
	return agent.CheckResult{Namespace: item.Namespace, Pod: item.Pod, OK: true, Attachments: []agent.CheckAttachment{item}}
}

// validate refuses combinations of flags that name no target, or two.
func (h *ByHand) validate(op core.Op) error {
	if h.Container != "" {
		if h.Netns != "" || h.ID != "" {
			return hint.Usagef("--container finds the namespace and the id itself: leave --netns and --container-id out")
		}
		return nil
	}
	if h.Netns == "" && (op != core.Del || h.ID == "") {
		return nothingNamed(op)
	}
	switch {
	case op == core.Add && h.Pod == "":
		return hint.Usagef("--pod NAMESPACE/NAME is missing: it decides the networks")
	case strings.Contains(h.Netns, "/") && !filepath.IsAbs(h.Netns):
		return hint.Usagef("--netns %q must be an absolute path or a name of `ip netns`", h.Netns)
	}
	return nil
}

func nothingNamed(op core.Op) error {
	if op == core.Check {
		return hint.Usagef("name what to check: NAMESPACE/NAME, --netns PATH or --container ID")
	}
	return hint.Usagef("name what to %s: --netns PATH or --container ID", verb(op))
}

func verb(op core.Op) string {
	return map[core.Op]string{core.Add: "attach", core.Del: "detach", core.Check: "check"}[op]
}

// target is the sandbox that the flags name.
func (h *ByHand) target(ctx context.Context, c *Client, op core.Op) (t Target, err error) {
	if h.Container != "" {
		t, err = h.docker(ctx, c, op)
	} else {
		t = h.plain()
	}
	if err == nil && h.Pod != "" {
		t.Pod, err = ParsePod(h.Pod, "default")
	}
	return t, err
}

// plain is a target that no runtime made.
func (h *ByHand) plain() Target {
	t := Target{Container: h.ID, Netns: h.Netns}
	if t.Netns != "" && !filepath.IsAbs(t.Netns) {
		t.Netns = filepath.Join(namedNetns, t.Netns)
	}
	if t.Container == "" {
		t.Container = ContainerOf(t.Netns)
	}
	return t
}

// docker looks the container up; for DEL the agent's records do where Docker
// has forgotten it.
func (h *ByHand) docker(ctx context.Context, c *Client, op core.Op) (Target, error) {
	opts := []docker.Opt{docker.FromEnv}
	if h.DockerHost != "" {
		opts = append(opts, docker.WithHost(h.DockerHost))
	}
	engine, err := NewDocker(opts...)
	if err != nil {
		return Target{}, err
	}
	defer func() { _ = engine.Close() }()
	found, err := engine.Container(ctx, h.Container)
	switch {
	case err != nil && op == core.Del:
		return c.Recorded(ctx, h.Container)
	case errors.Is(err, core.ErrUnavailable):
		return Target{}, hint.On(err, "start Docker (`systemctl start docker`), or name its socket with --docker-host; --netns needs no Docker")
	case err != nil:
		return Target{}, hint.On(err, "`docker ps` lists the running containers")
	case op == core.Del:
		return found.Target, nil
	}
	return found.Target, h.usable(found)
}

// usable tells why a container cannot be attached.
func (h *ByHand) usable(c Container) error {
	switch {
	case !c.Running:
		return hint.On(fmt.Errorf("container %s is not running: it has no network namespace", h.Container), "`docker start "+h.Container+"`")
	case c.Mode == "host":
		return hint.On(fmt.Errorf("container %s uses the host's network", h.Container), "start it again with --network none")
	case c.Mode != "none" && h.IfName == DefaultIfName:
		return hint.On(fmt.Errorf("container %s has Docker's network %q on %s", h.Container, c.Mode, DefaultIfName),
			"start it again with --network none, or name another interface with --ifname")
	}
	return nil
}

// config reads the CNI configuration; nil without.
func (h *ByHand) config(notes io.Writer) ([]byte, error) {
	if h.Conf == "" {
		return nil, nil
	}
	file, err := os.ReadFile(h.Conf)
	if err != nil {
		return nil, hint.UsageError{Err: err}
	}
	conf, others, err := PluginConfig(file)
	if err != nil {
		return nil, hint.Usagef("%s: %w", h.Conf, err)
	}
	if len(others) > 0 {
		_, err = fmt.Fprintf(notes, "note: %s also lists %s, which only a runtime runs\n", h.Conf, strings.Join(others, ", "))
	}
	return conf, err
}

// ParsePod reads "namespace/name", or a name in the namespace given.
func ParsePod(arg, namespace string) (core.Pod, error) {
	pod := core.Pod{Namespace: namespace, Name: arg}
	if ns, name, ok := strings.Cut(arg, "/"); ok {
		pod = core.Pod{Namespace: ns, Name: name}
	}
	if pod.Namespace == "" || pod.Name == "" || strings.Contains(pod.Name, "/") {
		return core.Pod{}, hint.Usagef("%q is not a pod: write NAMESPACE/NAME", arg)
	}
	return pod, nil
}
