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
	return core.Spec{
		Key: core.Key{Container: container, IfName: "eth0"}, Driver: "ovs",
		NIC: &core.NICSpec{OVS: &core.OVSPort{HostIf: container + "_h"}},
	}
}

// TestAdoptedBareContainer: an attachment without a pod has none in the log.
func TestAdoptedBareContainer(t *testing.T) {
	e, log := newNode(t, &nics{}), &bytes.Buffer{}
	e.Log = slog.New(slog.NewTextHandler(log, nil))
	withPod := readBack("c2")
	withPod.Pod = core.Pod{Namespace: "default", Name: "p"}
	require.NoError(t, e.adopt(t.Context(), []core.Spec{readBack("c1"), withPod}))
	require.Contains(t, log.String(), "container=c1 pod=- ")
	require.Contains(t, log.String(), "container=c2 pod=default/p ")
}

// TestAdoptWaitsForTheTurn: a container that an operation works on is adopted
// when that is over, and until then the journal is not whole.
func TestAdoptWaitsForTheTurn(t *testing.T) {
	e := newNode(t, &nics{})
	specs := []core.Spec{readBack("c1"), readBack("c2")}
	unlock, ok := e.queue.TryLock("c1")
	require.True(t, ok)
	err := e.adopt(t.Context(), specs)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorContains(t, err, "c1")
	require.Empty(t, e.Journal.Container("c1"))
	require.Len(t, e.Journal.Container("c2"), 1)
	require.False(t, e.Journal.Whole())
	unlock()
	require.NoError(t, e.adopt(t.Context(), specs))
	require.Len(t, e.Journal.Container("c1"), 1)
	require.True(t, e.Journal.Whole())
}
