package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead/fairlead/internal/core"
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
	if refused(err) {
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

// refused tells an answer in which the server says no from a failure to answer.
func refused(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Code > 0 && status.Status().Code < http.StatusInternalServerError
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

// denials are the kinds of writes that the server refuses for want of the right,
// or of credentials, and when it did so last.
type denials struct {
	mu   sync.Mutex
	last map[string]denial
}

type denial struct {
	err error
	at  time.Time
}

// note takes the outcome of one write. What is refused because of the object that
// it is about is not meant: a namespace that is going takes no event.
func (d *denials) note(kind string, err error) {
	if err != nil && !refused(err) {
		return // no answer: health tells it
	}
	denied := (apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	d.mu.Lock()
	defer d.mu.Unlock()
	if denied {
		d.last[kind] = denial{err, time.Now()}
	} else {
		delete(d.last, kind)
	}
}

// err tells all that are refused. A refusal of what is not tried again, an event
// for one, counts for a while.
func (d *denials) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(d.last)) {
		if one := d.last[kind]; time.Since(one.at) < quietFor {
			errs = append(errs, fmt.Errorf("the API server refuses to let the agent write %s: %w", kind, one.err))
		}
	}
	return errors.Join(errs...)
}
