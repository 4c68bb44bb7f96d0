package podruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/downward"
	"github.com/fairlead/fairlead/internal/node/env"
	"github.com/fairlead/fairlead/internal/node/logs"
	"github.com/fairlead/fairlead/internal/node/security"
	"github.com/fairlead/fairlead/internal/node/volume"
)

// start makes and starts a new instance of a container.
func (r *Runtime) start(ctx context.Context, w Want, st *Status, s starting) error {
	config, err := r.sandboxConfig(ctx, w.Pod, st.Sandboxes[0].Attempt)
	if err != nil {
		return &Error{ReasonConfig, err}
	}
	image, err := r.image(ctx, w, s.spec, config)
	if err != nil {
		return err
	}
	attempt, err := r.makeRoom(ctx, st, s.spec.Name)
	if err != nil {
		return &Error{ReasonCreate, err}
	}
	c, err := r.containerConfig(w, st, s, attempt)
	if err == nil {
		err = join(c.GetLinux().GetSecurityContext().GetNamespaceOptions(), st, s.target)
	}
	if err == nil {
		err = security.NotRoot(w.Pod, s.spec, c.GetLinux().GetSecurityContext(), image)
	}
	if err != nil {
		return &Error{ReasonConfig, fmt.Errorf("container %s: %w", s.spec.Name, err)}
	}
	c.Image.Image = image.GetId()
	made, err := through(ctx, startGrace, func(ctx context.Context) (*cri.CreateContainerResponse, error) {
		return r.conf.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId: st.Sandboxes[0].ID, Config: c, SandboxConfig: config,
		})
	})
	if err != nil {
		return &Error{ReasonCreate, fmt.Errorf("create container %s: %w", s.spec.Name, err)}
	}
	w.tell(s.spec.Name, EventCreated, "created")
	r.proveSignal(ctx, w, s.spec.Name, made.GetContainerId(), c.GetStopSignal())
	_, err = through(ctx, startGrace, func(ctx context.Context) (*cri.StartContainerResponse, error) {
		return r.conf.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.GetContainerId()})
	})
	if err != nil {
		return &Error{ReasonStart, fmt.Errorf("start container %s: %w", s.spec.Name, err)}
	}
	w.tell(s.spec.Name, EventStarted, "started")
	return r.postStart(ctx, w.Pod, s.spec, &Container{ID: made.GetContainerId(), Name: s.spec.Name, Attempt: attempt}, r.reach(st))
}

// proveSignal tells of a runtime that knows nothing of stop signals: it takes the
// request and leaves them out.
func (r *Runtime) proveSignal(ctx context.Context, w Want, name, id string, want cri.Signal) {
	if want == cri.Signal_RUNTIME_DEFAULT {
		return
	}
	st, err := r.conf.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if err == nil && st.GetStatus().GetStopSignal() != want {
		w.warn(name, EventSignal, fmt.Sprintf("the runtime does not carry out lifecycle.stopSignal: it will send the image's signal, not %s", want))
	}
}

// join has a container see the processes of another one, which has to run.
func join(o *cri.NamespaceOption, st *Status, target string) error {
	if target == "" {
		return nil
	}
	c := st.in(st.Sandboxes[0].ID, target)
	if !running(c) {
		return fmt.Errorf("its target, container %s, does not run", target)
	}
	o.Pid, o.TargetId = cri.NamespaceMode_TARGET, c.ID
	return nil
}

// makeRoom gives the next instance's number. One that was made and never
// started, as by a process that was killed between the two, is removed.
func (r *Runtime) makeRoom(ctx context.Context, st *Status, name string) (uint32, error) {
	attempt := uint32(0)
	for i := range st.Containers {
		c := &st.Containers[i]
		if c.Name != name {
			continue
		}
		attempt = max(attempt, c.Attempt+1)
		if c.State != cri.ContainerState_CONTAINER_CREATED {
			continue
		}
		if err := r.removeContainer(ctx, c.ID); err != nil {
			return 0, err
		}
	}
	return attempt, nil
}

