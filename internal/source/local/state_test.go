package local

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/folder"
)

func TestLastGoodVersionStays(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p", `a: "1"`), "s.yaml", subnetYAML("s", "10.1.0.0/24"))

	f.rewrite("a.yaml", podYAML("p", "ovn.kubernetes.io/ip_address: x"), "s.yaml", subnetYAML("s", "10.2.0.0/99"))
	require.Len(t, f.Problems(), 2)
	require.Equal(t, "1", podOf(f, "p").Annotations["a"])
	require.Contains(t, f.subnets(), "s [10.1.0.0/24]")

	f.rewrite("b.yaml", podYAML("q", `a: "1"`)) // a good change elsewhere
	require.Len(t, f.Problems(), 2)
	require.Equal(t, "1", podOf(f, "p").Annotations["a"])
	require.Contains(t, f.subnets(), "s [10.1.0.0/24]")

	f.rewrite("a.yaml", podYAML("p", `a: "2"`), "s.yaml", subnetYAML("s", "10.2.0.0/24"))
	require.Empty(t, f.Problems())
	require.Equal(t, "2", podOf(f, "p").Annotations["a"])
	require.Contains(t, f.subnets(), "s [10.2.0.0/24]")

	f.remove("a.yaml")
	f.remove("s.yaml")
	require.Len(t, f.Pods(), 1)
	require.Equal(t, []string{"ovn-default [10.16.0.0/16]"}, f.subnets())
}

// podOf is a pod in force, nil if it is none.
func podOf(f *testDir, name string) *podInForce {
	f.t.Helper()
	p, err := f.Pod(context.Background(), core.Pod{Namespace: "default", Name: name})
	if err != nil {
		return &podInForce{}
	}
	return &podInForce{Annotations: p.Annotations, there: true}
}

type podInForce struct {
	Annotations map[string]string
	there       bool
}

func TestABrokenDocumentHoldsItsFilesObjects(t *testing.T) {
	two := podYAML("p", `a: "1"`) + "---\n" + podYAML("q", `a: "1"`)
	f := newFolder(t, "a.yaml", two)

	f.rewrite("a.yaml", podYAML("p", `a: "2"`)+"---\nkind: Pod\n  metadata\n")
	require.Equal(t, "2", podOf(f, "p").Annotations["a"], "the good document counts")
	require.True(t, podOf(f, "q").there, "the broken document may have been q")

	f.rewrite("a.yaml", podYAML("p", `a: "2"`))
	require.False(t, podOf(f, "q").there, "now q is gone for certain")
}

func TestAMisspeltKindHoldsItsObject(t *testing.T) {
	two := podYAML("p", `a: "1"`) + "---\n" + podYAML("q", `a: "1"`)
	f := newFolder(t, "a.yaml", two)
	f.rewrite("a.yaml", strings.Replace(podYAML("p", `a: "1"`), "kind: Pod", "kind: Pood", 1))
	require.True(t, podOf(f, "p").there)
	require.False(t, podOf(f, "q").there, "q was taken out of a file whose documents can all be told")
}

