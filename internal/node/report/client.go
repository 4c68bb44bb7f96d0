package report

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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
	codec        runtime.ParameterCodec
}

func newClient(base *rest.Config) (*client, error) {
	cfg := rest.CopyConfig(base)
	cfg.QPS, cfg.Burst, cfg.Timeout = requestsPerSecond, burst, answerLimit
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, coordination.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("kinds that a node writes: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion) // Status, and the options of requests
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	of := func(path string, gv schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(cfg)
		c.APIPath, c.GroupVersion = path, &gv
		return rest.RESTClientForConfigAndClient(c, shared)
	}
	c := &client{codec: runtime.NewParameterCodec(scheme)}
	if c.core, err = of("/api", v1.SchemeGroupVersion); err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	if c.leases, err = of("/apis", coordination.SchemeGroupVersion); err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	return c, nil
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
