package podruntime

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LogFile is where the runtime writes the container's output, in CRI's form.
func (c *Container) LogFile() string { return c.logFile }

// Instance is a container's newest instance, or the one before it; nil when
// there is none.
func (s *Status) Instance(name string, previous bool) *Container {
	for i := range s.Containers {
		if c := &s.Containers[i]; c.Name == name {
			if !previous {
				return c
			}
			previous = false
		}
	}
	return nil
}

// Stream prepares a command in a container. Who connects to the URL that it gives
// has the command's streams.
func (r *Runtime) Stream(ctx context.Context, req *cri.ExecRequest) (string, error) {
	out, err := r.conf.Runtime.Exec(ctx, req)
	if err != nil {
		return "", fmt.Errorf("exec in container %s: %w", req.GetContainerId(), err)
	}
	return out.GetUrl(), nil
}

// Attach prepares a container's own streams, as Stream those of a command.
func (r *Runtime) Attach(ctx context.Context, req *cri.AttachRequest) (string, error) {
	out, err := r.conf.Runtime.Attach(ctx, req)
	if err != nil {
		return "", fmt.Errorf("attach to container %s: %w", req.GetContainerId(), err)
	}
	return out.GetUrl(), nil
}

// PortForward prepares connections into a sandbox, as Stream a command.
func (r *Runtime) PortForward(ctx context.Context, req *cri.PortForwardRequest) (string, error) {
	out, err := r.conf.Runtime.PortForward(ctx, req)
	if err != nil {
		return "", fmt.Errorf("forward ports of sandbox %s: %w", req.GetPodSandboxId(), err)
	}
	return out.GetUrl(), nil
}

// Runs tells that a container, known by its id, runs or is about to.
func (r *Runtime) Runs(ctx context.Context, id string) (bool, error) {
	out, err := r.conf.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("status of container %s: %w", id, err)
	}
	return out.GetStatus().GetState() != cri.ContainerState_CONTAINER_EXITED, nil
}
