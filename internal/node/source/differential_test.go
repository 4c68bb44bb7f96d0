package source_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/source"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

const node = "node-1"

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// step and answer are the oracle's (test/kube/oracle).
type step struct {
	Do, Path, URL, Node string
	Pods                []*v1.Pod
}

type answer struct {
	Updates []update
	Error   string
	Log     []string
	Seen    bool
}

type update struct {
	Op, Source string
	Pods       []*v1.Pod
}

// oracle is kubelet's own package in a process of its own.
type oracle struct {
	t   *testing.T
	in  *json.Encoder
	out *json.Decoder
}

func newOracle(t *testing.T) *oracle {
	t.Helper()
	dir, err := kube.Programs()
	require.NoError(t, err)
	program := filepath.Join(dir, "oracle")
	_, err = os.Stat(program)
	require.NoError(t, err, "run: make kube")
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		require.NoError(t, cmd.Wait())
	})
	return &oracle{t: t, in: json.NewEncoder(in), out: json.NewDecoder(out)}
}

func (o *oracle) do(s step) answer {
	o.t.Helper()
	require.NoError(o.t, o.in.Encode(s))
	var a answer
	if s.Do != "new" {
		require.NoError(o.t, o.out.Decode(&a))
	}
	return a
}

// pair is a kubelet and our node that are told the same.
type pair struct {
	t      *testing.T
	oracle *oracle
	dir    string
	file   *source.File
	url    *source.URL
	mux    *mux.Mux
	seen   map[string]bool

	status int    // of the web server
	body   string // of its answer
}

func newPair(t *testing.T, o *oracle) *pair {
	p := &pair{t: t, oracle: o, dir: filepath.Join(t.TempDir(), "pods"), mux: mux.New(quiet()), status: 200, seen: map[string]bool{}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.body)
	}))
	t.Cleanup(web.Close)
	for _, name := range []string{mux.File, mux.URL, mux.API} {
		p.mux.Channel(t.Context(), name)
	}
	static := source.Static{Node: node}
	p.file = source.NewFile(source.FileConfig{Static: static, Path: p.dir, Log: quiet()})
	p.url = source.NewURL(source.URLConfig{Static: static, URL: web.URL, Log: quiet()})
	o.do(step{Do: "new", Path: p.dir, URL: web.URL, Node: node})
	return p
}

func (p *pair) write(name, text string) {
	require.NoError(p.t, os.MkdirAll(p.dir, 0o755))
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
}

// ours does on our side what the oracle does on kubelet's.
func (p *pair) ours(s step) answer {
	var pods []*v1.Pod
	var err error
	changed := true
	switch s.Do {
	case mux.File:
		pods, err = p.file.List()
		require.NoError(p.t, err)
	case mux.URL:
		pods, changed, err = p.url.Ask(p.t.Context())
	case mux.API:
		pods = s.Pods
	}
	var a answer
	if err != nil {
		a.Error = err.Error()
	}
	if changed {
		var list []*v1.Pod
		for _, pod := range pods {
			list = append(list, pod.DeepCopy())
		}
		require.NoError(p.t, p.mux.Set(p.t.Context(), s.Do, list))
	}
	for len(p.mux.Updates()) > 0 {
		u := <-p.mux.Updates()
		p.seen[u.Source] = true
		a.Updates = append(a.Updates, update{Op: u.Op.String(), Source: u.Source, Pods: u.Pods})
	}
	a.Seen = p.mux.SeenAllSources(p.seen)
	require.Equal(p.t, p.mux.AllReady(), a.Seen, "an Update for every source that is ready")
	return a
}

// both does one step on both sides, which get pods of their own.
func (p *pair) both(do string, pods ...*v1.Pod) (kubelet, ours answer) {
	p.t.Helper()
	s := step{Do: do, Pods: pods}
	kubelet, ours = p.oracle.do(s), p.ours(s)
	plain(p.t, &kubelet)
	plain(p.t, &ours)
	return kubelet, ours
}

// same is both, and there must be no difference.
func (p *pair) same(do string, pods ...*v1.Pod) {
	p.t.Helper()
	kubelet, ours := p.both(do, pods...)
	if diff := difference(texts(p.t, kubelet), texts(p.t, ours)); diff != "" {
		p.t.Fatalf("%s: kubelet says %q %q: %s\nwe say %q: %s\nwith %v %v; kubelet (-) and we (+) differ:\n%s\nanswer: %s\nfolder:\n%s", do,
			kubelet.Error, kubelet.Log, ops(kubelet), ours.Error, ops(ours), p.file.Problems(), p.url.Problems(), diff, p.body, p.folder())
	}
}

