package folder_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/source/folder"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// texts are documents that YAML's dialects disagree about. K is a kind and its
// apiVersion.
var texts = map[string]string{
	"yes":             "K, metadata: {name: a}, spec: {default: yes, a: No, b: on, c: y, d: 'yes'}}",
	"numbers":         "K, metadata: {name: a}, spec: {a: 0o17, b: 017, c: 1_000, d: 0x1F, e: 1e3, f: 190:20:30, g: 12345678901234567890, h: 1.0, i: +1}}",
	"a date":          "K, metadata: {name: a}, spec: {a: 2001-12-14, b: 2001-12-14t21:59:43.10-05:00}}",
	"nulls":           "K, metadata: {name: a}, spec: {a: ~, b: null, c: , d: Null, e: ''}}",
	"a merge key":     "K, metadata: {name: a}, spec: {a: &a {x: 1, y: 2}, b: {<<: *a, y: 3}, c: {y: 4, <<: *a}, d: {<<: [*a, {z: 5}]}}}",
	"merged metadata": "K, metadata: {<<: {name: a, labels: {x: y}}}}",
	"anchors":         "K, metadata: {name: &n a}, spec: {a: *n, b: &l [1, 2], c: *l}}",
	"keys twice":      "K, metadata: {name: b, name: a}, spec: {a: 1, a: 2}}",
	"JSON keys twice": `J, "metadata": {"name": "b", "name": "a"}, "spec": {"a": 1, "a": 2}}`,
	"keys no text":    "K, metadata: {name: a}, spec: {1: a, yes: b, 1.5: c, ~: d}}",
	"number keys":     "K, metadata: {name: a}, spec: {1: a, yes: b, 1.5: c}}",
	"a list as a key": "K, metadata: {name: a}, spec: {[a]: b}}",
	"binary":          "K, metadata: {name: a}, spec: {a: !!binary aGk=}}",
	"a tag":           "K, metadata: {name: a}, spec: {a: !x y, b: !!str 7}}",
	"infinity":        "K, metadata: {name: a}, spec: {a: .inf}}",
	"tabs in YAML":    "K,\n\tmetadata: {name: a}}",
	"tab indent":      "B\nmetadata:\n\tname: a\n",
	"tabs in JSON":    "{\n\t\"apiVersion\": \"kubeovn.io/v1\",\n\t\"kind\": \"Subnet\", \"metadata\": {\"name\": \"a\"}}",
	"JSON escapes":    `J, "metadata": {"name": "a"}, "spec": {"a": "\ud83d\ude00 \/ \u00e4"}}`,
	"JSON objects":    `J, "metadata": {"name": "a"}}J, "metadata": {"name": "b"}}` + "\n" + `J, "metadata": {"name": "c"}}`,
	"documents":       "---\nK, metadata: {name: a}}\n---\n# none\n---\n\n--- # more\nK, metadata: {name: b}}\n...\n",
	"CRLF":            "B\r\nmetadata:\r\n  name: a\r\nspec:\r\n  a: |\r\n    one\r\n    two\r\n---\r\nB\r\nmetadata: {name: b}\r\n",
	"BOM":             "\ufeffB\nmetadata: {name: a}\n",
	"BOM and JSON":    "\ufeff" + `J, "metadata": {"name": "a"}}`,
	"BOM and marker":  "\ufeff---\nB\nmetadata: {name: a}\n---\n\ufeffB\nmetadata: {name: b}\n",
	"JSON and marker": "---\n{\n\t\"apiVersion\": \"kubeovn.io/v1\", \"kind\": \"Subnet\", \"metadata\": {\"name\": \"a\"}}\n",
	"a list":          "apiVersion: v1\nkind: List\nitems:\n- K, metadata: {name: a}}\n- K, metadata: {name: b}, spec: {default: yes}}\n",
	"a typed list":    "apiVersion: kubeovn.io/v1\nkind: SubnetList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
	"an empty list":   "apiVersion: v1\nkind: List\nitems: []\n",
	"no kind":         "apiVersion: kubeovn.io/v1\nmetadata: {name: a}\n",
	"a sequence":      "- K, metadata: {name: a}}\n",
	"a scalar":        "hello\n",
	"block scalars":   "B\nmetadata: {name: a}\nspec:\n  a: >-\n    one\n    two\n\n  b: |+\n    x\n\n  c: \"q\\x41\\u00e4\"\n",
	"half a file":     "B\nmetadata: {name: a}\nspec:\n  a: [1, 2",
	"mapping in one":  "B\nmetadata: {name: a}\nspec: a: b\n",
	"NUL":             "K, metadata: {name: a}, spec: {a: \"\x00\"}}",
}

