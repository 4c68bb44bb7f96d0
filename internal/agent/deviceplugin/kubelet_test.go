package deviceplugin

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is kubelet's side of its device plugins' API, on a real socket.
type kubelet struct {
	pb.UnimplementedRegistrationServer

	t      testing.TB
	dir    string
	server *grpc.Server

	mu      sync.Mutex
	told    []string                // resources, as often as they were registered
	devices map[string][]*pb.Device // by resource, as told last
	conns   map[string]*grpc.ClientConn
}

func startKubelet(t testing.TB, dir string) *kubelet {
	t.Helper()
	k := &kubelet{t: t, dir: dir, devices: map[string][]*pb.Device{}, conns: map[string]*grpc.ClientConn{}}
	l, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	require.NoError(t, err)
	k.server = grpc.NewServer()
	pb.RegisterRegistrationServer(k.server, k)
	go func() { _ = k.server.Serve(l) }()
	t.Cleanup(k.stop)
	return k
}

// stop ends it as kubelet does that is killed: its socket stays.
func (k *kubelet) stop() {
	k.server.Stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		_ = c.Close()
	}
}

// Register implements kubelet's API.
func (k *kubelet) Register(_ context.Context, in *pb.RegisterRequest) (*pb.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, in.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.conns[in.GetResourceName()]; old != nil {
		_ = old.Close()
	}
	k.conns[in.GetResourceName()] = conn
	k.told = append(k.told, in.GetResourceName())
	go k.watch(conn, in.GetResourceName())
	return &pb.Empty{}, nil
}

func (k *kubelet) watch(conn *grpc.ClientConn, resource string) {
	stream, err := pb.NewDevicePluginClient(conn).ListAndWatch(context.Background(), &pb.Empty{})
	for err == nil {
		var got *pb.ListAndWatchResponse
		if got, err = stream.Recv(); err == nil {
			k.mu.Lock()
			k.devices[resource] = got.GetDevices()
			k.mu.Unlock()
		}
	}
}

// healthy are the ids of a resource's devices that kubelet may give.
func (k *kubelet) healthy(resource string) (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices[resource] {
		if d.GetHealth() == pb.Healthy {
			out = append(out, d.GetID())
		}
	}
	return out
}

// waits until these are the healthy devices of a resource: also when a function was cleaned only
// the second time, which is cleanAgain after a first that took cleanLimit, and the kernel of a VM took
// its time to give a device back from a namespace that is gone.
func (k *kubelet) waits(resource string, ids ...string) {
	k.t.Helper()
	require.Eventually(k.t, func() bool { return slices.Equal(k.healthy(resource), ids) }, 4*time.Minute, 20*time.Millisecond,
		"%s: %v", resource, ids)
}

func (k *kubelet) registrations() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.told)
}

func (k *kubelet) plugin(resource string) pb.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return pb.NewDevicePluginClient(k.conns[resource])
}

func (k *kubelet) allocate(resource string, ids ...string) (*pb.ContainerAllocateResponse, error) {
	out, err := k.plugin(resource).Allocate(k.t.Context(), &pb.AllocateRequest{ContainerRequests: []*pb.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	return out.GetContainerResponses()[0], nil
}
