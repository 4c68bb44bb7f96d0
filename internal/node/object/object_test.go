package object

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// patience bounds what a test waits for; nothing is measured by it.
const patience = time.Minute

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	tmp := filepath.Join(dir, "."+name)
	require.NoError(t, os.WriteFile(tmp, []byte(text), 0o600))
	require.NoError(t, os.Rename(tmp, filepath.Join(dir, name)))
}

func TestFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want, fail string }{
		"plain":          {"{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: one}}", "one", ""},
		"JSON":           {`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "one"}}`, "one", ""},
		"among others":   {"---\n# nothing\n---\n{apiVersion: v1, kind: Pod, metadata: {name: m}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: one}}\n--- \n{apiVersion: x/v1, kind: ConfigMap}", "one", ""},
		"JSON's escapes": {`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "\ud83d\ude00\/"}}`, "😀/", ""},
		"at a marker":    {"{apiVersion: v1, kind: Pod, metadata: {name: m}}\n--- {apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: one}}", "one", ""},
		"behind another": {`{"apiVersion": "v1", "kind": "Pod"} {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "one"}}`, "one", ""},
		"behind YAML":    {"{apiVersion: v1, kind: Pod, metadata: {name: p}} {apiVersion: v1, kind: ConfigMap, metadata: {name: m}}", "", "DIR/f.yaml:1: not YAML: something stands behind"},
		"beside a bad":   {"{apiVersion: v1, kind: ConfigMap, metadata: {name: o}, data: {a: 7}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: one}}", "one", ""},
		"no base64":      {"{apiVersion: v1, kind: Secret, metadata: {name: m}, data: {a: '!'}}", "", "DIR/f.yaml:1: Secret default/m: illegal base64"},
		"number as key":  {"{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {1: x, a: one}}", "one", ""},
		"in a list":      {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod}, {apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: one}}]}", "one", ""},
		"elsewhere":      {"{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: other}, data: {a: one}}", "", "configmap default/m is not there: no file in DIR has it"},
		"bad data":       {"{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: 7}}", "", "is not there: no file in DIR has it (DIR/f.yaml:1: ConfigMap default/m: data: want string, got number)"},
		"bad key":        {"{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a/b: x}}", "", `ConfigMap default/m: key "a/b": a valid config key`},
		"twice a key":    {"{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: x}, binaryData: {a: eA==}}", "", "key a stands in data and in binaryData"},
		"bad name":       {"{apiVersion: v1, kind: ConfigMap, metadata: {name: M_}}", "", `metadata.name: "M_" is not a DNS-1123 name`},
		"bad YAML":       {"a: [\n", "", "DIR/f.yaml:1: not YAML"},
		"nothing at all": {"", "", "no file in DIR has it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "f.yaml", c.text)
			m, err := NewFolder(dir, slog.New(slog.DiscardHandler)).ConfigMap("default", "m")
			if c.fail != "" {
				require.ErrorContains(t, err, strings.ReplaceAll(c.fail, "DIR", dir))
				require.ErrorIs(t, err, ErrMissing)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, m.Data["a"])
		})
	}
}

func TestSecretText(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "f.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: b25l, b: dHdv}, stringData: {b: three}}")
	s, err := NewFolder(dir, slog.New(slog.DiscardHandler)).Secret("default", "s")
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"a": []byte("one"), "b": []byte("three")}, s.Data)
	_, err = NewFolder(dir, slog.New(slog.DiscardHandler)).ConfigMap("default", "s")
	require.ErrorIs(t, err, ErrMissing)
}

// TestWhatStandsThereNow: no watch is needed to hear of a change, and a bad file
// takes nothing away.
func TestWhatStandsThereNow(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	f := NewFolder(dir, slog.New(slog.NewTextHandler(&log, nil)))
	of := func(text string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: " + text + "}}"
	}
	now := func() string {
		m, err := f.ConfigMap("default", "m")
		if err != nil {
			return err.Error()
		}
		return m.Data["a"]
	}
	for i := range 20 { // faster than the clock of files
		put(t, dir, "a.yaml", of(fmt.Sprintf("x%d", i%10)))
		require.Equal(t, fmt.Sprintf("x%d", i%10), now())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("{apiVersion: v1"), 0o600))
	require.Equal(t, "x9", now())
	require.Equal(t, "x9", now())
	require.Equal(t, 1, strings.Count(log.String(), "problem in declared objects"), log.String())
	put(t, dir, "b.yaml", of("later"))
	require.Equal(t, "x9", now(), "the first by file counts, as of pods")
	require.Contains(t, log.String(), "ConfigMap default/m is declared twice")
	put(t, dir, ".hidden.yaml", of("hidden"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	put(t, dir, "README.md", "# Not: an [object")
	require.Equal(t, "x9", now())
	require.NotContains(t, log.String(), "README")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	require.Equal(t, "x9", now())
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.Contains(t, now(), "is not there")
	require.NoError(t, os.RemoveAll(dir))
	require.Contains(t, now(), "is not there")
}

func TestOneFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}")
	_, err := NewFolder(filepath.Join(dir, "a.yaml"), slog.New(slog.DiscardHandler)).ConfigMap("default", "m")
	require.NoError(t, err)
}

