package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// NetworksAttached is the condition of a pod whose annotation was changed: that
// it has the networks that the annotation asks for.
const NetworksAttached = "fairlead.io/NetworksAttached"

// Reasons of that condition.
const (
	reasonAttached  = "AsAnnotated"
	reasonNoNetwork = "NoNetworkFound"
	reasonFailed    = "FailedAttachment"
)

// replug is one comparison of a running pod's networks with its annotation.
type replug struct {
	e     *Engine
	req   core.Request
	rec   core.Record
	all   []core.Record // the container's, rec as it was found among them
	ask   *core.AddCall // what asked for rec, nil where nobody knows
	began time.Time
	trace *core.Trace // of the network at hand
}

// Replug makes the networks of a running pod those that its annotation asks
// for: what it does not ask for any more is detached, in reverse, and then what
// is new is attached, each for itself. What is asked for as before, and the
// default network, is not touched. An error says what is not so yet; it is told
// as an event and a condition too, and all else is done. Repeat it until it is
// nil. A pod that this node has not, or that has another UID, is nothing to do.
func (e *Engine) Replug(ctx context.Context, pod core.Pod) error {
	e.inflight.Add(1)
	defer e.inflight.Add(-1)
	pod.UID = "" // a record may not know it; the annotation is compared with the record's
	var errs []error
	for _, id := range e.containersOf(pod) {
		errs = append(errs, e.replugContainer(ctx, id, pod))
	}
	return errors.Join(errs...)
}

// containersOf are the sandboxes of a pod, also those that are just being
// attached: an ADD may have read the annotation before it changed.
func (e *Engine) containersOf(pod core.Pod) []string {
	var out []string
	e.resolving.Range(func(k, _ any) bool {
		if a, ok := k.(adding); ok && a.pod == pod {
			out = append(out, a.container)
		}
		return true
	})
	for _, h := range e.Journal.PodHeads(pod) {
		if (h.HasCall || h.Phase == core.Added && h.Network != "") && !slices.Contains(out, h.Key.Container) {
			out = append(out, h.Key.Container)
		}
	}
	return out
}

// adding is a pod whose ADD is under way.
type adding struct {
	pod       core.Pod // by name alone
	container string
}

// named is a pod by name alone.
func named(p core.Pod) core.Pod { return core.Pod{Namespace: p.Namespace, Name: p.Name} }

// Followed are the pods that Replug is for.
func (e *Engine) Followed() []core.Pod {
	var out []core.Pod
	for _, h := range e.Journal.Heads() {
		if (h.HasCall || h.Phase == core.Added && h.Network != "") && !h.Pod.IsZero() {
			out = append(out, h.Pod)
		}
	}
	return out
}

// replugContainer takes the container's turn; a DEL that arrives has it give way.
func (e *Engine) replugContainer(ctx context.Context, id string, pod core.Pod) error {
	ctx, stop := context.WithTimeout(ctx, addDeadline)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unlock, err := e.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e.queue.GivesWay(id, cancel)
	defer e.queue.GivesWay(id, nil)
	var errs []error
	all := e.Journal.Container(id)
	for _, rec := range all {
		follows, err := e.follows(rec, pod)
		if follows && e.Tune != nil {
			if err = e.down(rec); err == nil {
				err = e.Tune(ctx, &rec)
			}
		}
		errs = append(errs, err)
		if !follows || rec.AddCall == nil && !forgotten(rec) {
			continue
		}
		r := &replug{e: e, rec: rec, all: all, began: time.Now(), trace: core.NewTrace(e.Observer)}
		if r.ask = rec.AddCall; r.ask == nil {
			r.ask = record.Recall(rec, e.runtimeChains())
		}
		if r.req, err = record.Request(rec, r.ask); err == nil {
			err = r.run(ctx)
		}
		errs = append(errs, err)
	}
	if errors.Is(context.Cause(ctx), errSuperseded) {
		return nil // nothing is asked for any more
	}
	return errors.Join(errs...)
}

// down is why an interface of a record is off the network: settings would put it back.
func (e *Engine) down(rec core.Record) error {
	for _, s := range record.AllSpecs(rec) {
		if err := e.Fence.Down(s.Key); err != nil {
			return err
		}
	}
	return nil
}

// follows tells a record of a pod that runs. The error says that this could not
// be looked at.
func (e *Engine) follows(rec core.Record, pod core.Pod) (bool, error) {
	if rec.Phase != core.Added || named(rec.Pod) != pod || rec.Netns.BootID != e.BootID {
		return false, nil
	}
	isGone, err := gone(rec.Netns)
	return !isGone && err == nil, err
}

