// Package container is CRI's RPCs about the containers of pods over Docker
// Engine. It keeps no state: Docker and the labels on its containers know
// everything. It knows sandboxes only as the containers whose namespaces are
// joined.
package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/spec"
)

// Logs writes the containers' output to where CRI's callers read it.
type Logs interface {
	// Config is the engine's log driver for a container whose output is written
	// to path, which is "" for one whose output nobody wants.
	Config(path string) container.LogConfig
	// Follow begins to write a container's output. It is called once the
	// container runs, and may be repeated.
	Follow(ctx context.Context, id string) error
	// Settle waits until the output of a container that has ended is written.
	Settle(ctx context.Context, id string)
	// Forget ends the writing for a container that is removed.
	Forget(id string)
}

// Config is what the service works with.
type Config struct {
	Docker *client.Client
	Logs   Logs
	Engine spec.Engine
	Log    *slog.Logger
}

// Service implements the RPCs.
type Service struct{ Config }

// New makes the service; nothing is touched.
func New(c Config) *Service { return &Service{c} }

// CreateContainer creates a container in a sandbox that runs.
func (s *Service) CreateContainer(ctx context.Context, req *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	id, err := s.create(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("create container %s in sandbox %s: %w", req.GetConfig().GetMetadata().GetName(), req.PodSandboxId, err)
	}
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

func (s *Service) create(ctx context.Context, req *cri.CreateContainerRequest) (string, error) {
	place, err := s.place(ctx, req)
	if err != nil {
		return "", err
	}
	options, err := spec.Container(req.GetConfig(), place)
	if err != nil {
		return "", err
	}
	options.HostConfig.LogConfig = s.Logs.Config(options.Config.Labels[label.LogPath])
	for _, m := range options.HostConfig.Mounts {
		if err := present(m.Source); err != nil {
			return "", err
		}
	}
	id, err := s.make(ctx, options)
	if err != nil || !strict(req.GetConfig()) {
		return id, err
	}
	return s.strictly(ctx, id, options)
}

// forwarding is an engine's warning about networks of its own, for every container
// that shares another's namespace.
const forwarding = "IPv4 forwarding is disabled. Networking will not work."

// make creates the container.
func (s *Service) make(ctx context.Context, options client.ContainerCreateOptions) (string, error) {
	made, err := s.Docker.ContainerCreate(ctx, options)
	if errdefs.IsConflict(err) || errdefs.IsAlreadyExists(err) {
		return s.replace(ctx, options, err)
	}
	for _, w := range made.Warnings {
		if w == forwarding {
			continue
		}
		s.Log.Warn("Docker's warning about a container", "container", made.ID, "warning", w)
	}
	return made.ID, err
}

// present makes a folder where the source of a mount is missing, as container
// engines always have.
func present(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(path, 0o755)
}

// place is where the sandbox is.
func (s *Service) place(ctx context.Context, req *cri.CreateContainerRequest) (spec.Place, error) {
	r, err := s.Docker.ContainerInspect(ctx, req.PodSandboxId, client.ContainerInspectOptions{})
	if err != nil {
		return spec.Place{}, err
	}
	c := r.Container
	if !label.IsSandbox(c.Config.Labels) {
		return spec.Place{}, fmt.Errorf("%w: the container is no sandbox of a pod", errdefs.ErrNotFound)
	}
	if !c.State.Running {
		return spec.Place{}, fmt.Errorf("%w: the sandbox does not run", errdefs.ErrFailedPrecondition)
	}
	pod := req.GetSandboxConfig()
	if pod.GetMetadata() == nil {
		pod = &cri.PodSandboxConfig{Metadata: label.SandboxMetadata(c.Name, c.Config.Labels), LogDirectory: pod.GetLogDirectory(), Linux: pod.GetLinux()}
	}
	points, err := mountPoints(req.GetConfig().GetMounts())
	if err != nil {
		return spec.Place{}, err
	}
	return spec.Place{
		MountPoints: points,
		Sandbox:     c.ID, HostNetwork: c.HostConfig.NetworkMode.IsHost(), HostIPC: c.HostConfig.IpcMode.IsHost(),
		Runtime: c.Config.Labels[label.Handler], Pod: pod, Engine: s.Engine,
	}, nil
}

// replace takes the name from a container that was created for an answer which
// never arrived. One that was started keeps it.
func (s *Service) replace(ctx context.Context, o client.ContainerCreateOptions, conflict error) (string, error) {
	old, err := s.Docker.ContainerInspect(ctx, o.Name, client.ContainerInspectOptions{})
	if err != nil {
		return "", errors.Join(conflict, err)
	}
	c := old.Container
	if !label.IsContainer(c.Config.Labels) || c.State.Status != container.StateCreated {
		return "", fmt.Errorf("%w: %s has the name: %w", errdefs.ErrAlreadyExists, c.ID, conflict)
	}
	if _, err := s.Docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{RemoveVolumes: true}); err != nil && !errdefs.IsNotFound(err) {
		return "", fmt.Errorf("remove %s, which has the name: %w", c.ID, err)
	}
	made, err := s.Docker.ContainerCreate(ctx, o)
	return made.ID, err
}

