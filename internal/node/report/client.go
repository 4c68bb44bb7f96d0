package report

import (
	"context"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/node/apiserver"
)

// Bounds of requests: their number as kubelet's, and how long one may take.
const (
	requestsPerSecond = 50
	burst             = 100
	answerLimit       = 10 * time.Second
)

// leaseNamespace is where nodes' leases are.
const leaseNamespace = "kube-node-lease"

// client asks for the few kinds that a node writes.
type client struct {
	core, leases rest.Interface
}

func newClient(base *rest.Config) (*client, error) {
	cfg := rest.CopyConfig(base)
	cfg.QPS, cfg.Burst, cfg.Timeout = requestsPerSecond, burst, answerLimit
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	core, err := apiserver.New(cfg, coordination.AddToScheme)
	if err != nil {
		return nil, err
	}
	leases, err := core.Group(coordination.SchemeGroupVersion)
	return &client{core: core, leases: leases}, err
}

func (c *client) pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	out := &v1.Pod{}
	return out, c.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(out)
}

func (c *client) createPod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	out := &v1.Pod{}
	return out, c.core.Post().Namespace(pod.Namespace).Resource("pods").Body(pod).Do(ctx).Into(out)
}

// patchPod writes a status; the patch names the UID that it is for.
func (c *client) patchPod(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	out := &v1.Pod{}
	return out, c.core.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("pods").Name(name).
		SubResource("status").Body(patch).Do(ctx).Into(out)
}

// deletePod deletes the object of a pod of which nothing runs any more.
func (c *client) deletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	o := &metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &uid}}
	return c.core.Delete().Namespace(namespace).Resource("pods").Name(name).Body(o).Do(ctx).Error()
}

func (c *client) createEvent(ctx context.Context, e *v1.Event) (*v1.Event, error) {
	out := &v1.Event{}
	return out, c.core.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Into(out)
}

func (c *client) patchEvent(ctx context.Context, e *v1.Event, patch []byte) (*v1.Event, error) {
	out := &v1.Event{}
	return out, c.core.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(patch).Do(ctx).Into(out)
}

func (c *client) node(ctx context.Context, name string) (*v1.Node, error) {
	out := &v1.Node{}
	return out, c.core.Get().Resource("nodes").Name(name).Do(ctx).Into(out)
}

func (c *client) createNode(ctx context.Context, n *v1.Node) (*v1.Node, error) {
	out := &v1.Node{}
	return out, c.core.Post().Resource("nodes").Body(n).Do(ctx).Into(out)
}

func (c *client) patchNode(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	out := &v1.Node{}
	return out, c.core.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).
		SubResource("status").Body(patch).Do(ctx).Into(out)
}

func (c *client) lease(ctx context.Context, name string) (*coordination.Lease, error) {
	out := &coordination.Lease{}
	return out, c.leases.Get().Namespace(leaseNamespace).Resource("leases").Name(name).Do(ctx).Into(out)
}

func (c *client) createLease(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error) {
	out := &coordination.Lease{}
	return out, c.leases.Post().Namespace(leaseNamespace).Resource("leases").Body(l).Do(ctx).Into(out)
}

func (c *client) updateLease(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error) {
	out := &coordination.Lease{}
	return out, c.leases.Put().Namespace(leaseNamespace).Resource("leases").Name(l.Name).Body(l).Do(ctx).Into(out)
}
