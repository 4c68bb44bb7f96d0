package engine

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
)

// newNode is an engine whose journal is new: nobody knows yet what is attached.
func newNode(t *testing.T, d *nics) *Engine {
	t.Helper()
	e := newEngine(t, d)
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	e.Journal = j
	return e
}

// readBack is a Spec as the fabric finds it: of a namespace that is gone.
func readBack(container string) core.Spec {
	return core.Spec{Key: core.Key{Container: container, IfName: "eth0"}, Driver: "ovs", HostIf: container + "_h"}
}

// TestAdoptedBareContainer: an attachment without a pod has none in the log.
func TestAdoptedBareContainer(t *testing.T) {
	e, log := newNode(t, &nics{}), &bytes.Buffer{}
	e.Log = slog.New(slog.NewTextHandler(log, nil))
	withPod := readBack("c2")
	withPod.Pod = core.Pod{Namespace: "default", Name: "p"}
	require.NoError(t, e.Adopt(t.Context(), []core.Spec{readBack("c1"), withPod}))
	require.Contains(t, log.String(), "container=c1 pod=- ")
	require.Contains(t, log.String(), "container=c2 pod=default/p ")
}
