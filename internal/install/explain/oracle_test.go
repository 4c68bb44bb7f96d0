package explain_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/explain/foldertest"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/cni"
)

// oracle builds the program that has the runtimes' own code (test/conf).
func oracle(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "conf")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../test/conf", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// network and loaded are the oracle's.
type network struct {
	IfName, Name, File string
	Types              []string
}

type loaded struct {
	Ready    bool
	Networks []network
	Why      string
}

// asks runs the oracle about one folder.
func asks(t *testing.T, program string, args ...string) (l loaded) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &l), "%s", out)
	return l
}

// told is a choice in the oracle's words.
func told(c explain.Choice, files bool) loaded {
	l := loaded{Ready: c.Ready, Networks: []network{}}
	for _, n := range c.Networks {
		net := network{IfName: n.IfName, Name: n.Name}
		if files {
			net.File = filepath.Join(c.Dir, n.File)
		}
		for _, p := range n.Plugins {
			net.Types = append(net.Types, p.Type)
		}
		l.Networks = append(l.Networks, net)
	}
	return l
}

// TestAsTheRuntimesThemselves: go-cni and ocicni load from every folder exactly
// what is told of containerd and CRI-O: the same networks, plugins, interface
// names, and readiness.
func TestAsTheRuntimesThemselves(t *testing.T) {
	program, bin := oracle(t), foldertest.Plugins(t)
	folders := foldertest.All()
	require.GreaterOrEqual(t, len(folders), 20)
	plugins := explain.NewPlugins([]string{bin}, ask)
	for _, f := range folders {
		t.Run(f.Name, func(t *testing.T) {
			s := f.Make(t)
			c, err := explain.Explain(t.Context(), explain.Containerd, s, plugins)
			require.NoError(t, err)
			theirs := asks(t, program, "containerd", s.Dir, bin, strconv.Itoa(f.MaxConfNum))
			require.Equal(t, theirs.Ready, theirs.Why == "")
			theirs.Why = ""
			require.Equal(t, theirs, told(c, false))

			c, err = explain.Explain(t.Context(), explain.CRIO, s, plugins)
			require.NoError(t, err)
			require.Equal(t, asks(t, program, "cri-o", s.Dir, bin, f.Default), told(c, true))
		})
	}
}

// TestAsTheRuntimesOnAnyFolder: the same of folders that are thrown together from
// all of the table's contents, under any name and with any settings.
func TestAsTheRuntimesOnAnyFolder(t *testing.T) {
	program, bin := oracle(t), foldertest.Plugins(t)
	plugins := explain.NewPlugins([]string{bin}, ask)
	var texts []string
	for _, f := range foldertest.All() {
		for _, name := range slices.Sorted(maps.Keys(f.Files)) {
			texts = append(texts, f.Files[name])
		}
	}
	pick := func(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		f := foldertest.Folder{Files: map[string]string{}, MaxConfNum: r.IntN(3), Default: pick(r, "", "", "fairlead", "br", "one", "x")}
		for range 1 + r.IntN(4) {
			f.Files[pick(r, "00-", "05-", "10-", "9-", ".", "Z")+pick(r, "a", "b")+pick(r, ".conf", ".conflist", ".json", ".conflist")] = pick(r, texts...)
		}
		s := f.Make(t)
		c, err := explain.Explain(t.Context(), explain.Containerd, s, plugins)
		require.NoError(t, err)
		theirs := asks(t, program, "containerd", s.Dir, bin, strconv.Itoa(f.MaxConfNum))
		theirs.Why = ""
		require.Equal(t, theirs, told(c, false), "seed %d: %v", seed, f)
		whole(t, s.Dir, c)
		c, err = explain.Explain(t.Context(), explain.CRIO, s, plugins)
		require.NoError(t, err)
		require.Equal(t, asks(t, program, "cri-o", s.Dir, bin, f.Default), told(c, true), "seed %d: %v", seed, f)
		whole(t, s.Dir, c)
	}
}

// chosen hears which file fairlead cri's own code has chosen.
type chosen struct {
	slog.Handler
	file string
}

func (c *chosen) Enabled(context.Context, slog.Level) bool { return true }

func (c *chosen) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "file" {
			c.file = a.Value.String()
		}
		return true
	})
	return nil
}

// TestAsFairleadItself: the same for fairlead cri.
func TestAsFairleadItself(t *testing.T) {
	bin := foldertest.Plugins(t)
	plugins := explain.NewPlugins([]string{bin}, ask)
	for _, f := range foldertest.All() {
		t.Run(f.Name, func(t *testing.T) {
			s, heard := f.Make(t), &chosen{Handler: slog.DiscardHandler}
			p := cni.New(cni.Config{ConfDir: s.Dir, BinDirs: []string{bin}, CacheDir: t.TempDir(), StateDir: t.TempDir(), Log: slog.New(heard)})
			require.NoError(t, p.Init(t.Context(), nil, netplugin.Settings{}))
			c, err := explain.Explain(t.Context(), explain.Fairlead, s, plugins)
			require.NoError(t, err)
			require.Equal(t, heard.file != "", c.Ready)
			if c.Ready {
				require.Equal(t, heard.file, filepath.Join(s.Dir, c.Winner().File))
			}
		})
	}
}

// event is one kind of change, made to a folder with a.conf in it; elsewhere is
// another folder.
type event struct {
	what string
	make func(dir, elsewhere string) error
}

