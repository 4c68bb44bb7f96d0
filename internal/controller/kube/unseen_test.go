package kube

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestOwnWriteIsAwaited: what was compared with an object from before the last
// write is not written. What is dropped goes in the same write.
func TestOwnWriteIsAwaited(t *testing.T) {
	t.Parallel()
	c := kubebed.Shared(t)
	ns := c.Namespace() // whose pod no other test's controller serves
	p := c.Apply(strings.ReplaceAll("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: NS}, spec: {hostNetwork: true, containers: [{name: c, image: none}]}}", "NS", ns))[0]
	as := c.Admin()
	as.UserAgent = "fairlead-controller/own"
	objects, err := New(as, slog.New(slog.DiscardHandler)) // not run: the test is its watch
	require.NoError(t, err)
	o := object.Object{Key: object.Key{Kind: object.KindPod, Namespace: ns, Name: "p"}, UID: string(p.GetUID())}
	store := objects.all[object.KindPod].GetStore()
	seen := func(version string) {
		require.NoError(t, store.Add(&item[object.Pod]{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: types.UID(o.UID), ResourceVersion: version}}))
	}
	mark := c.Mark()
	patches := func() int {
		return len(c.Requests(kubebed.Filter{Since: mark, UserAgent: as.UserAgent, Verbs: []string{"patch"}, Namespace: ns}))
	}

	seen(p.GetResourceVersion())
	for range 3 {
		require.NoError(t, objects.Annotate(t.Context(), o, map[string]string{"test/a": "1"}))
	}
	require.Equal(t, 1, patches())
	now, err := c.Client().CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	seen(now.ResourceVersion)
	require.NoError(t, objects.Annotate(t.Context(), o, map[string]string{"test/b": "2"}, "test/a"))
	require.Equal(t, 2, patches())
	now, err = c.Client().CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"test/b": "2"}, now.Annotations)
}

// failing fails the next request of a method, once.
type failing struct {
	http.RoundTripper
	method atomic.Pointer[string]
}

func (f *failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if next := f.method.Load(); next != nil && *next == r.Method {
		f.method.Store(nil)
		return nil, errors.New("the connection was cut")
	}
	return f.RoundTripper.RoundTrip(r)
}

func (f *failing) next(method string) { f.method.Store(&method) }

// TestReasonIsToldInTheEnd: who tells why a pod has no address hears of a write that failed,
// of the annotation or the event, and of one that was not made for want of the watch's news;
// it tells it again until both are there, and the last reason stands.
func TestReasonIsToldInTheEnd(t *testing.T) {
	t.Parallel()
	c := kubebed.Shared(t)
	ns := c.Namespace() // whose pod no other test's controller serves
	p := c.Apply(strings.ReplaceAll("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: NS}, spec: {hostNetwork: true, containers: [{name: c, image: none}]}}", "NS", ns))[0]
	as, faults := c.Admin(), &failing{}
	as.Wrap(func(rt http.RoundTripper) http.RoundTripper { faults.RoundTripper = rt; return faults })
	objects, err := New(as, slog.New(slog.DiscardHandler)) // not run: the test is its watch
	require.NoError(t, err)
	o := object.Object{Key: object.Key{Kind: object.KindPod, Namespace: ns, Name: "p"}, UID: string(p.GetUID())}
	now := func() *item[object.Pod] {
		got, err := c.Client().CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{})
		require.NoError(t, err)
		return &item[object.Pod]{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: types.UID(o.UID), ResourceVersion: got.ResourceVersion}, value: readPod(got),
		}
	}
	seen := func() { require.NoError(t, objects.all[object.KindPod].GetStore().Add(now())) }
	says := func(want string, events ...string) {
		t.Helper()
		require.Equal(t, want, now().value.Annotations[v1.AnnNoAddress])
		list, err := c.Client().CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		var got []string
		for _, e := range list.Items {
			got = append(got, e.Message)
		}
		require.ElementsMatch(t, events, got)
	}
	tell := func(why string) error {
		return objects.Warn(t.Context(), o, object.Event{Reason: "AcquireAddressFailed", Message: why, Unserved: true})
	}
	seen()
	faults.next(http.MethodPatch)
	require.ErrorContains(t, tell("full"), "the connection was cut")
	says("")
	faults.next(http.MethodPost)
	require.ErrorContains(t, tell("full"), "the connection was cut")
	says("full")
	require.ErrorIs(t, tell("shut"), core.ErrUnavailable)
	seen()
	require.NoError(t, tell("full"))
	says("full", "full")
	require.NoError(t, tell("shut"))
	says("shut", "full", "shut")
	require.ErrorIs(t, tell("full"), core.ErrUnavailable)
	seen()
	require.NoError(t, tell("full"))
	says("full", "full", "shut", "full")
}
