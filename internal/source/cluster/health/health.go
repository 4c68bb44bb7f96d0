// Package health is what is known of an API server beside its objects: whether it can be
// reached, and whether its database is still the one that it was. It asks nothing itself.
package health

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

// Health is whether the API server could be reached when it was last tried.
type Health struct {
	log *slog.Logger

	mu    sync.Mutex
	err   error // nil while it answers
	since time.Time
	fell  chan struct{} // closed while err is not nil
	falls int
}

// New makes the Health of a server of which nothing is known.
func New(log *slog.Logger) *Health { return &Health{log: log, fell: make(chan struct{})} }

// Patient bounds a wait: by limit, and by down from when the server is known to be away.
func (h *Health) Patient(ctx context.Context, limit, down time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(ctx, limit)
	h.mu.Lock()
	fell := h.fell
	h.mu.Unlock()
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-fell:
		}
		select {
		case <-ctx.Done():
		case <-time.After(down):
			stop()
		}
	}()
	return ctx, stop
}

// Note takes the outcome of one request. A server that refuses us is there; one
// that cannot answer (etcd gone, starting) is as good as away.
func (h *Health) Note(err error) {
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
		h.falls++
		close(h.fell)
		h.log.Warn("API server not reached; what is known stays in force", "err", err)
	case err == nil && h.err != nil:
		h.fell = make(chan struct{})
		h.log.Info("API server reached again", "away", time.Since(h.since).Round(time.Second))
	}
	h.err = err
}

// Down is why the server cannot be reached, nil while it can as far as known.
func (h *Health) Down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return nil
	}
	return fmt.Errorf("%w: the API server is not reached since %s: %w", core.ErrUnavailable, h.since.Format(time.RFC3339), h.err)
}

// Falls counts how often the server went away.
func (h *Health) Falls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.falls
}
