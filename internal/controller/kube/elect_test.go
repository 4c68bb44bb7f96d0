package kube_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/internal/controller/kube"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
)

// candidate takes part in an election until stop.
type candidate struct {
	leads   atomic.Bool
	cut     atomic.Bool // it does not reach the database
	terms   atomic.Int32
	resigns chan struct{}
	stop    func()
}

// electorate is the candidates of one Lease.
type electorate struct {
	t     *testing.T
	c     *kubebed.Cluster
	ns    string
	lease time.Duration
	// before is called before each request of those who join; nil for nothing.
	before func(*http.Request)
}

// asking calls what it is before each request.
type asking struct {
	http.RoundTripper
	before func(*http.Request)
}

func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	a.before(r)
	return a.RoundTripper.RoundTrip(r)
}

func (e *electorate) join(id string) *candidate {
	e.t.Helper()
	out := &candidate{resigns: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	config := e.c.Admin()
	if e.before != nil {
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return asking{rt, e.before} })
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := kube.Elect(ctx, config, kube.Election{
			Namespace: e.ns, Name: "controller", ID: id, Lease: cmp.Or(e.lease, 2*time.Second), Log: slog.New(slog.DiscardHandler),
			Reach: func(context.Context) error {
				if out.cut.Load() {
					return errors.New("cut")
				}
				return nil
			},
			Lead: func(ctx context.Context) {
				out.leads.Store(true)
				defer out.leads.Store(false)
				out.terms.Add(1)
				select {
				case <-ctx.Done():
				case <-out.resigns:
				}
			},
		})
		if err != nil {
			e.t.Error(err)
		}
	})
	out.stop = func() { cancel(); wg.Wait() }
	e.t.Cleanup(out.stop)
	return out
}

// holder is who has the Lease, "" for nobody.
func (e *electorate) holder() string {
	e.t.Helper()
	client, err := kubernetes.NewForConfig(e.c.Admin())
	require.NoError(e.t, err)
	l, err := client.CoordinationV1().Leases(e.ns).Get(e.t.Context(), "controller", metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// TestElection: who does not reach the database neither takes the Lease nor
// keeps it from one who does; while none reaches it the leader stays.
func TestElection(t *testing.T) {
	t.Parallel()
	c := kubebed.Shared(t)
	e := &electorate{t: t, c: c, ns: c.Namespace()}
	until := func(is func() bool, what string) { t.Helper(); require.Eventually(t, is, patience, tick, what) }

	a := e.join("a")
	until(a.leads.Load, "a leads")
	require.Equal(t, "a", e.holder())
	b := e.join("b")

	a.cut.Store(true)
	until(b.leads.Load, "b, which reaches the database, replaces a")
	until(func() bool { return !a.leads.Load() }, "a ends")
	require.Equal(t, "b", e.holder())

	// Nobody reaches it. The Lease runs out several times over.
	b.cut.Store(true)
	renewed := func() time.Time {
		client, err := kubernetes.NewForConfig(c.Admin())
		require.NoError(t, err)
		l, err := client.CoordinationV1().Leases(e.ns).Get(t.Context(), "controller", metav1.GetOptions{})
		require.NoError(t, err)
		return l.Spec.RenewTime.Time
	}
	until(func() bool { return time.Since(renewed()) > 6*time.Second }, "the Lease has run out")
	require.True(t, b.leads.Load(), "the leader stays")
	require.False(t, a.leads.Load())
	require.EqualValues(t, 1, b.terms.Load(), "it led without a break")

	a.cut.Store(false)
	until(a.leads.Load, "a reaches it first")
	until(func() bool { return !b.leads.Load() }, "b ends")

	// A leader that cannot go on gives the Lease back, and so does one that ends.
	b.cut.Store(false)
	a.resigns <- struct{}{}
	until(func() bool { return a.leads.Load() || b.leads.Load() }, "somebody leads")
	a.stop()
	until(b.leads.Load, "b leads after a has ended")
	b.stop()
	require.Empty(t, e.holder(), "the last one gives the Lease back")
}

// TestLeaseIsAnothers: a leader whose Lease another has taken meanwhile does not
// give it back for that other.
func TestLeaseIsAnothers(t *testing.T) {
	t.Parallel()
	c := kubebed.Shared(t)
	e := &electorate{t: t, c: c, ns: c.Namespace()}
	a := e.join("a")
	require.Eventually(t, a.leads.Load, patience, tick)
	client, err := kubernetes.NewForConfig(c.Admin())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the leader renews between: read, change, write is repeated
		l, err := client.CoordinationV1().Leases(e.ns).Get(t.Context(), "controller", metav1.GetOptions{})
		require.NoError(t, err)
		other, now := "other", metav1.NowMicro()
		l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.AcquireTime = &other, &now, &now
		_, err = client.CoordinationV1().Leases(e.ns).Update(t.Context(), l, metav1.UpdateOptions{})
		return err == nil
	}, patience, time.Millisecond)
	a.stop()
	require.Equal(t, "other", e.holder())
}

// TestLeaseChanged: a leader that ends gives the Lease back also where it is written between its
// look and its word, as by a renewal that was under way.
func TestLeaseChanged(t *testing.T) {
	t.Parallel()
	c := kubebed.Shared(t)
	client, err := kubernetes.NewForConfig(c.Admin())
	require.NoError(t, err)
	e := &electorate{t: t, c: c, ns: c.Namespace(), lease: time.Minute} // it is not renewed for seconds
	var ends, changed atomic.Bool
	e.before = func(r *http.Request) {
		if r.Method != http.MethodPut || !ends.Load() || changed.Swap(true) {
			return
		}
		_, err := client.CoordinationV1().Leases(e.ns).Patch(context.Background(), "controller", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{})
		assert.NoError(t, err)
	}
	a := e.join("a")
	require.Eventually(t, a.leads.Load, patience, tick)
	ends.Store(true)
	a.stop()
	require.True(t, changed.Load())
	require.Empty(t, e.holder())
}