func TestConflictsKeepWhatIsInForce(t *testing.T) {
	t.Run("a newcomer that overlaps is refused although its file sorts first", func(t *testing.T) {
		f := newFolder(t, "m.yaml", subnetYAML("old", "10.1.0.0/24"))
		f.rewrite("a.yaml", subnetYAML("new", "10.1.0.0/16"))
		require.Equal(t, []string{"old [10.1.0.0/24]", "ovn-default [10.16.0.0/16]"}, f.subnets())
		f.problem("a.yaml", 6, "overlaps")
	})
	t.Run("a change that overlaps falls back", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("a", "10.1.0.0/24"), "b.yaml", subnetYAML("b", "10.2.0.0/24"))
		f.rewrite("a.yaml", subnetYAML("a", "10.2.0.0/24"))
		require.Contains(t, f.subnets(), "a [10.1.0.0/24]")
		f.problem("a.yaml", 6, "overlaps")
	})
	t.Run("a fallback beats a newcomer in its place", func(t *testing.T) {
		f := newFolder(t, "b.yaml", subnetYAML("b", "10.1.0.0/24"), "c.yaml", subnetYAML("c", "10.2.0.0/24"))
		f.rewrite("a.yaml", subnetYAML("a", "10.1.0.0/24"), "b.yaml", subnetYAML("b", "10.2.0.0/24"))
		require.Equal(t, []string{"b [10.1.0.0/24]", "c [10.2.0.0/24]", "ovn-default [10.16.0.0/16]"}, f.subnets())
		require.Len(t, f.Problems(), 2)
	})
	t.Run("two subnets may swap their ranges", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("a", "10.1.0.0/24"), "b.yaml", subnetYAML("b", "10.2.0.0/24"))
		f.rewrite("a.yaml", subnetYAML("a", "10.2.0.0/24"), "b.yaml", subnetYAML("b", "10.1.0.0/24"))
		require.Empty(t, f.Problems())
		require.Contains(t, f.subnets(), "a [10.2.0.0/24]")
		require.Contains(t, f.subnets(), "b [10.1.0.0/24]")
	})
	t.Run("the default stays with the one that has it", func(t *testing.T) {
		f := newFolder(t, "m.yaml", subnetYAML("old", "10.1.0.0/24", "default: true"))
		f.rewrite("a.yaml", subnetYAML("new", "10.2.0.0/24", "default: true"))
		require.True(t, f.subnet("old").Default)
		f.problem("a.yaml", 7, "is the default already")
		f.rewrite("m.yaml", subnetYAML("old", "10.1.0.0/24"))
		require.Empty(t, f.Problems())
		require.True(t, f.subnet("new").Default)
		require.False(t, f.subnet("old").Default)
	})
	t.Run("of two declarations the one in force stays", func(t *testing.T) {
		f := newFolder(t, "m.yaml", subnetYAML("s", "10.1.0.0/24"))
		f.rewrite("a.yaml", subnetYAML("s", "10.2.0.0/24"))
		require.Contains(t, f.subnets(), "s [10.1.0.0/24]")
		f.problem("a.yaml", 1, "declared twice")
		f.remove("m.yaml")
		require.Contains(t, f.subnets(), "s [10.2.0.0/24]")
		require.Empty(t, f.Problems())
	})
	t.Run("of two declarations of a pod the first one counts, whichever was in force", func(t *testing.T) {
		f := newFolder(t, "m.yaml", podYAML("p", `a: "m"`))
		f.rewrite("a.yaml", podYAML("p", `a: "a"`))
		require.Equal(t, "a", podOf(f, "p").Annotations["a"])
		f.problem("m.yaml", 1, "declared twice")
		f.remove("a.yaml")
		require.Equal(t, "m", podOf(f, "p").Annotations["a"])
		require.Empty(t, f.Problems())
	})
	t.Run("three at once at the start: the first by file", func(t *testing.T) {
		f := newFolder(t, "a.yaml", subnetYAML("a", "10.1.0.0/24"), "b.yaml", subnetYAML("b", "10.1.0.0/24"), "c.yaml", subnetYAML("c", "10.1.0.0/24"))
		require.Equal(t, []string{"a [10.1.0.0/24]", "ovn-default [10.16.0.0/16]"}, f.subnets())
		require.Len(t, f.Problems(), 2)
	})
}

func TestVlanChanges(t *testing.T) {
	f := newFolder(t, "v.yaml", vlanYAML("v", 7), "s.yaml", subnetYAML("s", "10.1.0.0/24", "vlan: v"))
	require.Equal(t, 7, f.subnet("s").VLAN)
	f.rewrite("v.yaml", vlanYAML("v", 8))
	require.Equal(t, 8, f.subnet("s").VLAN, "the Subnet follows its Vlan")
	f.rewrite("v.yaml", vlanYAML("v", 9999))
	require.Equal(t, 8, f.subnet("s").VLAN)
	f.problem("v.yaml", 4, "9999")
	f.remove("v.yaml")
	require.Equal(t, 8, f.subnet("s").VLAN, "the last good version of the Subnet stays")
	f.problem("s.yaml", 7, `no Vlan "v"`)
	f.rewrite("other.yaml", podYAML("p", `a: "1"`))
	require.Equal(t, 8, f.subnet("s").VLAN)
	f.rewrite("s.yaml", subnetYAML("s", "10.1.0.0/24"))
	require.Equal(t, 0, f.subnet("s").VLAN)
	require.Empty(t, f.Problems())
}

// watched runs the source and gives a function that waits until cond holds,
// looking again after each change that is told.
func watched(t *testing.T, f *testDir) func(what string, cond func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return func(what string, cond func() bool) {
		t.Helper()
		end := time.After(time.Minute)
		for !cond() {
			select {
			case <-f.Changed():
			case <-end:
				t.Fatalf("never seen: %s (problems: %v)", what, f.Problems())
			}
		}
	}
}

func has(f *testDir, name string) func() bool {
	return func() bool { return podOf(f, name).there }
}

func lacks(f *testDir, name string) func() bool {
	return func() bool { return !podOf(f, name).there }
}