// subnet makes a text one of Subnets.
func subnet(text string) string {
	return strings.NewReplacer("K,", "{apiVersion: kubeovn.io/v1, kind: Subnet,", "J,", `{"apiVersion": "kubeovn.io/v1", "kind": "Subnet",`,
		"B\n", "apiVersion: kubeovn.io/v1\nkind: Subnet\n", "B\r\n", "apiVersion: kubeovn.io/v1\r\nkind: Subnet\r\n").Replace(text)
}

// kubectl reads a file and gives the objects, and whether it stopped at one.
func kubectl(t *testing.T, file string) (objects []any, stopped string) {
	t.Helper()
	dir, err := kube.Programs()
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(dir, "kubectl"), "annotate", "--local", "-f", file, "-o", "json", "read=it")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		stopped = stderr.String()
		require.NotEmpty(t, stopped)
	}
	for d := json.NewDecoder(&stdout); ; {
		var v map[string]any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return objects, stopped
		}
		require.NoError(t, err)
		unmark(v)
		objects = append(objects, v)
	}
}

// unmark takes away what kubectl was told to add.
func unmark(object map[string]any) {
	meta, _ := object["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	if delete(notes, "read"); len(notes) == 0 {
		delete(meta, "annotations")
	}
}

// TestSameAsKubectl: kubectl takes the same texts, and takes them for the same
// objects.
func TestSameAsKubectl(t *testing.T) {
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			file := write(t, t.TempDir(), "f.yaml", subnet(text))
			theirs, stopped := kubectl(t, file)
			ours := folder.Parse(file, []byte(subnet(text)), folder.Kinds())
			var objects []any
			for _, o := range ours.Objects {
				// Of items whose list tells the kind kubectl writes it into each.
				v := map[string]any{"apiVersion": "kubeovn.io/v1", "kind": o.ID.Kind}
				require.NoError(t, json.Unmarshal(o.JSON, &v))
				objects = append(objects, v)
			}
			require.Equal(t, theirs, objects, "kubectl says %s we say %v", stopped, ours.Problems())
			require.Equal(t, stopped != "", len(ours.Refused) > 0, "kubectl says %q, we say %v", stopped, ours.Problems())
		})
	}
}

// TestUnlikeKubectl lists what we do otherwise, so that nothing is lost without a
// word, and what is wrong leaves out itself alone.
func TestUnlikeKubectl(t *testing.T) {
	for _, c := range []struct {
		name, text     string
		theirs, ours   int // objects taken
		stopped, wrong bool
	}{
		{"kubectl reads nothing behind what is wrong", "K, metadata: {name: a}}\n---\nkind: [\n---\nK, metadata: {name: b}}\n", 1, 2, true, true},
		{"kubectl drops what stands behind the end of a document", "B\nmetadata: {name: a}\n...\nB\nmetadata: {name: b}\n", 1, 0, false, true},
		{"kubectl stops at a document that begins at its marker", "--- K, metadata: {name: a}}\n", 0, 1, true, false},
		{"kubectl takes a directive for a document and stops", "%YAML 1.1\n---\nK, metadata: {name: a}}\n", 0, 1, true, true},
		{"kubectl knows no lists in lists", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: [K, metadata: {name: a}}]}]\n", 0, 1, true, false},
		{"a file in which nothing stands may be half written", "", 0, 0, false, true},
		{"and one of words alone", "# words\n---\nnull\n", 0, 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, t.TempDir(), "f.yaml", subnet(c.text))
			theirs, stopped := kubectl(t, file)
			ours := folder.Parse(file, []byte(subnet(c.text)), folder.Kinds())
			require.Len(t, theirs, c.theirs, stopped)
			require.Equal(t, c.stopped, stopped != "", stopped)
			require.Len(t, ours.Objects, c.ours, "%v", ours.Problems())
			require.Equal(t, c.wrong, len(ours.Refused) > 0, "%v", ours.Problems())
		})
	}
}