// difference shows where two texts part, "" if they do not.
func difference(a, b []string) string {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	if at == len(a) && at == len(b) {
		return ""
	}
	part := func(mark string, l []string) string {
		return mark + strings.Join(l[min(len(l), max(0, at-4)):min(len(l), at+8)], "\n"+mark)
	}
	return part("- ", a) + "\n\n" + part("+ ", b)
}

func (p *pair) folder() string {
	var out strings.Builder
	names, _ := filepath.Glob(filepath.Join(p.dir, "*"))
	for _, n := range names {
		text, _ := os.ReadFile(n)
		fmt.Fprintf(&out, "== %s\n%s\n", n, text)
	}
	return out.String()
}

// plain takes out what is never the same: the time at which a pod was first
// seen. kubelet's files and the API server's pods come out of maps, in no order.
func plain(t *testing.T, a *answer) {
	t.Helper()
	for _, u := range a.Updates {
		for _, p := range u.Pods {
			_, err := time.Parse(time.RFC3339Nano, p.Annotations[mux.SeenKey])
			require.NoError(t, err)
			p.Annotations[mux.SeenKey] = "a time"
		}
		slices.SortFunc(u.Pods, func(a, b *v1.Pod) int {
			return strings.Compare(a.Namespace+"/"+a.Name+"/"+string(a.UID), b.Namespace+"/"+b.Name+"/"+string(b.UID))
		})
	}
}

// texts makes an answer comparable and readable.
func texts(t *testing.T, a answer) []string {
	t.Helper()
	out := []string{fmt.Sprint("seen all: ", a.Seen)}
	for _, u := range a.Updates {
		out = append(out, u.Op+" "+u.Source)
		for _, p := range u.Pods {
			raw, err := json.MarshalIndent(p, "", " ")
			require.NoError(t, err)
			out = append(out, strings.Split(string(raw), "\n")...)
		}
	}
	return out
}

// sequence is a random life of the three sources.
type sequence struct {
	*pair
	*maker
	good map[string]bool // files that hold a pod
	held map[string]bool // files that did when they were last read
	http bool            // the last good answer had pods
	api  []*v1.Pod
}

// TestSameAsKubelet tells kubelet's package and ours of the same changes and
// wants the same operations with the same pods, to the byte, after each. What
// we do otherwise is in TestDifferences.
func TestSameAsKubelet(t *testing.T) {
	o := newOracle(t)
	count := 300
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		count = 20_000
	}
	for seed := range count {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := &sequence{pair: newPair(t, o), maker: &maker{Rand: rand.New(rand.NewPCG(uint64(seed), 1))}, good: map[string]bool{}}
			for range 4 + s.IntN(12) {
				s.turn()
			}
		})
		if !ok {
			return // the next would only fail alike
		}
	}
}

func (s *sequence) turn() {
	switch s.IntN(6) {
	case 0, 1, 2:
		for range 1 + s.IntN(3) {
			s.changeFiles()
		}
		s.same(mux.File)
		s.held = maps.Clone(s.good)
	case 3:
		s.changeAnswer()
		s.same(mux.URL)
	default:
		s.changeAPI()
		s.same(mux.API, s.api...)
	}
}

func (s *sequence) changeFiles() {
	name := pick(s.maker, "a.yaml", "b.json", "c", "d.yaml~", "e [x].yaml")
	switch s.IntN(9) {
	case 0, 1, 2, 3:
		p := s.pod()
		p.Name += "-" + name[:1] // of two files with one pod each side has its own choice
		s.write(name, s.text(p))
		s.good[name] = true
	case 4:
		require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, name)))
		delete(s.good, name)
	case 5:
		// Over a good file, a bad one is a difference.
		if !s.good[name] && !s.held[name] {
			s.write(name, s.bad())
		}
	case 6:
		s.write(".hidden", s.text(s.pod()))
	case 7:
		require.NoError(s.t, os.MkdirAll(filepath.Join(s.dir, "sub"), 0o755))
		s.write("sub/x.yaml", s.text(s.pod()))
	case 8:
		if s.once(5) {
			require.NoError(s.t, os.RemoveAll(s.dir))
			clear(s.good)
		}
	}
}

func (s *sequence) changeAnswer() {
	s.status = 200
	switch s.IntN(8) {
	case 0:
		s.body = s.bad()
		for s.body == "" && s.http { // a difference
			s.body = s.bad()
		}
	case 1:
		s.status = pick(s.maker, 204, 404, 500)
	case 2: // the same again
	case 3, 4, 5:
		s.body, s.http = s.text(s.pod()), true
	default:
		list := v1.PodList{}
		list.APIVersion, list.Kind = "v1", "PodList"
		for range s.IntN(4) {
			list.Items = append(list.Items, *s.pod())
		}
		s.body, s.http = s.text(list), len(list.Items) > 0
	}
}