// StartContainer starts a container and the writing of its log.
func (s *Service) StartContainer(ctx context.Context, req *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	id, err := s.covered(ctx, req.ContainerId)
	if err != nil {
		return nil, fmt.Errorf("start container %s: %w", req.ContainerId, err)
	}
	if _, err := s.Docker.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return nil, fmt.Errorf("start container %s: %w", req.ContainerId, err)
	}
	if err := s.Logs.Follow(ctx, id); err != nil {
		return nil, fmt.Errorf("start container %s: log: %w", req.ContainerId, err)
	}
	return &cri.StartContainerResponse{}, nil
}

// StopContainer ends a container, after its time of grace by force. One that has
// ended or is unknown to the engine is success; one of no pod is NotFound.
func (s *Service) StopContainer(ctx context.Context, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	grace := int(max(req.Timeout, 0)) // seconds
	c, err := s.inspect(ctx, req.ContainerId)
	if err == nil {
		_, err = s.Docker.ContainerStop(ctx, c.ID, client.ContainerStopOptions{Timeout: &grace})
	}
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("stop container %s: %w", req.ContainerId, err)
	}
	return &cri.StopContainerResponse{}, nil
}

// RemoveContainer removes a container, ending it first. One that is unknown to
// the engine is success; one of no pod is NotFound.
func (s *Service) RemoveContainer(ctx context.Context, req *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	id := req.ContainerId
	if err := s.remove(ctx, id); err != nil && !gone(err) {
		return nil, fmt.Errorf("remove container %s: %w", id, err)
	}
	s.Logs.Forget(id)
	return &cri.RemoveContainerResponse{}, nil
}

func (s *Service) remove(ctx context.Context, id string) error {
	c, err := s.inspect(ctx, id)
	if err != nil {
		return err
	}
	_, err = s.Docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
	if !errdefs.IsConflict(err) {
		return err
	}
	// Somebody else removes it; wait for the end of that.
	w := s.Docker.ContainerWait(ctx, c.ID, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	select {
	case <-w.Result:
		return nil
	case err := <-w.Error:
		return err
	}
}

// errForeign is a container that the engine runs for somebody else: no request
// may look at it or touch it.
var errForeign = fmt.Errorf("%w: the container is Docker's, not a pod's", errdefs.ErrNotFound)

// gone tells that the engine does not have the container, which is not said of a
// foreign one.
func gone(err error) bool { return errdefs.IsNotFound(err) && !errors.Is(err, errForeign) }

// inspect finds a container of a pod, and nothing else.
func (s *Service) inspect(ctx context.Context, id string) (container.InspectResponse, error) {
	r, err := s.Docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return r.Container, err
	}
	if !label.IsContainer(r.Container.Config.Labels) {
		return r.Container, errForeign
	}
	return r.Container, nil
}

// UpdateContainerResources changes limits; what is 0 or empty stays.
func (s *Service) UpdateContainerResources(ctx context.Context, req *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	c, err := s.inspect(ctx, req.ContainerId)
	if err == nil {
		limits := spec.Resources(req.GetLinux())
		_, err = s.Docker.ContainerUpdate(ctx, c.ID, client.ContainerUpdateOptions{Resources: &limits})
	}
	if err != nil {
		return nil, fmt.Errorf("update container %s: %w", req.ContainerId, err)
	}
	return &cri.UpdateContainerResourcesResponse{}, nil
}
