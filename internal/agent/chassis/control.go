package chassis

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
)

// asks is how long ovn-controller may take to answer; one that computes all flows
// of a large cluster answers after that.
const asks = 5 * time.Second

// Ask has the ovn-controller of a run directory carry out a command, and gives what
// it says (ovs-appctl(8)). core.ErrNotFound: none runs there, as far as its socket
// tells; core.ErrUnavailable: it does not answer.
func Ask(ctx context.Context, runDir, command string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, asks)
	defer stop()
	sockets, _ := filepath.Glob(filepath.Join(runDir, "ovn-controller.*.ctl")) // a folder that is no good pattern has none
	err := fmt.Errorf("control socket of ovn-controller in %s: %w", runDir, core.ErrNotFound)
	for _, socket := range sockets {
		said, aerr := ovs.Control(ctx, socket, command)
		if aerr == nil {
			return strings.TrimSpace(said), nil
		}
		err = fmt.Errorf("ovn-controller does not answer: %w: %w", core.ErrUnavailable, aerr)
	}
	return "", err
}

// recompute has ovn-controller compute all flows anew each time that Flags say: what
// it went wrong with by increments is put right so.
func (k *Keeper) recompute(ctx context.Context) {
	if k.cfg.Recompute == 0 {
		return
	}
	tick := time.NewTicker(k.cfg.Recompute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := Ask(ctx, k.cfg.RunDir, "inc-engine/recompute"); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("ovn-controller not told to compute its flows anew; told at the next time", "err", err)
		}
	}
}
