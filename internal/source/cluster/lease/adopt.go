package lease

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
)

// Adopted is a lease that Adopt has made.
type Adopted struct {
	Record

	For string // the sandbox for which it was made
}

// Adopted are the leases that Adopt has made, by name.
func (c *Client) Adopted(ctx context.Context) (out []Adopted, err error) {
	all, err := c.list(ctx, "")
	for i := range all {
		if id := all[i].Annotations[v1alpha1.AnnAdopted]; id != "" {
			out = append(out, Adopted{recordOf(&all[i]), id})
		}
	}
	slices.SortFunc(out, func(a, b Adopted) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// Now is a lease; false for none.
func (c *Client) Now(ctx context.Context, name string) (Record, bool, error) {
	o, err := c.get(ctx, name)
	if err != nil || o == nil {
		return Record{}, false, err
	}
	return recordOf(o), true, nil
}

// Adopt makes a lease for a holder whom somebody else gave the address. done is false where
// there is one, whoever has it.
func (c *Client) Adopt(ctx context.Context, h lease.Holder, claim core.Claim) (done bool, err error) {
	o := bound(nil, h, claim)
	o.Annotations = map[string]string{v1alpha1.AnnAdopted: h.Key.Container}
	err = c.put(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// Leave deletes a lease that Adopt has made, as long as it is for the sandbox that it was made
// for, or for nobody; done is false where another has it.
func (c *Client) Leave(ctx context.Context, name string) (done bool, err error) {
	have, err := c.get(ctx, name)
	if err != nil || have == nil {
		return err == nil, err
	}
	id := have.Spec.Holder.Sandbox
	if id != "" && id != have.Annotations[v1alpha1.AnnAdopted] {
		return false, nil
	}
	err = ask(ctx, "delete AddressLease "+name, func(ctx context.Context) error {
		only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion}}
		return c.leases.Delete().Resource(resource).Name(name).Body(only).Do(ctx).Error()
	})
	if apierrors.IsConflict(err) {
		return false, nil
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err == nil, err
}
