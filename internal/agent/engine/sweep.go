package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/record"
)

// Sweep makes the node hold what the journal says: what a switch lost comes back,
// what carries our mark and belongs to no record goes. A driver whose attachments
// cannot be reached is left out: whoever brings it back calls again.
func (e *Engine) Sweep(ctx context.Context) error {
	s := sweeping{e: e, records: e.Journal.Records()}
	return s.all(ctx)
}

// sweeping is one comparison of the node with records, which are all of the
// journal's. dry only tells, and changes nothing.
type sweeping struct {
	e       *Engine
	records []core.Record
	dry     bool
	strays  []driver.Stray // that were removed
	unswept error          // why drivers were left out
}

func (s *sweeping) all(ctx context.Context) error {
	var errs []error
	for name, d := range driver.Each[driver.Sweeper](s.e.Drivers) {
		if err := s.e.reachable(name); err != nil {
			s.unswept = errors.Join(s.unswept, err)
			continue
		}
		if err := s.one(ctx, name, d); err != nil {
			errs = append(errs, fmt.Errorf("sweep: %w", err))
		}
	}
	return errors.Join(errs...)
}

// one sweeps the attachments of one driver. What could not be removed of its
// strays does not keep it from the others.
func (s *sweeping) one(ctx context.Context, name string, d driver.Sweeper) error {
	var errs []error
	if !s.dry {
		errs = append(errs, d.Resync(ctx, driver.Of(name, specsOf(record.ByAge(s.records), func(r core.Record) []core.Spec { return r.Specs }))))
	}
	strays, err := d.Strays(ctx, driver.Of(name, specsOf(s.records, record.AllSpecs)))
	errs = append(errs, err)
	for _, stray := range strays {
		if !s.dry {
			if err := stray.Remove(ctx); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		s.strays = append(s.strays, stray)
	}
	return errors.Join(errs...)
}

// specsOf are the Specs that of picks of each record, in order.
func specsOf(records []core.Record, of func(core.Record) []core.Spec) []core.Spec {
	var out []core.Spec
	for _, rec := range records {
		out = append(out, of(rec)...)
	}
	return out
}
