package up

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/node/object"
	"github.com/fairlead/fairlead/internal/node/source"
	"github.com/fairlead/fairlead/internal/source/folder"
	"github.com/fairlead/fairlead/internal/source/local"
)

// parts are all that read the folder of `fairlead up`.
type parts struct {
	t       *testing.T
	o       Config
	log     bytes.Buffer
	network *local.Source
	pods    *source.File
	objects *object.Folder
}

func newParts(t *testing.T, files map[string]string) *parts {
	t.Helper()
	p := &parts{t: t, o: Config{Dir: t.TempDir(), NodeName: "node"}}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(p.o.Dir, name), []byte(text), 0o600))
	}
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	p.o.openFolder(log)
	var err error
	p.network, err = local.Over(p.o.folder, log)
	require.NoError(t, err)
	p.pods = source.NewFile(source.FileConfig{
		Static: source.Static{Node: "node", Shared: true, Objects: true}, Path: p.o.Dir, Folder: p.o.reads(p.o.Dir), Log: log,
	})
	p.objects = object.Over(p.o.folder, log)
	return p
}

// taken are the objects of some names that each part has, with their note.
func (p *parts) taken(names ...string) map[string][]string {
	p.t.Helper()
	out := map[string][]string{}
	for _, name := range names {
		if pod, err := p.network.Pod(p.t.Context(), core.Pod{Namespace: "default", Name: name}); err == nil {
			out["agent"] = append(out["agent"], name+"="+pod.Annotations["note"])
		}
		if m, err := p.objects.ConfigMap("default", name); err == nil {
			out["objects"] = append(out["objects"], name+"="+m.Annotations["note"])
		}
	}
	pods, err := p.pods.List()
	require.NoError(p.t, err)
	declared, _, err := p.o.looker().Declared()
	require.NoError(p.t, err)
	for who, list := range map[string][]*v1.Pod{"node loop": pods, "up": declared} {
		for _, pod := range list {
			out[who] = append(out[who], strings.TrimSuffix(pod.Name, "-node")+"="+pod.Annotations["note"])
		}
		slices.Sort(out[who])
	}
	return out
}

