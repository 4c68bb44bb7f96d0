package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Resources of which this package speaks.
var (
	nodeResource   = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	podResource    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nadResource    = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
	subnetResource = schema.GroupVersionResource{Group: "kubeovn.io", Version: "v1", Resource: "subnets"}
	vlanResource   = schema.GroupVersionResource{Group: "kubeovn.io", Version: "v1", Resource: "vlans"}
	eventResource  = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
)

// object is one object of a kind that is read as JSON. Its parts stay text
// until somebody knows what they mean: generated clients for five kinds would
// cost every agent more memory than all its pods.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
}

// DeepCopyObject implements runtime.Object; the parts are never changed.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	o.DeepCopyInto(&c.ObjectMeta)
	return &c
}

type objectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []object `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *objectList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]object, len(l.Items))
	for i := range l.Items {
		c.Items[i] = l.Items[i]
		l.Items[i].DeepCopyInto(&c.Items[i].ObjectMeta)
	}
	return &c
}

// kinds are the names under which object stands in JSON.
func kinds() map[schema.GroupVersion][]string {
	return map[schema.GroupVersion][]string{
		nadResource.GroupVersion():    {"NetworkAttachmentDefinition"},
		subnetResource.GroupVersion(): {"Subnet", "Vlan"},
		sliceResource.GroupVersion():  {"ResourceSlice"},
		nodeResource.GroupVersion():   {"Node"},
	}
}

// clients speak to one API server with one set of credentials.
type clients struct {
	meta    metadata.Interface // pods: protobuf, metadata only
	objects rest.Interface     // JSON
	query   runtime.ParameterCodec
}

// newClients shares one connection between both.
func newClients(base *rest.Config) (*clients, error) {
	cfg := rest.CopyConfig(base)
	// A question of an ADD must not wait behind the writes of a storm: these
	// have limits of their own, and questions are as many as ADDs.
	cfg.QPS = -1
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	c := &clients{}
	if c.meta, err = metadata.NewForConfigAndClient(cfg, shared); err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	scheme := objectScheme()
	c.query = runtime.NewParameterCodec(scheme)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.GroupVersion, cfg.APIPath = &schema.GroupVersion{}, "/apis"
	if c.objects, err = rest.RESTClientForConfigAndClient(cfg, shared); err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	return c, nil
}

func objectScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for gv, names := range kinds() {
		for _, name := range names {
			scheme.AddKnownTypeWithName(gv.WithKind(name), &object{})
			scheme.AddKnownTypeWithName(gv.WithKind(name+"List"), &objectList{})
		}
	}
	metav1.AddToGroupVersion(scheme, podResource.GroupVersion()) // Status, and the options of requests
	return scheme
}

// path is where the objects of a resource are, of one namespace or of all.
func path(r schema.GroupVersionResource, namespace string, more ...string) []string {
	p := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		p = []string{"/api", r.Version}
	}
	if namespace != "" {
		p = append(p, "namespaces", namespace)
	}
	return append(append(p, r.Resource), more...)
}

// read is a request for the objects of a kind; o becomes its query.
func (c *clients) read(r schema.GroupVersionResource, o metav1.ListOptions) *rest.Request {
	return c.objects.Get().AbsPath(path(r, "")...).SpecificallyVersionedParams(&o, c.query, podResource.GroupVersion())
}

// listWatch asks for all objects of a kind.
func (c *clients) listWatch(r schema.GroupVersionResource) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out := &objectList{}
			return out, c.read(r, o).Do(ctx).Into(out)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return c.read(r, o).Watch(ctx)
		},
	}
}

// chosen asks for the objects of a kind that a field selector chooses.
func (c *clients) chosen(r schema.GroupVersionResource, selector string) *cache.ListWatch {
	all := c.listWatch(r)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return all.ListWithContextFunc(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return all.WatchFuncWithContext(ctx, o)
		},
	}
}

// nodes asks for the metadata of all nodes.
func (c *clients) nodes() *cache.ListWatch {
	all := c.meta.Resource(nodeResource)
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return all.Watch(ctx, o) },
	}
}

// revision is that of the server's database.
func revision(ctx context.Context, c *clients) (string, error) {
	list, err := c.meta.Resource(nodeResource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// podsOf asks for the metadata of a node's pods.
func (c *clients) podsOf(node string) *cache.ListWatch {
	mine := "spec.nodeName=" + node
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = mine
			return c.meta.Resource(podResource).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			return c.meta.Resource(podResource).Watch(ctx, o)
		},
	}
}

// pod is the pod's metadata as the server has it now.
func (c *clients) pod(ctx context.Context, i id) (*metav1.PartialObjectMetadata, error) {
	return c.meta.Resource(podResource).Namespace(i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
}

// create makes an object.
func (c *clients) create(ctx context.Context, r schema.GroupVersionResource, namespace string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.objects.Post().AbsPath(path(r, namespace)...).
		Param("fieldValidation", unchecked).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(raw).Do(ctx).Error()
}

// object is one object of a kind as the server has it now.
func (c *clients) object(ctx context.Context, r schema.GroupVersionResource, i id) (*object, error) {
	out := &object{}
	return out, c.objects.Get().AbsPath(path(r, i.Namespace, i.Name)...).Do(ctx).Into(out)
}
