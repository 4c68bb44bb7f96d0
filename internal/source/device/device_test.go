package device_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/device"
)

// kubelet stands in for the real one where its words must be chosen; what the
// real one says is tested with it (internal/testbed/kube, level B).
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	get   func() (*podresources.PodResources, error)
	list  []*podresources.PodResources
	asked atomic.Int64
}

func (k *kubelet) Get(context.Context, *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	k.asked.Add(1)
	r, err := k.get()
	return &podresources.GetPodResourcesResponse{PodResources: r}, err
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.asked.Add(1)
	return &podresources.ListPodResourcesResponse{PodResources: k.list}, nil
}

// serve makes a kubelet's folder with its socket.
func serve(t *testing.T, k *kubelet) (root string) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "pod-resources"), 0o755))
	l, err := net.Listen("unix", filepath.Join(root, "pod-resources", "kubelet.sock"))
	require.NoError(t, err)
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s, k)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); require.NoError(t, <-done) })
	return root
}

var pod = core.Pod{Namespace: "ns", Name: "p", UID: "u1"}

func devices(resource string, ids ...string) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

func containers(c ...*podresources.ContainerResources) *podresources.PodResources {
	return &podresources.PodResources{Name: "p", Namespace: "ns", Containers: c}
}

func TestDevicesOfAllContainersComeSortedAndOnce(t *testing.T) {
	k := &kubelet{get: func() (*podresources.PodResources, error) {
		return containers(
			&podresources.ContainerResources{Name: "a", Devices: []*podresources.ContainerDevices{
				devices("example.com/nic", "n3"), devices("example.com/gpu", "g"), devices("example.com/nic", "n1"),
			}},
			&podresources.ContainerResources{Name: "b", Devices: []*podresources.ContainerDevices{devices("example.com/nic", "n2", "n1")}},
		), nil
	}}
	got, err := device.New(serve(t, k), nil).Allocated(t.Context(), pod)
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"example.com/nic": {"n1", "n2", "n3"}, "example.com/gpu": {"g"}}, got)
	require.EqualValues(t, 1, k.asked.Load(), "one question")
}

// Kubelets from 1.27 to 1.33 have Get switched off and say so in words alone.
func TestOlderKubeletsAreAskedForTheirList(t *testing.T) {
	other := &podresources.PodResources{Name: "p", Namespace: "other"}
	mine := containers(&podresources.ContainerResources{Devices: []*podresources.ContainerDevices{devices("r", "1")}})
	for name, refusal := range map[string]error{
		"unknown method": status.Error(codes.Unimplemented, "unknown method Get"),
		"switched off":   errors.New("PodResources API Get method disabled"),
	} {
		k := &kubelet{list: []*podresources.PodResources{other, mine}, get: func() (*podresources.PodResources, error) { return nil, refusal }}
		got, err := device.New(serve(t, k), nil).Allocated(t.Context(), pod)
		require.NoError(t, err, name)
		require.Equal(t, map[string][]string{"r": {"1"}}, got, name)
	}
	k := &kubelet{list: []*podresources.PodResources{other}, get: func() (*podresources.PodResources, error) {
		return nil, errors.New("pod p in namespace ns not found")
	}}
	_, err := device.New(serve(t, k), nil).Allocated(t.Context(), pod)
	require.Equal(t, core.CodeDevice, core.CodeOf(err))
	require.ErrorContains(t, err, "pod ns/p")
	require.ErrorContains(t, err, "not found")
}

// Pods that start at once meet kubelet's limit of questions.
func TestARefusalForCrowdingIsNotTheLastWord(t *testing.T) {
	k := &kubelet{}
	k.get = func() (*podresources.PodResources, error) {
		if k.asked.Load() < 4 {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return containers(), nil
	}
	got, err := device.New(serve(t, k), nil).Allocated(t.Context(), pod)
	require.NoError(t, err)
	require.Empty(t, got)
	require.EqualValues(t, 4, k.asked.Load())
}

func TestAKubeletThatDoesNotAnswerMayBeAskedAgain(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	k := &kubelet{get: func() (*podresources.PodResources, error) { stop(); <-ctx.Done(); return nil, ctx.Err() }}
	_, err := device.New(serve(t, k), nil).Allocated(ctx, pod)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))

	k = &kubelet{get: func() (*podresources.PodResources, error) { return nil, status.Error(codes.Unavailable, "not now") }}
	_, err = device.New(serve(t, k), nil).Allocated(t.Context(), pod)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
}

