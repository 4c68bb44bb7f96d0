package cluster

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/fairlead/fairlead/internal/source/cluster/health"
)

const (
	// listLimit bounds a list; a watch has the server's own time-out and is
	// proved alive by HTTP/2 pings.
	listLimit = 30 * time.Second
	// Pauses between two attempts. Pods wait for the server to come back, so
	// the longest is shorter than client-go's.
	firstPause, longestPause = 500 * time.Millisecond, 8 * time.Second
	calm                     = time.Minute // after which the pauses are short again
	// absentPause is added while a kind is not served: every node asks.
	absentPause = 12 * time.Second
)

// follow keeps m equal to what the server has, until ctx ends.
func follow[T any](ctx context.Context, m *mirror[T], lw *cache.ListWatch, example runtime.Object, h *health.Health) {
	// What the reflector would log is told by health and Problems.
	quiet := logr.Discard()
	ctx = logr.NewContext(ctx, quiet)
	pauses := wait.Backoff{Duration: firstPause, Cap: longestPause, Steps: 10, Factor: 2, Jitter: 0.5}
	r := cache.NewReflectorWithOptions(m.noting(lw, h), example, m,
		cache.ReflectorOptions{Logger: &quiet, Name: m.kind, TypeDescription: m.kind, Backoff: &pauses})
	// Until ends with ctx only: the function never says that it is done.
	_ = pauses.DelayWithReset(clock.RealClock{}, calm).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := r.ListAndWatchWithContext(ctx)
		if apierrors.IsNotFound(err) {
			// The kind's definition is not installed, or was removed.
			_ = m.absent() // an empty list has nothing that could fail
			select {
			case <-time.After(absentPause):
			case <-ctx.Done():
			}
		}
		return false, nil
	})
}

// noting watches the requests of a reflector: their outcome is what is known of
// the server's health, and of the right to read this kind.
func (m *mirror[T]) noting(lw *cache.ListWatch, h *health.Health) *cache.ListWatch {
	note := func(ctx context.Context, err error) {
		if ctx.Err() != nil {
			return
		}
		h.Note(err)
		if apierrors.IsNotFound(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			err = nil // absent is an answer; and 410 is mended by a list
		}
		m.blame(err)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			limited, stop := context.WithTimeout(ctx, listLimit)
			defer stop()
			list, err := lw.ListWithContextFunc(limited, o)
			note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchFuncWithContext(ctx, o)
			note(ctx, err)
			return w, err
		},
	}
}
