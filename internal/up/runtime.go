package up

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	docker "github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/install/runtimes"
)

// Names of runtimes, beside a CRI endpoint.
const (
	Auto       = "auto"
	Docker     = "docker"
	Containerd = "containerd"
)

// ContainerdEndpoint is where containerd serves CRI.
const ContainerdEndpoint = "unix:///run/containerd/containerd.sock"

// askLimit bounds a question to a runtime that may hang.
const askLimit = 5 * time.Second

// Runtime is one that answers.
type Runtime struct {
	// Endpoint of CRI; "" for Docker, which needs ours before it.
	Endpoint string
	Name     string // and version
	// ConfDir and BinDirs are where a CRI runtime says that it looks for CNI.
	ConfDir string
	BinDirs []string
}

// Key is how the runtime is named in a Record.
func (r Runtime) Key() string {
	if r.Endpoint == "" {
		return Docker
	}
	return r.Endpoint
}

func (r Runtime) String() string { return r.Name }

// Finder looks for a runtime.
type Finder struct {
	// Docker are the options of its client.
	Docker []docker.Opt
	// Runc is nil when containers can be run.
	Runc func(context.Context) error
}

// NoRuntimeError says that nothing can run a container, and why.
type NoRuntimeError struct{ Docker, CRI error }

func (e *NoRuntimeError) Error() string {
	return fmt.Sprintf("no container runtime: containerd: %v; Docker: %v", e.CRI, e.Docker)
}

// Find finds the runtime that wish names: Auto takes containerd if that serves
// CRI and runc works, else Docker.
func (f Finder) Find(ctx context.Context, wish string) (Runtime, error) {
	switch wish {
	case Docker:
		return f.docker(ctx)
	case Containerd:
		return Query(ctx, ContainerdEndpoint)
	case Auto:
	default:
		return Query(ctx, wish)
	}
	r, none := Query(ctx, ContainerdEndpoint)
	if none == nil {
		none = f.Runc(ctx)
	}
	if none == nil {
		return r, nil
	}
	r, err := f.docker(ctx)
	if err != nil {
		return r, &NoRuntimeError{Docker: err, CRI: none}
	}
	return r, nil
}

func (f Finder) docker(ctx context.Context) (Runtime, error) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	c, err := docker.New(f.Docker...)
	if err != nil {
		return Runtime{}, fmt.Errorf("docker: %w", err)
	}
	defer func() { _ = c.Close() }()
	v, err := c.ServerVersion(ctx, docker.ServerVersionOptions{})
	if err != nil {
		return Runtime{}, err
	}
	return Runtime{Name: "Docker " + v.Version}, nil
}

// Query asks a CRI endpoint who it is and whether it is ready to run containers.
func Query(ctx context.Context, endpoint string) (Runtime, error) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	live, err := runtimes.Query(ctx, endpoint)
	if err != nil {
		return Runtime{}, fmt.Errorf("%s does not answer as a CRI runtime: %w", endpoint, err)
	}
	if live.Fault != nil {
		return Runtime{}, fmt.Errorf("%s is not ready: %w", endpoint, live.Fault)
	}
	r := Runtime{Endpoint: endpoint, Name: live.Name}
	if n := live.Network; n != nil {
		r.ConfDir, r.BinDirs = n.Dir, n.BinDirs
	}
	return r, nil
}

// ErrForeign says that a runtime has pods of another program, which a node loop
// would end.
var ErrForeign = errors.New("the runtime has pods of another program")

// Foreign is an ErrForeign when the runtime has pods that no node loop of this
// name has made. A node loop's pods come from files, which an annotation says,
// and end with the node's name. Test pods of a proof that was killed do not count:
// they are removed before any pod begins (runtimes.EndProofs).
func Foreign(ctx context.Context, conn cri.RuntimeServiceClient, node string) error {
	list, err := conn.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	for _, s := range list.GetItems() {
		name := s.GetMetadata().GetName()
		if s.GetLabels()[runtimes.ProofLabel] != "" {
			continue
		}
		if s.GetAnnotations()[fileSource] != "file" || !strings.HasSuffix(name, "-"+strings.ToLower(node)) {
			return fmt.Errorf("%w: %s/%s is one", ErrForeign, s.GetMetadata().GetNamespace(), name)
		}
	}
	return nil
}

// fileSource is the annotation that tells where a pod was read.
const fileSource = "kubernetes.io/config.source"
