package yamldoc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/yamldoc"
)

const file = `# nothing
---
a:
  - x: 1
    "y.z": &one {k: v}
  - *one
--- {b: 2}
---
c: [1
`

func TestWhereThingsStand(t *testing.T) {
	chunks := yamldoc.Split([]byte(file))
	require.Len(t, chunks, 4)
	var lines []int
	var empty []bool
	for _, c := range chunks {
		lines, empty = append(lines, c.Line), append(empty, c.Empty())
	}
	require.Equal(t, []int{1, 2, 7, 8}, lines)
	require.Equal(t, []bool{true, false, false, false}, empty)

	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(chunks[1].Text, &doc))
	x := yamldoc.Index{Root: doc.Content[0], Base: chunks[1].Line}
	for path, want := range map[string]int{"": 3, "a": 3, "a[0].x": 4, "a[0].none.deeper": 4, "a[1].k": 5, "a[7]": 3, "nothing": 3} {
		require.Equal(t, want, x.LineOf(path), path)
	}
	require.Equal(t, 9, yamldoc.Index{Base: 9}.LineOf("a.b"))

	_, ours := kyaml.YAMLToJSON(chunks[3].Text)
	for _, err := range []error{yaml.Unmarshal(chunks[3].Text, &doc), ours} {
		line, reason := chunks[3].Syntax(err)
		require.Contains(t, []int{8, 9, 10}, line, "the parsers do not agree where it is")
		require.Regexp(t, "^not YAML: did not find expected", reason)
	}
}

// TestJSON: what is JSON is read as such, all else as YAML, and nothing that
// stands behind an object is lost.
func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": "x\/y \ud83d\ude00"}`:      `{"a": "x\/y \ud83d\ude00"}`,
		"---\n{\n\t\"a\": \"\\/\"\n}\n":   "{\n\t\"a\": \"\\/\"\n}",
		"{a: b, c: [d, 1]}":               `{"a":"b","c":["d",1]}`,
		"--- {a: b} # said\n...\n":        `{"a":"b"}`,
		"# said\n{a: yes}":                `{"a":true}`,
		"a: b\n":                          `{"a":"b"}`,
		"a: [\n":                          "yaml: line 1",
		"{a: b":                           "yaml: line 1",
		"{a: b}\n{c: d}":                  "yaml: something stands behind",
		`{"a": 1}{"b": 2}`:                "yaml: something stands behind",
		"{\"a\": 1}\n# said\n...\nc: d\n": "yaml: something stands behind",
	} {
		got, err := yamldoc.Split([]byte(text))[strings.Count(text, "---")].JSON()
		if err != nil {
			got = []byte(err.Error())
		}
		require.Contains(t, string(got), want, text)
	}
}