// TestFollow tells of each change, also after the folder itself was replaced.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "objects")
	require.NoError(t, os.Mkdir(dir, 0o700))
	f := NewFolder(dir, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	told, done := make(chan Ref, 100), make(chan error, 1)
	put(t, dir, "first.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: first}}")
	go func() { done <- f.Follow(ctx, func(r Ref) { told <- r }) }()
	next := func() string {
		t.Helper()
		select {
		case r := <-told:
			return r.String()
		case <-time.After(patience):
			t.Fatal("nothing was told")
			return ""
		}
	}
	require.Equal(t, "secret default/first", next())
	put(t, dir, "a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: one}}")
	require.Equal(t, "configmap default/m", next())
	put(t, dir, "a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: two}}")
	require.Equal(t, "configmap default/m", next())
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.Equal(t, "configmap default/m", next())
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.Equal(t, "secret default/first", next())
	require.NoError(t, os.Mkdir(dir, 0o700))
	put(t, dir, "a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}")
	require.Equal(t, "configmap default/other", next())
	put(t, dir, "a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {key: value}}")
	require.Equal(t, "configmap default/other", next())
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Empty(t, told)
}

// asked is a store that answers one error, and notes what it is told.
type asked struct {
	None
	err  error
	held map[types.UID][]Ref
}

func (a *asked) ConfigMap(string, string) (*v1.ConfigMap, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &v1.ConfigMap{}, nil
}

func (a *asked) Hold(uid types.UID, refs []Ref) { a.held[uid] = refs }

// TestBoth: the second one is asked for what the first one does not have, and
// its error counts if it was meant.
func TestBoth(t *testing.T) {
	missing, unknown := Ref{}.Missing("first"), fmt.Errorf("x %w", ErrUnknown)
	there := Ref{}.Missing("second")
	for name, c := range map[string]struct{ first, second, want error }{
		"the first has it":         {nil, missing, nil},
		"the second has it":        {missing, nil, nil},
		"neither":                  {missing, there, there},
		"the first cannot say":     {unknown, nil, unknown},
		"the second was not meant": {missing, fmt.Errorf("x %w", ErrNotHeld), missing},
		"the second cannot say":    {missing, unknown, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := &asked{err: c.first, held: map[types.UID][]Ref{}}, &asked{err: c.second, held: map[types.UID][]Ref{}}
			b := Both{first, second}
			_, err := b.ConfigMap("ns", "m")
			require.Equal(t, c.want, err)
			b.Hold("u", []Ref{{Name: "m"}})
			require.Equal(t, first.held, second.held)
			require.Len(t, first.held, 1)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Both{None{}, None{}}.Follow(ctx, nil), context.Canceled)
	_, err := None{}.Secret("ns", "s")
	require.EqualError(t, err, "secret ns/s is not there: this node has no Secrets")
}

func TestRefs(t *testing.T) {
	p := &v1.Pod{}
	p.Namespace = "ns"
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
initContainers: [{name: i, env: [{name: A, valueFrom: {secretKeyRef: {name: s1, key: k}}}, {name: B, value: x}]}]
containers: [{name: c, envFrom: [{configMapRef: {name: m1}}, {secretRef: {name: s2}}], env: [{name: A, valueFrom: {configMapKeyRef: {name: m2, key: k}}}]}]
volumes: [{name: a, configMap: {name: m1}}, {name: b, secret: {secretName: s1}}, {name: c, projected: {sources: [{configMap: {name: m3}}, {secret: {name: s3}}]}}, {name: d, emptyDir: {}}]
`), &p.Spec))
	var got []string
	for _, r := range Refs(p) {
		got = append(got, r.String())
	}
	require.Equal(t, []string{"configmap ns/m1", "configmap ns/m2", "configmap ns/m3", "secret ns/s1", "secret ns/s2", "secret ns/s3"}, got)
}
