// Package cri serves CRI v1 over Docker Engine on a unix socket: it puts the
// services of its subpackages together and adds what is about the runtime as a
// whole. The subpackages do the work and do not know each other.
package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/checkpoint"
	"github.com/fairlead/fairlead/internal/cri/container"
	"github.com/fairlead/fairlead/internal/cri/fault"
	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/sandbox"
	"github.com/fairlead/fairlead/internal/cri/spec"
	"github.com/fairlead/fairlead/internal/cri/stats"
	"github.com/fairlead/fairlead/internal/cri/stream"
	"github.com/fairlead/fairlead/internal/lib/httpserve"
	"github.com/fairlead/fairlead/internal/netplugin"
)

const (
	collectEvery = time.Minute
	maxMessage   = 16 << 20 // bytes: what kubelet's client takes
	socketMode   = 0o600
	folderMode   = 0o700
	// endLimit bounds how long the end waits for requests that are under way.
	endLimit = 10 * time.Second
)

// Logs writes containers' logs.
type Logs interface {
	container.Logs
	// Reopen begins a new file at the log's path.
	Reopen(ctx context.Context, id string) error
}

// Config is what the server is made of.
type Config struct {
	Docker *client.Client
	// Network gives pods theirs; New initialises it.
	Network  *netplugin.Manager
	Settings netplugin.Settings
	// PodCIDR is told to Network before kubelet can tell one; "": nobody knows.
	PodCIDR string
	// Images is the ImageService of the same engine.
	Images cri.ImageServiceServer
	Logs   Logs
	// StreamAddress is host:port where exec, attach and port-forward are served;
	// "" is a free port on 127.0.0.1.
	StreamAddress string
	// Dir holds the checkpoints.
	Dir string
	// SandboxImage holds the process that keeps a pod's namespaces.
	SandboxImage string
	// CgroupDriver is cgroupfs or systemd; "" asks the engine.
	CgroupDriver string
	// Bridged: the engine's own network serves pods.
	Bridged bool
	Version string
	Log     *slog.Logger
}

// services are the parts that implement the RPCs under their own names.
type services struct {
	*sandbox.Service
	containers
	statistics
	streams
}

// Their types have the same names; a struct embeds one of a name.
type (
	containers struct{ *container.Service }
	streams    struct{ *stream.Server }
	statistics struct{ *stats.Service }
)

// Server implements RuntimeService.
type Server struct {
	cri.UnsafeRuntimeServiceServer // every RPC is written out; a new one fails to build
	services
	conf    Config
	records *checkpoint.Store
	driver  string       // cgroup driver
	engine  atomic.Value // string: the engine's version, as it last told
	log     *slog.Logger
}

var _ cri.RuntimeServiceServer = (*Server)(nil)