func (r *Runtime) removeContainer(ctx context.Context, id string) error {
	_, err := r.conf.Runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
	if err != nil && !gone(err) {
		r.killStrays(id) // the next try finds it ended
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

func (r *Runtime) containerConfig(w Want, st *Status, s starting, attempt uint32) (*cri.ContainerConfig, error) {
	vars, err := env.Of(r.facts(w.Pod, st.IPs()), s.spec, r.conf.Objects)
	if err != nil {
		return nil, err
	}
	mounts, err := r.mounts(w, s.spec, vars, st.IPs(), attempt)
	if err != nil {
		return nil, err
	}
	notes, err := containerNotes(w.Pod, s, attempt)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(r.logDir(w.Pod), s.spec.Name), 0o755); err != nil {
		return nil, err
	}
	return &cri.ContainerConfig{
		StopSignal: stopSignal(s.spec),
		Metadata:   &cri.ContainerMetadata{Name: s.spec.Name, Attempt: attempt},
		Image:      &cri.ImageSpec{UserSpecifiedImage: s.spec.Image},
		Command:    vars.ExpandAll(s.spec.Command),
		Args:       vars.ExpandAll(s.spec.Args),
		WorkingDir: s.spec.WorkingDir,
		Envs:       vars.List(),
		Mounts:     mounts,
		Labels: map[string]string{
			labelName: w.Pod.Name, labelNamespace: w.Pod.Namespace, labelUID: string(w.Pod.UID), labelContainer: s.spec.Name,
		},
		Annotations: notes,
		LogPath:     filepath.Join(s.spec.Name, strconv.FormatUint(uint64(attempt), 10)+".log"),
		Stdin:       s.spec.Stdin,
		StdinOnce:   s.spec.StdinOnce,
		Tty:         s.spec.TTY,
		Linux: &cri.LinuxContainerConfig{
			Resources:       resources(w.Pod, s.spec, r.conf.Capacity.Memory().Value()),
			SecurityContext: security.Container(w.Pod, s.spec),
		},
	}, nil
}

// stopSignal is the one that a container is to end by; none is its image's.
func stopSignal(c *v1.Container) cri.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return cri.Signal_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	return cri.Signal(cri.Signal_value[name])
}

// facts are what a container may ask about its pod.
func (r *Runtime) facts(pod *v1.Pod, ips []string) *downward.Facts {
	f := &downward.Facts{Pod: pod, NodeName: r.conf.NodeName, PodIPs: ips, Capacity: r.conf.Capacity}
	if r.conf.HostIP != "" {
		f.HostIPs = []string{r.conf.HostIP}
	}
	if pod.Spec.HostNetwork {
		f.PodIPs = f.HostIPs
	}
	return f
}

// containerNotes are what a later process has to know to end the container
// when no source names its pod any more.
func containerNotes(pod *v1.Pod, s starting, attempt uint32) (map[string]string, error) {
	grace := int64(defaultGrace.Seconds())
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	out := map[string]string{
		noteHash:          hashOf(s.spec),
		noteRestarts:      strconv.FormatUint(uint64(attempt), 10),
		noteMessagePath:   messagePath(s.spec),
		noteMessagePolicy: string(s.spec.TerminationMessagePolicy),
		noteGrace:         strconv.FormatInt(grace, 10),
	}
	if s.sidecar > 0 {
		out[noteSidecar] = strconv.Itoa(s.sidecar)
	}
	if s.spec.Lifecycle != nil && s.spec.Lifecycle.PreStop != nil {
		text, err := json.Marshal(withPort(s.spec.Lifecycle.PreStop, s.spec))
		if err != nil {
			return nil, err
		}
		out[notePreStop] = string(text)
	}
	return out, nil
}

func messagePath(c *v1.Container) string {
	if c.TerminationMessagePath == "" {
		return v1.TerminationMessagePathDefault
	}
	return c.TerminationMessagePath
}

// mounts are the container's volumes, its /etc/hosts, and the file for its last
// words.
func (r *Runtime) mounts(w Want, c *v1.Container, vars *env.Variables, ips []string, attempt uint32) ([]*cri.Mount, error) {
	var out []*cri.Mount
	taken := map[string]bool{}
	for i := range c.VolumeMounts {
		m, err := r.volumeMount(w, c, i, vars)
		if err != nil {
			return nil, fmt.Errorf("mount of volume %s: %w", c.VolumeMounts[i].Name, err)
		}
		taken[filepath.Clean(m.ContainerPath)] = true
		out = append(out, m)
	}
	// In the node's network the runtime gives the node's own, which changes with it.
	if own := !w.Pod.Spec.HostNetwork || len(w.Pod.Spec.HostAliases) > 0; own && !taken["/etc/hosts"] {
		file, err := r.writeHosts(w.Pod, ips)
		if err != nil {
			return nil, err
		}
		out = append(out, &cri.Mount{ContainerPath: "/etc/hosts", HostPath: file})
	}
	if path := messagePath(c); !taken[filepath.Clean(path)] {
		file, err := r.messageFile(w.Pod.UID, c.Name, attempt)
		if err != nil {
			return nil, err
		}
		out = append(out, &cri.Mount{ContainerPath: path, HostPath: file})
	}
	return out, nil
}

// messageFile makes the file in which a container leaves its last words.
func (r *Runtime) messageFile(uid types.UID, name string, attempt uint32) (string, error) {
	dir := filepath.Join(r.conf.PodDir, string(uid), "containers", name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	file := filepath.Join(dir, strconv.FormatUint(uint64(attempt), 10))
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return "", err
	}
	return file, os.Chmod(file, 0o666) // any user of the container, whatever our umask
}

