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
	l, err := private(path)
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

// private listens at a path for root alone, in the place of a socket that is left there.
func private(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	l, err := httpserve.Socket(path, 0o600)
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // a successor may have the path by then
	}
	return l, err
}

// serveHTTP serves on an address until ctx ends; "" is none.
func serveHTTP(ctx context.Context, address string, h http.Handler) error {
	serve, err := httpserve.Open(ctx, address, h)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	return serve()
}