// New asks the engine what must be known of it, reads the checkpoints and listens
// for streams. The server ends with ctx.
func New(ctx context.Context, c Config) (*Server, error) {
	info, err := c.Docker.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	if c.CgroupDriver == "" {
		c.CgroupDriver = info.Info.CgroupDriver
	}
	if c.CgroupDriver != info.Info.CgroupDriver {
		return nil, fmt.Errorf("docker: its cgroup driver is %q, not %q", info.Info.CgroupDriver, c.CgroupDriver)
	}
	records, err := checkpoint.Open(filepath.Join(c.Dir, "sandbox"))
	if records == nil {
		return nil, err
	}
	if err != nil { // the sandboxes of damaged records end by what Docker knows
		c.Log.Error("damaged checkpoints set aside: their sandboxes end by what Docker knows", "err", err)
	}
	engine := spec.Engine{CgroupDriver: c.CgroupDriver, Bridged: c.Bridged, SELinux: slices.Contains(info.Info.SecurityOptions, "name=selinux")}
	s := &Server{conf: c, records: records, driver: c.CgroupDriver, log: c.Log}
	s.engine.Store(info.Info.ServerVersion)
	sandboxes := sandbox.New(sandbox.Config{
		Docker: c.Docker, Network: c.Network, Records: records, Image: c.SandboxImage,
		Pull: s.pull, Engine: engine, Log: c.Log,
	})
	if err := startNetwork(ctx, c, sandboxes); err != nil {
		return nil, err
	}
	str, err := stream.New(ctx, stream.Config{
		Docker: c.Docker, Ours: label.IsContainer, Netns: sandboxes.Netns, Address: c.StreamAddress, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	s.services = services{
		Service:    sandboxes,
		containers: containers{container.New(container.Config{Docker: c.Docker, Logs: c.Logs, Engine: engine, Log: c.Log})},
		statistics: statistics{stats.New(c.Docker, info.Info.DockerRootDir)},
		streams:    streams{str},
	}
	return s, nil
}

func startNetwork(ctx context.Context, c Config, host netplugin.Host) error {
	err := c.Network.Init(ctx, host, c.Settings)
	if err == nil && c.PodCIDR != "" {
		err = c.Network.SetPodCIDR(ctx, c.PodCIDR)
	}
	return err
}

func (s *Server) pull(ctx context.Context, image string) error {
	_, err := s.conf.Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
	return err
}

// Run recovers what an earlier process left and serves the socket at path until
// ctx ends. Pods live on.
func (s *Server) Run(ctx context.Context, path string) error {
	l, err := listen(path)
	if err != nil {
		return err
	}
	if err := s.Recover(ctx); err != nil {
		s.log.Error("sandboxes of an earlier process not recovered: unfinished ones stay", "err", err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { s.conf.Network.Run(ctx) })
	s.collectNetworks(ctx)
	s.followLogs(ctx)
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream))
	cri.RegisterRuntimeServiceServer(srv, s)
	cri.RegisterImageServiceServer(srv, s.conf.Images)
	ended.Go(func() {
		s.collect(ctx)
		stop(srv)
	})
	ended.Go(func() {
		if err := s.Serve(ctx); err != nil {
			s.log.Error("stream server ended: exec, attach and port-forward fail", "err", err)
		}
	})
	s.log.Info("serving CRI", "socket", path, "streams", s.Address(), "version", s.conf.Version, "cgroupDriver", s.driver)
	err = srv.Serve(l)
	ended.Wait()
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// followLogs goes on writing the logs of containers that run.
func (s *Server) followLogs(ctx context.Context) {
	list, err := s.conf.Docker.ContainerList(ctx, client.ContainerListOptions{Filters: label.Containers(nil)})
	for _, c := range list.Items {
		err = errors.Join(err, s.conf.Logs.Follow(ctx, c.ID))
	}
	if err != nil {
		s.log.Error("logs of running containers not followed: they lack what is written now", "err", err)
	}
}

// stop lets requests finish, but not for ever: streams of events never do.
func stop(srv *grpc.Server) {
	t := time.AfterFunc(endLimit, srv.Stop)
	defer t.Stop()
	srv.GracefulStop()
}

// collect gives back what sandboxes that vanished have left, until ctx ends.
func (s *Server) collect(ctx context.Context) {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.Collect(ctx); err != nil {
				s.log.Error("lost sandboxes not removed: the next round tries again", "err", err)
			}
			s.collectNetworks(ctx)
		}
	}
}

// collectNetworks gives back what networks keep for sandboxes that nobody knows.
func (s *Server) collectNetworks(ctx context.Context) {
	if err := s.conf.Network.Collect(ctx, s.Known); err != nil {
		s.log.Error("networks of lost sandboxes not released: the next round tries again", "err", err)
	}
}

// listen makes a socket that only root can reach. One that somebody serves is
// left to them.
func listen(path string) (net.Listener, error) {
	path = strings.TrimPrefix(path, "unix://")
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen %s: somebody serves it already", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := httpserve.Socket(path, socketMode)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// unary gives errors their codes and a line in the log, and makes of a panic an
// error of its request alone.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() { err = s.settle(info.FullMethod, recover(), err) }()
	return next(ctx, req)
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() { err = s.settle(info.FullMethod, recover(), err) }()
	return next(srv, ss)
}

func (s *Server) settle(method string, panicked any, err error) error {
	if panicked != nil {
		s.log.Error("panic in a request", "method", method, "panic", panicked, "stack", string(debug.Stack()))
		return status.Errorf(codes.Internal, "%s: internal error: %v", method, panicked)
	}
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); !ok { // a wrapped one has more to say
		err = status.Error(fault.Code(err), err.Error())
	}
	s.log.Warn("request failed", "method", method, "code", status.Code(err).String(), "err", status.Convert(err).Message())
	return err
}
