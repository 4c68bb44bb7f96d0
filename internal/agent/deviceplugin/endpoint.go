package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	pb "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/fairlead/fairlead/internal/lib/httpserve"
)

const (
	kubeletSocket = "kubelet.sock"
	registerLimit = 5 * time.Second
	// deaf is how long kubelet may listen to nobody before it is told of the resource again.
	deaf = 10 * time.Second
)

// endpoint serves one resource on a socket of its own (kubelet's deviceplugin/v1beta1).
type endpoint struct {
	pb.UnimplementedDevicePluginServer

	m      *Manager
	name   string
	socket string
	dir    string

	server     *grpc.Server // nil: not served
	own        os.FileInfo  // of the socket that is served
	kubelet    os.FileInfo  // of kubelet's socket, when it was told
	registered time.Time

	mu      sync.Mutex // guards what follows
	devices []*pb.Device
	news    chan struct{} // closed at the next change
	streams int
}

func newEndpoint(m *Manager, name, dir string) *endpoint {
	file := "fairlead-" + strings.ReplaceAll(name, "/", "_") + ".sock"
	return &endpoint{m: m, name: name, dir: dir, socket: filepath.Join(dir, file), news: make(chan struct{})}
}

// set tells kubelet of other devices.
func (e *endpoint) set(devices []*pb.Device) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.EqualFunc(devices, e.devices, func(a, b *pb.Device) bool { return proto.Equal(a, b) }) {
		return
	}
	e.devices = devices
	close(e.news)
	e.news = make(chan struct{})
}

// current are the devices, and what is closed when they change.
func (e *endpoint) current() ([]*pb.Device, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.devices, e.news
}

// ensure has the socket served, and kubelet know it: one that starts removes all sockets of
// the folder. os.ErrNotExist: there is no kubelet.
func (e *endpoint) ensure(ctx context.Context) error {
	kubelet, err := os.Stat(filepath.Join(e.dir, kubeletSocket))
	if err != nil {
		return err
	}
	now, err := os.Stat(e.socket)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if e.server == nil || err != nil || !os.SameFile(now, e.own) {
		e.stop()
		if err := e.listen(); err != nil {
			return err
		}
	}
	if e.knownTo(kubelet) {
		return nil
	}
	if err := e.register(ctx); err != nil {
		return err
	}
	e.kubelet, e.registered = kubelet, time.Now()
	e.m.cfg.Log.Info("kubelet told of a resource", "resource", e.name)
	return nil
}

// knownTo tells that the kubelet of this socket was told of the resource, and listens.
func (e *endpoint) knownTo(kubelet os.FileInfo) bool {
	return e.kubelet != nil && os.SameFile(kubelet, e.kubelet) && kubelet.ModTime().Equal(e.kubelet.ModTime()) && !e.unheard()
}

// unheard tells that kubelet has not asked for the devices, or asks no more.
func (e *endpoint) unheard() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.streams == 0 && time.Since(e.registered) > deaf
}

func (e *endpoint) listen() error {
	if err := os.Remove(e.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := httpserve.Socket(e.socket, 0o600)
	if err != nil {
		return fmt.Errorf("resource %s: %w", e.name, err)
	}
	if e.own, err = os.Stat(e.socket); err != nil {
		return errors.Join(err, l.Close())
	}
	e.server = grpc.NewServer()
	pb.RegisterDevicePluginServer(e.server, e)
	go func(s *grpc.Server) { _ = s.Serve(l) }(e.server) // it ends by stop
	return nil
}

// stop ends the server; kubelet then calls its devices unhealthy.
func (e *endpoint) stop() {
	if e.server != nil {
		e.server.Stop()
	}
	e.server, e.kubelet = nil, nil
}

// register tells kubelet of the resource. Kubelet calls back before it answers.
func (e *endpoint) register(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, registerLimit)
	defer stop()
	conn, err := grpc.NewClient("unix://"+filepath.Join(e.dir, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	options, _ := e.GetDevicePluginOptions(ctx, nil)
	_, err = pb.NewRegistrationClient(conn).Register(ctx, &pb.RegisterRequest{
		Version: pb.Version, Endpoint: filepath.Base(e.socket), ResourceName: e.name, Options: options,
	})
	return err
}

// GetDevicePluginOptions implements kubelet's API.
func (e *endpoint) GetDevicePluginOptions(context.Context, *pb.Empty) (*pb.DevicePluginOptions, error) {
	return &pb.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch implements kubelet's API.
func (e *endpoint) ListAndWatch(_ *pb.Empty, stream grpc.ServerStreamingServer[pb.ListAndWatchResponse]) error {
	count := func(by int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.streams += by
	}
	count(1)
	defer count(-1)
	for {
		devices, news := e.current()
		if err := stream.Send(&pb.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-news:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// GetPreferredAllocation implements kubelet's API.
func (e *endpoint) GetPreferredAllocation(_ context.Context, in *pb.PreferredAllocationRequest) (*pb.PreferredAllocationResponse, error) {
	out := &pb.PreferredAllocationResponse{}
	for _, r := range in.GetContainerRequests() {
		ids := e.m.prefer(e.name, r.GetAvailableDeviceIDs(), r.GetMustIncludeDeviceIDs(), int(r.GetAllocationSize()))
		out.ContainerResponses = append(out.ContainerResponses, &pb.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate implements kubelet's API.
func (e *endpoint) Allocate(_ context.Context, in *pb.AllocateRequest) (*pb.AllocateResponse, error) {
	out := &pb.AllocateResponse{}
	for _, r := range in.GetContainerRequests() {
		one, err := e.m.allocate(e.name, r.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		out.ContainerResponses = append(out.ContainerResponses, one)
	}
	return out, nil
}
