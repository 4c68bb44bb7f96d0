package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/internal/cri/checkpoint"
	"github.com/fairlead/fairlead/internal/cri/label"
)

// Recover ends what an earlier process had begun: sandboxes that it did not
// finish are removed, those that it did not finish to stop are stopped. Call it
// before requests are served; it goes on past failures and tells them all.
func (s *Service) Recover(ctx context.Context) error {
	list, err := s.Docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: label.Sandboxes(nil)})
	if err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	var errs []error
	for _, c := range list.Items {
		r, ok := s.Records.Get(c.ID)
		begun := ok && r.Phase == checkpoint.Pending
		neverRecorded := !ok && c.State == container.StateCreated
		if begun || neverRecorded {
			s.Log.Info("unfinished sandbox removed", "sandbox", c.ID)
			errs = append(errs, s.discard(ctx, c.ID))
		}
		if ok && r.Phase == checkpoint.Leaving {
			_, err := s.stop(ctx, c.ID)
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, s.Collect(ctx))...)
}

// Collect gives back the networks of sandboxes that the engine has lost: nobody
// else will ever ask for it. Sandboxes that somebody works on are left alone.
func (s *Service) Collect(ctx context.Context) error {
	// The records first: a sandbox is created before it is recorded, so one that
	// has a record here and is not in the list is gone.
	ids := s.Records.IDs()
	known, err := s.made(ctx)
	if err != nil {
		return fmt.Errorf("collect sandboxes: %w", err)
	}
	var errs []error
	for _, id := range ids {
		if known[id] {
			continue
		}
		if done, ok := s.turns.TryLock(id); ok {
			if err := s.remove(ctx, id); err != nil {
				errs = append(errs, fmt.Errorf("collect sandbox %s: %w", id, err))
			}
			done()
		}
	}
	return errors.Join(errs...)
}

// made are the sandboxes that the engine has.
func (s *Service) made(ctx context.Context) (map[string]bool, error) {
	list, err := s.Docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: label.Sandboxes(nil)})
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, c := range list.Items {
		ids[c.ID] = true
	}
	return ids, nil
}

// Known are the sandboxes that the engine has, and those whose end is still to
// come although it has lost them.
func (s *Service) Known(ctx context.Context) (map[string]bool, error) {
	ids, err := s.made(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, id := range s.Records.IDs() {
		ids[id] = true
	}
	return ids, nil
}