func TestRunFollowsTheFolder(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p", `a: "1"`))
	f.write("before.yaml", podYAML("before", `a: "1"`)) // between Open and Run
	wait := watched(t, f)
	wait("what changed before Run", has(f, "before"))

	f.write("b.yaml", podYAML("q", `a: "1"`))
	wait("a new file", has(f, "q"))

	tmp := filepath.Join(f.dir, ".b.yaml.swp")
	require.NoError(t, os.WriteFile(tmp, []byte(podYAML("renamed", `a: "1"`)), 0o600))
	require.NoError(t, os.Rename(tmp, filepath.Join(f.dir, "b.yaml")))
	wait("a file renamed over another", has(f, "renamed"))
	require.False(t, has(f, "q")())

	f.write("b.yaml", "kind: [")
	wait("a problem", func() bool { return len(f.Problems()) == 1 })
	require.True(t, has(f, "renamed")())

	require.NoError(t, os.Remove(filepath.Join(f.dir, "b.yaml")))
	wait("a removed file", lacks(f, "renamed"))
	require.Empty(t, f.Problems())
}

func TestRunFollowsAReplacedFolder(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p", `a: "1"`))
	wait := watched(t, f)

	require.NoError(t, os.Rename(f.dir, f.dir+".old"))
	wait("the folder gone", func() bool { return len(f.Problems()) == 1 })
	require.True(t, has(f, "p")(), "what was good stays while there is no folder")

	require.NoError(t, os.Mkdir(f.dir, 0o700))
	f.write("b.yaml", podYAML("q", `a: "1"`))
	wait("the new folder", has(f, "q"))
	wait("the old object gone", lacks(f, "p"))
	f.write("c.yaml", podYAML("r", `a: "1"`))
	wait("a change in the new folder", has(f, "r"))
}

// TestFolderMovedWhileItIsRead: its files are not there any more, and nobody has
// deleted them.
func TestFolderMovedWhileItIsRead(t *testing.T) {
	const count = 200
	var files []string
	for i := range count {
		files = append(files, fmt.Sprintf("%d.yaml", i), podYAML(fmt.Sprintf("p%d", i), `a: "1"`))
	}
	f := newFolder(t, files...)
	for range 40 {
		reading, gone := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			close(reading)
			for f.reload() == nil {
			}
		}()
		<-reading
		require.NoError(t, os.Rename(f.dir, f.dir+".old"))
		<-gone
		for i := range count {
			require.True(t, has(f, fmt.Sprintf("p%d", i))(), i)
		}
		require.NoError(t, os.Rename(f.dir+".old", f.dir))
		require.NoError(t, f.reload())
	}
}

func TestRunFollowsASwitchedSymlink(t *testing.T) {
	base := t.TempDir()
	for _, v := range []string{"v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, v), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(base, v, "a.yaml"), []byte(podYAML(v, `a: "1"`)), 0o600))
	}
	link := filepath.Join(base, "current")
	require.NoError(t, os.Symlink("v1", link))
	s, err := Open(link, quietLog())
	require.NoError(t, err)
	f := &testDir{t: t, dir: link, Source: s}
	wait := watched(t, f)
	wait("the first version", has(f, "v1"))
	require.NoError(t, os.Symlink("v2", link+".new"))
	require.NoError(t, os.Rename(link+".new", link))
	wait("the second version", has(f, "v2"))
	f.write("b.yaml", podYAML("later", `a: "1"`))
	wait("a change in the second version", has(f, "later"))
}

// TestRunFollowsAConfigMapVolume has kubelet's layout: files are links through
// a hidden link that is switched.
func TestRunFollowsAConfigMapVolume(t *testing.T) {
	f := newFolder(t)
	for _, v := range []string{"..v1", "..v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(f.dir, v), 0o700))
		f.write(v+"/a.yaml", podYAML(strings.TrimLeft(v, "."), `a: "1"`))
	}
	require.NoError(t, os.Symlink("..v1", filepath.Join(f.dir, "..data")))
	require.NoError(t, os.Symlink("..data/a.yaml", filepath.Join(f.dir, "a.yaml")))
	wait := watched(t, f)
	wait("the first version", has(f, "v1"))
	require.NoError(t, os.Symlink("..v2", filepath.Join(f.dir, "..tmp")))
	require.NoError(t, os.Rename(filepath.Join(f.dir, "..tmp"), filepath.Join(f.dir, "..data")))
	wait("the second version", has(f, "v2"))
}

// TestTheSameFolderComesBack: that it could not be read is told no longer, though nothing in it
// changed meanwhile.
func TestTheSameFolderComesBack(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p", `a: "1"`))
	require.NoError(t, os.Rename(f.dir, f.dir+".old"))
	require.Error(t, f.reload())
	require.Len(t, f.Problems(), 1)
	require.True(t, has(f, "p")())
	require.NoError(t, os.Rename(f.dir+".old", f.dir))
	require.NoError(t, f.reload())
	require.Empty(t, f.Problems())
	require.True(t, has(f, "p")())
}