func (s *sequence) changeAPI() {
	var next []*v1.Pod
	for _, p := range s.api {
		p = p.DeepCopy()
		if s.once(3) {
			s.change(p)
		}
		if !s.once(5) {
			next = append(next, p)
		}
	}
	for range s.IntN(3) {
		next = append(next, s.apiPod())
	}
	s.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
	s.api = next
}

// ops is an answer in one line: what a consumer is told to do with whom.
func ops(a answer) string {
	var out []string
	for _, u := range a.Updates {
		var names []string
		for _, p := range u.Pods {
			names = append(names, strings.TrimSuffix(p.Name, "-node-1"))
		}
		out = append(out, strings.TrimSpace(u.Op+" "+strings.Join(names, " ")))
	}
	return strings.Join(out, ", ")
}

const podText = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - {name: c, image: i}\n"

func named(name string) string { return fmt.Sprintf(podText, name) }

// TestDifferences lists what we do otherwise than kubelet, and what both do.
func TestDifferences(t *testing.T) {
	o := newOracle(t)
	for _, d := range []struct {
		name          string
		do            func(p *pair) (kubelet, ours answer)
		kubelet, ours string
	}{
		{"a file that turns bad keeps its last good version", func(p *pair) (answer, answer) {
			p.write("a.yaml", named("a"))
			p.same(mux.File)
			p.write("a.yaml", "kind: [")
			return p.both(mux.File)
		}, "REMOVE a", ""},
		{"a file may hold several documents", func(p *pair) (answer, answer) {
			p.write("a.yaml", named("a")+"---\n"+named("b"))
			return p.both(mux.File)
		}, "ADD a", "ADD a b"},
		{"a file may hold a list", func(p *pair) (answer, answer) {
			raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "PodList", "items": []any{
				map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}})
			require.NoError(p.t, err)
			p.write("a.json", string(raw))
			return p.both(mux.File)
		}, "ADD", "ADD a"},
		{"a file may be YAML of the short form", func(p *pair) (answer, answer) {
			p.write("a.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}")
			return p.both(mux.File)
		}, "ADD", "ADD a"},
		{"JSON objects may stand behind each other", func(p *pair) (answer, answer) {
			p.write("a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}{"kind":"Pod"}`)
			return p.both(mux.File)
		}, "ADD", "ADD a"},
		{"a link that leads nowhere keeps its last good version", func(p *pair) (answer, answer) {
			p.write(".a", named("a"))
			require.NoError(p.t, os.Symlink(".a", filepath.Join(p.dir, "l.yaml")))
			p.same(mux.File)
			require.NoError(p.t, os.Remove(filepath.Join(p.dir, ".a")))
			return p.both(mux.File)
		}, "REMOVE a", ""},
		{"an empty answer removes nothing", func(p *pair) (answer, answer) {
			p.body = named("a")
			p.same(mux.URL)
			p.body = ""
			return p.both(mux.URL)
		}, "REMOVE a", ""},
		{"pods come back after an empty answer", func(p *pair) (answer, answer) {
			p.body = named("a")
			p.same(mux.URL)
			p.body = ""
			p.both(mux.URL)
			p.body = named("a")
			return p.both(mux.URL) // kubelet takes the bytes for known and never adds the pod again
		}, "", ""},
		{"an answer may hold several documents", func(p *pair) (answer, answer) {
			p.body = named("a") + "---\n" + named("b")
			return p.both(mux.URL)
		}, "ADD a", "ADD a b"},
		{"a list of kind List is one of pods", func(p *pair) (answer, answer) {
			p.body = `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}`
			return p.both(mux.URL)
		}, "", "ADD a"},
	} {
		t.Run(d.name, func(t *testing.T) {
			kubelet, ours := d.do(newPair(t, o))
			require.Equal(t, d.kubelet, ops(kubelet), "kubelet")
			require.Equal(t, d.ours, ops(ours), "ours")
		})
	}
}

// Equal to kubelet, but by rules that are easily thought to be others.
func TestSameSurprises(t *testing.T) {
	p := newPair(t, newOracle(t))
	p.write("a.yaml", named("x"))
	p.write("b.yaml", named("y"))
	p.same(mux.File)
	p.write("big.yaml", named("big")+"#"+strings.Repeat("x", 10<<20))
	p.same(mux.File)
	require.NoError(t, os.Remove(filepath.Join(p.dir, "b.yaml")))
	p.same(mux.File)
	require.NoError(t, os.Rename(filepath.Join(p.dir, "a.yaml"), filepath.Join(p.dir, ".a")))
	require.NoError(t, os.Symlink(".a", filepath.Join(p.dir, "l.yaml")))
	p.same(mux.File)
	p.body = string(bytes.Repeat([]byte(" "), 10<<20))
	p.same(mux.URL)
}
