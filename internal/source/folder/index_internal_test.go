package folder

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNodesAreNotKept: what only errors need, the nodes of a document, is no longer in
// memory once it was read; lines are told all the same, in YAML, JSON and items of a list.
func TestNodesAreNotKept(t *testing.T) {
	const text = `# one
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  hostNetwork: true
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: b
---
{"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "c"}}
`
	f := Parse("objects.yaml", []byte(text), []Kind{{Name: "Pod", APIVersion: "v1", Namespaced: true}})
	require.Empty(t, f.Problems())
	require.Len(t, f.Objects, 3)
	for range 2 {
		runtime.GC()
	}
	want := map[string][2]int{"a": {7, 5}, "b": {14, 15}, "c": {17, 18}} // lines of spec.hostNetwork, or what is nearest, and of the name
	for _, o := range f.Objects {
		require.Nil(t, o.index.tree.root.Value(), o.ID)
		nearest := "spec.hostNetwork"
		if o.ID.Name == "b" {
			nearest = "metadata"
		}
		require.Equal(t, want[o.ID.Name], [2]int{o.LineOf(nearest), o.LineOf("metadata.name")}, o.ID)
	}
}
