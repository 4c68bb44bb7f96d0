// Package sandbox is CRI's RPCs about pods' sandboxes over Docker Engine: one
// container each, which holds the pod's namespaces. What must be undone later is
// recorded before it is done. It knows networks only as a plugin to ask, and of
// containers only that they end before their sandbox.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/checkpoint"
	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/spec"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/keylock"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// undoLimit bounds what must be undone although the caller has gone.
const undoLimit = time.Minute

// stopGrace is how long a sandbox's process may take to end, in seconds.
const stopGrace = 10

// Network gives pods theirs; it asks the service back as its Host. What its
// methods owe is written at netplugin.Plugin.
type Network interface {
	SetUpPod(ctx context.Context, pod netplugin.Pod) error
	TearDownPod(ctx context.Context, pod netplugin.Pod) error
	GetPodNetworkStatus(ctx context.Context, pod netplugin.Pod) (*netplugin.PodNetworkStatus, error)
	CheckPod(ctx context.Context, pod netplugin.Pod) error
}

// Config is what the service works with.
type Config struct {
	Docker  *client.Client
	Network Network
	Records *checkpoint.Store
	// Image holds the process that keeps the namespaces.
	Image string
	// Pull gets an image that is not there.
	Pull   func(ctx context.Context, image string) error
	Engine spec.Engine
	Log    *slog.Logger
}

// Service implements the RPCs.
type Service struct {
	Config
	turns *keylock.Queue // by name while one is made, by id after that
}

// New makes the service; nothing is touched.
func New(c Config) *Service { return &Service{Config: c, turns: keylock.New()} }

// RunPodSandbox makes a sandbox in five steps: image, create, checkpoint, start,
// network. An error leaves nothing behind; what could not be undone stays
// recorded and visible as a sandbox that is not ready.
func (s *Service) RunPodSandbox(ctx context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	config := req.GetConfig()
	options, err := spec.Sandbox(config, s.Image, req.RuntimeHandler, s.Engine)
	if err != nil {
		return nil, fmt.Errorf("run sandbox: %w", err)
	}
	done, err := s.turns.Lock(ctx, options.Name)
	if err != nil {
		return nil, fmt.Errorf("run sandbox %s: %w", options.Name, err)
	}
	defer done()
	if err := s.ensureImage(ctx); err != nil {
		return nil, fmt.Errorf("run sandbox %s: image: %w", options.Name, err)
	}
	id, err := s.create(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("run sandbox %s: create: %w", options.Name, err)
	}
	fail.Here("cri.created")
	if err := s.bringUp(ctx, id, config); err != nil {
		return nil, fmt.Errorf("run sandbox %s: %w", options.Name, s.undo(ctx, id, err))
	}
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (s *Service) ensureImage(ctx context.Context) error {
	_, err := s.Docker.ImageInspect(ctx, s.Image)
	if errdefs.IsNotFound(err) {
		return s.Pull(ctx, s.Image)
	}
	return err
}

// create makes the container. One of the same name that never became a sandbox
// is what a run that was cut off left; a live one is not touched.
func (s *Service) create(ctx context.Context, o client.ContainerCreateOptions) (string, error) {
	made, err := s.Docker.ContainerCreate(ctx, o)
	if !errdefs.IsConflict(err) && !errdefs.IsAlreadyExists(err) {
		return made.ID, err
	}
	old, ierr := s.Docker.ContainerInspect(ctx, o.Name, client.ContainerInspectOptions{})
	if ierr != nil {
		return "", errors.Join(err, ierr)
	}
	id := old.Container.ID
	if !label.IsSandbox(old.Container.Config.Labels) || s.ready(id, old.Container.State.Running) {
		return "", fmt.Errorf("%w: %s has the name: %w", errdefs.ErrAlreadyExists, id, err)
	}
	if err := s.discard(ctx, id); err != nil {
		return "", fmt.Errorf("remove %s, which has the name: %w", id, err)
	}
	made, err = s.Docker.ContainerCreate(ctx, o)
	return made.ID, err
}

// bringUp are the steps after create.
func (s *Service) bringUp(ctx context.Context, id string, config *cri.PodSandboxConfig) error {
	done, err := s.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	record := checkpoint.Record{
		Pod: spec.Pod(config, id), Ports: spec.Ports(config), Attempt: config.Metadata.Attempt, Phase: checkpoint.Pending,
	}
	if err := s.Records.Put(record); err != nil {
		return err
	}
	fail.Here("cri.recorded")
	if _, err := s.Docker.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	fail.Here("cri.started")
	c, err := s.inspect(ctx, id)
	if err != nil {
		return err
	}
	if err := resolvConf(c.ResolvConfPath, spec.ResolvConf(config.DnsConfig)); err != nil {
		return err
	}
	record.Phase = checkpoint.Host
	if !spec.HostNetwork(config) {
		if err := s.Network.SetUpPod(ctx, record.Pod); err != nil {
			return err
		}
		fail.Here("cri.attached")
		record.Phase = checkpoint.Ready
	}
	return s.Records.Put(record)
}

// resolvConf writes Docker's file in place: the containers of the pod get this
// very file mounted.
func resolvConf(path, text string) error {
	if text == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("resolv.conf: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("resolv.conf: %w", err)
	}
	return nil
}

// netnsOf is the path of a running container's namespace; "" for one that has
// ended, whose namespace is gone.
func netnsOf(c container.InspectResponse) string {
	if c.State == nil || !c.State.Running || c.State.Pid == 0 {
		return ""
	}
	return fmt.Sprintf("/proc/%d/ns/net", c.State.Pid)
}

// undo takes a sandbox back that was not finished. It gives err, with what could
// not be undone.
func (s *Service) undo(ctx context.Context, id string, err error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer stop()
	if undone := s.discard(ctx, id); undone != nil {
		return fmt.Errorf("%w; and it is not undone: %w", err, undone)
	}
	return err
}

// discard stops and removes a sandbox with all that belongs to it.
func (s *Service) discard(ctx context.Context, id string) error {
	done, err := s.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return s.remove(ctx, id)
}

// StopPodSandbox ends the pod's containers, gives its network back and ends the
// sandbox. One that is stopped or unknown is success.
func (s *Service) StopPodSandbox(ctx context.Context, req *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	done, err := s.turns.Lock(ctx, req.PodSandboxId)
	if err == nil {
		defer done()
		_, err = s.stop(ctx, req.PodSandboxId)
	}
	if err != nil {
		return nil, fmt.Errorf("stop sandbox %s: %w", req.PodSandboxId, err)
	}
	return &cri.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox stops a sandbox and removes it with its containers. One that
// is unknown is success.
func (s *Service) RemovePodSandbox(ctx context.Context, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	if err := s.discard(ctx, req.PodSandboxId); err != nil {
		return nil, fmt.Errorf("remove sandbox %s: %w", req.PodSandboxId, err)
	}
	return &cri.RemovePodSandboxResponse{}, nil
}

// errForeign is a container of the engine that is no sandbox of a pod.
var errForeign = fmt.Errorf("%w: the container is no sandbox of a pod", errdefs.ErrNotFound)

// stop tells whether the engine knows the sandbox.
func (s *Service) stop(ctx context.Context, id string) (bool, error) {
	c, err := s.inspect(ctx, id)
	known := !errdefs.IsNotFound(err)
	if err != nil && known {
		return known, err
	}
	if known && !label.IsSandbox(c.Config.Labels) {
		return false, errForeign
	}
	if err := s.killContainers(ctx, id); err != nil {
		return known, err
	}
	if err := s.tearDown(ctx, id, c); err != nil {
		return known, err
	}
	if !known {
		return false, s.Records.Remove(id)
	}
	grace := stopGrace
	_, err = s.Docker.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &grace})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return true, err
}

