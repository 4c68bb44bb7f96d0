package source_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/node/source"
)

func newFile(dir string) *source.File {
	return source.NewFile(source.FileConfig{Static: source.Static{Node: node}, Path: dir, Log: quiet()})
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func list(t *testing.T, f *source.File) []string {
	t.Helper()
	pods, err := f.List()
	require.NoError(t, err)
	return names(pods)
}

func names(pods []*v1.Pod) []string {
	out := []string{}
	for _, p := range pods {
		out = append(out, strings.TrimSuffix(p.Name, "-"+node))
	}
	return out
}

func reasons(f *source.File) string {
	var out []string
	for _, p := range f.Problems() {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}

func TestProblemsNameFileAndLine(t *testing.T) {
	for _, c := range []struct {
		name, text string
		line       int
		reason     string
	}{
		{"syntax", "apiVersion: v1\nkind: Pod\nmetadata: [\n", 3, "not YAML"},
		{"kind", "apiVersion: v1\nkind: Service\n", 2, `kind "Service"`},
		{"no name", "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n", 3, "metadata.name is missing"},
		{"no container", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  hostNetwork: true\n", 4, "spec.containers: Required"},
		{"image", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n  - name: d\n", 8, "spec.containers[1].image: Required"},
		{"type", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n    ports:\n    - containerPort: web\n", 5, "want int32, got string"},
		{"secret", named("a") + "    envFrom:\n    - secretRef:\n        name: s\n", 6, "not YAML"},
		{"second document", named("a") + "---\n# b\n" + strings.Replace(named("b"), "image: i", "image: ''", 1), 14, "spec.containers[0].image"},
		{"in a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n  spec:\n    restartPolicy: Maybe\n    containers: [{name: c, image: i}]\n", 8, "restartPolicy: Unsupported"},
		{"foreign in a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n", 5, `kind "Service"`},
		{"JSON", "{\n \"apiVersion\": \"v1\",\n \"kind\": \"Pod\",\n \"metadata\": {\"name\": \"a\"},\n \"spec\": {\n  \"containers\": []\n }\n}", 6, "spec.containers: Required"},
		{"empty", "# only words\n", 0, "is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := write(t, dir, "p.yaml", c.text)
			f := newFile(dir)
			left := []string{}
			if c.name == "second document" {
				left = append(left, "a") // only what is wrong is left out
			}
			require.Equal(t, left, append([]string{}, list(t, f)...))
			require.NotEmpty(t, f.Problems())
			p := f.Problems()[0]
			require.Equal(t, file, p.Where)
			require.Equal(t, c.line, p.Line, p.Reason)
			require.Contains(t, p.Reason, c.reason)
			require.False(t, p.Warning)
		})
	}
}

func TestUnknownFieldIsAWarning(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  hostnetwork: true\n  containers:\n  - {name: c, image: i}\n")
	f := newFile(dir)
	require.Equal(t, []string{"a"}, list(t, f))
	require.Equal(t, []source.Problem{{Where: filepath.Join(dir, "p.yaml"), Line: 5, Reason: `Pod default/a: unknown field "spec.hostnetwork"`, Warning: true}}, f.Problems())
}

// The last good version of a file stays whatever becomes of it but its removal.
func TestLastGoodVersionStays(t *testing.T) {
	dir := t.TempDir()
	f := newFile(dir)
	write(t, dir, "a.yaml", named("a"))
	write(t, dir, "b.yaml", named("b"))
	require.Equal(t, []string{"a", "b"}, list(t, f))
	for _, bad := range []string{"", "{", "kind: Pod", named("a") + "---\nkind: [", strings.Repeat("#", 10<<20)} {
		write(t, dir, "a.yaml", bad)
		require.Equal(t, []string{"a", "b"}, list(t, f))
		require.NotEmpty(t, f.Problems())
		require.Equal(t, []string{"a", "b"}, list(t, f), "and when it is read again")
		require.NotEmpty(t, f.Problems(), "told as long as it lasts")
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "a.yaml"), 0o700))
	require.Equal(t, []string{"a", "b"}, list(t, f))
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "a.yaml"), 0o600)) // reading it would never end
	require.Equal(t, []string{"a", "b"}, list(t, f))
	write(t, dir, "c.yaml", named("c"))
	require.NoError(t, os.Rename(filepath.Join(dir, "c.yaml"), filepath.Join(dir, "a.yaml")))
	require.Equal(t, []string{"c", "b"}, list(t, f))
	require.Empty(t, f.Problems())
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.Equal(t, []string{"b"}, list(t, f))
}

