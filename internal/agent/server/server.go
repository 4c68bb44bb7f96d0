// Package server is the agent's front: it listens on the unix sockets, proves
// who calls, bounds what is accepted, decodes requests of our plugin and of
// Kube-OVN's, drains DEL intents, and answers the operator's queries. It holds
// no state of its own and decides nothing about networks; the engine does.
package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/agent/engine"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/httpserve"
)

// Bounds on what is accepted (reliability.md, Security).
const (
	maxRunning    = 128              // operations at once, unless Config.Limit says otherwise
	maxWaiting    = 2048             // requests that may wait for their turn
	headerTimeout = 5 * time.Second  // request line and headers
	bodyTimeout   = 10 * time.Second // body
	idleTimeout   = time.Minute      // between two requests of one connection
	ackTimeout    = 5 * time.Second  // the plugin's last byte
)

// ErrServed says that somebody listens on a socket that should be ours.
var ErrServed = errors.New("another process serves it")

// Config is what a Server is made of.
type Config struct {
	Engine  *engine.Engine
	Sockets []string // the first is the agent's own, the others for compatibility
	View    View
	Metrics http.Handler
	// Limit is how many operations run at once, 0 for our own bound; the others
	// wait for their turn.
	Limit int
	// Complete lays what the agent knows over a runtime's configuration; nil
	// leaves it as it came.
	Complete func(core.Conf) core.Conf
	Shell    hint.Shell // how those who read a runtime's errors call `fairlead`
	Log      *slog.Logger
}

// Server serves all sockets with one handler.
type Server struct {
	Config
	http     *http.Server
	running  chan struct{}
	waiting  chan struct{}
	handlers sync.WaitGroup // requests under way, and drains of intents
	left     *intents

	mu        sync.Mutex // guards listeners and closed
	listeners map[string]net.Listener
	closed    bool
	reviving  sync.Mutex // one look at the sockets at a time
}

// New makes a server; call Listen, then Run.
func New(c Config) *Server {
	s := &Server{
		Config:    c,
		running:   make(chan struct{}, cmp.Or(c.Limit, maxRunning)),
		waiting:   make(chan struct{}, maxWaiting),
		left:      newIntents(),
		listeners: map[string]net.Listener{},
	}
	s.http = &http.Server{
		Handler:           s.guard(s.routes()),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       rememberConn,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelInfo),
	}
	return s
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+cni.PathCNI, s.serveCNI)
	mux.HandleFunc("POST "+cni.PathJoin, s.serveCNI)
	mux.HandleFunc("POST "+cni.PathKubeOVNAdd, s.serveKubeOVNAdd)
	mux.HandleFunc("POST "+cni.PathKubeOVNDel, s.serveKubeOVNDel)
	mux.Handle("GET "+agent.PathMetrics, s.Metrics)
	s.operatorRoutes(mux)
	return mux
}

// Listen opens every socket. Directories that do not exist are made 0700, and so
// is our own (/run/fairlead); sockets are 0600 from the first instant.
func (s *Server) Listen() error {
	for _, path := range s.Sockets {
		if err := s.listen(path); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) listen(path string) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("listen %s: %w", path, err)
	}
	if dial(path) == nil {
		return fmt.Errorf("listen %s: %w", path, ErrServed)
	}
	if err := removeStale(path); err != nil {
		return fmt.Errorf("listen %s: %w", path, err)
	}
	l, err := httpserve.Socket(path, 0o600)
	if err != nil {
		return fmt.Errorf("listen %s: %w", path, err)
	}
	// A successor may have bound the path by the time this one closes.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if former := s.listeners[path]; former != nil {
		_ = former.Close()
	}
	s.listeners[path] = l
	return nil
}

// makeFolder makes a socket's folder for root alone. One that is ours by its name
// is made so where it is there already: kubelet makes those of a chart's volumes,
// for all to enter.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if filepath.Base(dir) == filepath.Base(filepath.Dir(cni.DefaultSocket)) {
		_ = os.Chmod(dir, 0o700) // another owner's stays as it is, and doctor says so
	}
	return nil
}

// removeStale removes the socket of an agent that is gone, and nothing else that
// a mistyped path may name.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return errors.New("the path exists and is no socket")
	}
	if err == nil {
		err = os.Remove(path)
	}
	return err
}

