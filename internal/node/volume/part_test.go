package volume

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestParts: what a path below a volume leads to, and what it may not.
func TestParts(t *testing.T) {
	f, _ := folder(t, "")
	dir, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o2775|os.ModeSetgid))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for name, to := range map[string]string{"in": "sub", "up": "..", "abs": outside, "rel": "../" + filepath.Base(outside), "far": "sub/../../x", "to-in": "in", "sub/back": "../file"} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	for i, c := range []struct {
		path, fail string
		folder     bool
	}{
		{"file", "", false}, {"sub", "", true}, {"socket", "", false}, {"pipe", "", false}, {"in", "", true}, {"to-in", "", true}, {"sub/back", "", false},
		{"new/er/folder", "", true}, {"in/made", "", true},
		{"up", "escapes", false}, {"abs", "escapes", false}, {"abs/secret", "escapes", false}, {"rel", "escapes", false}, {"far", "escapes", false},
		{"../x", "does not stay in the volume", false}, {"/etc", "does not stay in the volume", false}, {"sub/../../x", "does not stay in the volume", false},
		{"file/below", "not a directory", false},
	} {
		t.Run(c.path, func(t *testing.T) {
			at, err := f.Part(Mount{Path: dir}, Part{Pod: "uid", Volume: "v", Container: "c", Index: i, Path: c.path})
			if c.fail != "" {
				require.ErrorContains(t, err, "subPath "+c.path+": ")
				require.ErrorContains(t, err, c.fail)
				return
			}
			require.NoError(t, err)
			var want, has unix.Stat_t
			require.NoError(t, unix.Stat(filepath.Join(dir, c.path), &want))
			require.NoError(t, unix.Stat(at, &has))
			require.Equal(t, want.Ino, has.Ino)
			require.Equal(t, c.folder, has.Mode&unix.S_IFMT == unix.S_IFDIR)
		})
	}
	for _, made := range []string{"new", "new/er", "new/er/folder"} {
		st, err := os.Stat(filepath.Join(dir, made))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o775), st.Mode().Perm(), "as the volume's")
	}
	_, err = f.Part(Mount{Path: dir, ReadOnly: true}, Part{Pod: "uid", Volume: "v", Container: "c", Index: 90, Path: "none"})
	require.EqualError(t, err, "subPath none: the volume has no such file")
}

// TestPartLooksAnew: the next container gets what is there then; a mount of what
// has not changed stays.
func TestPartLooksAnew(t *testing.T) {
	f, _ := folder(t, "")
	dir := t.TempDir()
	part := func() string {
		at, err := f.Part(Mount{Path: dir}, Part{Pod: "uid", Volume: "v", Container: "c", Path: "x"})
		require.NoError(t, err)
		mounts, err := mountsBelow(f.parts("uid"))
		require.NoError(t, err)
		require.Equal(t, []string{at}, mounts)
		return at
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), []byte("one"), 0o600))
	at := part()
	require.Equal(t, at, part())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "y"), []byte("two"), 0o600))
	require.NoError(t, os.Rename(filepath.Join(dir, "y"), filepath.Join(dir, "x")))
	text, err := os.ReadFile(at)
	require.NoError(t, err)
	require.Equal(t, "one", string(text))
	text, err = os.ReadFile(part())
	require.NoError(t, err)
	require.Equal(t, "two", string(text))
	require.NoError(t, os.Remove(filepath.Join(dir, "x")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "x"), 0o700)) // a folder now
	require.DirExists(t, part())
}

