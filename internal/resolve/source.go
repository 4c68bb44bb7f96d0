// Package resolve decides what a pod should get: it reads the runtime's
// configuration, the pod's annotations, NetworkAttachmentDefinitions and
// Subnets, and yields Wants. It is pure: same inputs, same Wants, nothing
// touched. It owns the Source interface, whose implementations are local (a
// folder of YAML) and cluster (the Kubernetes API).
package resolve

import (
	"context"

	"github.com/fairlead/fairlead/internal/core"
)

// Source tells the desired state. Unknown objects are core.ErrNotFound; a
// source that cannot answer now says core.ErrUnavailable.
type Source interface {
	// Pod gives the pod's identity and annotations.
	Pod(ctx context.Context, namespace, name string) (*Pod, error)
	// NAD gives one NetworkAttachmentDefinition.
	NAD(ctx context.Context, namespace, name string) (*NAD, error)
	// Subnets gives all Subnets, sorted by name, VLANs already resolved.
	Subnets(ctx context.Context) ([]core.Subnet, error)
}

// Pod is the part of a pod that decides its networks.
type Pod struct {
	core.Pod
	Annotations map[string]string
}

// NAD is a NetworkAttachmentDefinition.
type NAD struct {
	Namespace   string
	Name        string
	Annotations map[string]string
	Config      string // spec.config: JSON, may be empty
}
