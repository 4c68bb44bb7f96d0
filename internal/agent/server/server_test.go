package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
)

// newServer has no engine: a call of the plugin panics in it.
func newServer(t *testing.T, sockets ...string) *Server {
	t.Helper()
	return New(Config{Sockets: sockets, Metrics: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
}

// started listens and runs until the test ends.
func started(t *testing.T, path string) *Server {
	t.Helper()
	s := newServer(t, path)
	serve(t, s)
	return s
}

func serve(t *testing.T, s *Server) {
	t.Helper()
	require.NoError(t, s.Listen())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
}

// ask sends one request and gives the answer's status and body.
func ask(t *testing.T, path, method, target, body string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+target, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestSocketIsForRootOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "fairlead")
	path := filepath.Join(dir, "agent.sock")
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	started(t, path)
	for name, want := range map[string]os.FileMode{path: os.ModeSocket | 0o600, dir: os.ModeDir | 0o700} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode(), name)
	}
	now := syscall.Umask(mask)
	require.Equal(t, mask, now, "the mask is as it was")
}

// TestFolderOfTheSocket: our own folder is root's alone, whoever has made it; what
// has another name is left as it is.
func TestFolderOfTheSocket(t *testing.T) {
	for name, want := range map[string]os.FileMode{"fairlead": 0o700, "run": 0o755} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chmod(dir, 0o755))
		started(t, filepath.Join(dir, "agent.sock"))
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), name)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	started(t, path)
	status, _ := ask(t, path, http.MethodGet, "/none", "")
	require.Equal(t, http.StatusNotFound, status)
}

func TestForeignSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	started(t, path)
	require.ErrorContains(t, newServer(t, path).Listen(), "another process serves it")
	status, _ := ask(t, path, http.MethodGet, "/none", "")
	require.Equal(t, http.StatusNotFound, status)
}

func TestFileInPlaceOfSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(path, []byte("root"), 0o600))
	require.ErrorContains(t, newServer(t, path).Listen(), "no socket")
	require.FileExists(t, path)
}

func TestLostSocketIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	s := started(t, path)
	require.NoError(t, s.Live())
	require.NoError(t, os.Remove(path))
	require.Eventually(t, func() bool { return dial(path) == nil }, time.Minute, time.Millisecond, "the watch sees it")
	require.NoError(t, os.Remove(path))
	require.NoError(t, s.Live())
	status, _ := ask(t, path, http.MethodGet, "/none", "")
	require.Equal(t, http.StatusNotFound, status)
}

// An agent that cannot watch its folder serves all the same.
func TestServesWithoutWatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	s := newServer(t, filepath.Join(dir, "agent.sock"))
	require.NoError(t, s.Listen())
	require.NoError(t, os.RemoveAll(dir))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	require.NoError(t, s.Live(), "made again, folder and all")
	select {
	case err := <-done:
		t.Fatalf("ended: %v", err)
	default:
	}
	stop()
	require.NoError(t, <-done)
}

func TestPanicIsOneFailedRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	started(t, path)
	for range 3 { // without an engine a good call has nowhere to go
		status, body := ask(t, path, http.MethodPost, cni.PathCNI,
			`{"command":"STATUS","config":"eyJjbmlWZXJzaW9uIjoiMS4xLjAiLCJuYW1lIjoiYSIsInR5cGUiOiJmYWlybGVhZCJ9"}`)
		require.Equal(t, http.StatusInternalServerError, status)
		require.NotContains(t, body, "goroutine", "the stack is for the log")
	}
	status, _ := ask(t, path, http.MethodGet, "/none", "")
	require.Equal(t, http.StatusNotFound, status)
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	s := started(t, path)
	for range maxWaiting {
		s.waiting <- struct{}{}
	}
	status, body := ask(t, path, http.MethodGet, agent.PathPods, "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "waiting")
	for range maxWaiting {
		<-s.waiting
	}
	status, _ = ask(t, path, http.MethodGet, "/none", "")
	require.Equal(t, http.StatusNotFound, status)
}

// TestLimit: as many operations run at once as the agent's file says.
func TestLimit(t *testing.T) {
	c := newServer(t).Config
	require.Equal(t, maxRunning, cap(New(c).running))
	c.Limit = 2
	require.Equal(t, 2, cap(New(c).running))
}

// TestJoiningCallsWaitForNoPlace: they are part of requests that have theirs; if
// they waited, as many ADDs as there are places would wait for each other.
func TestJoiningCallsWaitForNoPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	s := started(t, path)
	for range maxRunning {
		s.running <- struct{}{}
	}
	status, _ := ask(t, path, http.MethodPost, cni.PathJoin, "junk")
	require.Equal(t, http.StatusBadRequest, status)
}

// A plugin that must wait for its turn is told at once that an agent is here,
// and one that goes away meanwhile gives its place back.
func TestWaitingPluginHearsOfTheAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	s := started(t, path)
	for range maxRunning {
		s.running <- struct{}{}
	}
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	_, err = io.WriteString(c, "POST /v1/cni HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	require.NoError(t, err)
	var status int
	_, err = fmt.Fscanf(c, "HTTP/1.1 %d Continue\r\n", &status)
	require.NoError(t, err)
	require.Equal(t, http.StatusContinue, status)
	_, err = io.WriteString(c, "junk")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(s.waiting) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return len(s.waiting) == 0 }, time.Minute, time.Millisecond)
	for range maxRunning {
		<-s.running
	}
}

// Bodies that do not come hold no place among the requests that run.
func TestSlowBodiesHoldUpNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	s := started(t, path)
	for range maxRunning {
		c, err := net.Dial("unix", path)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = io.WriteString(c, "POST /v1/cni HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nj")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(s.waiting) == maxRunning }, time.Minute, time.Millisecond)
	status, _ := ask(t, path, http.MethodGet, "/none", "")
	require.Equal(t, http.StatusNotFound, status)
}

// A stopping agent waits for the acknowledgements of the answers it has sent:
// what the runtime has is to be recorded as delivered.
func TestStopWaitsForAcknowledgement(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.sock")
	s := newServer(t, path)
	require.NoError(t, s.Listen())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: agent\r\nContent-Length: 2\r\n\r\n{}", cni.PathCNI)
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1)) // a refusal, and no word that it came
	require.NoError(t, err)
	stop()
	require.NoError(t, <-done)
	require.Empty(t, s.running, "a request is still under way")
}
