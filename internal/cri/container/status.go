package container

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/spec"
)

// Reasons, in the words that kubelet's users know.
const (
	reasonCompleted = "Completed"
	reasonError     = "Error"
	reasonOOM       = "OOMKilled"
	reasonCannotRun = "ContainerCannotRun"
)

// ListContainers lists the containers that fit a filter.
func (s *Service) ListContainers(ctx context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f := req.GetFilter()
	selector := label.Containers(f.GetLabelSelector())
	if f.GetId() != "" {
		selector.Add("id", f.Id)
	}
	if f.GetPodSandboxId() != "" {
		selector.Add("label", label.Sandbox+"="+f.PodSandboxId)
	}
	list, err := s.Docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: selector})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := &cri.ListContainersResponse{}
	for _, c := range list.Items {
		item, err := s.item(ctx, c)
		if errdefs.IsNotFound(err) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list containers: %w", err)
		}
		if f.GetState() == nil || f.State.State == item.State {
			out.Containers = append(out.Containers, item)
		}
	}
	return out, nil
}

// StreamContainers is ListContainers with an answer for each container.
func (s *Service) StreamContainers(req *cri.StreamContainersRequest, to cri.RuntimeService_StreamContainersServer) error {
	list, err := s.ListContainers(to.Context(), &cri.ListContainersRequest{Filter: req.Filter})
	if err != nil {
		return err
	}
	for _, c := range list.Containers {
		if err := to.Send(&cri.StreamContainersResponse{Containers: []*cri.Container{c}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) item(ctx context.Context, c container.Summary) (*cri.Container, error) {
	state := states[c.State]
	if c.State == container.StateCreated { // the list does not tell of a start that failed
		full, err := s.inspect(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		state = stateOf(full.State)
	}
	labels, annotations := label.Read(c.Labels)
	name := ""
	if len(c.Names) > 0 {
		name = c.Names[0]
	}
	return &cri.Container{
		Id: c.ID, PodSandboxId: c.Labels[label.Sandbox], Metadata: label.ContainerMetadata(name, c.Labels),
		Image: label.ImageSpec(c.Labels, c.Image), ImageRef: c.ImageID, ImageId: c.ImageID, State: state,
		CreatedAt: time.Unix(c.Created, 0).UnixNano(), Labels: labels, Annotations: annotations,
	}, nil
}

// states without those that CRI has no word for (dead, removing).
var states = map[container.ContainerState]cri.ContainerState{
	container.StateCreated:    cri.ContainerState_CONTAINER_CREATED,
	container.StateRunning:    cri.ContainerState_CONTAINER_RUNNING,
	container.StatePaused:     cri.ContainerState_CONTAINER_RUNNING,
	container.StateRestarting: cri.ContainerState_CONTAINER_RUNNING,
	container.StateExited:     cri.ContainerState_CONTAINER_EXITED,
	container.StateDead:       cri.ContainerState_CONTAINER_UNKNOWN,
	container.StateRemoving:   cri.ContainerState_CONTAINER_UNKNOWN,
}

// stateOf tells a container that could not be started from one that was not yet:
// Docker calls both created.
func stateOf(s *container.State) cri.ContainerState {
	if s.Status == container.StateCreated && s.ExitCode != 0 {
		return cri.ContainerState_CONTAINER_EXITED
	}
	return states[s.Status]
}

// ContainerStatus tells all that is known of a container. The log of one that
// has ended is complete by then.
func (s *Service) ContainerStatus(ctx context.Context, req *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	c, err := s.inspect(ctx, req.ContainerId)
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", req.ContainerId, err)
	}
	status := statusOf(c)
	if status.ImageRef, err = s.imageRef(ctx, c); err != nil {
		return nil, fmt.Errorf("status of container %s: %w", req.ContainerId, err)
	}
	if status.State == cri.ContainerState_CONTAINER_EXITED {
		s.Logs.Settle(ctx, c.ID)
	}
	resp := &cri.ContainerStatusResponse{Status: status}
	if req.Verbose {
		resp.Info, err = info(c)
	}
	return resp, err
}

// imageRef is NAME@DIGEST of a container's image, by which every registry and node
// knows it, best under the name that the container was made from. An image that
// was never in a registry, or has been removed, has its ID alone.
func (s *Service) imageRef(ctx context.Context, c container.InspectResponse) (string, error) {
	i, err := s.Docker.ImageInspect(ctx, c.Image)
	if errdefs.IsNotFound(err) {
		return c.Image, nil
	}
	if err != nil {
		return "", fmt.Errorf("image %s: %w", c.Image, err)
	}
	repository := ""
	if named, err := reference.ParseNormalizedNamed(label.ImageSpec(c.Config.Labels, c.Config.Image).Image); err == nil {
		repository = named.Name()
	}
	ref := c.Image
	for _, digest := range i.RepoDigests {
		named, err := reference.ParseNormalizedNamed(digest)
		if err != nil { // <none>@<none>
			continue
		}
		if ref == c.Image || named.Name() == repository {
			ref = named.String()
		}
	}
	return ref, nil
}

func statusOf(c container.InspectResponse) *cri.ContainerStatus {
	labels, annotations := label.Read(c.Config.Labels)
	out := &cri.ContainerStatus{
		Id: c.ID, Metadata: label.ContainerMetadata(c.Name, c.Config.Labels), State: stateOf(c.State),
		CreatedAt: nanoseconds(c.Created), StartedAt: nanoseconds(c.State.StartedAt), FinishedAt: nanoseconds(c.State.FinishedAt),
		Image: label.ImageSpec(c.Config.Labels, c.Config.Image), ImageRef: c.Image, ImageId: c.Image,
		Labels: labels, Annotations: annotations, Mounts: mountsOf(c), LogPath: c.Config.Labels[label.LogPath],
		Resources: &cri.ContainerResources{Linux: spec.Limits(c.HostConfig)}, StopSignal: signal(c.Config.StopSignal),
		User: userOf(c.State.Pid),
	}
	if out.State == cri.ContainerState_CONTAINER_EXITED {
		out.ExitCode, out.Message, out.Reason = int32(c.State.ExitCode), c.State.Error, reason(c.State)
		if out.FinishedAt == 0 { // it could not be started
			out.FinishedAt = out.CreatedAt
		}
	}
	return out
}

func reason(s *container.State) string {
	switch {
	case s.Status == container.StateCreated:
		return reasonCannotRun
	case s.OOMKilled:
		return reasonOOM
	case s.ExitCode != 0:
		return reasonError
	}
	return reasonCompleted
}

// nanoseconds since 1970; 0 for a time that has not come.
func nanoseconds(text string) int64 {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// signal is CRI's name: SIGRTMINPLUS3 for SIGRTMIN+3.
func signal(name string) cri.Signal {
	return cri.Signal(cri.Signal_value[strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)])
}

// mountsOf are the mounts that the caller asked for.
func mountsOf(c container.InspectResponse) []*cri.Mount {
	covers, _ := label.Covers(c.Config.Labels) // a label that is damaged hides nothing
	recursive, hidden := map[string]bool{}, map[string]bool{}
	for _, cover := range covers {
		recursive[cover.Target] = true
		for _, b := range cover.Below {
			hidden[filepath.Join(cover.Target, b)] = true
		}
	}
	var out []*cri.Mount
	for _, m := range c.Mounts {
		if m.Type == mount.TypeBind && !hidden[m.Destination] {
			out = append(out, &cri.Mount{
				HostPath: m.Source, ContainerPath: m.Destination, Readonly: !m.RW, RecursiveReadOnly: recursive[m.Destination],
				Propagation: spec.Propagation(m.Propagation), SelinuxRelabel: strings.ContainsAny(m.Mode, "zZ"),
			})
		}
	}
	slices.SortFunc(out, func(a, b *cri.Mount) int { return strings.Compare(a.ContainerPath, b.ContainerPath) })
	return out
}

// info is the verbose part.
func info(c container.InspectResponse) (map[string]string, error) {
	b, err := json.Marshal(map[string]any{
		"pid": c.State.Pid, "sandboxID": c.Config.Labels[label.Sandbox], "privileged": c.HostConfig.Privileged,
		"cgroupParent": c.HostConfig.CgroupParent, "networkMode": c.HostConfig.NetworkMode,
		"pidMode": c.HostConfig.PidMode, "ipcMode": c.HostConfig.IpcMode,
	})
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", c.ID, err)
	}
	return map[string]string{"info": string(b)}, nil
}