func TestReloadOfAnUnchangedFolderTellsNobody(t *testing.T) {
	f := newFolder(t, "a.yaml", podYAML("p", `a: "1"`))
	<-f.Changed()
	before := f.current.Load()
	require.NoError(t, f.reload())
	require.Same(t, before, f.current.Load())
	select {
	case <-f.Changed():
		t.Fatal("a change was told")
	default:
	}
}

func TestManyObjectsShareOneFolder(t *testing.T) {
	var text strings.Builder
	for i := range 500 {
		text.WriteString(podYAML(fmt.Sprintf("p%d", i), `a: "1"`) + "---\n")
	}
	f := newFolder(t, "a.yaml", text.String())
	require.Empty(t, f.Problems())
	require.Len(t, f.Pods(), 500)
}

// FuzzParse: no text makes the loader panic, and whatever loads is complete: an
// object in force or a reason why not.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		podYAML("p", `a: "1"`), subnetYAML("s", "10.0.0.0/8", "gateway: 10.0.0.1", "vlan: v"), nadYAML("n", "{}"), vlanYAML("v", 1),
		"---\n---\n", "a: &a [*a]", "{\"kind\":\"Pod\"}", "- 1", "%YAML 1.2\n---\nkind: Pod", "kind: !!x y", "? [a]\n: b", "\x00", "<<: 1",
	} {
		f.Add([]byte(s))
	}
	for _, name := range []string{"pod-vlan-qos.yaml", "provider-network.yaml", "nad-ipvlan-net2.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func() file {
			f := folder.Parse("x", data, folder.Kinds())
			var ours []*folder.Object
			for _, o := range f.Objects {
				if makers()[o.ID.Kind] != nil {
					ours = append(ours, o)
				}
			}
			return understand(f, ours, makers())
		}
		for _, d := range read().docs {
			require.True(t, (d.object == nil) == (len(d.faults) > 0), "%+v", d)
		}
		st := assemble([]file{read()}, newState())
		again := assemble([]file{read()}, st)
		require.Equal(t, st.problems, again.problems, "loading the same text twice is stable")
		require.Equal(t, st.all, again.all)
	})
}

// BenchmarkReload is the cost of an event in a folder of 1,000 pods.
func BenchmarkReload(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		text.WriteString(podYAML(fmt.Sprintf("p%d", i), `a: "1"`) + "---\n")
	}
	dir := b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text.String()), 0o600))
	for b.Loop() {
		_, err := Open(dir, quietLog())
		require.NoError(b, err)
	}
}

// TestWatchPods: a pod is told when it appears and when its annotations change,
// not when something else does.
func TestWatchPods(t *testing.T) {
	pod := func(name, notes string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  annotations: " + notes + "\n"
	}
	f := newFolder(t, "a.yaml", pod("a", "{x: y}"))
	var told []string
	f.WatchPods(func(p core.Pod) { told = append(told, p.String()) })
	f.rewrite("a.yaml", pod("a", "{x: z}"))
	require.Equal(t, []string{"default/a"}, told)
	f.rewrite("b.yaml", pod("b", "{}"), "a.yaml", "# moved\n"+pod("a", "{x: z}"))
	require.Equal(t, []string{"default/a", "default/b"}, told)
	f.rewrite("a.yaml", "{")
	require.Len(t, told, 2, "what cannot be read changes nothing")
	f.remove("a.yaml")
	require.NoError(t, f.reload())
	require.Len(t, told, 2, "who is gone asks for nothing")
}

// TestDeclaredAndWrong: a labelled ConfigMap that cannot be read, or of which one pod's
// settings cannot be, is told with its line; those of the others are in force.
func TestDeclaredAndWrong(t *testing.T) {
	const of = `apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: NAME, labels: {net.fairlead.io/pod-network: "true"}}
data:
  good: '{"vlan":7}'
  bad: VALUE
`
	dir := t.TempDir()
	for name, value := range map[string]string{"a": "7", "b": "'{\"vlan\":5000}'"} {
		text := strings.NewReplacer("NAME", name, "VALUE", value).Replace(of)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600))
	}
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	problems := s.Problems()
	require.Len(t, problems, 2)
	require.Contains(t, problems[0].String(), "a.yaml:")
	require.Contains(t, problems[0].Reason, "ConfigMap bank/a: data: want string, got number")
	require.Contains(t, problems[1].String(), "b.yaml:6: InvalidVLAN: ConfigMap bank/b, key bad")
	x, err := s.Declared(t.Context())
	require.NoError(t, err)
	all, err := x.Of(t.Context(), core.Pod{Namespace: "bank", Name: "good"})
	require.NoError(t, err)
	require.Len(t, all, 1)
}
