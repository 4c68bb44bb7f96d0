package login

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// deniedFor is how long a refusal counts of what is not tried again.
const deniedFor = 10 * time.Minute

// Refused tells an answer in which the server says no from a failure to answer.
func Refused(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Code > 0 && status.Status().Code < http.StatusInternalServerError
}

// Denials are the kinds of writes that the server refuses for want of the right,
// or of credentials, and when it did so last.
type Denials struct {
	mu   sync.Mutex
	last map[string]denial
}

type denial struct {
	err error
	at  time.Time
}

// Note takes the outcome of one write. What is refused because of the object that
// it is about is not meant: a namespace that is going takes no event.
func (d *Denials) Note(kind string, err error) {
	if err != nil && !Refused(err) {
		return // no answer: health tells it
	}
	denied := (apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	d.mu.Lock()
	defer d.mu.Unlock()
	if denied && d.last == nil {
		d.last = map[string]denial{}
	}
	if denied {
		d.last[kind] = denial{err, time.Now()}
	} else {
		delete(d.last, kind)
	}
}

// Err tells all that are refused. A refusal of what is not tried again, an event
// for one, counts for a while.
func (d *Denials) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(d.last)) {
		if one := d.last[kind]; time.Since(one.at) < deniedFor {
			errs = append(errs, fmt.Errorf("the API server refuses to let the agent write %s: %w", kind, one.err))
		}
	}
	return errors.Join(errs...)
}
