package volume

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/node/object"
)

const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {a: one, b: two}
binaryData: {c: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
data: {key: c2VjcmV0}
stringData: {user: alice}
`

// folder makes volumes in a folder of the test's, with the objects of a text.
func folder(t *testing.T, text string) (*Folder, func(string)) {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tmp"), []byte(text), 0o600))
		require.NoError(t, os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "objects.yaml")))
	}
	write(text)
	log := slog.New(slog.DiscardHandler)
	f := New(Config{Root: root, Objects: object.NewFolder(dir, log), Log: log, Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}})
	t.Cleanup(func() {
		require.NoError(t, f.TearDown("uid"))
		left, err := os.ReadDir(filepath.Join(root, "uid"))
		require.True(t, err == nil || errors.Is(err, fs.ErrNotExist), err)
		require.Empty(t, left)
	})
	return f, write
}

// podOf reads the spec of a pod.
func podOf(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	p := pod()
	p.Labels, p.Annotations = map[string]string{"app": "web", "a/b": `q"q`}, map[string]string{"note": "n"}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}

// tree lists what users of a folder see: each file's mode, path and text.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	var walk func(string)
	walk = func(below string) {
		all, err := os.ReadDir(filepath.Join(dir, below))
		require.NoError(t, err)
		for _, e := range all {
			path := filepath.Join(below, e.Name())
			if strings.HasPrefix(path, "..") {
				continue
			}
			st, err := os.Stat(filepath.Join(dir, path))
			require.NoError(t, err)
			if st.IsDir() {
				walk(path)
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, path))
			require.NoError(t, err)
			out = append(out, st.Mode().String()+" "+path+" "+string(text))
		}
	}
	walk("")
	return strings.Join(out, "|")
}

func TestContent(t *testing.T) {
	for name, c := range map[string]struct{ volume, want, fail string }{
		"a configMap":       {"configMap: {name: app}", "-rw-r--r-- a one|-rw-r--r-- b two|-rw-r--r-- c \x00\x01\x02", ""},
		"its items":         {"configMap: {name: app, items: [{key: a, path: x/y/z, mode: 0400}, {key: a, path: a}]}", "-rw-r--r-- a one|-r-------- x/y/z one", ""},
		"its mode":          {"configMap: {name: app, defaultMode: 0444, items: [{key: a, path: a}]}", "-r--r--r-- a one", ""},
		"no such key":       {"configMap: {name: app, items: [{key: none, path: a}]}", "", "key none of configmap default/app is not there"},
		"optional key":      {"configMap: {name: app, optional: true, items: [{key: none, path: a}, {key: b, path: b}]}", "-rw-r--r-- b two", ""},
		"no such map":       {"configMap: {name: none}", "", "configmap default/none is not there"},
		"optional map":      {"configMap: {name: none, optional: true}", "", ""},
		"a secret":          {"secret: {secretName: login, defaultMode: 0400}", "-r-------- key secret|-r-------- user alice", ""},
		"no such secret":    {"secret: {secretName: none}", "", "secret default/none is not there"},
		"the pod's fields":  {"downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: ns, fieldRef: {fieldPath: metadata.namespace}}, {path: one, mode: 0400, fieldRef: {fieldPath: \"metadata.labels['app']\"}}]}", "-rw-r--r-- l a/b=\"q\\\"q\"\napp=\"web\"|-rw-r--r-- ns default|-r-------- one web", ""},
		"its resources":     {"downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}, {path: mem, resourceFieldRef: {containerName: c, resource: requests.memory, divisor: 1Mi}}, {path: d, resourceFieldRef: {containerName: d, resource: limits.cpu}}]}", "-rw-r--r-- cpu 500|-rw-r--r-- d 8|-rw-r--r-- mem 3", ""},
		"no such container": {"downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: x, resource: limits.cpu}}]}", "", "file cpu: the pod has no container"},
		"no such field":     {"downwardAPI: {items: [{path: ip, fieldRef: {fieldPath: status.podIP}}]}", "", "file ip: field status.podIP is not supported in a file"},
		"projected":         {"projected: {defaultMode: 0440, sources: [{configMap: {name: app, items: [{key: a, path: conf/a}]}}, {secret: {name: login, items: [{key: user, path: conf/user, mode: 0400}]}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}", "-r--r----- conf/a one|-r-------- conf/user alice|-r--r----- name web", ""},
		"projected, none":   {"projected: {sources: [{configMap: {name: app}}, {secret: {name: none}}]}", "", "source 1: secret default/none is not there"},
		"a token":           {"projected: {sources: [{serviceAccountToken: {path: token}}]}", "", "source 0: a service account token needs an API server"},
		"out of it":         {"configMap: {name: app, items: [{key: a, path: ../x}]}", "", "does not stay in the volume"},
		"hidden in it":      {"configMap: {name: app, items: [{key: a, path: ..data}]}", "", "does not stay in the volume"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := folder(t, objects)
			p := podOf(t, "{containers: [{name: c, resources: {limits: {cpu: 500m}, requests: {memory: 2500Ki}}}, {name: d}], volumes: [{name: v, "+c.volume+"}]}")
			m, err := f.SetUp(t.Context(), p)
			if c.fail != "" {
				require.ErrorContains(t, err, "volume v of default/web: ")
				require.ErrorContains(t, err, c.fail)
				return
			}
			require.NoError(t, err)
			require.True(t, m["v"].ReadOnly)
			require.Equal(t, c.want, tree(t, m["v"].Path))
		})
	}
}

