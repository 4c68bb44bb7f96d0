// Package parts runs what a program is made of.
package parts

import (
	"context"
	"errors"
	"sync"
)

// Run runs all until ctx ends or one of them fails, which ends the others. That
// a part was told to end is no error.
func Run(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, run := range all {
		running.Go(func() {
			if errs[i] = run(ctx); errs[i] != nil {
				cancel()
			}
			if errors.Is(errs[i], context.Canceled) {
				errs[i] = nil
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
