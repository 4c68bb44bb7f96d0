package nodeloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
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
	err = serve(ctx, l, h)
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
	if address == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	return serve(ctx, l, h)
}

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