// TestContentFollows: each change makes one new version, and only a change
// does; what cannot be had any more stays.
func TestContentFollows(t *testing.T) {
	f, write := folder(t, objects)
	p := podOf(t, "{volumes: [{name: v, configMap: {name: app}}]}")
	setUp := func() (string, string) {
		m, err := f.SetUp(t.Context(), p)
		require.NoError(t, err)
		version, err := os.Readlink(filepath.Join(m["v"].Path, "..data"))
		require.NoError(t, err)
		all, err := filepath.Glob(filepath.Join(m["v"].Path, "..*"))
		require.NoError(t, err)
		require.Len(t, all, 2, "the link and one version")
		return version, tree(t, m["v"].Path)
	}
	first, _ := setUp()
	same, _ := setUp()
	require.Equal(t, first, same)
	write("{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {b: new, d: x}}")
	second, text := setUp()
	require.NotEqual(t, first, second)
	require.Equal(t, "-rw-r--r-- b new|-rw-r--r-- d x", text)
	for _, bad := range []string{"", "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: 7}"} {
		write(bad)
		third, text := setUp()
		require.Equal(t, second, third)
		require.Equal(t, "-rw-r--r-- b new|-rw-r--r-- d x", text)
	}
	write("{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {}}")
	_, text = setUp()
	require.Empty(t, text)
}

// TestOneVersion: who opens the version sees files that belong together,
// whenever he looks.
func TestOneVersion(t *testing.T) {
	w := writer{dir: t.TempDir(), group: -1}
	put := func(text string) {
		require.NoError(t, w.write(payload{"a": {[]byte(text), 0o644, -1}, "sub/b": {[]byte(text), 0o644, -1}}))
	}
	put("0")
	ctx, cancel := context.WithCancel(t.Context())
	looked, ended := make(chan bool, 1), make(chan bool)
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			dir, err := os.OpenRoot(filepath.Join(w.dir, "..data"))
			if errors.Is(err, fs.ErrNotExist) {
				continue // it went between the link and what that leads to
			}
			if err != nil {
				t.Error(err)
				break
			}
			a, errA := dir.ReadFile("a")
			b, errB := dir.ReadFile("sub/b")
			_ = dir.Close()
			if errA == nil && errB == nil && string(a) != string(b) { // else it was swept meanwhile
				t.Errorf("%q and %q", a, b)
			}
			select {
			case looked <- true:
			default: // told already
			}
		}
	}()
	<-looked
	for i := range 300 {
		put(strings.Repeat("x", i))
	}
	cancel()
	<-ended
}

