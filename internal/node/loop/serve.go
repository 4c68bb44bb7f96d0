package loop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/lib/httpserve"
)

// serveSocket serves on a unix socket, for root alone, until ctx ends. A socket
// that a killed process left is replaced.
func serveSocket(ctx context.Context, listen string, h http.Handler) error {
	path := strings.TrimPrefix(listen, "unix://")
	if path == "" {
		return nil
	}
	l, err := private(ctx, path)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", path, err)
	}
	made, err := os.Stat(path)
	if err != nil {
		return errors.Join(fmt.Errorf("--listen %s: %w", path, err), l.Close())
	}
	err = httpserve.Serve(ctx, l, h)
	if now, gone := os.Stat(path); gone == nil && os.SameFile(made, now) { // not a successor's
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// private listens at a path that nobody else can open at any time: the socket
// is made in a closed folder and moved.
func private(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".n-") // 0700
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // an empty folder
	made := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it has moved
	}
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serveHTTP serves on an address until ctx ends; "" is none.
func serveHTTP(ctx context.Context, address string, h http.Handler) error {
	serve, err := httpserve.Open(ctx, address, h)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	return serve()
}