func events() []event {
	conf := func(dir string) string { return filepath.Join(dir, "a.conf") }
	return []event{
		{explain.Written, func(dir, _ string) error { return os.WriteFile(conf(dir), []byte(one("in place")), 0o600) }},
		{explain.RenamedIn, func(dir, _ string) error {
			tmp := filepath.Join(dir, ".a.tmp")
			if err := os.WriteFile(tmp, []byte(one("renamed")), 0o600); err != nil {
				return err
			}
			return os.Rename(tmp, conf(dir))
		}},
		{explain.Touched, func(dir, _ string) error { return os.Chmod(conf(dir), 0o640) }},
		{explain.MovedAway, func(dir, elsewhere string) error { return os.Rename(conf(dir), conf(elsewhere)) }},
		{explain.MovedIn, func(dir, elsewhere string) error { return os.Rename(conf(elsewhere), conf(dir)) }},
		{explain.Removed, func(dir, _ string) error { return os.Remove(conf(dir)) }},
	}
}

// one is a network of a plugin that is there.
func one(name string) string {
	return fmt.Sprintf(`{"cniVersion":"0.4.0","name":%q,"type":"bridge"}`, strings.ReplaceAll(name, " ", "-"))
}

func heard(t *testing.T, d explain.Dialect, what string) bool {
	t.Helper()
	c := explained(t, d, nil)
	i := slices.IndexFunc(c.Changes, func(ch explain.Change) bool { return ch.What == what })
	require.GreaterOrEqual(t, i, 0, what)
	return c.Changes[i].Heard
}

// TestContainerdHears: containerd's syncer listens to all events but CREATE and
// CHMOD (cni_conf_syncer.go); these are the events that come. That containerd
// itself behaves so is in test/e2e, TestKubelet_ContainerdHears.
func TestContainerdHears(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.conf"), nil, 0o600))
	w, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.Add(dir))
	for i, e := range events() {
		require.NoError(t, e.make(dir, elsewhere))
		end := filepath.Join(dir, fmt.Sprintf("end-%d", i))
		require.NoError(t, os.Mkdir(end, 0o700))
		require.Equal(t, heard(t, explain.Containerd, e.what), loads(t, w, end), e.what)
	}
}

// loads reads events to that of end, and tells whether containerd would have
// read the folder again by one of them.
func loads(t *testing.T, w *fsnotify.Watcher, end string) (load bool) {
	t.Helper()
	for {
		select {
		case e := <-w.Events:
			if e.Name == end {
				return load
			}
			load = load || !e.Has(fsnotify.Create) && !e.Has(fsnotify.Chmod)
		case <-time.After(time.Minute):
			require.Fail(t, "no event of "+end)
		}
	}
}

// crio is ocicni at work on a folder.
type crio struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func startCRIO(t *testing.T, dir, bin string) *crio {
	t.Helper()
	cmd := exec.Command(oracle(t), "watch", dir, bin)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); require.NoError(t, cmd.Wait()) })
	return &crio{t, in, bufio.NewScanner(out)}
}

// network is the default network's name now.
func (c *crio) network() string {
	_, err := io.WriteString(c.in, "\n")
	require.NoError(c.t, err)
	require.True(c.t, c.out.Scan(), c.out.Err())
	name, err := strconv.Unquote(c.out.Text())
	require.NoError(c.t, err)
	return name
}

// await waits until the default network has the name.
func (c *crio) await(name, why string) {
	c.t.Helper()
	var now string
	require.Eventually(c.t, func() bool { now = c.network(); return now == name }, time.Minute, 5*time.Millisecond, "%s: %s", why, now)
}

// TestCRIOHears: ocicni loads again what its changes say it hears of, and
// does not load what they say it does not.
func TestCRIOHears(t *testing.T) {
	dir, elsewhere, bin := t.TempDir(), t.TempDir(), foldertest.Plugins(t)
	conf := filepath.Join(dir, "a.conf")
	require.NoError(t, os.WriteFile(conf, []byte(one("start")), 0o600))
	c := startCRIO(t, dir, bin)
	c.await("start", "at the start")
	last := "start"
	for _, e := range events() {
		require.NoError(t, e.make(dir, elsewhere))
		want := map[string]string{explain.Written: "in-place", explain.RenamedIn: "renamed", explain.MovedIn: "renamed"}[e.what]
		if e.what == explain.Touched {
			require.False(t, heard(t, explain.CRIO, e.what))
			want = last
		} else {
			require.True(t, heard(t, explain.CRIO, e.what), e.what)
		}
		c.await(want, e.what)
		last = want
	}

	require.NoError(t, os.WriteFile(conf, []byte(one("a")), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.conf"), []byte(`{"cniVersion":"0.4.0","name":"b","type":"late"}`), 0o600))
	c.await("a", "two files")
	// A plugin that comes late is, since plugins' folders are watched.
	require.True(t, heard(t, explain.CRIO, explain.Installed))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0.conf"), []byte(`{"cniVersion":"0.4.0","name":"late","type":"late"}`), 0o600))
	program, err := os.ReadFile(filepath.Join(bin, "portmap"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bin, ".late"), program, 0o755))
	require.NoError(t, os.Rename(filepath.Join(bin, ".late"), filepath.Join(bin, "late")))
	c.await("late", "a plugin that comes late")
	// Broken, it is passed over.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0.conf"), []byte("{"), 0o600))
	c.await("a", explain.Broken)
}
