package machine

import (
	"context"
	"slices"
	"strings"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Annotate implements controller.Outcomes. Nobody is told of a folder's namespaces.
func (w *world) Annotate(_ context.Context, o object.Object, set map[string]string, drop ...string) error {
	switch o.Kind {
	case object.KindNode:
		w.AnnotateNode(set)
		return nil
	case object.KindNamespace:
		return nil
	}
	return w.Machine.Annotate(core.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, set, drop...)
}

// SubnetStatus implements controller.Outcomes.
func (w *world) SubnetStatus(_ context.Context, o object.Object, s v1.SubnetStatus) error {
	w.mu.Lock()
	s.Conditions = merged(w.subnets[o.Name].Conditions, s.Conditions)
	w.subnets[o.Name] = s
	w.mu.Unlock()
	w.conditions(o.Key, s.Conditions)
	return nil
}

// PoolStatus implements controller.Outcomes.
func (w *world) PoolStatus(_ context.Context, o object.Object, s v1.IPPoolStatus) error {
	w.mu.Lock()
	s.Conditions = merged(w.pools[o.Name].Conditions, s.Conditions)
	w.pools[o.Name] = s
	w.mu.Unlock()
	w.conditions(o.Key, s.Conditions)
	return nil
}

// VpcStatus implements controller.Outcomes.
func (w *world) VpcStatus(_ context.Context, o object.Object, status v1.VpcStatus) error {
	w.mu.Lock()
	status.Conditions = merged(w.vpcs[o.Name].Conditions, status.Conditions)
	w.vpcs[o.Name] = status
	w.mu.Unlock()
	w.conditions(o.Key, status.Conditions)
	return nil
}

// Status implements controller.Outcomes; of its kinds a folder has SecurityGroups
// alone.
func (w *world) Status(_ context.Context, o object.Object, status any) error {
	s, ok := status.(v1.SecurityGroupStatus)
	if !ok {
		return core.ErrNotFound
	}
	w.mu.Lock()
	s.Conditions = merged(w.groups[o.Name].Conditions, s.Conditions)
	w.groups[o.Name] = s
	w.mu.Unlock()
	w.conditions(o.Key, s.Conditions)
	return nil
}

// merged are conditions with those of other types that an object has.
func merged(have, want []v1.Condition) []v1.Condition {
	others := slices.DeleteFunc(slices.Clone(have), func(h v1.Condition) bool {
		return slices.ContainsFunc(want, func(w v1.Condition) bool { return w.Type == h.Type })
	})
	return append(others, want...)
}

// conditions makes a problem of an object of what its conditions tell.
func (w *world) conditions(k object.Key, all []v1.Condition) {
	var said []string
	for _, c := range all {
		switch {
		case c.Type == v1.ConditionReady && c.Status == "False":
			said = append(said, c.Message)
		case c.Type == v1.ConditionNotImplemented && c.Status == "True":
			said = append(said, "not carried out: "+c.Message)
		}
	}
	w.Say(idOf(k), strings.Join(said, "; "))
}

// idOf is the folder's name of an object.
func idOf(k object.Key) folder.ID {
	for name, kind := range kinds {
		if kind == k.Kind {
			return folder.ID{Kind: name, Namespace: k.Namespace, Name: k.Name}
		}
	}
	return folder.ID{Kind: string(k.Kind), Namespace: k.Namespace, Name: k.Name}
}

// PutSubnet implements controller.Outcomes: a folder's files are the user's.
func (*world) PutSubnet(context.Context, *v1.Subnet) error { return nil }

// DropSubnet implements controller.Outcomes.
func (*world) DropSubnet(context.Context, *v1.Subnet) error { return nil }

// PutIP implements controller.Outcomes: a folder has no IP objects.
func (*world) PutIP(context.Context, *v1.IP, *v1.IP) error { return nil }

// DropIP implements controller.Outcomes.
func (*world) DropIP(context.Context, *v1.IP) error { return nil }

// PutClaim implements claim.Writer: a folder has no AddressLeases.
func (*world) PutClaim(context.Context, *fairlead.AddressLease, *fairlead.AddressLease) error {
	return core.ErrUnavailable
}

// DropClaim implements claim.Writer.
func (*world) DropClaim(context.Context, *fairlead.AddressLease) error { return nil }

// Warn implements controller.Outcomes.
func (w *world) Warn(_ context.Context, o object.Object, e object.Event) error {
	if e.Good {
		w.log.Info("an object changed", "object", o.Key, "reason", e.Reason, "message", e.Message)
		return nil
	}
	w.log.Warn("an object is not carried out as written", "object", o.Key, "reason", e.Reason, "message", e.Message)
	w.Say(idOf(o.Key), e.Message)
	return nil
}

// well hears that the last event about an object holds no more.
func (w *world) well(k object.Key) {
	if k.Kind != object.KindSubnet && k.Kind != object.KindVpc && k.Kind != object.KindPool && k.Kind != object.KindGroup { // these have conditions
		w.Say(idOf(k), "")
	}
}
