package query

import (
	"context"
	"errors"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// AddressLeases are the claims of addresses that OVN has no rows of.
var AddressLeases = Kind{fairlead.GroupVersion.Group, fairlead.GroupVersion.Version, "addressleases", true}

// notePort is the logical port that an AddressLease is for.
const notePort = "fairlead.io/port"

// ownerPod is the kind of owners whose AddressLeases are judged here.
const ownerPod = "Pod"

// lostLeases adds AddressLeases of pods that are gone. Those of other owners are left
// alone, as the controller leaves them. A server without the kind has none.
func (c *Client) lostLeases(ctx context.Context, s census, out *agent.LostList) error {
	var names []string
	err := c.Each(ctx, AddressLeases, Scope{}, func(o Object) {
		of := leaseSpec(o).Owner
		if p, there := s.pods[of.Namespace+"/"+of.Name]; of.Kind == ownerPod && (!there || !has(p, of)) {
			names = append(names, o.Metadata.Name)
		}
	})
	switch known, err := c.lacking(err, "AddressLeases are not looked at"); {
	case errors.Is(err, core.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !known:
		out.Unseen = append(out.Unseen, unlisted("AddressLeases"))
	}
	for _, name := range names {
		add(out)(c.lostLease(ctx, name))
	}
	return nil
}

func leaseSpec(o Object) (spec fairlead.AddressLeaseSpec) {
	if Read(o.Spec, &spec) != nil {
		return fairlead.AddressLeaseSpec{} // of nobody who is known
	}
	return spec
}

// has tells that a pod of the owner's name is the owner, and may use the address still.
func has(p holding, of fairlead.Owner) bool {
	return !p.over() && (of.UID == "" || of.UID == p.Metadata.UID)
}

// lostLease asks about one AddressLease.
func (c *Client) lostLease(ctx context.Context, name string) (agent.Lost, bool, error) {
	o, is, why, err := c.unclaimed(ctx, name)
	spec := leaseSpec(o)
	return agent.Lost{
		Kind: agent.LostLease, Name: name, Subnet: spec.Subnet, Addresses: addresses([]string{spec.Address}),
		Reason: why, Next: "`fairlead ip leaks --fix`",
	}, is, err
}

// unclaimed tells whether an AddressLease is nobody's, by what the server says now: its
// pod, compared by UID, is gone or has ended, no StatefulSet will make it again, and no
// IP object keeps the address for it. The object is as it was read.
func (c *Client) unclaimed(ctx context.Context, name string) (o Object, is bool, why string, err error) {
	if o, err = c.Get(ctx, AddressLeases, "", name); err != nil {
		return o, false, "", ignore(err)
	}
	of, note := leaseSpec(o).Owner, o.Metadata.Annotations[noteKeeper]
	keeper := keeperName(note)
	if of.Kind != ownerPod || of.Namespace == "" || keeper == "" && note != "" {
		return o, false, "", nil // whose it is, or what keeps it, is not known here
	}
	s := census{pods: map[string]holding{}, sets: map[string]Object{}}
	if err := c.live(ctx, s, of.Namespace, of.Name, keeper); err != nil {
		return o, false, "", err
	}
	if p, there := s.pods[of.Namespace+"/"+of.Name]; there && has(p, of) {
		return o, false, "", nil
	}
	if kept, err := c.leaseKept(ctx, s.sets[of.Namespace+"/"+keeper], o, of.Name); err != nil || kept {
		return o, false, "", err
	}
	r := record{Object: o}
	r.spec.Namespace, r.spec.PodName = of.Namespace, of.Name
	return o, true, left(s, r), nil
}

// leaseKept tells that a StatefulSet, the zero value for none, keeps an AddressLease for the next
// pod of the name, or that the IP object of its logical port is there, and somebody's.
func (c *Client) leaseKept(ctx context.Context, set, lease Object, pod string) (bool, error) {
	note, port := lease.Metadata.Annotations[noteKeeper], lease.Metadata.Annotations[notePort]
	if set.Metadata.Name != "" && keeps(set, note[strings.LastIndexByte(note, '/')+1:], pod) {
		return true, nil
	}
	if port == "" {
		return false, nil
	}
	o, is, _, err := c.abandoned(ctx, port)
	return err == nil && o.Metadata.Name != "" && !is, err
}

// FreeLease removes an AddressLease if it is nobody's now; else it says why it stays.
func (c *Client) FreeLease(ctx context.Context, name string) (stays string, err error) {
	o, is, _, err := c.unclaimed(ctx, name)
	switch {
	case err != nil:
		return "", err
	case !is:
		return "it is somebody's by now", nil
	}
	return "", c.Remove(ctx, AddressLeases, o)
}
