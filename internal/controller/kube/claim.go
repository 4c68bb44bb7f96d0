package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// byPod is the index of AddressLeases by the pod that has the address.
const byPod = "pod"

// leases are the AddressLeases.
var leases = fairlead.GroupVersion.WithResource("addressleases")

// readClaim keeps an AddressLease that cannot be read as one of nobody.
func readClaim(u *unstructured.Unstructured) *fairlead.AddressLease {
	out := read[fairlead.AddressLease](u)
	out.Annotations, out.ResourceVersion = u.GetAnnotations(), u.GetResourceVersion()
	return out
}

// ofPod is the index's key of an AddressLease that an informer keeps.
func ofPod(o any) ([]string, error) {
	i, ok := o.(*item[*fairlead.AddressLease])
	if !ok || i.value.Spec.Owner.Kind != string(object.KindPod) {
		return nil, nil
	}
	return []string{cache.NewObjectName(i.value.Spec.Owner.Namespace, i.value.Spec.Owner.Name).String()}, nil
}

// claims implements controller.Readers.Claims.
func (c *Cluster) claims() claim.Reader {
	known := lister[*fairlead.AddressLease]{c.all[object.KindClaim]}
	return claim.Reader{
		Get:  func(name string) (*fairlead.AddressLease, bool) { return known.Get("", name) },
		List: known.List, Of: c.claimsOf, Now: c.claimNow, Gone: c.podGone,
	}
}

// claimsOf implements claim.Reader.Of.
func (c *Cluster) claimsOf(pod core.Pod) (out []*fairlead.AddressLease) {
	found, err := c.all[object.KindClaim].GetIndexer().ByIndex(byPod, cache.NewObjectName(pod.Namespace, pod.Name).String())
	if err != nil {
		return nil // there is the index: New made it
	}
	for _, o := range found {
		if i, ok := o.(*item[*fairlead.AddressLease]); ok {
			out = append(out, i.value)
		}
	}
	return out
}

// claimNow implements claim.Reader.Now.
func (c *Cluster) claimNow(ctx context.Context, name string) (*fairlead.AddressLease, error) {
	u, err := c.client.Resource(leases).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return readClaim(u), nil
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("AddressLease %s: %w", name, core.ErrNotFound)
	}
	return nil, fmt.Errorf("read AddressLease %s: %w", name, err)
}

// podGone implements claim.Reader.Gone. What it asks is answered by etcd, not by
// a cache of the API server.
func (c *Cluster) podGone(ctx context.Context, pod core.Pod) (bool, error) {
	now, err := c.core.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read pod %s: %w", pod, err)
	}
	return pod.UID != "" && string(now.UID) != pod.UID || ended(now), nil
}

// PutClaim implements claim.Writer.
func (c *Cluster) PutClaim(ctx context.Context, have, want *fairlead.AddressLease) error {
	o := want.DeepCopy()
	o.TypeMeta = metav1.TypeMeta{APIVersion: fairlead.APIVersion, Kind: string(object.KindClaim)}
	if have != nil {
		o.UID, o.ResourceVersion = have.UID, have.ResourceVersion
	}
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("claim %s: %w", want.Name, err)
	}
	delete(body, "status")
	if have == nil {
		_, err = c.client.Resource(leases).Create(ctx, &unstructured.Unstructured{Object: body}, metav1.CreateOptions{FieldManager: manager})
	} else {
		_, err = c.client.Resource(leases).Update(ctx, &unstructured.Unstructured{Object: body}, metav1.UpdateOptions{FieldManager: manager})
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return fmt.Errorf("claim %s: %w", want.Name, core.ErrExists)
	}
	return fmt.Errorf("claim %s: %w", want.Name, err)
}

// DropClaim implements claim.Writer.
func (c *Cluster) DropClaim(ctx context.Context, have *fairlead.AddressLease) error {
	err := c.client.Resource(leases).Delete(ctx, have.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete AddressLease %s: %w", have.Name, err)
	}
	return nil
}
