package source_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/local"
)

// TestAgentMeansTheSamePod: who runs the pods of a folder and who makes their
// networks take the same one of two by one name, whichever was there before, and
// after a restart of either.
func TestAgentMeansTheSamePod(t *testing.T) {
	dir := t.TempDir()
	pod := func(note string) string {
		return strings.Replace(named("x"), "{name: x}", "{name: x, annotations: {note: "+note+"}}", 1)
	}
	runs := newFile(dir)
	agree := func(want string) {
		t.Helper()
		agent, err := local.Open(dir, quiet())
		require.NoError(t, err)
		p, err := agent.Pod(t.Context(), core.Pod{Namespace: "default", Name: "x"})
		require.NoError(t, err)
		require.Equal(t, want, p.Annotations["note"])
		pods, err := runs.List()
		require.NoError(t, err)
		require.Len(t, pods, 1)
		require.Equal(t, want, pods[0].Annotations["note"])
		require.Len(t, agent.Problems(), len(runs.Problems()))
		for i, p := range agent.Problems() {
			require.Equal(t, runs.Problems()[i].Where, filepath.Join(dir, filepath.Base(p.File)), "the other one is left out by both")
		}
	}
	write(t, dir, "m.yaml", pod("m"))
	agree("m")
	write(t, dir, "z.yaml", pod("z"))
	agree("m")
	write(t, dir, "a.yaml", pod("a")+"---\n"+pod("second"))
	agree("a")
	write(t, dir, "a.yaml", pod("second")+"---\n"+pod("a"))
	agree("second")
}
