package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// health is whether the API server could be reached when it was last tried.
type health struct {
	log *slog.Logger

	mu    sync.Mutex
	err   error // nil while it answers
	since time.Time
	fell  chan struct{} // closed while err is not nil
}

func newHealth(log *slog.Logger) *health { return &health{log: log, fell: make(chan struct{})} }

// patient bounds a wait: by limit, and by downPatience from when the server is
// known to be away.
func (h *health) patient(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(ctx, limit)
	h.mu.Lock()
	fell := h.fell
	h.mu.Unlock()
	go func() {
		select {
		case <-ctx.Done():
		case <-fell:
			pause(ctx, downPatience)
			stop()
		}
	}()
	return ctx, stop
}

// note takes the outcome of one request. A server that refuses us is there; one
// that cannot answer (etcd gone, starting) is as good as away.
func (h *health) note(err error) {
	if errors.Is(err, context.Canceled) {
		return // our own doing
	}
	if login.Refused(err) {
		err = nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && h.err == nil:
		h.since = time.Now()
		close(h.fell)
		h.log.Warn("API server not reached; what is known stays in force", "err", err)
	case err == nil && h.err != nil:
		h.fell = make(chan struct{})
		h.log.Info("API server reached again", "away", time.Since(h.since).Round(time.Second))
	}
	h.err = err
}

// down is why the server cannot be reached, nil while it can as far as known.
func (h *health) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return nil
	}
	return fmt.Errorf("%w: the API server is not reached since %s: %w", core.ErrUnavailable, h.since.Format(time.RFC3339), h.err)
}