// TestLeftovers: what a process that was killed has left is no hindrance, and
// goes.
func TestLeftovers(t *testing.T) {
	w := writer{dir: t.TempDir(), group: -1}
	for _, path := range []string{"..2020_01_01_00_00_00.1/half", "..data_tmp/x"} {
		require.NoError(t, os.MkdirAll(filepath.Join(w.dir, path), 0o700))
	}
	require.NoError(t, os.Symlink("..data/old", filepath.Join(w.dir, "old")))
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "..data_tmp")))
	require.NoError(t, os.Symlink("..2020_01_01_00_00_00.1", filepath.Join(w.dir, "..data_tmp")))
	require.False(t, w.filled())
	require.NoError(t, w.write(payload{"a": {[]byte("one"), 0o600, -1}}))
	require.True(t, w.filled())
	all, err := os.ReadDir(w.dir)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, "-rw------- a one", tree(t, w.dir))
}

// TestGroups: with fsGroup the group may read what we fill and write what is the
// pod's, and what is made there belongs to it.
func TestGroups(t *testing.T) {
	f, _ := folder(t, objects)
	p := podOf(t, `{securityContext: {fsGroup: 1234}, containers: [{name: c, securityContext: {runAsUser: 55}}], volumes: [
		{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}, {name: conf, configMap: {name: app, items: [{key: a, path: s/a, mode: 0400}]}},
		{name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}]}`)
	f.conf.Tokens = tokens{}
	m, err := f.SetUp(t.Context(), p)
	require.NoError(t, err)
	for path, want := range map[string]struct {
		mode  uint32
		group uint32
		user  uint32
	}{
		m["disk"].Path:             {0o2777, 1234, 0},
		m["memory"].Path:           {0o2777, 1234, 0},
		m["conf"].Path:             {0o2777, 1234, 0},
		m["conf"].Path + "/s":      {0o2755, 1234, 0},
		m["conf"].Path + "/s/a":    {0o440, 1234, 0},
		m["token"].Path + "/token": {0o640, 1234, 55},
	} {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(path, &st))
		require.Equal(t, []uint32{want.mode, want.group, want.user}, []uint32{st.Mode & 0o7777, st.Gid, st.Uid}, path)
	}
	// What containers make of their volume stays.
	require.NoError(t, os.Chmod(m["disk"].Path, 0o700))
	_, err = f.SetUp(t.Context(), p)
	require.NoError(t, err)
	st, err := os.Stat(m["disk"].Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), st.Mode().Perm())
}

// tokens issues what names its request.
type tokens struct{}

func (tokens) Token(_ context.Context, pod *v1.Pod, audience string, lifetime time.Duration) (string, time.Time, error) {
	return pod.Name + " " + audience + " " + lifetime.String(), time.Time{}, nil
}

func TestToken(t *testing.T) {
	f, _ := folder(t, "")
	f.conf.Tokens = tokens{}
	m, err := f.SetUp(t.Context(), podOf(t, "{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a}}, {serviceAccountToken: {path: b, audience: vault, expirationSeconds: 600}}]}}]}"))
	require.NoError(t, err)
	require.Equal(t, "-rw-r--r-- a web  1h0m0s|-rw-r--r-- b web vault 10m0s", tree(t, m["v"].Path))
}

func TestMemoryIsBounded(t *testing.T) {
	for spec, want := range map[string]int64{
		"{volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]}":                                                                                             1 << 20,
		"{containers: [{name: a, resources: {limits: {memory: 2Mi}}}, {name: b, resources: {limits: {memory: 4Mi}}}], volumes: [{name: v, emptyDir: {medium: Memory}}]}": 6 << 20,
		"{containers: [{name: a, resources: {limits: {memory: 2Mi}}}], volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 9Mi}}]}":                                2 << 20,
		"{containers: [{name: a, resources: {limits: {memory: 2Mi}}}, {name: b}], volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 9Mi}}]}":                     9 << 20,
	} {
		f, _ := folder(t, "")
		m, err := f.SetUp(t.Context(), podOf(t, spec))
		require.NoError(t, err)
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(m["v"].Path, &st))
		require.Equal(t, want, int64(st.Blocks)*st.Bsize, spec)
	}
	f, _ := folder(t, "")
	_, err := f.SetUp(t.Context(), podOf(t, "{volumes: [{name: v, emptyDir: {medium: HugePages}}]}"))
	require.ErrorContains(t, err, `volume v of default/web: medium "HugePages" is not supported`)
}
