package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/client"

	"github.com/fairlead/fairlead/internal/core"
)

// Labels by which kubelet and the CRI shims name a pod (runtime.md, section B).
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"

	// dockerNamespace is the namespace of a container that is of no pod.
	dockerNamespace = "docker"
)

// Container is a container of Docker Engine, as far as its network goes.
type Container struct {
	Target
	// Mode is Docker's network mode: "none" leaves the namespace to us.
	Mode    string
	Running bool
}

// Docker looks containers up.
type Docker struct{ cli *docker.Client }

// NewDocker makes a client of Docker Engine; which one, the options say.
func NewDocker(opts ...docker.Opt) (*Docker, error) {
	cli, err := docker.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("use Docker: %w", err)
	}
	return &Docker{cli: cli}, nil
}

// Close ends the client.
func (d *Docker) Close() error { return d.cli.Close() }

// Container finds a container by id, prefix of an id, or name. One that Docker
// does not have is core.ErrNotFound, an engine that does not answer
// core.ErrUnavailable.
func (d *Docker) Container(ctx context.Context, id string) (Container, error) {
	res, err := d.cli.ContainerInspect(ctx, id, docker.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return Container{}, fmt.Errorf("container %q: Docker has none of this name or id: %w", id, core.ErrNotFound)
	case docker.IsErrConnectionFailed(err):
		return Container{}, fmt.Errorf("ask Docker at %s: %w", d.cli.DaemonHost(), core.ErrUnavailable)
	case err != nil:
		return Container{}, fmt.Errorf("ask Docker for container %q: %w", id, err)
	}
	return fromInspect(res.Container), nil
}

func fromInspect(c container.InspectResponse) Container {
	out := Container{Target: Target{Container: c.ID, Pod: podOf(c)}}
	if c.HostConfig != nil {
		out.Mode = string(c.HostConfig.NetworkMode)
	}
	if c.State != nil && c.State.Pid > 0 {
		out.Running = true
		out.Netns = fmt.Sprintf("/proc/%d/ns/net", c.State.Pid)
	}
	return out
}

// podOf is the pod that the labels name, else docker/<container name>.
func podOf(c container.InspectResponse) core.Pod {
	if c.Config != nil {
		l := c.Config.Labels
		if l[labelPodName] != "" && l[labelPodNamespace] != "" {
			return core.Pod{Namespace: l[labelPodNamespace], Name: l[labelPodName], UID: l[labelPodUID]}
		}
	}
	return core.Pod{Namespace: dockerNamespace, Name: podName(c.Name)}
}

// podName makes a valid pod name (RFC 1123) of a container's: Docker also
// allows '_' and capitals.
func podName(name string) string {
	name = strings.ToLower(strings.TrimPrefix(name, "/"))
	return strings.Trim(strings.ReplaceAll(name, "_", "-"), "-.")
}
