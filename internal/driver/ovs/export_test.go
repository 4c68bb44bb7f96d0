package ovs

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
)

// Flush returns when no tombstone is left, and no flow that is to go.
func (d *Driver) Flush(ctx context.Context) error {
	for lane := range uint64(8) { // an answer comes after all that was asked on its connection before
		if _, err := d.cfg.Flows.Flows(ctx, lane, ^uint64(0)); err != nil && !errors.Is(err, core.ErrUnavailable) {
			return err
		}
	}
	for {
		n, err := d.count(GroupTombstone)
		if err != nil || n == 0 {
			return err
		}
		if err := errors.Join(ctx.Err(), d.cfg.Reaper.Reap()); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
}

// Port is the port of a Spec, and what it cannot do of it.
func Port(t *testing.T, s core.Spec) (ovs.Port, []string) {
	t.Helper()
	n, err := nicOf(s)
	require.NoError(t, err)
	return portFor(n)
}
