package source_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/node/source"
)

// FuzzFile reads any text as a file of pods: whatever it is, it is either pods
// that are complete or a Problem, and the same both times.
func FuzzFile(f *testing.F) {
	m := &maker{Rand: rand.New(rand.NewPCG(1, 2))}
	for range 30 {
		f.Add(m.text(m.pod()), false)
		f.Add(m.bad(), true)
	}
	f.Add(named("a")+"---\n"+named("b")+"...\n", true)
	f.Add("apiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: v1, kind: Pod}\n- *a\n", true)
	f.Add("--- {}\n---\n--- # x\n%YAML 1.1\n---\n", true)
	f.Fuzz(func(t *testing.T, text string, objects bool) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o600))
		read := func() ([]string, []source.Problem) {
			file := source.NewFile(source.FileConfig{Static: source.Static{Node: node, Objects: objects}, Path: dir, Log: quiet()})
			pods, err := file.List()
			require.NoError(t, err)
			var uids []string
			for _, p := range pods {
				require.NotEmpty(t, p.UID)
				require.NotEmpty(t, p.Namespace)
				require.NotEmpty(t, p.Spec.Containers)
				require.Equal(t, node, p.Spec.NodeName)
				require.Equal(t, string(p.UID), p.Annotations[source.HashKey])
				uids = append(uids, fmt.Sprint(p.Namespace, "/", p.Name, "/", p.UID))
			}
			return uids, file.Problems()
		}
		uids, problems := read()
		again, same := read()
		require.Equal(t, uids, again)
		require.Equal(t, problems, same)
		for _, p := range problems {
			require.NotEmpty(t, p.Reason)
			require.GreaterOrEqual(t, p.Line, 0)
		}
	})
}
