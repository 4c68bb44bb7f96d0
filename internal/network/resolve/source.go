// Package resolve decides what a pod should get: it reads the runtime's
// configuration, the pod's annotations, NetworkAttachmentDefinitions and
// Subnets, and yields Wants. It is pure: same inputs, same Wants, nothing
// touched. It owns the Source interface, whose implementations are local (a
// folder of YAML) and cluster (the Kubernetes API).
package resolve

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
)

// Source tells the desired state. Unknown objects are core.ErrNotFound; a
// source that cannot answer now says core.ErrUnavailable. What is known is given
// also when ctx has ended.
type Source interface {
	// Pod gives the pod of p's namespace and name. A source that learns of pods
	// late waits for it until ctx ends, and for the one of p.UID when another
	// pod of that name is still known.
	Pod(ctx context.Context, p core.Pod) (*Pod, error)
	// NAD gives one NetworkAttachmentDefinition.
	NAD(ctx context.Context, namespace, name string) (*NAD, error)
	// Subnets gives all Subnets, sorted by name, VLANs already resolved.
	Subnets(ctx context.Context) ([]core.Subnet, error)
}

// Prompt is a Source whose Pod and NAD may wait for an object that was just made.
type Prompt interface {
	// KnownPod is Pod without waiting for that pod: core.ErrNotFound, or
	// core.ErrUnavailable while nothing is known at all. It may wait until the
	// source has read all there is when it starts.
	KnownPod(ctx context.Context, p core.Pod) (*Pod, error)
	// KnownNAD is NAD without waiting: core.ErrNotFound, or core.ErrUnavailable
	// while nothing is known at all.
	KnownNAD(namespace, name string) (*NAD, error)
}

// Devices tells which devices were given to a pod's containers (kubelet's
// podresources, its checkpoint, DRA). It is asked once per ADD, and only when a
// network of the pod names a resource.
type Devices interface {
	// Allocated lists device ids by resource name, in the order in which they
	// are handed out. A pod that has none is an empty map. An error may come
	// with what is known nevertheless; core.ErrNotFound says that this node has
	// nobody who gives devices.
	Allocated(ctx context.Context, p core.Pod) (map[string][]string, error)
}

// Chooser is a Devices some of whose ids are places, for which the device is chosen when
// the pod is known.
type Chooser interface {
	// Choose picks one of w.IDs, and the device that it stands for: another id is a device
	// itself. It is kept for w.Key; without an ID other interfaces of the container have
	// them all. 104: no device fits, 11: it cannot be told now.
	Choose(ctx context.Context, w DeviceWish) (Chosen, error)
}

// Chosen is a device for an interface.
type Chosen struct {
	ID     string // of DeviceWish.IDs
	Device string
	// Defaults are keys that the configuration of plugin sriov has where it does not say
	// them.
	Defaults map[string]any
}

// DeviceWish is what an interface wants of a resource's devices.
type DeviceWish struct {
	Key      core.Key
	Resource string
	IDs      []string // that kubelet gave the pod, at least one
	PFs      []string // physical functions of which it may be; none: any
	MinMbps  int      // rate that it is promised, Mbit/s; 0 for none
}

// Problem is something in a source that is not in force as written.
type Problem struct {
	File   string `json:"file"` // or the object, where there is no file
	Line   int    `json:"line"` // 0 where no line is to blame
	Reason string `json:"reason"`
}

// String is "file:line: reason", without the line where there is none.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Reason
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Reason)
}

// Pod is the part of a pod that decides its networks.
type Pod struct {
	core.Pod
	Annotations map[string]string
	// Controller is the kind of the owner that made the pod, such as
	// StatefulSet; "" where there is none or the source cannot tell.
	Controller string
	// Machine is the virtual machine of KubeVirt that the pod runs, "" for none.
	Machine string
}

// NAD is a NetworkAttachmentDefinition.
type NAD struct {
	Namespace   string
	Name        string
	Annotations map[string]string
	Config      string // spec.config: JSON, may be empty
}
