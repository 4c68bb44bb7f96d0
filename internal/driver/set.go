package driver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/plan"
)

// Set maps a Spec's Driver name to its implementation. Its methods ask those of
// its drivers that have the capability, and pass over the others.
type Set map[string]Driver

// Each are the drivers of a Set that have the capability C, by name, in the order
// of their names.
func Each[C any](set Set) iter.Seq2[string, C] {
	return func(yield func(string, C) bool) {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if c, ok := set[name].(C); ok && !yield(name, c) {
				return
			}
		}
	}
}

// Carriers are the drivers of NICs, for plan.
func (set Set) Carriers() map[string]plan.Carrier {
	out := map[string]plan.Carrier{}
	for name, d := range Each[Carrier](set) {
		out[name] = d
	}
	return out
}

// Prove tells the first of the Specs that its driver would refuse.
func (set Set) Prove(ctx context.Context, specs []core.Spec) error {
	for _, s := range specs {
		if d, ok := set[s.Driver].(Prover); ok {
			if err := d.Prove(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// Inside tells that the Spec is attached without a process.
func (set Set) Inside(s core.Spec) bool {
	d, ok := set[s.Driver].(Insider)
	return !ok || d.Inside(s)
}

// Kill ends what is left of a process that a driver reported.
func (set Set) Kill(p core.Proc) error {
	var errs []error
	for _, d := range Each[Killer](set) {
		errs = append(errs, d.Kill(p))
	}
	return errors.Join(errs...)
}

// Delegator is the driver of foreign plugins; code 7 where there is none.
func (set Set) Delegator() (Delegator, error) {
	if d, ok := set[core.DriverExec].(Delegator); ok {
		return d, nil
	}
	return nil, core.Errorf(core.CodeConfig, "no driver %q", core.DriverExec)
}

// Guess are the Specs that an interface of ours has where no record says so, one
// of each driver that may have made it.
func (set Set) Guess(key core.Key, ns core.Netns) []core.Spec {
	var out []core.Spec
	for _, d := range Each[Guesser](set) {
		out = append(out, d.Guess(key, ns))
	}
	return out
}

// Recover gives what all can read back, or nothing and why one cannot.
func (set Set) Recover() ([]core.Spec, error) {
	var out []core.Spec
	for name, d := range Each[Recoverer](set) {
		found, err := d.Recover()
		if err != nil {
			return nil, fmt.Errorf("read back what driver %s has attached: %w", name, err)
		}
		out = append(out, found...)
	}
	return out, nil
}

// Restore has each driver that keeps one whole make it of its own of the Specs,
// which are in the order of their records.
func (set Set) Restore(ctx context.Context, specs []core.Spec) error {
	var errs []error
	for name, d := range Each[Restorer](set) {
		errs = append(errs, d.Restore(ctx, Of(name, specs)))
	}
	return errors.Join(errs...)
}

// Of are those of the Specs that are a driver's.
func Of(name string, specs []core.Spec) []core.Spec {
	return slices.DeleteFunc(slices.Clone(specs), func(s core.Spec) bool { return s.Driver != name })
}
