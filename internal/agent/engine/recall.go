package engine

import (
	"context"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// A record that an older version wrote, or that was taken over from Multus, does
// not say what its ADD was asked for. The runtime's configuration of that name
// does as long as it is ours; then the networks follow the annotation all the
// same: those that it asks for under the name and on the interface that they have
// stay, and what it has no say in is not touched.

// forgotten tells a record that may be of a pod whose networks are all ours, but
// does not say so.
func forgotten(rec core.Record) bool {
	return rec.AddCall == nil && rec.Phase == core.Added && !adopted(rec) && !lent(rec)
}

// remember writes down what the networks are asked for by, once that is known.
// It tells whether the networks follow the annotation; where they cannot and the
// annotation asks for more, that is told, once.
func (r *replug) remember(ctx context.Context, change resolve.Change) (bool, error) {
	if r.rec.AddCall != nil {
		return true, nil
	}
	if r.ask != nil {
		r.rec = record.WithCall(r.rec, r.ask, change.Known)
		return true, r.e.Journal.Save(context.WithoutCancel(ctx), r.rec)
	}
	if len(r.rec.FormerFiles) == 0 || len(change.Come) == 0 {
		return false, nil // another plugin gave the pod its other networks, or nothing is asked for
	}
	err := core.Errorf(core.CodeConfig, "networks of the pod do not follow its annotation: Multus attached it, and the runtime "+
		"has no configuration %q of type fairlead or multus in %s; put it there, or delete the pod to have it made anew",
		r.rec.Network, r.e.ConfDir)
	if r.rec.Problem == err.Error() {
		return false, nil
	}
	return false, r.condition(ctx, r.failed(change.Come[0].Want.IfName, err))
}