// TestPartIsNotLedAstray: a container that swaps its folder for a link while we
// look never gets what is outside.
func TestPartIsNotLedAstray(t *testing.T) {
	f, _ := folder(t, "")
	dir, outside := t.TempDir(), t.TempDir()
	var want unix.Stat_t
	require.NoError(t, unix.Stat(outside, &want))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "x"), 0o700))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	ctx, cancel := context.WithCancel(t.Context())
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "x"), unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE)
		}
	})
	for range 500 {
		at, err := f.Part(Mount{Path: dir}, Part{Pod: "uid", Volume: "v", Container: "c", Path: "x/below"})
		if err != nil {
			continue // it looked while the link was there
		}
		var has unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Dir(at), &has))
		left, err := os.ReadDir(outside)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	cancel()
	swaps.Wait()
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestTearDownSparesOthers: what is seen through a mount is not the pod's to
// remove, whoever mounted it and however deep.
func TestTearDownSparesOthers(t *testing.T) {
	f, _ := folder(t, "")
	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "kept"), nil, 0o600))
	p := podOf(t, "{volumes: [{name: a, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}, {name: h, hostPath: {path: "+host+"}}]}")
	m, err := f.SetUp(t.Context(), p)
	require.NoError(t, err)
	_, err = f.Part(m["h"], Part{Pod: "uid", Volume: "h", Container: "c", Path: "sub"})
	require.NoError(t, err)
	for _, volume := range []string{"a", "m"} { // as a container does with Bidirectional propagation
		for _, name := range []string{"in side", "in side/deep"} {
			at := filepath.Join(m[volume].Path, name)
			require.NoError(t, os.MkdirAll(at, 0o700))
			require.NoError(t, unix.Mount(host, at, "", unix.MS_BIND, ""))
			if name == "in side" {
				require.NoError(t, os.MkdirAll(filepath.Join(host, "deep"), 0o700))
			}
		}
	}
	require.NoError(t, unix.Mount(host, m["a"].Path, "", unix.MS_BIND, "")) // on the volume itself
	for range 2 {
		require.NoError(t, f.TearDown("uid"))
	}
	require.FileExists(t, filepath.Join(host, "kept"))
	require.DirExists(t, filepath.Join(host, "sub"))
	require.DirExists(t, filepath.Join(host, "deep"))
	left, err := mountsBelow(f.conf.Root)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestUnmountSparesTheMachine: where the machine's mounts are shared, as systemd makes
// them, a disk that is mounted below a part of a hostPath while the pod runs is the
// machine's own.
func TestUnmountSparesTheMachine(t *testing.T) {
	const key = "VOLUME_TEST_SHARED"
	if os.Getenv(key) == "" { // the namespace of a thread is not the one that proc(5) shows
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), key+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	dir := os.Getenv(key)
	mount := func(at string) {
		require.NoError(t, os.MkdirAll(at, 0o700))
		require.NoError(t, unix.Mount("none", at, "tmpfs", 0, ""))
		require.NoError(t, unix.Mount("", at, "", unix.MS_SHARED, ""))
	}
	mount(dir)
	f, machine := New(Config{Root: filepath.Join(dir, "pods"), Log: slog.New(slog.DiscardHandler)}), filepath.Join(dir, "machine")
	require.NoError(t, os.Mkdir(machine, 0o700))
	for _, end := range []func(){
		func() { // the next container's part is another folder
			require.NoError(t, os.Rename(filepath.Join(machine, "data"), filepath.Join(machine, "former")))
			_, err := f.Part(Mount{Path: machine}, Part{Pod: "uid", Volume: "v", Container: "c", Path: "data"})
			require.NoError(t, err)
		},
		func() { require.NoError(t, f.TearDown("uid")) },
	} {
		at, err := f.Part(Mount{Path: machine}, Part{Pod: "uid", Volume: "v", Container: "c", Path: "data"})
		require.NoError(t, err)
		mount(filepath.Join(machine, "data/disk"))
		mount(filepath.Join(machine, "data/disk/deep"))
		deep, err := isMount(filepath.Join(at, "disk/deep"))
		require.NoError(t, err)
		require.True(t, deep, "the container sees it")
		before, err := mountsBelow(machine)
		require.NoError(t, err)
		end()
		after, err := mountsBelow(machine)
		require.NoError(t, err)
		require.Len(t, after, len(before))
	}
	left, err := mountsBelow(f.conf.Root)
	require.NoError(t, err)
	require.Empty(t, left)
}
