package httpserve_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/httpserve"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// TestUntilTheEnd: the handler of a request under way is told, and its client
// does not wait for ever.
func TestUntilTheEnd(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked, told := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /short", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })
	mux.HandleFunc("GET /long", func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(told)
	})
	l, ended, left := listen(t), make(chan error, 1), make(chan struct{})
	go func() { ended <- httpserve.Serve(ctx, l, mux) }()
	text, err := get(t, "http://"+l.Addr().String()+"/short")
	require.NoError(t, err)
	require.Equal(t, "here", text)
	go func() {
		defer close(left)
		_, _ = get(t, "http://"+l.Addr().String()+"/long") // cut off, or answered in haste
	}()
	<-asked
	stop()
	require.NoError(t, <-ended)
	<-told
	<-left
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestOpen: an address that somebody has is told at once.
func TestOpen(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	serve, err := httpserve.Open(ctx, "", nil)
	require.NoError(t, err)
	require.NoError(t, serve(), "nowhere")
	taken := listen(t)
	defer taken.Close()
	_, err = httpserve.Open(ctx, taken.Addr().String(), http.NotFoundHandler())
	require.ErrorContains(t, err, taken.Addr().String())
	serve, err = httpserve.Open(ctx, "127.0.0.1:0", http.NotFoundHandler())
	require.NoError(t, err)
	stop()
	require.NoError(t, serve())
}

// TestNotServedAnyMore: an end that nobody asked for is told.
func TestNotServedAnyMore(t *testing.T) {
	t.Parallel()
	l := listen(t)
	require.NoError(t, l.Close())
	require.ErrorIs(t, httpserve.Serve(t.Context(), l, http.NotFoundHandler()), net.ErrClosed)
}

// TestSocket: what a process that is killed at any moment leaves is the socket alone.
func TestSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, mode := range []os.FileMode{0o600, 0o640} {
		path := filepath.Join(dir, mode.String())
		l, err := httpserve.Socket(path, mode)
		require.NoError(t, err)
		defer l.Close()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.ModeSocket|mode, info.Mode())
		_, err = httpserve.Socket(path, mode)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
}