func (r *replug) run(ctx context.Context) error {
	before := r.rec
	have := record.Present(r.rec)
	change, err := resolve.Replug(ctx, resolve.Heard{Source: r.e.Source}, r.e.input(r.req), have, r.taken(have))
	if errors.Is(err, core.ErrNotFound) && core.CodeOf(err) == core.CodeUnknown {
		return nil // it is going, or another one by now, or the source has yet to hear of it
	}
	if errors.Is(err, core.ErrUnavailable) {
		return err // not the pod's affair: it is asked again
	}
	if err != nil && r.ask == nil {
		return nil // an annotation that somebody else follows
	}
	if err != nil {
		return r.conclude(ctx, before, []error{r.failed(r.rec.Key.IfName, err)})
	}
	if follows, err := r.remember(ctx, change); !follows || err != nil {
		return err
	}
	errs := r.take(ctx, change.Gone)
	failed, unknown := r.give(ctx, change.Come)
	if errs = append(errs, failed...); unknown != nil && len(errs) == 0 {
		r.told(before)
		return unknown
	}
	return errors.Join(unknown, r.conclude(ctx, before, errs))
}

// take detaches what is not asked for any more, in reverse, and what is still
// there of networks that should be gone already.
func (r *replug) take(ctx context.Context, gone []resolve.Present) (errs []error) {
	if err := r.e.dropParts(ctx, &r.rec); err != nil {
		errs = append(errs, r.failed(r.rec.Key.IfName, fmt.Errorf("a network that has to go is still there: %w", err)))
	}
	for _, p := range slices.Backward(gone) {
		r.trace = core.NewTrace(r.e.Observer)
		if err := r.unplug(ctx, p.IfName); err != nil {
			errs = append(errs, r.failed(p.IfName, fmt.Errorf("detach %s: %w", p.IfName, err)))
		}
	}
	return errs
}

// give attaches what is new, each for itself. unknown is why one could not even
// be asked about.
func (r *replug) give(ctx context.Context, come []resolve.Coming) (errs []error, unknown error) {
	for _, c := range come {
		err := c.Err
		if errors.Is(err, core.ErrUnavailable) {
			unknown = err
			continue
		}
		r.trace = core.NewTrace(r.e.Observer)
		if err == nil {
			err = core.Blame(explain(ctx, r.plug(ctx, c.Want)), c.Want.DeclaredBy...)
		}
		if err != nil {
			errs = append(errs, r.failed(c.Want.IfName, core.WithCode(core.CodeIO, "attach network "+c.Network+" to the running pod", err)))
		}
	}
	return errs, unknown
}

// taken are the container's interfaces that its annotation has no say in.
func (r *replug) taken(have []resolve.Present) []resolve.Present {
	out := []resolve.Present{{IfName: r.rec.Key.IfName}}
	for _, rec := range r.all {
		out = append(out, record.Fixed(rec, have)...)
	}
	return out
}

// failed tells of one network that is not as asked for.
func (r *replug) failed(ifName string, err error) error {
	req := r.req
	req.Op = core.HotPlug
	if ifName != "" {
		req.Key.IfName = ifName
	}
	r.e.noteFailure(core.HotPlug, req, r.trace, err)
	return err
}

// conclude tells what has come and gone, and whether all is as asked for.
func (r *replug) conclude(ctx context.Context, before core.Record, errs []error) error {
	changed, err := r.told(before), errors.Join(errs...)
	if changed || err != nil {
		r.e.Observer.OpDone(core.HotPlug, mainDriver(r.rec), time.Since(r.began), err)
	}
	return errors.Join(err, r.condition(ctx, err))
}

// told tells what has come and gone, and whether anything has.
func (r *replug) told(before core.Record) bool {
	came, went := r.rec, before
	came.Statuses, went.Statuses = record.Beyond(r.rec.Statuses, before.Statuses), record.Beyond(before.Statuses, r.rec.Statuses)
	if len(came.Statuses) > 0 {
		r.e.Notices.Attached(came)
	}
	if len(went.Statuses) > 0 {
		r.e.Notices.Detached(went)
	}
	return len(came.Statuses)+len(went.Statuses) > 0
}

// condition says in the record and to others what the problem is, or that nothing is
// any more.
func (r *replug) condition(ctx context.Context, err error) error {
	problem, status, reason := "", "True", reasonAttached
	if err != nil {
		problem, status, reason = strings.ReplaceAll(err.Error(), "\n", "; "), "False", reasonFailed
		if errors.Is(err, core.ErrNotFound) {
			reason = reasonNoNetwork
		}
	}
	if r.e.Conditions != nil && (problem != "" || r.rec.Problem != "") {
		r.e.Conditions.Condition(r.rec.Pod, NetworksAttached, status, reason, problem)
	}
	if problem == r.rec.Problem {
		return nil
	}
	r.rec.Problem = problem
	return r.e.Journal.Save(context.WithoutCancel(ctx), r.rec)
}
