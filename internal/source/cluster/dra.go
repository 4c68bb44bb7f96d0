package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/health"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// slicePatience is how long the first pod with a DRA device waits for the
// node's ResourceSlices.
const slicePatience = 10 * time.Second

// networkDomain is whose attributes are kept of a device: the others, and all
// that a slice says besides, can be a hundred times as much.
const networkDomain = "k8s.cni.cncf.io/"

var sliceResource = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}

// slice is what is kept of a ResourceSlice.
type slice struct {
	driver, pool string
	generation   int64
	devices      map[string]map[string]string // string attributes by device
}

// stringValue is a device's attribute, if it is a string.
type stringValue struct {
	String *string `json:"string"`
}

func readSlice(o metav1.Object) slice {
	var spec struct {
		Driver string `json:"driver"`
		Pool   struct {
			Name       string `json:"name"`
			Generation int64  `json:"generation"`
		} `json:"pool"`
		Devices []struct {
			Name       string                 `json:"name"`
			Attributes map[string]stringValue `json:"attributes"`
		} `json:"devices"`
	}
	raw, ok := o.(*object)
	if !ok || decode(raw.Spec, &spec) != nil {
		return slice{}
	}
	s := slice{driver: spec.Driver, pool: spec.Pool.Name, generation: spec.Pool.Generation, devices: map[string]map[string]string{}}
	for _, d := range spec.Devices {
		s.devices[d.Name] = nil
		for name, v := range d.Attributes {
			if v.String != nil && strings.HasPrefix(name, networkDomain) {
				if s.devices[d.Name] == nil {
					s.devices[d.Name] = map[string]string{}
				}
				s.devices[d.Name][name] = *v.String
			}
		}
	}
	return s
}

// nodeSlices are the node's ResourceSlices. They are followed from the first
// question on: few nodes have pods that ask.
type nodeSlices struct {
	*mirror[slice]
	wanted, listed chan struct{} // closed at the first question, and at the first list
	want           func()
}

func newNodeSlices() *nodeSlices {
	s := &nodeSlices{wanted: make(chan struct{}), listed: make(chan struct{})}
	s.mirror = newMirror("resourceslices", readSlice, func(id, *slice, *slice) {})
	s.want = sync.OnceFunc(func() { close(s.wanted) })
	s.passed = sync.OnceFunc(func() { close(s.listed) })
	return s
}

// run follows the slices of a node once somebody wants them.
func (s *nodeSlices) run(ctx context.Context, c *clients, node string, h *health.Health) {
	select {
	case <-s.wanted:
		follow(ctx, s.mirror, c.chosen(sliceResource, "spec.nodeName="+node), &object{}, h)
	case <-ctx.Done():
	}
}

// find looks for a device in the newest generation of its pool; slices of
// others are about to go (resource/v1, ResourcePool.Generation).
func find(all map[id]slice, driver, pool, device string) (attributes map[string]string, ok bool) {
	newest := int64(-1)
	for _, s := range all {
		if s.driver != driver || s.pool != pool || s.generation < newest {
			continue
		}
		if s.generation > newest {
			newest, attributes, ok = s.generation, nil, false
		}
		if a, has := s.devices[device]; has {
			attributes, ok = a, true
		}
	}
	return attributes, ok
}

// Attribute implements device.Slices for attributes of the domain
// k8s.cni.cncf.io. A device that is not among the node's is asked for once: it
// may be new, or of a pool that is no node's own.
func (s *Source) Attribute(ctx context.Context, driver, pool, device, name string) (string, error) {
	s.dra.want()
	if !s.dra.isSynced() && login.Refused(s.dra.trouble()) {
		return "", s.dra.unsynced() // more patience would not help
	}
	select {
	case <-s.dra.listed:
	case <-time.After(slicePatience):
		return "", s.dra.unsynced()
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", core.ErrUnavailable, ctx.Err())
	}
	attributes, ok := find(s.dra.all(), driver, pool, device)
	if !ok {
		more, err := s.askSlices(ctx, driver)
		if err != nil {
			return "", err
		}
		attributes, _ = find(more, driver, pool, device)
	}
	if v, ok := attributes[name]; ok {
		return v, nil
	}
	return "", fmt.Errorf("attribute %s: %w", name, core.ErrNotFound)
}

// askSlices lists a driver's slices of this node and of no node.
func (s *Source) askSlices(ctx context.Context, driver string) (map[id]slice, error) {
	out := map[id]slice{}
	for _, node := range []string{s.Node, ""} {
		list, err := ask(ctx, s, func(ctx context.Context, c *clients) (runtime.Object, error) {
			return c.chosen(sliceResource, "spec.driver="+driver+",spec.nodeName="+node).ListWithContextFunc(ctx, metav1.ListOptions{})
		})
		if apierrors.IsNotFound(err) {
			return nil, nil // the API server does not serve the kind
		}
		if err != nil {
			return nil, fmt.Errorf("resourceslices: %w", err)
		}
		for _, o := range list.(*objectList).Items {
			out[id{Name: o.Name}] = readSlice(&o)
		}
	}
	return out, nil
}