// write makes a kubelet's folder with a checkpoint alone.
func write(t *testing.T, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, "device-plugins")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), []byte(text), 0o600))
	return root
}

const recorded = `{"Data":{"PodDeviceEntries":[
 {"PodUID":"u1","ContainerName":"init","ResourceName":"example.com/nic","DeviceIDs":{"0":["n2"]},"AllocResp":"CgA="},
 {"PodUID":"u1","ContainerName":"a","ResourceName":"example.com/nic","DeviceIDs":{"1":["n3"],"0":["n2"]},"AllocResp":"CgA="},
 {"PodUID":"u1","ContainerName":"b","ResourceName":"old","DeviceIDs":["x"],"AllocResp":null},
 {"PodUID":"u2","ContainerName":"a","ResourceName":"example.com/nic","DeviceIDs":{"0":["n1"]},"AllocResp":null}],
 "RegisteredDevices":{"example.com/nic":["n1","n2","n3"]}},"Checksum":1}`

func TestCheckpointServesWhereKubeletDoesNot(t *testing.T) {
	root := write(t, recorded)
	want := map[string][]string{"example.com/nic": {"n2", "n3"}, "old": {"x"}}
	got, err := device.New(root, nil).Allocated(t.Context(), pod)
	require.NoError(t, err, "no socket")
	require.Equal(t, want, got)

	// a kubelet that has stopped leaves its socket
	require.NoError(t, os.Mkdir(filepath.Join(root, "pod-resources"), 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(root, "pod-resources", "kubelet.sock")})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	got, err = device.New(root, nil).Allocated(t.Context(), pod)
	require.NoError(t, err, "nobody listens")
	require.Equal(t, want, got)

	got, err = device.New(root, nil).Allocated(t.Context(), core.Pod{Namespace: "ns", Name: "q", UID: "u3"})
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestNoKubeletAndBadCheckpointsAreSaidClearly(t *testing.T) {
	for name, c := range map[string]struct {
		root  string
		pod   core.Pod
		code  uint
		words []string
	}{
		"no kubelet": {t.TempDir(), pod, core.CodeDevice, []string{"no kubelet is known", "kubelet.sock", "kubelet_internal_checkpoint", "--kubelet-root"}},
		"no UID":     {write(t, recorded), core.Pod{Namespace: "ns", Name: "p"}, core.CodeDevice, []string{"UID"}},
		"no JSON":    {write(t, `{"Data":`), pod, core.CodeDecode, []string{"checkpoint"}},
		"other IDs":  {write(t, `{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ResourceName":"r","DeviceIDs":7}]}}`), pod, core.CodeDecode, []string{"DeviceIDs", "r of pod UID u1"}},
		"a folder":   {folder(t), pod, core.CodeIO, []string{"checkpoint"}},
	} {
		_, err := device.New(c.root, nil).Allocated(t.Context(), c.pod)
		require.Equal(t, c.code, core.CodeOf(err), "%s: %v", name, err)
		for _, w := range c.words {
			require.ErrorContains(t, err, w, name)
		}
		require.Equal(t, name == "no kubelet", errors.Is(err, core.ErrNotFound), name)
	}
}

func folder(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "device-plugins", "kubelet_internal_checkpoint"), 0o755))
	return root
}

// published stands for the attributes that drivers publish.
type published map[string]string

func (p published) Attribute(_ context.Context, driver, pool, dev, name string) (string, error) {
	v, ok := p[driver+"/"+pool+"/"+dev+" "+name]
	switch {
	case v == "down":
		return "", fmt.Errorf("list slices: %w", core.ErrUnavailable)
	case !ok:
		return "", core.ErrNotFound
	}
	return v, nil
}

func claim(name string, r ...*podresources.ClaimResource) *podresources.ContainerResources {
	return &podresources.ContainerResources{
		Devices:          []*podresources.ContainerDevices{devices("plain", "d")},
		DynamicResources: []*podresources.DynamicResource{{ClaimName: name, ClaimNamespace: "ns", ClaimResources: r}},
	}
}

