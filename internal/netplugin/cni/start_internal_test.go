package cni

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// program is a plugin that does what a script says.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755)) //nolint:gosec // a program
	return path
}

// ended tells that a process is no more, or waits for nobody but its parent.
func ended(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

// TestTimeIsOver: a plugin whose time is over ends, with whom it started; who hangs at its pipes
// after it has answered is not waited for.
func TestTimeIsOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "DIR=" + dir}
	child := func(name string) string {
		t.Helper()
		var text []byte
		require.Eventually(t, func() bool {
			text, _ = os.ReadFile(filepath.Join(dir, name))
			return len(text) > 1 && text[len(text)-1] == '\n'
		}, time.Minute, time.Millisecond)
		return strings.TrimSpace(string(text))
	}
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := newStarter().ExecPlugin(ctx, program(t, `sleep 1000 & echo $! >$DIR/hung; wait`), nil, env)
		failed <- err
	}()
	pid := child("hung")
	stop()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Eventually(t, func() bool { return ended(pid) }, time.Minute, time.Millisecond)

	out, err := newStarter().ExecPlugin(t.Context(), program(t, `sleep 1000 & echo $! >$DIR/left; echo '{"cniVersion":"1.0.0"}'`), nil, env)
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0"}`, string(out))
	p := child("left")
	require.False(t, ended(p))
	n, err := strconv.Atoi(p)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(n, unix.SIGKILL))
}

// TestWhatAPluginSays: its own error, else the last of its standard error.
func TestWhatAPluginSays(t *testing.T) {
	t.Parallel()
	_, err := newStarter().ExecPlugin(t.Context(), program(t, `echo '{"code":7,"msg":"bad","details":"conf"}'; exit 1`), nil, nil)
	require.Equal(t, &types.Error{Code: 7, Msg: "bad", Details: "conf"}, err)
	_, err = newStarter().ExecPlugin(t.Context(), program(t, `echo words >&2; exit 3`), nil, nil)
	require.EqualError(t, err, "plugin failed: exit status 3: words")
	out, err := newStarter().ExecPlugin(t.Context(), program(t, `cat`), []byte(`{"a":1}`), []string{"PATH=" + os.Getenv("PATH")})
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(out))
}
