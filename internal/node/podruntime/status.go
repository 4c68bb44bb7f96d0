package podruntime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status is what the runtime has of one pod.
type Status struct {
	UID        types.UID
	Namespace  string
	Name       string
	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first
}

// Sandbox is one sandbox of a pod.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	HostNetwork bool
	IPs         []string // the first is the pod's own
	Created     int64    // ns since 1970
}

// Container is one instance of a container of a pod.
type Container struct {
	ID, Name, Sandbox          string
	Attempt                    uint32
	State                      cri.ContainerState
	Hash                       string // of its part of the pod, when it was created
	Image, ImageID             string
	ExitCode                   int32
	Reason, Message            string
	Created, Started, Finished time.Time
	grace                      time.Duration
	preStop                    *v1.LifecycleHandler
	sidecar                    int    // 1-based place among the init containers; 0 for others
	messageFile, logFile       string // its last words, its log
	fallsBack                  bool   // its log has its last words when it left none
}

// Running tells that its process runs.
func (c *Container) Running() bool { return c.State == cri.ContainerState_CONTAINER_RUNNING }

// Exited tells that its process has ended.
func (c *Container) Exited() bool { return c.State == cri.ContainerState_CONTAINER_EXITED }

// Of is the newest instance of a container; nil when there is none.
func (s *Status) Of(name string) *Container {
	i := slices.IndexFunc(s.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Containers[i]
}

// Before is the instance before the newest; nil when there is none.
func (s *Status) Before(name string) *Container {
	found := false
	for i := range s.Containers {
		if s.Containers[i].Name != name {
			continue
		}
		if found {
			return &s.Containers[i]
		}
		found = true
	}
	return nil
}

// in is the newest instance in one sandbox.
func (s *Status) in(sandbox, name string) *Container {
	i := slices.IndexFunc(s.Containers, func(c Container) bool { return c.Name == name && c.Sandbox == sandbox })
	if i < 0 {
		return nil
	}
	return &s.Containers[i]
}

// IPs are the pod's addresses, of its newest sandbox while that is ready.
func (s *Status) IPs() []string {
	if len(s.Sandboxes) == 0 || !s.Sandboxes[0].Ready {
		return nil
	}
	return s.Sandboxes[0].IPs
}

// Idle tells that neither a sandbox nor a container runs.
func (s *Status) Idle() bool {
	return !slices.ContainsFunc(s.Sandboxes, func(b Sandbox) bool { return b.Ready }) &&
		!slices.ContainsFunc(s.Containers, func(c Container) bool { return c.alive() })
}

// alive tells that there is, or may be, a process of it. One that was made and
// not started has none, and no Stop makes it exit.
func (c *Container) alive() bool {
	return c.State == cri.ContainerState_CONTAINER_RUNNING || c.State == cri.ContainerState_CONTAINER_UNKNOWN
}

// Pod is a pod that the runtime has something of.
type Pod struct {
	UID             types.UID
	Namespace, Name string
}

// List names all pods that the runtime has a sandbox or container of.
func (r *Runtime) List(ctx context.Context) ([]Pod, error) {
	boxes, err := r.conf.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	all, err := r.conf.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	seen := map[types.UID]Pod{}
	for _, b := range boxes.GetItems() {
		if m := b.GetMetadata(); b.GetLabels()[labelUID] != "" {
			seen[types.UID(m.GetUid())] = Pod{types.UID(m.GetUid()), m.GetNamespace(), m.GetName()}
		}
	}
	for _, c := range all.GetContainers() {
		if l := c.GetLabels(); l[labelUID] != "" {
			seen[types.UID(l[labelUID])] = Pod{types.UID(l[labelUID]), l[labelNamespace], l[labelName]}
		}
	}
	var out []Pod
	for _, p := range seen {
		out = append(out, p)
	}
	return out, nil
}

// Status reads all that the runtime has of a pod. A pod that it does not know
// has neither sandboxes nor containers.
func (r *Runtime) Status(ctx context.Context, uid types.UID) (*Status, error) {
	st := &Status{UID: uid}
	if err := r.readSandboxes(ctx, st); err != nil {
		return nil, fmt.Errorf("status of %s: %w", uid, err)
	}
	if err := r.readContainers(ctx, st); err != nil {
		return nil, fmt.Errorf("status of %s: %w", uid, err)
	}
	slices.SortStableFunc(st.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.Created, a.Created))
	})
	slices.SortStableFunc(st.Containers, func(a, b Container) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Attempt, a.Attempt))
	})
	return st, nil
}

func (r *Runtime) readSandboxes(ctx context.Context, st *Status) error {
	list, err := r.conf.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{labelUID: string(st.UID)}},
	})
	if err != nil {
		return err
	}
	for _, b := range list.GetItems() {
		answer, err := r.conf.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: b.GetId()})
		if gone(err) {
			continue // between the two questions
		}
		if err != nil {
			return err
		}
		s := answer.GetStatus()
		st.Namespace, st.Name = s.GetMetadata().GetNamespace(), s.GetMetadata().GetName()
		st.Sandboxes = append(st.Sandboxes, sandboxOf(s))
	}
	return nil
}

func sandboxOf(s *cri.PodSandboxStatus) Sandbox {
	out := Sandbox{
		ID: s.GetId(), Attempt: s.GetMetadata().GetAttempt(), Created: s.GetCreatedAt(),
		Ready:       s.GetState() == cri.PodSandboxState_SANDBOX_READY,
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_NODE,
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			out.IPs = append(out.IPs, more.GetIp())
		}
	}
	return out
}

func (r *Runtime) readContainers(ctx context.Context, st *Status) error {
	list, err := r.conf.Runtime.ListContainers(ctx, &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: map[string]string{labelUID: string(st.UID)}},
	})
	if err != nil {
		return err
	}
	for _, c := range list.GetContainers() {
		answer, err := r.conf.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId()})
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		one := containerOf(answer.GetStatus())
		one.Sandbox = c.GetPodSandboxId()
		if one.Exited() && one.Message == "" {
			one.Message = r.terminationReason(st.UID, &one)
		}
		st.Containers = append(st.Containers, one)
		st.Namespace, st.Name = c.GetLabels()[labelNamespace], c.GetLabels()[labelName]
	}
	return nil
}

func containerOf(s *cri.ContainerStatus) Container {
	notes := s.GetAnnotations()
	c := Container{
		ID: s.GetId(), Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(), State: s.GetState(),
		Hash: notes[noteHash], Image: s.GetImage().GetImage(), ImageID: s.GetImageRef(),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(),
		Created: clock(s.GetCreatedAt()), Started: clock(s.GetStartedAt()), Finished: clock(s.GetFinishedAt()),
		grace: defaultGrace,
	}
	if s, err := strconv.ParseInt(notes[noteGrace], 10, 64); err == nil {
		c.grace = time.Duration(s) * time.Second
	}
	if n, err := strconv.Atoi(notes[noteSidecar]); err == nil {
		c.sidecar = n
	}
	if text := notes[notePreStop]; text != "" {
		h := &v1.LifecycleHandler{}
		if json.Unmarshal([]byte(text), h) == nil {
			c.preStop = h
		}
	}
	for _, m := range s.GetMounts() {
		if m.GetContainerPath() == notes[noteMessagePath] {
			c.messageFile = m.GetHostPath()
		}
	}
	c.logFile = s.GetLogPath()
	c.fallsBack = notes[noteMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError) && c.ExitCode != 0
	return c
}

// clock reads CRI's nanoseconds; 0 is no time.
func clock(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