func claimed(dev string, cdi ...string) *podresources.ClaimResource {
	r := &podresources.ClaimResource{DriverName: "drv", PoolName: "n1", DeviceName: dev}
	for _, name := range cdi {
		r.CdiDevices = append(r.CdiDevices, &podresources.CDIDevice{Name: name})
	}
	return r
}

func TestClaimsGoByTheirAttributesElseByTheirNames(t *testing.T) {
	attrs := published{
		"drv/n1/vf1 k8s.cni.cncf.io/resourceName": "example.com/vf", "drv/n1/vf1 k8s.cni.cncf.io/deviceID": "0000:03:02.1",
		"drv/n1/vf0 k8s.cni.cncf.io/resourceName": "example.com/vf", "drv/n1/vf0 k8s.cni.cncf.io/deviceID": "0000:03:02.0",
		"drv/n1/half k8s.cni.cncf.io/deviceID": "0000:03:02.7",
	}
	for name, c := range map[string]struct {
		slices device.Slices
		pod    *podresources.ContainerResources
		want   map[string][]string
	}{
		"published": {attrs, claim("c", claimed("vf1"), claimed("vf0", "drv/vf=x")), map[string][]string{"example.com/vf": {"0000:03:02.0", "0000:03:02.1"}}},
		// kubelet repeats the names of earlier devices
		"by name":      {attrs, claim("c", claimed("gpu", "drv/g=0"), claimed("gpu2", "drv/g=0", "drv/g=1", "bad")), map[string][]string{"c": {"0", "1"}}},
		"only an ID":   {attrs, claim("c", claimed("half", "drv/g=0")), map[string][]string{"c": {"0000:03:02.7"}}},
		"no API":       {nil, claim("c", claimed("vf1", "drv/vf=a")), map[string][]string{"c": {"a"}}},
		"old kubelets": {attrs, claim("c", &podresources.ClaimResource{CdiDevices: []*podresources.CDIDevice{{Name: "drv/vf=b"}}}), map[string][]string{"c": {"b"}}},
	} {
		k := &kubelet{get: func() (*podresources.PodResources, error) { return containers(c.pod, c.pod), nil }}
		got, err := device.New(serve(t, k), c.slices).Allocated(t.Context(), pod)
		require.NoError(t, err, name)
		c.want["plain"] = []string{"d"}
		require.Equal(t, c.want, got, name)
	}
}

// What a claim lacks must not take the pod's other devices from its networks.
func TestAnErrorOfOneClaimComesWithTheOtherDevices(t *testing.T) {
	for name, c := range map[string]struct {
		slices published
		words  string
		is     error
	}{
		"API down": {published{"drv/n1/vf1 k8s.cni.cncf.io/resourceName": "down"}, "device drv/n1/vf1", core.ErrUnavailable},
		"API gone": {published{"drv/n1/vf1 k8s.cni.cncf.io/resourceName": "r", "drv/n1/vf1 k8s.cni.cncf.io/deviceID": "down"}, "device drv/n1/vf1", core.ErrUnavailable},
		"no ID":    {published{"drv/n1/vf1 k8s.cni.cncf.io/resourceName": "r"}, `k8s.cni.cncf.io/resourceName = "r" and no k8s.cni.cncf.io/deviceID`, nil},
	} {
		k := &kubelet{get: func() (*podresources.PodResources, error) {
			return containers(claim("c", claimed("vf1", "drv/vf=a"))), nil
		}}
		got, err := device.New(serve(t, k), c.slices).Allocated(t.Context(), pod)
		require.ErrorContains(t, err, c.words, name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, name)
		}
		require.Equal(t, map[string][]string{"plain": {"d"}}, got, name)
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(recorded), "u1")
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[null,{"PodUID":"u","DeviceIDs":{"0":null}}]}}`), "u")
	f.Fuzz(func(t *testing.T, raw []byte, uid string) {
		ids, err := device.ParseCheckpoint(raw, uid)
		if err != nil && ids != nil {
			t.Fatalf("both a map and an error: %v", err)
		}
		for resource, list := range ids {
			for i := 1; i < len(list); i++ {
				if list[i-1] >= list[i] {
					t.Fatalf("%s: not sorted, or twice: %q", resource, list)
				}
			}
		}
	})
}
