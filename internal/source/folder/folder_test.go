package folder_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/source/folder"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func named(name string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}}\n"
}

func open(dir string) *folder.Folder {
	return folder.New(folder.Config{Path: dir, Kinds: folder.Kinds(), Log: slog.New(slog.DiscardHandler)})
}

func read(t *testing.T, f *folder.Folder) []*folder.File {
	t.Helper()
	files, err := f.Read()
	require.NoError(t, err)
	return files
}

// said are the objects of a file, and what is wrong with it, without its name.
func said(f *folder.File) (out []string) {
	for _, o := range f.Objects {
		out = append(out, fmt.Sprint(o.ID, " ", o.Line))
	}
	for _, p := range f.Problems() {
		out = append(out, strings.TrimPrefix(p.String(), f.Name+":"))
	}
	return out
}

// TestDocuments: which objects a text holds, in which lines, and what is wrong
// with the rest.
func TestDocuments(t *testing.T) {
	const m = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "%s"}}`
	for text, want := range map[string][]string{
		"":                       {" is empty"},
		"# words\n---\n---\n~\n": {" is empty"},
		"---\n" + named("a") + "--- # more\n\n# b\n" + named("b"): {"ConfigMap default/a 2", "ConfigMap default/b 6"},
		"--- " + named("a"):                           {"ConfigMap default/a 1"},
		fmt.Sprintf("\n"+m+m+"\n\t"+m, "a", "b", "c"): {"ConfigMap default/a 2", "ConfigMap default/b 2", "ConfigMap default/c 3"},
		fmt.Sprintf(m, "a") + " # not JSON\n":         {"ConfigMap default/a 1"},
		fmt.Sprintf(m, `a\u002e\u0062`):               {"ConfigMap default/a.b 1"},
		named("a") + named("b"):                       {"1: not YAML: something stands behind the end of the object (did not find expected <document start>)"},
		named("a") + "...\n# fine\n":                  {"ConfigMap default/a 1"},
		"a: [\n---\n" + named("b"):                    {"ConfigMap default/b 3", "1: not YAML: did not find expected node content"},
		"- a\n---\n7\n---\n{}":                        {"1: not an object", "3: not an object", "5: kind \"\" is not known here"},
		"kind: Pod\nkind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\n  name: b\n":                                {"ConfigMap default/b 1", `2: key "kind" stands twice; the last one counts`, `6: key "name" stands twice; the last one counts`},
		strings.Replace(fmt.Sprintf(m, "b"), "{", "{\n\"kind\": \"Pod\",\n", 1):                                        {"ConfigMap default/b 1", `3: key "kind" stands twice; the last one counts`},
		"apiVersion: v1\nkind: List\nitems:\n- " + named("a") + "- 7\n- apiVersion: v1\n  kind: Pod\n  metadata: {}\n": {"ConfigMap default/a 4", "5: not an object", "8: metadata.name is missing"},
		"apiVersion: kubeovn.io/v1\nkind: VlanList\nitems:\n- metadata: {name: v}\n":                                   {"Vlan v 4"},
		"apiVersion: v1\nkind: PodList\n": nil,
		"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    b.c/d: yes\n    n: ~\n": {"6: Pod default/a: annotation b.c/d: the value must be text; put it in quotes"},
		"apiVersion: v2\nkind: Pod\nmetadata: {name: a}":                                              {`1: Pod default/a: apiVersion: a Pod is of "v1", not of "v2"`},
		"apiVersion: v1\nkind: 7\nmetadata: {name: a}":                                                {"2: kind is not text; put it in quotes"},
		"a: .inf\n":                           {"1: cannot be written as JSON: json: unsupported value: +Inf"},
		"a: " + strings.Repeat("[", 99) + "]": {"1: not YAML: did not find expected ',' or ']'"},
		"a: " + strings.Repeat("[", 99) + strings.Repeat("]", 99): {"1: nested deeper than 64"},
	} {
		require.Equal(t, want, said(folder.Parse("f", []byte(text), folder.Kinds())), "%q", text)
	}
}

func TestLines(t *testing.T) {
	f := folder.Parse("f", []byte("---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n    annotations:\n      x.y/z: &one a\n  spec: {a: [1,\n    2]}\n"), folder.Kinds())
	o := f.Objects[0]
	for path, want := range map[string]int{"": 5, "kind": 6, "metadata.none.deeper": 7, "spec.a[1]": 12, "spec.a[7]": 11} {
		require.Equal(t, want, o.LineOf(path), path)
	}
	require.Equal(t, 10, o.LineOfKey("metadata.annotations", "x.y/z"))
	require.Equal(t, 9, o.LineOfKey("metadata.annotations", "none"))
}

// TestMayDeclare: a document that does not tell which object it is may be any.
func TestMayDeclare(t *testing.T) {
	a := folder.ID{Kind: folder.ConfigMap, Namespace: "default", Name: "a"}
	for text, want := range map[string]bool{
		named("b"): false,
		"":         true,
		"kind: [":  true,
		"kind: Pod\napiVersion: v2\nmetadata: {name: a}":       false,
		"kind: ConfigMap\napiVersion: v2\nmetadata: {name: a}": true,
		"kind: ConfigMapp\nmetadata: {name: a}":                true,
		"kind: ConfigMapp\nmetadata: {name: b}":                false,
		"kind: ConfigMapp":                                     true,
		named("B"):                                             true,
	} {
		require.Equal(t, want, folder.Parse("f", []byte(text), folder.Kinds()).MayDeclare(a), text)
	}
}

// TestOnlyWhatChangedIsParsed: subscribers get the very same file.
func TestOnlyWhatChangedIsParsed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a"))
	write(t, dir, "b.yml", named("b"))
	write(t, dir, ".c.yaml", named("c"))
	write(t, dir, "d.txt", named("d"))
	f := open(dir)
	before := read(t, f)
	require.Len(t, before, 2)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a.yaml"), time.Time{}, time.Now().Add(-time.Hour)))
	write(t, dir, "b.yml", named("x"))
	after := read(t, f)
	require.Same(t, before[0], after[0])
	require.NotSame(t, before[1], after[1])
	require.Equal(t, "x", after[1].Objects[0].ID.Name)
	all, err := folder.New(folder.Config{Path: dir, All: true, Kinds: folder.Kinds(), Log: slog.New(slog.DiscardHandler)}).Read()
	require.NoError(t, err)
	require.Len(t, all, 3)
	one := read(t, open(filepath.Join(dir, ".c.yaml")))
	require.Equal(t, "c", one[0].Objects[0].ID.Name)
}

// TestWhatIsNoFile is told, and never waited for; the rest is read.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a"))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "link.yaml")))
	big := write(t, dir, "big.yaml", "")
	require.NoError(t, os.Truncate(big, folder.MaxFile))
	f := open(dir)
	files := read(t, f)
	var all []string
	for _, file := range files {
		all = append(all, filepath.Base(file.Name)+fmt.Sprint(said(file)))
	}
	require.Equal(t, []string{
		"a.yaml[ConfigMap default/a 1]",
		"big.yaml[ cannot be read: has 10485760 bytes, the limit is 10485759]",
		"fifo.yaml[ cannot be read: is not a file; folders in the folder are not read]",
		"folder.yaml[ cannot be read: is not a file; folders in the folder are not read]",
		"link.yaml[ cannot be read: stat: no such file or directory]",
	}, all)
	require.Same(t, files[2], read(t, f)[2], "nothing has changed")
	require.True(t, files[2].MayDeclare(folder.ID{Kind: folder.Pod, Name: "any"}))
	_, err := open(filepath.Join(dir, "fifo.yaml")).Read()
	require.ErrorContains(t, err, "neither a folder nor a file")
	_, err = open(filepath.Join(dir, "none")).Read()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestMovedWhileItIsRead: no file of the folder was removed, and none is missing
// from what is read.
func TestMovedWhileItIsRead(t *testing.T) {
	const count = 100
	dir := filepath.Join(t.TempDir(), "objects")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for i := range count {
		write(t, dir, fmt.Sprintf("%d.yaml", i), named(fmt.Sprint("m", i)))
	}
	f := open(dir)
	for range 40 {
		reading, gone := make(chan struct{}), make(chan error)
		go func() {
			close(reading)
			for {
				files, err := f.Read()
				if err == nil && len(files) != count {
					err = fmt.Errorf("%d files", len(files))
				}
				if err != nil {
					gone <- err
					return
				}
			}
		}()
		<-reading
		require.NoError(t, os.Rename(dir, dir+".old"))
		require.ErrorIs(t, <-gone, fs.ErrNotExist)
		require.NoError(t, os.Rename(dir+".old", dir))
	}
}

// TestToldOnce: what is wrong is logged once, whoever finds it and however often,
// and again when it is gone.
func TestToldOnce(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "a.yaml", named("a")+"---\nkind: [\n")
	var log bytes.Buffer
	f := folder.New(folder.Config{Path: dir, Kinds: folder.Kinds(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	one, two := f.Subscribe(folder.ConfigMap), f.Subscribe(folder.ConfigMap, folder.Pod)
	theirs := []folder.Problem{{Where: path, Line: 1, Reason: "bad"}}
	for _, s := range []*folder.Subscription{one, two, one} {
		files, err := s.Read()
		require.NoError(t, err)
		require.Len(t, s.Of(files[0]), 1)
		s.Tell(append(files[0].Problems(), theirs...))
	}
	require.Equal(t, 1, strings.Count(log.String(), "not YAML"), log.String())
	require.Equal(t, 1, strings.Count(log.String(), "reason=bad"), log.String())
	one.Tell(nil)
	require.NotContains(t, log.String(), "is gone", "the other one still has them")
	write(t, dir, "a.yaml", named("a"))
	read(t, f)
	two.Tell(nil)
	require.Equal(t, 2, strings.Count(log.String(), "is gone"), log.String())
}