// volumeMount is the i-th of a container.
func (r *Runtime) volumeMount(w Want, c *v1.Container, i int, vars *env.Variables) (*cri.Mount, error) {
	m := &c.VolumeMounts[i]
	v, ok := w.Mounts[m.Name]
	if !ok {
		return nil, errors.New("the pod has no volume of this name")
	}
	sub, host := m.SubPath, v.Path
	if m.SubPathExpr != "" {
		var err error
		if sub, err = vars.MustExpand(m.SubPathExpr); err != nil {
			return nil, fmt.Errorf("subPathExpr: %w", err)
		}
	}
	if sub != "" {
		var err error
		if host, err = r.conf.Volumes.Part(v, volume.Part{Pod: w.Pod.UID, Volume: m.Name, Container: c.Name, Index: i, Path: sub}); err != nil {
			return nil, err
		}
	}
	out := &cri.Mount{ContainerPath: m.MountPath, HostPath: host, Readonly: m.ReadOnly || v.ReadOnly}
	out.RecursiveReadOnly = m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled
	if m.MountPropagation != nil {
		switch *m.MountPropagation {
		case v1.MountPropagationHostToContainer:
			out.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case v1.MountPropagationBidirectional:
			out.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	return out, nil
}

// endNote is the file that says why a container was stopped. It goes with the
// container's last words.
func (r *Runtime) endNote(uid types.UID, c *Container) string {
	return filepath.Join(r.conf.PodDir, string(uid), "containers", c.Name, strconv.FormatUint(uint64(c.Attempt), 10)+".why")
}

func (r *Runtime) noteEnd(uid types.UID, c *Container, why string) error {
	file := r.endNote(uid, c)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(why), 0o600)
}

// terminationReason is all that is known of why a container ended: why it was stopped,
// and what it said itself.
func (r *Runtime) terminationReason(uid types.UID, c *Container) string {
	why, err := os.ReadFile(r.endNote(uid, c))
	if err != nil {
		return c.lastWords() // it ended by itself
	}
	return strings.TrimSpace(string(why) + "\n" + c.lastWords())
}

// lastWords is a dead container's termination message.
func (c *Container) lastWords() string {
	const most = 4096 // bytes, as kubelet's
	b, err := logs.Words(c.messageFile, most)
	if c.fallsBack && (err != nil || len(b) == 0) {
		b = logs.LastLines(c.logFile)
	}
	return strings.ToValidUTF8(string(b), "")
}

// resources are those of a container in cgroups' values; memory is that of the node,
// in bytes.
func resources(pod *v1.Pod, c *v1.Container, memory int64) *cri.LinuxContainerResources {
	const period = 100_000 // microseconds
	out := &cri.LinuxContainerResources{CpuPeriod: period, OomScoreAdj: oomScore(pod, c, memory)}
	cpu := c.Resources.Requests.Cpu().MilliValue()
	if _, asked := c.Resources.Requests[v1.ResourceCPU]; !asked {
		cpu = c.Resources.Limits.Cpu().MilliValue()
	}
	out.CpuShares = shares(cpu)
	if limit := c.Resources.Limits.Cpu().MilliValue(); limit > 0 {
		out.CpuQuota = max(1000, limit*period/1000)
	}
	out.MemoryLimitInBytes = c.Resources.Limits.Memory().Value()
	return out
}

// oomScore follows the pod's class: guaranteed ones go last, those that ask for
// nothing first, and between them who asks for more of the node's memory, in bytes,
// goes later (kubelet's pkg/kubelet/qos).
func oomScore(pod *v1.Pod, c *v1.Container, memory int64) int64 {
	switch Class(pod) {
	case v1.PodQOSGuaranteed:
		return -997
	case v1.PodQOSBestEffort:
		return 1000
	}
	const middle = 999
	asked := c.Resources.Requests.Memory().Value()
	return min(max(middle+1-asked*1000/max(memory, 1), 3), middle)
}

// Class is a pod's quality of service (core/v1 PodQOSClass).
func Class(pod *v1.Pod) v1.PodQOSClass {
	some, all := false, true
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			asks, bounded := asksOf(&list[i])
			some, all = some || asks, all && bounded
		}
	}
	switch {
	case !some:
		return v1.PodQOSBestEffort
	case all:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// asksOf tells that a container asks for anything, and that it is bounded to
// all that it asks for.
func asksOf(c *v1.Container) (asks, bounded bool) {
	bounded = true
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
		asks = asks || !limit.IsZero() || !request.IsZero()
		bounded = bounded && !limit.IsZero() && (request.IsZero() || request.Cmp(limit) == 0)
	}
	return asks, bounded
}