// tearDown gives the network back, once. c is the sandbox's container, or zero.
func (s *Service) tearDown(ctx context.Context, id string, c container.InspectResponse) error {
	record, ok := s.Records.Get(id)
	if !ok { // lost, or from another program: the engine's labels do
		record = fromEngine(id, c)
	}
	if inHost(c) || record.Phase == checkpoint.Host || record.Phase == checkpoint.Down {
		return nil
	}
	if ok && record.Phase != checkpoint.Leaving { // from now on the sandbox is not ready
		record.Phase = checkpoint.Leaving
		if err := s.Records.Put(record); err != nil {
			return err
		}
	}
	if err := s.Network.TearDownPod(ctx, record.Pod); err != nil {
		return err
	}
	fail.Here("cri.detached")
	if !ok {
		return nil
	}
	record.Phase = checkpoint.Down
	return s.Records.Put(record)
}

// fromEngine is a record made of what Docker knows.
func fromEngine(id string, c container.InspectResponse) checkpoint.Record {
	r := checkpoint.Record{Pod: netplugin.Pod{Sandbox: id}, Phase: checkpoint.Pending}
	if c.Config == nil {
		return r
	}
	m := label.SandboxMetadata(c.Name, c.Config.Labels)
	_, r.Pod.Annotations = label.Read(c.Config.Labels)
	r.Pod.Namespace, r.Pod.Name, r.Pod.UID, r.Attempt = m.Namespace, m.Name, m.Uid, m.Attempt
	if inHost(c) {
		r.Phase = checkpoint.Host
	}
	return r
}

// inHost tells a sandbox in the host's network, also one that was not finished.
func inHost(c container.InspectResponse) bool {
	return c.HostConfig != nil && c.HostConfig.NetworkMode.IsHost()
}

func (s *Service) inspect(ctx context.Context, id string) (container.InspectResponse, error) {
	r, err := s.Docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	return r.Container, err
}

// killContainers ends the pod's containers at once: their time of grace was
// their caller's to give.
func (s *Service) killContainers(ctx context.Context, sandbox string) error {
	return s.each(ctx, sandbox, false, func(id string) error {
		_, err := s.Docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		if errdefs.IsConflict(err) || errdefs.IsFailedPrecondition(err) { // it has just ended
			return nil
		}
		return err
	})
}

// each calls f for the pod's containers, all at the same time. One that is gone
// by then is no error.
func (s *Service) each(ctx context.Context, sandbox string, all bool, f func(id string) error) error {
	list, err := s.Docker.ContainerList(ctx, client.ContainerListOptions{All: all, Filters: label.Of(sandbox)})
	if err != nil {
		return err
	}
	errs := make([]error, len(list.Items))
	var wg sync.WaitGroup
	for i, c := range list.Items {
		wg.Go(func() {
			if err := f(c.ID); err != nil && !errdefs.IsNotFound(err) {
				errs[i] = fmt.Errorf("container %s: %w", c.ID, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remove stops a sandbox and takes everything away; the turn is the caller's.
func (s *Service) remove(ctx context.Context, id string) error {
	known, err := s.stop(ctx, id)
	if err != nil {
		return err
	}
	if err := s.each(ctx, id, true, func(c string) error { return s.removeContainer(ctx, c) }); err != nil {
		return err
	}
	if known {
		if err := s.removeContainer(ctx, id); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return s.Records.Remove(id)
}

// removeContainer waits for a removal that somebody else began.
func (s *Service) removeContainer(ctx context.Context, id string) error {
	_, err := s.Docker.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
	if !errdefs.IsConflict(err) {
		return err
	}
	w := s.Docker.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	select {
	case <-w.Result:
		return nil
	case err := <-w.Error:
		return err
	}
}