// TestOneBadDocument: what is wrong with one document of a file, or one item of a
// list, is about that one alone: the others are taken, and change, come and go. Of
// the bad one the last good version stays, as long as it may be declared still.
func TestOneBadDocument(t *testing.T) {
	bad := strings.Replace(named("b"), "image: i", "image: ''", 1)
	all := func(docs ...string) string { return strings.Join(docs, "---\n") }
	steps := []struct {
		text string
		want []string
	}{
		{all(named("a"), bad, named("c")), []string{"a", "c"}}, // it was never right
		{all(named("a"), named("b"), named("c")), []string{"a", "b", "c"}},
		{all(named("a"), bad, named("d")), []string{"a", "d", "b"}}, // b as it was, c is gone, d is new
		{all(named("d")), []string{"d"}},
		{all(named("a"), named("b")), []string{"a", "b"}},
		{all(named("a"), "kind: Pod\nmetadata: ["), []string{"a", "b"}},            // it may be b
		{all(named("a"), "kind: Pood\nmetadata: {name: b}\n"), []string{"a", "b"}}, // it is b
		{all(named("a"), "apiVersion: v2\n"+named("b")[12:]), []string{"a", "b"}},  // b of another version
		{all(named("a"), "kind: Service\nmetadata: {name: web}\n"), []string{"a"}}, // nobody's
		{"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n" +
			"- {apiVersion: v1, kind: Service, metadata: {name: s}}\n- 7\n" +
			"- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}\n", []string{"a", "b"}},
	}
	dir := t.TempDir()
	f := newFile(dir)
	for _, step := range steps {
		write(t, dir, "all.yaml", step.text)
		require.Equal(t, step.want, list(t, f), step.text)
	}
}

func TestUnreadableFolderKeepsWhatIsKnown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods")
	f := newFile(dir)
	require.Empty(t, list(t, f), "what is not there has no pods")
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, dir, "a.yaml", named("a"))
	require.Equal(t, []string{"a"}, list(t, f))
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Symlink(dir, dir)) // a loop cannot be read
	_, err := f.List()
	require.ErrorIs(t, err, syscall.ELOOP)
	require.Contains(t, reasons(f), "too many levels")
	require.NoError(t, os.Remove(dir))
	require.Empty(t, list(t, f))
}

func TestSameNameIsTold(t *testing.T) {
	dir := t.TempDir()
	a, b := write(t, dir, "a.yaml", named("x")), write(t, dir, "b.yaml", strings.Replace(named("x"), "image: i", "image: j", 1))
	f := newFile(dir)
	pods, err := f.List()
	require.NoError(t, err)
	require.Len(t, pods, 1)
	require.Equal(t, "i", pods[0].Spec.Containers[0].Image)
	require.Equal(t, b+":1: Pod default/x is declared twice; "+a+":1 is in force", reasons(f))
	require.NoError(t, os.Remove(a))
	require.Equal(t, []string{"x"}, list(t, f))
	require.Empty(t, f.Problems())
}

func TestSameUIDIsTold(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		write(t, dir, name, strings.Replace(named(name), "name: "+name, "uid: u, name: "+name, 1))
	}
	f := newFile(dir)
	require.Equal(t, []string{"a", "b"}, list(t, f))
	require.Equal(t, filepath.Join(dir, "b")+": pod default/b-node-1 has the same metadata.uid as pod default/a-node-1", reasons(f))
}

// Objects of a node without API server stand beside the pods that use them.
func TestObjectsAreOthers(t *testing.T) {
	dir := t.TempDir()
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n---\n" + named("a") + "    envFrom: [{configMapRef: {name: m}}, {secretRef: {name: s}}]\n"
	text = strings.Replace(text, "  - {name: c, image: i}\n", "  - name: c\n    image: i\n", 1)
	write(t, dir, "a.yaml", text)
	require.Empty(t, list(t, newFile(dir)))
	with := source.NewFile(source.FileConfig{Static: source.Static{Node: node, Objects: true}, Path: dir, Log: quiet()})
	require.Equal(t, []string{"a"}, list(t, with))
	require.Empty(t, with.Problems())
	write(t, dir, "a.yaml", strings.Replace(text, "containers:", "serviceAccountName: robot\n  containers:", 1))
	require.Equal(t, []string{"a"}, list(t, with))
	require.Contains(t, reasons(with), "service accounts")
}

func TestOneFile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, ".pod", named("a")+"---\n"+named("b"))
	f := newFile(file)
	require.Equal(t, []string{"a", "b"}, list(t, f))
}

func TestPodsOfTheSourceAreItsOwn(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a"))
	out, _ := run(t, newFile(dir).Run)
	got := <-out
	require.Equal(t, "i", got[0].Spec.Containers[0].Image)
	got[0].Spec.Containers[0].Image = "changed"
	write(t, dir, "b.yaml", named("b"))
	got = <-out
	require.Equal(t, "i", got[0].Spec.Containers[0].Image)
}

