// Package device tells which devices kubelet gave to a pod: it implements
// resolve.Devices. It asks kubelet itself (podresources API v1), reads
// kubelet's checkpoint where kubelet does not serve that, and finds the device
// IDs of DRA claims in what their drivers publish. It knows kubelet's files and
// formats and nothing of networks; it is asked only when a network names a
// resource, and until then it opens nothing.
//
// Sources: k8s.io/kubelet/pkg/apis/podresources/v1; kubelet's
// cm/devicemanager/checkpoint; spec/multinet.md rule 8. The keys are those that
// Multus reads (v4.3.0 for claims by name, its resource.k8s.io/v1 support for
// device attributes), so NADs written for it mean the same here.
package device

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fairlead/fairlead/internal/core"
)

// DefaultRoot is the folder that kubelet keeps its state in (--root-dir).
const DefaultRoot = "/var/lib/kubelet"

// Names below kubelet's folder (kubelet's apis/podresources and
// cm/devicemanager).
const (
	socketName     = "pod-resources/kubelet.sock"
	checkpointName = "device-plugins/kubelet_internal_checkpoint"
)

// Slices reads what DRA drivers publish of their devices (ResourceSlice,
// resource.k8s.io/v1). It is implemented over the Kubernetes API.
type Slices interface {
	// Attribute gives the string attribute called name ("domain/name") of a
	// device. A device or attribute that nobody publishes is core.ErrNotFound;
	// core.ErrUnavailable says that it cannot be told now.
	Attribute(ctx context.Context, driver, pool, device, name string) (string, error)
}

// Kubelet knows the devices of this node's pods.
type Kubelet struct {
	socket     string
	checkpoint string
	slices     Slices
}

// New makes a Kubelet of the folder root. slices may be nil: DRA devices are
// then known by the names of their claims alone.
func New(root string, slices Slices) *Kubelet {
	return &Kubelet{socket: filepath.Join(root, socketName), checkpoint: filepath.Join(root, checkpointName), slices: slices}
}

// Allocated lists the pod's device IDs by resource name. Kubelet keeps them in
// hash maps and tells them in another order each time, so they come sorted, as
// Multus and others that read them for the same pod expect; none comes twice,
// though a container may have taken it over from an init container.
//
// A resource is a device plugin's ("vendor.com/nic"), or what a DRA driver says
// in the attribute k8s.cni.cncf.io/resourceName of a device, else the name of
// the ResourceClaim.
//
// Errors: code 104 wrapping core.ErrNotFound where neither socket nor
// checkpoint exists, 104 where kubelet refuses the question, 11 where it does
// not answer. An error that comes with a map is about some of the devices only.
func (k *Kubelet) Allocated(ctx context.Context, p core.Pod) (map[string][]string, error) {
	res, err := k.ask(ctx, p)
	if errors.Is(err, errSilent) {
		return k.recorded(p, err)
	}
	if err != nil {
		return nil, err
	}
	return k.sorted(ctx, res)
}

// sorted brings kubelet's answer into resolve's form.
func (k *Kubelet) sorted(ctx context.Context, res *podresources.PodResources) (map[string][]string, error) {
	ids := bag{}
	var errs []error
	for _, c := range res.GetContainers() {
		for _, d := range c.GetDevices() {
			ids.add(d.GetResourceName(), d.GetDeviceIds()...)
		}
		for _, claim := range c.GetDynamicResources() {
			errs = append(errs, k.claimed(ctx, claim, ids))
		}
	}
	return ids.done(), errors.Join(errs...)
}

// bag collects device IDs by resource.
type bag map[string][]string

func (b bag) add(resource string, ids ...string) {
	for _, id := range ids {
		if resource != "" && id != "" {
			b[resource] = append(b[resource], id)
		}
	}
}

// done orders what was collected.
func (b bag) done() map[string][]string {
	for resource, ids := range b {
		slices.Sort(ids)
		b[resource] = slices.Compact(ids)
	}
	return b
}
