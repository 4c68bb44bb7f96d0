package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

// What an operator asks and does, with the rights of their own.

// All are the leases, by domain and name.
func (c *Client) All(ctx context.Context) (out agent.LeaseList, err error) {
	all, err := c.list(ctx, "")
	if err != nil {
		return out, err
	}
	for i := range all {
		out.Items = append(out.Items, shown(&all[i]))
	}
	slices.SortFunc(out.Items, func(a, b agent.Lease) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// Find are the leases that somebody may mean: of a name, of an address, of a MAC. None:
// core.ErrNotFound.
func (c *Client) Find(ctx context.Context, what string) (out agent.LeaseList, err error) {
	all, err := c.All(ctx)
	if err != nil {
		return out, err
	}
	ip, _ := netip.ParseAddr(what)
	mac, _ := net.ParseMAC(what)
	for _, l := range all.Items {
		a, err := netip.ParseAddr(l.Address)
		if l.Name == what || err == nil && a == ip.Unmap() || l.MAC != "" && l.MAC == mac.String() {
			out.Items = append(out.Items, l)
		}
	}
	if len(out.Items) == 0 {
		return out, fmt.Errorf("no lease is of that name, address or MAC: %s: %w", what, core.ErrNotFound)
	}
	return out, nil
}

// Steal takes a lease from its holder, who may be alive: the next pod that asks gets it. By
// whom, why and from whom stands in the object from then on, and in an event.
func (c *Client) Steal(ctx context.Context, name, reason string) (agent.Lease, error) {
	by, err := c.user(ctx)
	if err != nil {
		return agent.Lease{}, err
	}
	for range attempts {
		have, err := c.get(ctx, name)
		switch {
		case err != nil:
			return agent.Lease{}, err
		case have == nil:
			return agent.Lease{}, fmt.Errorf("AddressLease %s: %w", name, core.ErrNotFound)
		case have.Spec.Holder.Sandbox == "":
			return shown(have), errFree
		}
		next := freed(have, "")
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		from := have.Spec.Holder
		next.Annotations[v1alpha1.AnnStolenBy], next.Annotations[v1alpha1.AnnStolenReason] = by, reason
		next.Annotations[v1alpha1.AnnStolenFrom], next.Annotations[v1alpha1.AnnStolenAt] = from.Sandbox, time.Now().UTC().Format(time.RFC3339)
		err = c.put(ctx, next)
		if overtaken(err) {
			continue
		}
		if err != nil {
			return agent.Lease{}, err
		}
		note := fmt.Sprintf("taken from pod %s/%s (sandbox %s on node %s) by %s: %s", have.Spec.Owner.Namespace, have.Spec.Owner.Pod, from.Sandbox, from.Node, by, reason)
		if err = c.event(ctx, have, note); err != nil {
			err = fmt.Errorf("%s is taken, as the AddressLease says; the event about it was not recorded: %w", name, err)
		}
		return shown(next), err
	}
	return agent.Lease{}, fmt.Errorf("AddressLease %s: others write it all the time: %w", name, core.ErrUnavailable)
}

var errFree = errors.New("nobody has it: there is nothing to take")

// IsFree tells that Steal found a lease that nobody has.
func IsFree(err error) bool { return errors.Is(err, errFree) }

// user is who asks, as the API server knows them.
func (c *Client) user(ctx context.Context) (string, error) {
	var out authenticationv1.SelfSubjectReview
	err := ask(ctx, "who you are", func(ctx context.Context) error {
		in := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
		return c.auth.Post().Resource("selfsubjectreviews").Body(in).Do(ctx).Into(&out)
	})
	return out.Status.UserInfo.Username, err
}

// event tells of a lease in the default namespace, where events about what has none are.
func (c *Client) event(ctx context.Context, about *v1alpha1.AddressLease, note string) error {
	now := metav1.Now()
	e := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "fairlead-lease-", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1alpha1.APIVersion, Kind: "AddressLease", Name: about.Name, UID: about.UID},
		Reason:         "Stolen", Message: core.Clip(note, 1024), Type: "Warning", FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "fairlead"},
	}
	err := ask(ctx, "event", func(ctx context.Context) error {
		return c.core.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
	})
	if apierrors.IsNotFound(err) { // a cluster without that namespace
		return nil
	}
	return err
}

func shown(o *v1alpha1.AddressLease) agent.Lease {
	h, s := o.Spec.Holder, o.Annotations
	l := agent.Lease{
		Name: o.Name, Domain: o.Spec.Domain, Address: o.Spec.Address, MAC: o.Spec.MAC, Phase: o.Status.Phase, Since: o.Status.Since.Time, Reason: o.Status.Reason, Message: o.Status.Message,
		Namespace: o.Spec.Owner.Namespace, Pod: o.Spec.Owner.Pod, Interface: o.Spec.Owner.Interface, DeclaredBy: o.Spec.DeclaredBy,
		PodUID: h.PodUID, Sandbox: h.Sandbox, Node: h.Node, BootID: h.BootID, Device: h.Device, SelfFence: h.SelfFence, Epoch: h.Epoch,
	}
	if s[v1alpha1.AnnStolenBy] != "" {
		l.Stolen = &agent.Stolen{By: s[v1alpha1.AnnStolenBy], Reason: s[v1alpha1.AnnStolenReason], From: s[v1alpha1.AnnStolenFrom], At: s[v1alpha1.AnnStolenAt]}
	}
	return l
}