// run starts a source and ends it with the test.
func run(t *testing.T, do func(context.Context, chan<- []*v1.Pod) error) (<-chan []*v1.Pod, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan []*v1.Pod), make(chan error, 1)
	go func() { done <- do(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return out, cancel
}

// until reads lists until one has these pods.
func until(t *testing.T, out <-chan []*v1.Pod, want ...string) {
	t.Helper()
	for {
		select {
		case pods := <-out:
			if fmt.Sprint(names(pods)) == fmt.Sprint(want) {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("never heard %v", want)
		}
	}
}

// Every way in which files come and go is heard without the period, which is
// longer than the test.
func TestFilesAreWatched(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "pods")
	f := source.NewFile(source.FileConfig{Static: source.Static{Node: node}, Path: dir, Period: time.Hour, Log: quiet()})
	out, _ := run(t, f.Run)
	until(t, out) // not there: seen, and nothing
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, dir, "a.yaml", named("a"))
	until(t, out, "a")
	write(t, dir, ".b", named("b"))
	require.NoError(t, os.Rename(filepath.Join(dir, ".b"), filepath.Join(dir, "b")))
	until(t, out, "a", "b")
	require.NoError(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, ".b")))
	until(t, out, "a")
	write(t, dir, "a.yaml", named("c"))
	until(t, out, "c")
	other := filepath.Join(top, "other")
	require.NoError(t, os.Mkdir(other, 0o700))
	write(t, other, "d", named("d"))
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, os.Symlink(other, dir)) // the folder is another now
	until(t, out, "d")
	write(t, other, "e", named("e"))
	until(t, out, "d", "e")
	require.NoError(t, os.Remove(dir))
	until(t, out)
}

// What makes no events is found by reading anew.
func TestFilesAreReadAgain(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	target := write(t, elsewhere, "a", named("a"))
	require.NoError(t, os.Symlink(target, filepath.Join(dir, "a")))
	f := source.NewFile(source.FileConfig{Static: source.Static{Node: node}, Path: dir, Period: 10 * time.Millisecond, Log: quiet()})
	out, _ := run(t, f.Run)
	until(t, out, "a")
	write(t, elsewhere, "a", named("b"))
	until(t, out, "b")
}

func TestURL(t *testing.T) {
	var body, header atomic.Value
	body.Store(named("a"))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header.Store(r.Header.Get("Metadata-Flavor"))
		if text := body.Load().(string); text != "down" {
			fmt.Fprint(w, text)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer web.Close()
	u := source.NewURL(source.URLConfig{Static: source.Static{Node: node}, URL: web.URL, Period: 5 * time.Millisecond,
		Header: http.Header{"Metadata-Flavor": {"x"}}, Log: quiet()})
	out, _ := run(t, u.Run)
	until(t, out, "a")
	require.Equal(t, "x", header.Load())
	for bad, read := range map[string]bool{"down": false, "": false, "kind: [": true, named("a") + "---\nkind: Pod": true} {
		body.Store(bad)
		require.Eventually(t, func() bool { return len(u.Problems()) > 0 }, time.Minute, time.Millisecond)
		select {
		case pods := <-out:
			t.Fatalf("sent %v after %q", names(pods), bad)
		default:
		}
		body.Store(named("a"))
		require.Eventually(t, func() bool { return len(u.Problems()) == 0 }, time.Minute, time.Millisecond)
		if read { // a new text of the same pods
			until(t, out, "a")
		}
	}
	body.Store(named("b"))
	until(t, out, "b")
}

// Nothing is known before the first answer, and an empty one is an answer.
func TestURLThatNeverAnswered(t *testing.T) {
	status := http.StatusInternalServerError
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer web.Close()
	u := source.NewURL(source.URLConfig{Static: source.Static{Node: node}, URL: web.URL, Log: quiet()})
	_, changed, err := u.Ask(t.Context())
	require.ErrorContains(t, err, "500")
	require.False(t, changed)
	status = http.StatusOK
	pods, changed, err := u.Ask(t.Context())
	require.ErrorContains(t, err, "empty")
	require.True(t, changed)
	require.Empty(t, pods)
	_, changed, err = u.Ask(t.Context())
	require.Error(t, err)
	require.False(t, changed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = u.Ask(ctx)
	require.True(t, errors.Is(err, context.Canceled))
}

// TestSharedFolder: what the agent reads from the same folder is left to it.
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "README.md", "# Not an object")
	write(t, dir, "all.yaml", `{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: s}, spec: {cidrBlock: 10.1.0.0/16}}
---
{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: v}, spec: {id: 7}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: "n"}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}
`)
	shared := source.NewFile(source.FileConfig{Static: source.Static{Node: node, Shared: true}, Path: dir, Log: quiet()})
	got := list(t, shared)
	require.Empty(t, shared.Problems())
	require.Equal(t, []string{"web"}, got)
	require.Empty(t, shared.Problems())

	alone := newFile(dir)
	require.Equal(t, []string{"web"}, list(t, alone), "what is refused is told, and the pod beside it runs")
	require.Contains(t, reasons(alone), "all.yaml:1: kind \"Subnet\"")
	write(t, dir, "all.yaml", "---\n{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: s}}\n")
	list(t, alone)
	require.Contains(t, reasons(alone), "all.yaml:2: kind \"Subnet\" is not known here")
	require.Contains(t, reasons(alone), "README.md")

	write(t, dir, "other.yaml", "apiVersion: v1\nkind: Subnet\nmetadata: {name: s}\n")
	list(t, shared)
	require.Contains(t, reasons(shared), "other.yaml:1: Subnet s: apiVersion: a Subnet is of \"kubeovn.io/v1\", not of \"v1\"")
}
