// Package stream serves exec, attach and port-forward: the protocols (SPDY and
// websockets) are k8s.io/cri-streaming's, what they connect to is Docker Engine's
// exec and attach, and sockets inside a sandbox's network namespace. It starts no
// process of its own. It must not know which sandbox has which namespace; the
// caller does.
package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/client"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// Config says what the server works with.
type Config struct {
	Docker *docker.Client
	// Ours tells a pod's container by its labels: no other one is entered.
	Ours func(labels map[string]string) bool
	// Netns gives the path of the network namespace of a sandbox that is ready. Its
	// errors are for the caller of PortForward, best as gRPC statuses.
	Netns func(ctx context.Context, sandbox string) (string, error)
	// Address is host:port to listen on; "" is a free port on 127.0.0.1. Whoever
	// reaches it needs a token of one minute's life to do anything.
	Address string
	// Idle ends a stream on which nothing is said for so long; 0 is 4 h.
	Idle time.Duration
	Log  *slog.Logger
}

// Server gives URLs and serves them.
type Server struct {
	conf    Config
	streams streaming.Server
	l       net.Listener
	http    *http.Server

	ctx  context.Context // of all streams
	stop context.CancelFunc
}

// New listens; Serve then answers. The server ends with ctx or Close.
func New(ctx context.Context, c Config) (*Server, error) {
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	s := &Server{conf: c, l: l}
	s.ctx, s.stop = context.WithCancel(ctx)
	conf := streaming.DefaultConfig
	conf.Addr = l.Addr().String()
	conf.BaseURL = &url.URL{Scheme: "http", Host: conf.Addr}
	if c.Idle > 0 {
		conf.StreamIdleTimeout = c.Idle
	}
	if s.streams, err = streaming.NewServer(conf, s.runtime()); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	s.http = &http.Server{
		Handler:           s.streams,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
	}
	return s, nil
}

// Address is host:port that the server listens on.
func (s *Server) Address() string { return s.l.Addr().String() }

// Serve answers until ctx ends or Close is called, which is no error.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.Close)()
	err := s.http.Serve(s.l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve streams: %w", err)
}

// Close ends the server and all streams. Commands that run in containers are
// Docker's and run on, as they do when their client goes away.
func (s *Server) Close() {
	s.stop()
	_ = s.http.Close()
}

// Exec gives the URL of a command. Errors: NotFound, also for a container of no
// pod, FailedPrecondition for a
// container that does not run, InvalidArgument for streams that do not fit.
func (s *Server) Exec(ctx context.Context, req *runtime.ExecRequest) (*runtime.ExecResponse, error) {
	res, err := s.streams.GetExec(req)
	if err == nil {
		_, err = s.running(ctx, req.ContainerId)
	}
	if err != nil {
		return nil, fault.Of(err, "exec in container %s", req.GetContainerId())
	}
	return res, nil
}

// Attach gives the URL of a container's own streams. Errors as of Exec.
func (s *Server) Attach(ctx context.Context, req *runtime.AttachRequest) (*runtime.AttachResponse, error) {
	res, err := s.streams.GetAttach(req)
	if err == nil {
		_, err = s.running(ctx, req.ContainerId)
	}
	if err != nil {
		return nil, fault.Of(err, "attach to container %s", req.GetContainerId())
	}
	return res, nil
}

// PortForward gives the URL of connections into a sandbox. Errors: InvalidArgument
// and those of Config.Netns.
func (s *Server) PortForward(ctx context.Context, req *runtime.PortForwardRequest) (*runtime.PortForwardResponse, error) {
	res, err := s.streams.GetPortForward(req)
	if err == nil {
		_, err = s.conf.Netns(ctx, req.PodSandboxId)
	}
	if err != nil {
		return nil, fault.Of(err, "forward ports of sandbox %s", req.GetPodSandboxId())
	}
	return res, nil
}

// running describes a pod's container that runs; whatever else the engine has is
// not found.
func (s *Server) running(ctx context.Context, id string) (container.InspectResponse, error) {
	res, err := s.conf.Docker.ContainerInspect(ctx, id, docker.ContainerInspectOptions{})
	if err != nil {
		return res.Container, err
	}
	if !s.conf.Ours(res.Container.Config.Labels) {
		return res.Container, fmt.Errorf("%w: the container is Docker's, not a pod's", errdefs.ErrNotFound)
	}
	if st := res.Container.State; st == nil || !st.Running {
		return res.Container, fmt.Errorf("%w: it does not run", errdefs.ErrFailedPrecondition)
	}
	return res.Container, nil
}
