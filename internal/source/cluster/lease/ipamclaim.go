package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

// claimGroup is that of IPAMClaims, whose CRD the Network Plumbing Working Group publishes.
const claimGroup = "k8s.cni.cncf.io/v1alpha1"

// ErrFilled is what Fill says where somebody else was faster.
var ErrFilled = errors.New("the IPAMClaim has changed meanwhile")

// IPAMClaim is one as the API server has it.
type IPAMClaim struct {
	metav1.ObjectMeta `json:"metadata"`

	// Spec says for which network and interface it is, "" for any.
	Spec struct {
		Network   string `json:"network"`
		Interface string `json:"interface"`
	} `json:"spec"`
	Status struct {
		IPs []string `json:"ips"` // addresses with a prefix length, or without
	} `json:"status"`
}

// Names tells that the status has an address.
func (c *IPAMClaim) Names(a netip.Addr) bool {
	return slices.ContainsFunc(c.Status.IPs, func(text string) bool {
		one, err := element.ParseIP(text)
		return err == nil && one.Addr == a
	})
}

// IPAMClaim is one of a namespace; core.ErrNotFound: there is none. A cluster that does not
// know the kind is told apart.
func (s *Store) IPAMClaim(ctx context.Context, namespace, name string) (*IPAMClaim, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	what := "IPAMClaim " + namespace + "/" + name
	var raw []byte
	err = ask(ctx, what, func(ctx context.Context) error {
		got := c.core.Get().AbsPath(claimPath(namespace, name)...).Do(ctx)
		raw, _ = got.Raw() // what Error reads of the answer, Raw leaves out
		return got.Error()
	})
	if apierrors.IsNotFound(err) {
		if !about(err, name) {
			return nil, core.Errorf(core.CodeTryAgain, "%s: this cluster has no IPAMClaims of %s: install their CRD", what, claimGroup)
		}
		return nil, fmt.Errorf("%s does not exist: %w", what, core.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	out := &IPAMClaim{}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}

func claimPath(namespace, name string) []string {
	return []string{"apis", claimGroup, "namespaces", namespace, "ipamclaims", name}
}

// about tells an error about an object of a name from one about its kind.
func about(err error, name string) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name
}

// Fill writes addresses into the status of a claim that is as it was read. ErrFilled: it is
// not. core.ErrUnavailable: nobody knows whether it is done.
func (s *Store) Fill(ctx context.Context, claim *IPAMClaim, ips []netip.Prefix) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": claim.ResourceVersion},
		"status":   map[string]any{"ips": ips},
	})
	if err != nil {
		return err
	}
	err = ask(ctx, "status of IPAMClaim "+claim.Namespace+"/"+claim.Name, func(ctx context.Context) error {
		return c.core.Patch(types.MergePatchType).AbsPath(append(claimPath(claim.Namespace, claim.Name), "status")...).Body(body).Do(ctx).Error()
	})
	fail.Here("lease.filled")
	if overtaken(err) {
		return fmt.Errorf("%w: %w", ErrFilled, err)
	}
	return err
}

// unkept is nil where nobody keeps what a lease is of, whether its last holder lives or not:
// AddressHeld (11) or MACInUse (103) where it is retained for ever for another pod than h's, and
// AddressHeld as long as another IPAMClaim than that which claim is declared by names the address.
func (s *Store) unkept(ctx context.Context, h lease.Holder, claim core.Claim, have *v1alpha1.AddressLease) error {
	if owner := have.Spec.Owner; have.Spec.Retain != "" && (owner.Namespace != h.Pod.Namespace || owner.Pod != h.Pod.Name) {
		return lease.Kept(claim, core.Pod{Namespace: owner.Namespace, Name: owner.Pod}, have.Name)
	}
	by, is := core.ParseIPAMClaim(have.Spec.DeclaredBy)
	if !is || have.Spec.DeclaredBy == claim.Declared || !claim.Addr.IsValid() {
		return nil
	}
	c, err := s.IPAMClaim(ctx, by.Namespace, by.Name)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return nil
	case err != nil:
		return err
	case c.Names(claim.Addr):
		return core.Reasoned(core.CodeTryAgain, core.ReasonAddressHeld, "%s in %s is kept for %s", claim, claim.Domain, have.Spec.DeclaredBy)
	}
	return nil
}
