package folder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/source/folder"
)

// TestLinesBehindAliases: where the fields of documents, of values of JSON and of items of a list stand,
// also behind an alias, of a key that stands twice, and of fields that are not there.
func TestLinesBehindAliases(t *testing.T) {
	const text = `# one
---
apiVersion: v1
kind: Pod
metadata: &m
  name: a
  labels: &l {x.y/z: "1"}
spec:
  hostNetwork: true
  again: 1
  again: 2
  copy: *m
  list: [*l,
    {q: 1}]
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
	f := folder.Parse("objects.yaml", []byte(text), []folder.Kind{{Name: "Pod", APIVersion: "v1", Namespaced: true}})
	require.Len(t, f.Objects, 3)
	for i, want := range []map[string]int{
		{
			"": 3, "metadata.name": 6, "metadata.none": 5, "spec.hostNetwork": 9, "spec.again": 11, "spec.copy.name": 6, "spec.copy.none": 12,
			"spec.list[0].none": 13, "spec.list[1].q": 14, "spec.list[2]": 13, "none": 3, "metadata.name.more": 6,
		},
		{"": 19, "metadata": 21, "metadata.name": 22, "spec": 19},
		{"": 24, "metadata": 25, "metadata.name": 25},
	} {
		for path, line := range want {
			require.Equal(t, line, f.Objects[i].LineOf(path), "object %d, %s", i, path)
		}
	}
	require.Equal(t, 7, f.Objects[0].LineOfKey("metadata.labels", "x.y/z"))
	require.Equal(t, 7, f.Objects[0].LineOfKey("spec.copy.labels", "x.y/z"), "where the alias leads")
	require.Equal(t, 7, f.Objects[0].LineOfKey("metadata.labels", "none"))
}
