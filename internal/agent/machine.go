package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/source/local"
)

// openMachine is the source of a machine with OVN and without a cluster.
func (d *Daemon) openMachine() (_ objects, err error) {
	if d.opts.Folder != nil {
		d.machine, err = local.MachineOver(d.opts.Folder, d.opts.NodeName, d.log)
	} else {
		d.machine, err = local.OpenMachine(d.opts.Objects, d.opts.NodeName, d.log)
	}
	if err != nil {
		return nil, err
	}
	return d.machine, nil
}

// recall makes the pods known that the journal has, before anybody may take them
// for gone. Those whose namespace is gone, of which a plugin has yet to be undone,
// have no address any more.
func (d *Daemon) recall(records []core.Record) {
	if d.machine == nil {
		return
	}
	records = slices.SortedStableFunc(slices.Values(records), func(a, b core.Record) int { return a.Called().Compare(b.Called()) })
	for _, r := range records {
		if r.Orphan || r.Pod.IsZero() {
			continue
		}
		req, err := record.Request(r, r.AddCall)
		if err != nil {
			d.log.Error("what the runtime told of a pod cannot be read from the journal: it counts as one without annotations", "pod", r.Pod, "err", err)
			req = core.Request{Key: r.Key, Pod: r.Pod}
		}
		d.machine.Recall(req, r.Specs)
	}
}

// recalled ends recall: what was rolled back meanwhile is forgotten again.
func (d *Daemon) recalled(records []core.Record) {
	if d.machine == nil {
		return
	}
	for _, r := range records {
		d.left(r.Key, r.Pod)
	}
	d.machine.Known()
}

// left forgets a sandbox that has no record.
func (d *Daemon) left(k core.Key, p core.Pod) {
	if p.IsZero() || slices.ContainsFunc(d.journal.PodHeads(p), func(h journal.Head) bool { return h.Key.Container == k.Container && !h.Orphan }) {
		return
	}
	d.machine.Leave(k.Container, p)
}

// control runs the controller until ctx ends.
func (d *Daemon) control(ctx context.Context) {
	if d.machine == nil || d.opts.Controller == nil {
		return
	}
	if err := d.opts.Controller(ctx, d.machine); err != nil {
		d.log.Error("the controller in this process has ended: new pods get no address until the agent is started again", "err", err)
	}
}

// carried is nil when the controller in this process leads, and the machine reaches
// its pods' network.
func (d *Daemon) carried() error { return cmp.Or(d.machine.Led(), d.reach.last()) }

// departures is a core.Notices by which a machine's pods go.
type departures struct{ *Daemon }

// Attached implements core.Notices.
func (departures) Attached(core.Record) {}

// Detached implements core.Notices.
func (d departures) Detached(r core.Record) { d.left(r.Key, r.Pod) }

// Failed implements core.Notices.
func (d departures) Failed(a core.Attempt) { d.left(a.Key, a.Pod) }

// join is what a controller gave the node in OVN's network of nodes. It wraps
// core.ErrUnavailable where nobody can tell yet: a machine's controller has told nothing
// before it leads, and what the machine had from it before stays.
func (d *Daemon) join() (core.Join, error) {
	if d.machine != nil {
		if j := d.machine.Join(); len(j.Addrs) > 0 {
			return j, nil
		}
		why := cmp.Or(d.machine.Led(), errors.New("the controller has given this node no address in the Subnet join: the agent's log says why"))
		return core.Join{}, fmt.Errorf("%w (%w)", why, core.ErrUnavailable)
	}
	if api := d.api(); api != nil {
		return api.Join()
	}
	return core.Join{}, fmt.Errorf("no Kubernetes API is known yet: %w", core.ErrUnavailable)
}
