package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Kinds of which whole objects are read.
var (
	Pods         = pods
	Namespaces   = Kind{"", "v1", "namespaces", true}
	Nodes        = Kind{"", "v1", "nodes", true}
	ConfigMaps   = Kind{"", "v1", "configmaps", false}
	Services     = Kind{"", "v1", "services", false}
	Deployments  = Kind{"apps", "v1", "deployments", false}
	DaemonSets   = Kind{"apps", "v1", "daemonsets", false}
	StatefulSets = Kind{"apps", "v1", "statefulsets", false}
	Leases       = Kind{"coordination.k8s.io", "v1", "leases", false}
	CSRs         = Kind{"certificates.k8s.io", "v1", "certificatesigningrequests", true}
	IPs          = KubeOVN("ips", false)
	Pools        = KubeOVN("ippools", false)
	Subnets      = subnets
	NADs         = nads
	Ranges       = Kind{"whereabouts.cni.cncf.io", "v1alpha1", "ippools", false} // of the IPAM plugin whereabouts
	PodNetworks  = Kind{v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "podnetworks", false}
)

// KubeOVN is a kind of kubeovn.io, which has its plural.
func KubeOVN(plural string, namespaced bool) Kind {
	return Kind{v1.GroupVersion.Group, v1.GroupVersion.Version, plural, !namespaced}
}

// Object is an object as it stands.
type Object struct {
	Metadata Meta            `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`
	Status   json.RawMessage `json:"status"`
	Data     map[string]any  `json:"data"` // of a ConfigMap
}

// Meta is what is read of an object's metadata.
type Meta struct {
	Namespace       string                  `json:"namespace"`
	Name            string                  `json:"name"`
	UID             string                  `json:"uid"`
	ResourceVersion string                  `json:"resourceVersion"`
	Labels          map[string]string       `json:"labels"`
	Annotations     map[string]string       `json:"annotations"`
	Finalizers      []string                `json:"finalizers"`
	Owners          []metav1.OwnerReference `json:"ownerReferences"`
	Created         time.Time               `json:"creationTimestamp"`
	Deleted         *time.Time              `json:"deletionTimestamp"`
}

// Read fills to with a part of an object; nothing there leaves it as it is.
func Read(part json.RawMessage, to any) error { return object{Spec: part}.spec(to) }

// Each calls use for all objects of a kind, in the order of namespace and name. A
// kind that the server does not have is core.ErrNotFound.
func (c *Client) Each(ctx context.Context, k Kind, s Scope, use func(Object)) error {
	return absent(k, each(ctx, c, question{Kind: k, Scope: s}, use))
}

// Get is one object as it is now at the server; core.ErrNotFound without one.
func (c *Client) Get(ctx context.Context, k Kind, namespace, name string) (Object, error) {
	if err := segments(namespace, name); err != nil {
		return Object{}, err
	}
	var out Object
	err := read(ctx, c.rest.Get().AbsPath(append(k.path(namespace), name)...), &out)
	if apierrors.IsNotFound(err) {
		return Object{}, absent(k, err)
	}
	if err != nil {
		return Object{}, c.explain(err, "get", k, namespace)
	}
	return out, nil
}

// absent marks what is not there.
func absent(k Kind, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w: %w", k, core.ErrNotFound, err)
	}
	return err
}

// Remove deletes an object if it still is as it was read: another of its name, or
// one that was changed since, stays, and is an error.
func (c *Client) Remove(ctx context.Context, k Kind, o Object) error {
	uid, version := types.UID(o.Metadata.UID), o.Metadata.ResourceVersion
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.Metadata.Name, err)
	}
	r := c.rest.Delete().AbsPath(append(k.path(o.Metadata.Namespace), o.Metadata.Name)...)
	err = r.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("it was changed meanwhile, and stays: %w", err)
	}
	return c.explain(err, "delete", k, o.Metadata.Namespace)
}

// Lacking is for who asks for what an answer can do without: a right that is
// missing, or a kind that the server does not have, is noted. known is false then.
func (c *Client) Lacking(err error, what string) (known bool, other error) {
	if errors.Is(err, core.ErrNotFound) {
		return false, nil
	}
	return c.lacking(err, what)
}