// TestOneReader: what stands in a folder is the same to the agent, to the node
// loop with its objects, and to `up`. POD is the beginning of a document, which
// is one of a ConfigMap for those that want one.
func TestOneReader(t *testing.T) {
	const spec = "spec: {hostNetwork: yes, containers: [{name: c, image: i}]}"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"plain":           {"POD\nmetadata: {name: a, annotations: {note: x}}\nSPEC\n", []string{"a=x"}},
		"a merge key":     {"POD\nmetadata: {<<: {name: b, annotations: {note: x}}, name: a}\nSPEC\n", []string{"a=x"}},
		"anchors":         {"POD\nmetadata: {name: &n a, annotations: {note: *n}}\nSPEC\n", []string{"a=a"}},
		"keys twice":      {"POD\nmetadata: {name: b, name: a, annotations: {note: x, note: z}}\nSPEC\n", []string{"a=z"}},
		"yes is no text":  {"POD\nmetadata: {name: a, annotations: {note: yes}}\nSPEC\n", nil},
		"nor is a number": {"POD\nmetadata: {name: a, annotations: {note: 7}}\nSPEC\n", nil},
		"null is none":    {"POD\nmetadata: {name: a, annotations: {note: }}\nSPEC\n", []string{"a="}},
		"a name like yes": {"POD\nmetadata: {name: yes}\nSPEC\n", nil},
		"tabs":            {"POD\nmetadata:\n\tname: a\nSPEC\n", nil},
		"documents":       {"---\nPOD\nmetadata: {name: a}\nSPEC\n---\n# none\n---\nPOD\nmetadata: {name: b}\nSPEC\n", []string{"a=", "b="}},
		"a bad one":       {"POD\nmetadata: {name: a}\nSPEC\n---\nkind: [\n---\nPOD\nmetadata: {name: b}\nSPEC\n", []string{"a=", "b="}},
		"behind the end":  {"POD\nmetadata: {name: a}\nSPEC\n...\nPOD\nmetadata: {name: b}\nSPEC\n", nil},
		"at a marker":     {"--- {apiVersion: v1, kind: KIND, metadata: {name: a}, SPEC}\n", []string{"a="}},
		"a list":          {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: KIND, metadata: {name: a}, SPEC}\n- 7\n- {apiVersion: v1, kind: KIND, metadata: {name: b}, SPEC}\n", []string{"a=", "b="}},
		"a typed list":    {"apiVersion: v1\nkind: KINDList\nitems:\n- {metadata: {name: a}, SPEC}\n", []string{"a="}},
		"an empty list":   {"apiVersion: v1\nkind: KINDList\nitems: []\n", nil},
		"JSON":            {"{\n\t\"apiVersion\": \"v1\", \"kind\": \"KIND\", \"metadata\": {\"name\": \"a\", \"annotations\": {\"note\": \"\\ud83d\\ude00\\/\"}}, JSON}", []string{"a=😀/"}},
		"JSON objects":    {`{"apiVersion": "v1", "kind": "KIND", "metadata": {"name": "a"}, JSON}{"apiVersion": "v1", "kind": "KIND", "metadata": {"name": "b"}, JSON}`, []string{"a=", "b="}},
		"JSON keys twice": {`{"apiVersion": "v1", "kind": "KIND", "metadata": {"name": "b", "name": "a"}, JSON}`, []string{"a="}},
		"BOM":             {"\ufeffPOD\nmetadata: {name: a}\nSPEC\n", []string{"a="}},
		"CRLF":            {"apiVersion: v1\r\nkind: KIND\r\nmetadata: {name: a}\r\nSPEC\r\n---\r\napiVersion: v1\r\nkind: KIND\r\nmetadata: {name: b}\r\nSPEC\r\n", []string{"a=", "b="}},
		"nothing":         {"", nil},
		"only words":      {"# words\n", nil},
		"another version": {"apiVersion: v2\nkind: KIND\nmetadata: {name: a}\nSPEC\n", nil},
		"another kind":    {"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nSPEC\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := func(kind string) string {
				return strings.NewReplacer("POD", "apiVersion: v1\nkind: "+kind, "KIND", kind, "SPEC", spec,
					"JSON", `"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}`).Replace(c.text)
			}
			p := newParts(t, map[string]string{"pods.yaml": text("Pod"), "maps.yaml": text("ConfigMap")})
			got := p.taken("a", "b", "true")
			for _, who := range []string{"agent", "node loop", "objects", "up"} {
				require.Equal(t, c.want, got[who], "%s; %v %v", who, p.network.Problems(), p.pods.Problems())
			}
		})
	}
}

// TestOneReport: each bad document is told once in the log of all parts, with its
// file and line, and `up` shows it.
func TestOneReport(t *testing.T) {
	good := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
	p := newParts(t, map[string]string{
		"a.yaml": good + "---\nkind: [\n",
		"b.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n",
		"c.yaml": good,
		"d.yaml": strings.Replace(good, "{name: a}", "{name: b, labels: [x]}", 1),
		"e.yaml": "",
		"f.yaml": "apiVersion: kubeovn.io/v1\nkind: Subnet\nmetadata: {name: s}\nspec: {cidrBlock: x}\n",
		"g.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: 7}\n",
	})
	for range 3 {
		require.Equal(t, []string{"a="}, p.taken("a", "b", "m")["up"])
	}
	lines := map[string]int{}
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, "level=WARN") {
			continue
		}
		for _, f := range strings.Fields(line) {
			if name, is := strings.CutPrefix(f, "where="+p.o.Dir+"/"); is {
				lines[name]++
			}
		}
	}
	require.Equal(t, map[string]int{"a.yaml": 1, "b.yaml": 1, "c.yaml": 1, "d.yaml": 1, "e.yaml": 1, "f.yaml": 1, "g.yaml": 1}, lines, p.log.String())
	_, shown, err := p.o.looker().Declared()
	require.NoError(t, err)
	for _, want := range []string{"a.yaml:6: ", "b.yaml:2: ", "c.yaml:1: ", "d.yaml:3: ", "e.yaml: "} {
		require.True(t, slices.ContainsFunc(shown, func(s string) bool { return strings.HasPrefix(s, filepath.Join(p.o.Dir, want)) }), "%s in %v", want, shown)
	}
}

// TestParsedOnce: a file that has changed is parsed for the first part that reads
// it, and the others get the same.
func TestParsedOnce(t *testing.T) {
	p := newParts(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
	first, err := p.o.folder.Read()
	require.NoError(t, err)
	p.taken("a")
	second, err := p.o.folder.Subscribe(folder.Pod).Read()
	require.NoError(t, err)
	require.Same(t, first[0], second[0])
}
