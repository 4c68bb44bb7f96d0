package ovs

import (
	"context"
	"errors"
	"fmt"
)

// Flush returns when no tombstone is left.
func (d *Driver) Flush(ctx context.Context) error {
	for {
		n, err := d.count(GroupTombstone)
		if err != nil || n == 0 {
			return err
		}
		if err := errors.Join(ctx.Err(), d.cfg.Graves.Reap()); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
}
