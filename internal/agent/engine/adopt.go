package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/network/record"
)

// Adopt completes a journal that was lost, from the specs that drivers read back
// from the node, and declares it whole; until then no NIC is attached, and
// nothing is swept. Nothing is to be done where it is whole already. Attachments whose namespace lives go on
// as if nothing had happened; the others are removed by the background worker.
// What the journal knows already is left alone, so that an Adopt that was
// interrupted can be repeated. The name of the runtime's network is lost with
// the journal: GC of any network of ours collects these records when the runtime
// does not list their container and the namespace is gone.
//
// A container with an operation under way is left to it: Adopt then fails with
// core.ErrUnavailable after it took the others, and is to be repeated.
func (e *Engine) Adopt(ctx context.Context) error {
	if e.Journal.Whole() {
		return nil
	}
	specs, err := e.Drivers.Recover()
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	return e.adopt(ctx, specs)
}

// adopt is Adopt of what was read back.
func (e *Engine) adopt(ctx context.Context, specs []core.Spec) error {
	byContainer := map[string][]core.Spec{}
	for _, s := range specs {
		byContainer[s.Key.Container] = append(byContainer[s.Key.Container], s)
	}
	var busy []string
	for id, found := range byContainer {
		unlock, ok := e.queue.TryLock(id)
		if !ok {
			busy = append(busy, id)
			continue
		}
		err := e.adoptContainer(ctx, found)
		unlock()
		if err != nil {
			return err
		}
	}
	if len(busy) > 0 {
		return fmt.Errorf("adopt: %w: busy with operations of their own: %s", core.ErrUnavailable, strings.Join(busy, ", "))
	}
	e.restore(e.Journal.Records())
	if err := e.Journal.SetWhole(ctx); err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	e.Kick()
	return nil
}

// adoptContainer begins a record of those specs of a container that have none.
// The caller has the container's turn.
func (e *Engine) adoptContainer(ctx context.Context, specs []core.Spec) error {
	var rec core.Record
	for _, s := range specs {
		if _, known := e.holder(s.Key); known {
			continue
		}
		if len(rec.Specs) == 0 {
			rec = core.Record{Key: s.Key, Pod: s.Pod, Created: time.Now().UTC()}
		}
		if err := e.adoptSpec(&rec, s); err != nil {
			return fmt.Errorf("adopt %s: %w", s.Key, err)
		}
	}
	if len(rec.Specs) == 0 {
		return nil
	}
	rec.Begun = len(rec.Specs)
	if err := e.Journal.Begin(ctx, rec); err != nil {
		return fmt.Errorf("adopt %s: %w", rec.Key, err)
	}
	e.Log.Info("attachment adopted from OVSDB", "container", rec.Key.Container, "pod", rec.Pod, "phase", string(rec.Phase))
	return nil
}

// adopted tells a record that Adopt made: it has no network's name, and of
// foreign plugins it knows nothing.
func adopted(rec core.Record) bool { return rec.Network == "" }

// errNotWhole: until Adopt nobody knows which addresses are in use.
var errNotWhole = fmt.Errorf("%w: the journal is new, and what the node has of earlier attachments is not read yet", core.ErrUnavailable)

// awaitDrivers returns nil when these drivers of NICs take new attachments.
func (e *Engine) awaitDrivers(ctx context.Context, names []string) error {
	for _, name := range names {
		err := error(nil)
		if d, ok := e.Drivers[name].(driver.Dependent); ok {
			err = d.Ready(ctx)
		}
		if err = cmp.Or(err, e.reachable(name)); err != nil {
			return core.WithCode(core.CodeTryAgain, "no NIC can be made now", err)
		}
	}
	return nil
}

// reachable is nil when the node can be made to hold what the journal says of a
// driver's attachments.
func (e *Engine) reachable(name string) error {
	if d, ok := e.Drivers[name].(driver.Dependent); ok {
		if err := d.Connected(); err != nil {
			return err
		}
	}
	if !e.Journal.Whole() {
		return errNotWhole
	}
	return nil
}

// adoptSpec adds an interface to a record: a living one's, or one that is to go
// because its namespace is gone.
func (e *Engine) adoptSpec(rec *core.Record, s core.Spec) error {
	now, err := netns.Identify(s.Netns.Path)
	switch {
	case err == nil:
		now.BootID = e.BootID
		s.Netns, rec.Phase, rec.Delivered = now, core.Added, true
	case errors.Is(err, core.ErrNetnsGone):
		rec.Phase = core.Deleting
	default:
		return err
	}
	record.Adopt(rec, s)
	return nil
}