func dial(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// Run serves until ctx ends, then lets running operations finish. It watches
// the sockets' directories: a removed socket is made again, an intent that
// appears is carried out.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	for path, l := range s.listeners {
		s.serve(path, l)
	}
	s.mu.Unlock()
	s.watch(ctx)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := s.http.Shutdown(stop); err != nil && !errors.Is(err, net.ErrClosed) { // of a listener that was replaced
		return err
	}
	// Shutdown does not count answers that wait for their acknowledgement
	// (reply), which the journal is to have before it is closed.
	s.handlers.Wait()
	return nil
}

// serve runs one listener; the caller holds mu or owns the listener.
func (s *Server) serve(path string, l net.Listener) {
	go func() {
		if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.Log.Error("socket not served any more: plugins that call on it get no answer", "socket", path, "err", err)
		}
	}()
}

// Live dials every socket, as a plugin would, and makes one that is gone again.
func (s *Server) Live() error {
	// Probes and the watch come at the same time: two revivals would take each
	// other's socket away.
	s.reviving.Lock()
	defer s.reviving.Unlock()
	var errs []error
	for _, path := range s.Sockets {
		if dial(path) == nil {
			continue
		}
		errs = append(errs, s.revive(path))
	}
	return errors.Join(errs...)
}

func (s *Server) revive(path string) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return fmt.Errorf("socket %s: the agent is stopping", path)
	}
	s.Log.Warn("socket is gone; making it again", "socket", path)
	if err := s.listen(path); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve(path, s.listeners[path])
	return nil
}

type connKey struct{}

func rememberConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// guard is around every request: only root, bounded size, bounded numbers, and
// a panic is one failed request.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.Add(1)
		defer s.handlers.Done()
		defer func() {
			if p := recover(); p != nil {
				s.Log.Error("request panicked", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		if err := peerIsRoot(r.Context()); err != nil {
			s.Log.Warn("caller refused", "err", err)
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, cni.MaxBody)
		release, err := s.admit(w, r)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		defer release()
		next.ServeHTTP(w, r)
	})
}

// admit bounds how many requests run and how many may wait. The body is read
// before the request takes a place among those that run: the plugin learns at
// once that an agent is here (100 Continue), a slow sender holds up nobody, and
// a caller that goes away while it waits is noticed.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (func(), error) {
	select {
	case s.waiting <- struct{}{}:
	default:
		return nil, core.Errorf(core.CodeTryAgain, "%d requests are waiting already", maxWaiting)
	}
	defer func() { <-s.waiting }()
	if err := receive(w, r); err != nil {
		return nil, err
	}
	if r.URL.Path == cni.PathJoin {
		return func() {}, nil // part of a request that has its place already
	}
	select {
	case s.running <- struct{}{}:
		return func() { <-s.running }, nil
	case <-r.Context().Done():
		return nil, core.Errorf(core.CodeTryAgain, "the caller went away: %w", r.Context().Err())
	}
}

// receive reads the whole body. The connection's deadline covers the body only:
// the operation that follows has its own, and one left here would end it.
func receive(w http.ResponseWriter, r *http.Request) error {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(r.Body)
	_ = rc.SetReadDeadline(time.Time{})
	if err != nil {
		return core.Errorf(core.CodeDecode, "request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// statusOf is the HTTP status for a request that was not admitted.
func statusOf(err error) int {
	switch {
	case core.CodeOf(err) == core.CodeTryAgain:
		return http.StatusServiceUnavailable
	case errors.As(err, new(*http.MaxBytesError)):
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}

// readJSON decodes a request's body into v.
func readJSON(r *http.Request, v any) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return core.Errorf(core.CodeDecode, "request: %w", err)
	}
	return nil
}

// peerIsRoot checks SO_PEERCRED: the file modes of the socket are the first
// fence, this is the second.
func peerIsRoot(ctx context.Context) error {
	cred, err := peer(ctx)
	if err != nil {
		return fmt.Errorf("peer credentials: %w", err)
	}
	if cred.Uid != 0 {
		return fmt.Errorf("uid %d may not use this socket: only root may", cred.Uid)
	}
	return nil
}

// peer tells who is at the other end, as the kernel noted it at connect(2). The
// process id is 0 where it has none in our PID namespace.
func peer(ctx context.Context) (cred *unix.Ucred, err error) {
	c, ok := ctx.Value(connKey{}).(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket connection")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, credErr)
}
