package mux_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/mux"
)

// The rules themselves are held against kubelet's in internal/node/source's
// differential test; here is what it cannot see.

func newMux() *mux.Mux { return mux.New(slog.New(slog.DiscardHandler)) }

func pod(name string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	for _, do := range change {
		do(p)
	}
	return p
}

func image(i string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Image: i}} }
}

func ended(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func status(p *v1.Pod) { p.Status.Phase = v1.PodRunning }

// heard takes all updates that wait, in one line.
func heard(m *mux.Mux) string {
	var out []string
	for len(m.Updates()) > 0 {
		u := <-m.Updates()
		text := u.Op.String()
		for _, p := range u.Pods {
			text += " " + p.Name
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestOrder(t *testing.T) {
	m := newMux()
	require.NoError(t, m.Set(t.Context(), mux.File, []*v1.Pod{pod("a"), pod("b"), pod("c"), pod("d"), pod("e")}))
	require.Equal(t, "ADD a b c d e", heard(m))
	require.NoError(t, m.Set(t.Context(), mux.File, []*v1.Pod{
		pod("a", status), pod("b", ended), pod("c", image("i")), pod("f"), pod("e")}))
	require.Equal(t, "REMOVE d, ADD f, UPDATE c, DELETE b, RECONCILE a", heard(m))
	require.NoError(t, m.Set(t.Context(), mux.File, []*v1.Pod{
		pod("a", status), pod("b", ended), pod("c", image("i")), pod("f"), pod("e")}))
	require.Empty(t, heard(m), "the same list changes nothing")
	require.NoError(t, m.Set(t.Context(), mux.URL, nil))
	require.Equal(t, "ADD", heard(m), "a source that has nothing says so")
	require.NoError(t, m.Set(t.Context(), mux.URL, nil))
	require.Empty(t, heard(m), "once")
}

func TestReadyOnlyWhenAllHaveSpoken(t *testing.T) {
	m := newMux()
	require.True(t, m.AllReady(), "no source is waited for")
	file, url := m.Channel(t.Context(), mux.File), m.Channel(t.Context(), mux.URL)
	seen := map[string]bool{}
	next := func() mux.Op {
		u := <-m.Updates()
		seen[u.Source] = true
		return u.Op
	}
	file <- []*v1.Pod{pod("a")}
	require.Equal(t, mux.ADD, next())
	require.False(t, m.AllReady())
	require.False(t, m.SeenAllSources(seen))
	url <- nil
	require.Eventually(t, m.AllReady, time.Minute, time.Millisecond)
	require.False(t, m.SeenAllSources(seen), "the consumer has not taken it out")
	next()
	require.True(t, m.SeenAllSources(seen))
	m.Channel(t.Context(), mux.API)
	require.False(t, m.AllReady(), "a source that came later")
}

func TestSameChannelForTheSameSource(t *testing.T) {
	m := newMux()
	require.Equal(t, m.Channel(t.Context(), mux.File), m.Channel(t.Context(), mux.File))
}

// What the consumer does with its pods must not be taken for a change.
func TestPodsAreCopies(t *testing.T) {
	m := newMux()
	require.NoError(t, m.Set(t.Context(), mux.File, []*v1.Pod{pod("a", image("i"))}))
	u := <-m.Updates()
	seen := u.Pods[0].Annotations[mux.SeenKey]
	require.NotEmpty(t, seen)
	require.Equal(t, mux.File, u.Pods[0].Annotations[mux.SourceKey])
	u.Pods[0].Spec.Containers[0].Image = "changed"
	u.Pods[0].Annotations = nil
	require.NoError(t, m.Set(t.Context(), mux.File, []*v1.Pod{pod("a", image("i"))}))
	require.Empty(t, heard(m))
	require.NoError(t, m.Set(t.Context(), mux.File, []*v1.Pod{pod("a", image("j"))}))
	u = <-m.Updates()
	require.Equal(t, seen, u.Pods[0].Annotations[mux.SeenKey], "seen when it was added")
}

func TestSameNameIsTold(t *testing.T) {
	var log bytes.Buffer
	m := mux.New(slog.New(slog.NewTextHandler(&log, nil)))
	other := pod("a", image("j"))
	other.UID = "other"
	require.NoError(t, m.Set(t.Context(), mux.URL, []*v1.Pod{pod("a", image("i")), other}))
	u := <-m.Updates()
	require.Len(t, u.Pods, 1)
	require.Equal(t, "i", u.Pods[0].Spec.Containers[0].Image)
	require.Contains(t, log.String(), "pod=default/a uid=other")
}

// Sources wait for a consumer that does not, and nothing is lost; the end of
// the context sets them free.
func TestSlowConsumer(t *testing.T) {
	m := newMux()
	ctx, cancel := context.WithCancel(t.Context())
	var sources sync.WaitGroup
	for _, name := range []string{mux.File, mux.URL, mux.API} {
		c := m.Channel(ctx, name)
		sources.Go(func() {
			for i := range 40 {
				select {
				case c <- []*v1.Pod{pod("a", image(fmt.Sprint(i)))}:
				case <-ctx.Done():
				}
			}
		})
	}
	last := map[string]int{}
	for range 110 {
		u := <-m.Updates()
		require.Equal(t, fmt.Sprint(last[u.Source]), u.Pods[0].Spec.Containers[0].Image, "in order")
		last[u.Source]++
	}
	cancel()
	sources.Wait()
	require.ErrorIs(t, func() error {
		for {
			if err := m.Set(ctx, "x", []*v1.Pod{pod(fmt.Sprint(time.Now().UnixNano()))}); err != nil {
				return err
			}
		}
	}(), context.Canceled)
}

func TestOpNames(t *testing.T) {
	require.Equal(t, "[ADD DELETE REMOVE UPDATE RECONCILE unknown]",
		fmt.Sprint([]mux.Op{mux.ADD, mux.DELETE, mux.REMOVE, mux.UPDATE, mux.RECONCILE, 9}))
}
