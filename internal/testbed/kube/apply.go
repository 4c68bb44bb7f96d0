package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/jsonpath"

	"github.com/fairlead/fairlead/internal/testbed"
)

// applier writes objects of any kind, as `kubectl apply --server-side` does.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(c *rest.Config) (*applier, error) {
	c = rest.CopyConfig(c)
	c.Timeout = patience
	d, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(c)
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}, err
}

// decode splits YAML or JSON text into objects.
func decode(text string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := d.Decode(o)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode objects: %w", err)
		}
		if o.Object != nil { // nothing between two lines of ---
			out = append(out, o)
		}
	}
}

// resource finds the interface for an object's kind and namespace ("default"
// where a namespace is needed and none is given).
func (a *applier) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := o.GroupVersionKind()
	m, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return a.client.Resource(m.Resource), nil
	}
	ns := o.GetNamespace()
	if ns == "" {
		ns = metav1.NamespaceDefault
	}
	return a.client.Resource(m.Resource).Namespace(ns), nil
}

// apply makes or changes one object and returns what the server made of it.
func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	r, err := a.resource(o)
	if err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "kube-testbed", Force: true})
}

// delete removes one object at once: pods get no grace.
func (a *applier) delete(ctx context.Context, o *unstructured.Unstructured) error {
	r, err := a.resource(o)
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return r.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// lines fills a template of JSONPath for each object of a kind.
func (a *applier) lines(kind, template string) (lines []string, err error) {
	p := jsonpath.New(kind).AllowMissingKeys(true)
	resource, err := a.mapper.ResourceFor(schema.GroupVersionResource{Resource: kind})
	if err = errors.Join(err, p.Parse(template)); err != nil {
		return nil, err
	}
	list, err := a.client.Resource(resource).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range list.Items {
		var line strings.Builder
		if err := p.Execute(&line, o.Object); err != nil {
			return nil, err
		}
		lines = append(lines, line.String())
	}
	return lines, nil
}

// installCRDs applies deploy/crds and waits until their kinds can be used.
func (s *server) installCRDs(ctx context.Context) error {
	objects, err := crds()
	if err != nil {
		return err
	}
	a, err := newApplier(s.config(s.admin))
	if err != nil {
		return err
	}
	for _, o := range objects {
		if _, err := a.apply(ctx, o); err != nil {
			return fmt.Errorf("install CRD %s: %w", o.GetName(), err)
		}
	}
	for _, o := range objects {
		err := until(ctx, "CRD "+o.GetName(), func() error { return a.established(ctx, o) })
		if err != nil {
			return err
		}
	}
	return nil
}

// crds reads the CustomResourceDefinitions of deploy/crds.
func crds() ([]*unstructured.Unstructured, error) {
	r, err := testbed.Repository()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(r, "deploy/crds/*.yaml"))
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		objects, err := decode(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		out = append(out, objects...)
	}
	return slices.DeleteFunc(out, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" }), nil
}

// established asks for the condition and then for the kind's objects: the
// server begins to answer a moment after it has set the condition.
func (a *applier) established(ctx context.Context, crd *unstructured.Unstructured) error {
	r, err := a.resource(crd)
	if err != nil {
		return err
	}
	now, err := r.Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return a.served(ctx, now)
		}
	}
	return errors.New("not established")
}

// served lists objects of every version that the CRD serves.
func (a *applier) served(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")            // both are required fields of the
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural") // object that the server accepted
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, v := range versions {
		m, ok := v.(map[string]any)
		if !ok || m["served"] != true {
			continue
		}
		gvr := schema.GroupVersionResource{Group: group, Version: fmt.Sprint(m["name"]), Resource: plural}
		if _, err := a.client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
	}
	return nil
}
