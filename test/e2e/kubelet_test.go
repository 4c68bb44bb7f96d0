package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fairlead/fairlead/internal/testbed/kube"
)

const kubeletRoot = "/var/lib/kubelet"

// listenIn serves gRPC on a socket in the node until the test ends. Its path is
// the node's; this process sees it elsewhere, and the inode is the same.
func listenIn(t *testing.T, n *kube.Node, path string, register func(*grpc.Server)) {
	t.Helper()
	require.NoError(t, os.MkdirAll(n.Path(filepath.Dir(path)), 0o750))
	l, err := net.Listen("unix", n.Path(path))
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the node may be gone by then
	s := grpc.NewServer()
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); require.NoError(t, <-done) })
}

func dialKubelet(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// devicePlugin is a device plugin of kubelet's API v1beta1 whose devices are names.
type devicePlugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	devices []*deviceplugin.Device
	gone    <-chan struct{}
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *deviceplugin.Empty, s grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	if err := s.Send(&deviceplugin.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	select {
	case <-s.Context().Done():
	case <-p.gone:
	}
	return nil
}

func (p *devicePlugin) Allocate(_ context.Context, r *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	out := &deviceplugin.AllocateResponse{}
	for range r.GetContainerRequests() {
		out.ContainerResponses = append(out.ContainerResponses, &deviceplugin.ContainerAllocateResponse{})
	}
	return out, nil
}

// offerDevices registers a device plugin with the node's kubelet and waits until the
// node has the devices, in kubelet's eyes and in the API server's.
func offerDevices(t *testing.T, c *kube.Cluster, n *kube.Node, resource string, ids ...string) {
	t.Helper()
	p := &devicePlugin{gone: t.Context().Done()}
	for _, id := range ids {
		p.devices = append(p.devices, &deviceplugin.Device{ID: id, Health: deviceplugin.Healthy})
	}
	// kubelet removes all sockets that it finds before it serves its own.
	const endpoint = "nic.sock"
	registrar := n.Path(kubeletRoot + "/device-plugins/kubelet.sock")
	eventually(t, func() string {
		c, err := net.Dial("unix", registrar)
		if err != nil {
			return err.Error()
		}
		require.NoError(t, c.Close())
		return ""
	})
	listenIn(t, n, kubeletRoot+"/device-plugins/"+endpoint, func(s *grpc.Server) { deviceplugin.RegisterDevicePluginServer(s, p) })
	kubelet := deviceplugin.NewRegistrationClient(dialKubelet(t, registrar))
	_, err := kubelet.Register(t.Context(), &deviceplugin.RegisterRequest{Version: deviceplugin.Version, Endpoint: endpoint, ResourceName: resource})
	require.NoError(t, err)
	eventually(t, func() string {
		o, err := c.Client().CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		require.NoError(t, err)
		if has := o.Status.Allocatable[corev1.ResourceName(resource)]; has.Value() != int64(len(ids)) {
			return "the node has " + has.String() + " of " + resource
		}
		return p.unknown(t, n, resource)
	})
}

// unknown is why not all devices can be given to pods yet.
func (p *devicePlugin) unknown(t *testing.T, n *kube.Node, resource string) string {
	t.Helper()
	all, err := podresourcesOf(t, n).GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	require.NoError(t, err)
	has := 0
	for _, d := range all.GetDevices() {
		if d.GetResourceName() == resource {
			has += len(d.GetDeviceIds())
		}
	}
	if has != len(p.devices) {
		return fmt.Sprintf("kubelet has %d of %s", has, resource)
	}
	return ""
}

func podresourcesOf(t *testing.T, n *kube.Node) podresources.PodResourcesListerClient {
	t.Helper()
	return podresources.NewPodResourcesListerClient(dialKubelet(t, n.Path(kubeletRoot+"/pod-resources/kubelet.sock")))
}

// draDriver is a DRA driver of kubelet's API v1, which has nothing to prepare.
type draDriver struct {
	dra.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	name, socket string
	// allocated gives the pool and device of a claim.
	allocated func(claim *dra.Claim) []*dra.Device
	ready     chan struct{}
}

func (d *draDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: d.name, Endpoint: d.socket, SupportedVersions: []string{dra.DRAPluginService},
	}, nil
}

func (d *draDriver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		close(d.ready)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *draDriver) NodePrepareResources(_ context.Context, r *dra.NodePrepareResourcesRequest) (*dra.NodePrepareResourcesResponse, error) {
	out := &dra.NodePrepareResourcesResponse{Claims: map[string]*dra.NodePrepareResourceResponse{}}
	for _, claim := range r.GetClaims() {
		out.Claims[claim.GetUid()] = &dra.NodePrepareResourceResponse{Devices: d.allocated(claim)}
	}
	return out, nil
}

func (d *draDriver) NodeUnprepareResources(_ context.Context, r *dra.NodeUnprepareResourcesRequest) (*dra.NodeUnprepareResourcesResponse, error) {
	out := &dra.NodeUnprepareResourcesResponse{Claims: map[string]*dra.NodeUnprepareResourceResponse{}}
	for _, claim := range r.GetClaims() {
		out.Claims[claim.GetUid()] = &dra.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

// registerDRA registers a DRA driver with the node's kubelet, which finds it by its
// socket.
func registerDRA(t *testing.T, n *kube.Node, name string, allocated func(*dra.Claim) []*dra.Device) {
	t.Helper()
	d := &draDriver{name: name, socket: kubeletRoot + "/plugins/" + name + "/dra.sock", allocated: allocated, ready: make(chan struct{})}
	listenIn(t, n, d.socket, func(s *grpc.Server) { dra.RegisterDRAPluginServer(s, d) })
	listenIn(t, n, kubeletRoot+"/plugins_registry/"+name+".sock", func(s *grpc.Server) { registration.RegisterRegistrationServer(s, d) })
	eventually(t, func() string {
		select {
		case <-d.ready:
			return ""
		default:
			return "kubelet has not registered the driver"
		}
	})
}

// resourcesOf is what kubelet itself says of a pod.
func resourcesOf(t *testing.T, n *kube.Node, namespace, pod string) *podresources.PodResources {
	t.Helper()
	r, err := podresourcesOf(t, n).Get(t.Context(), &podresources.GetPodResourcesRequest{PodName: pod, PodNamespace: namespace})
	require.NoError(t, err)
	return r.GetPodResources()
}
