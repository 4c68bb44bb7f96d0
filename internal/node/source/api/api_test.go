package api_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/source/api"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// patience bounds what a test waits for; nothing is measured by it.
const patience = time.Minute

func pod(ns, name, node, image string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {nodeName: %s, "+
		"automountServiceAccountToken: false, containers: [{name: c, image: %s}]}}", name, ns, node, image)
}

// said is a log that may be read while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// start runs a source into a mux until the test ends.
func start(t *testing.T, cfg api.Config) (*api.Source, *mux.Mux, *said) {
	t.Helper()
	log := &said{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	s, err := api.New(cfg)
	require.NoError(t, err)
	m := mux.New(cfg.Log)
	ctx, cancel := context.WithCancel(t.Context())
	lists, done := m.Channel(ctx, mux.API), make(chan error, 1)
	go func() { done <- s.Run(ctx, lists) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return s, m, log
}

// next is the next update, in one line, and its pods.
func next(t *testing.T, m *mux.Mux) (string, []*v1.Pod) {
	t.Helper()
	select {
	case u := <-m.Updates():
		text := u.Op.String()
		for _, p := range u.Pods {
			text += " " + p.Name
		}
		return text, u.Pods
	case <-time.After(patience):
		t.Fatal("nothing was heard")
		return "", nil
	}
}

func hears(t *testing.T, m *mux.Mux, want string) []*v1.Pod {
	t.Helper()
	text, pods := next(t, m)
	require.Equal(t, want, text)
	return pods
}

func TestPodsOfTheNode(t *testing.T) {
	c := kube.Shared(t)
	ns := c.Namespace()
	node := ns // of the test's own
	c.Apply(pod(ns, "other", "elsewhere", "i"))
	c.Apply(pod(ns, "b", node, "i"))
	c.Apply(pod(ns, "a", node, "i"))
	after := make(chan struct{})
	s, m, _ := start(t, api.Config{Server: c.Admin(), Node: node, After: after})
	require.False(t, m.AllReady(), "it waits for the node")
	close(after)
	pods := hears(t, m, "ADD a b")
	require.Equal(t, "i", pods[0].Spec.Containers[0].Image)
	require.Equal(t, mux.API, pods[0].Annotations[mux.SourceKey])
	require.NotEmpty(t, pods[0].UID)
	require.NoError(t, s.Err())

	c.Apply(pod(ns, "a", node, "j"))
	require.Equal(t, "j", hears(t, m, "UPDATE a")[0].Spec.Containers[0].Image)
	c.Kubectl("-n", ns, "label", "pod", "b", "x=y")
	hears(t, m, "UPDATE b")
	_, err := c.Client().CoreV1().Pods(ns).Patch(t.Context(), "a", "application/merge-patch+json",
		[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	hears(t, m, "RECONCILE a")
	// A graceful end: the API server waits for the node to confirm it.
	require.NoError(t, c.Client().CoreV1().Pods(ns).Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.NotNil(t, hears(t, m, "DELETE a")[0].DeletionTimestamp)
	c.Delete(pod(ns, "a", node, "j"))
	for text := ""; text != "REMOVE a"; { // grace 0 may be heard as one more DELETE
		text, _ = next(t, m)
		require.Contains(t, []string{"DELETE a", "REMOVE a"}, text)
	}
	c.Apply(pod(ns, "a", node, "i"))
	hears(t, m, "ADD a")
	c.Delete(pod(ns, "a", node, "i"))
	c.Delete(pod(ns, "b", node, "i"))
	for removed := 0; removed < 2; {
		if text, _ := next(t, m); text == "REMOVE a" || text == "REMOVE b" {
			removed++
		}
	}
}

func TestNodeWithoutPodsIsReady(t *testing.T) {
	c := kube.Shared(t)
	_, m, _ := start(t, api.Config{Server: c.Admin(), Node: c.Namespace()})
	hears(t, m, "ADD")
	require.Eventually(t, m.AllReady, patience, time.Millisecond)
}

// While the server is away nothing is removed, and what happened meanwhile is
// heard once it is back.
func TestServerAway(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	ns := c.Namespace()
	for _, name := range []string{"a", "b"} {
		c.Apply(pod(ns, name, "node", "i"))
	}
	c.Stop()
	s, m, log := start(t, api.Config{Server: c.Admin(), Node: "node"})
	require.Eventually(t, func() bool { return s.Err() != nil }, patience, time.Millisecond)
	require.False(t, m.AllReady(), "nothing is known: not the same as no pods")
	require.Empty(t, m.Updates())
	c.Restart()
	hears(t, m, "ADD a b")
	c.Stop()
	require.Eventually(t, func() bool { return s.Err() != nil }, patience, time.Millisecond)
	require.Empty(t, m.Updates())
	c.Restart()
	c.Delete(pod(ns, "b", "node", "i"))
	for text := ""; text != "REMOVE b"; {
		text, _ = next(t, m)
		require.Contains(t, []string{"DELETE b", "REMOVE b", "RECONCILE a"}, text)
	}
	require.Eventually(t, func() bool { return s.Err() == nil }, patience, time.Millisecond)
	require.Contains(t, log.String(), "those that are known stay")
	require.Contains(t, log.String(), "again")
}

func TestRefused(t *testing.T) {
	c := kube.Shared(t)
	s, m, _ := start(t, api.Config{Server: c.User("nobody"), Node: "node"})
	require.Eventually(t, func() bool { return s.Err() != nil }, patience, time.Millisecond)
	require.ErrorContains(t, s.Err(), "forbidden")
	require.False(t, m.AllReady())
}
