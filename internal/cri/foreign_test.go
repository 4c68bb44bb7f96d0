package cri_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed/docker"
)

// TestForeignContainers: whatever names a container or a sandbox in a request
// finds those of pods alone. Every RPC of the interface is called, also those that
// a later version adds, with a container of Docker's own by id, short id and name:
// it is not found, the log says so, and the container is as it was.
func TestForeignContainers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	foreign := b.foreign()
	before := b.inspect(foreign)
	conn, err := grpc.NewClient("unix://"+b.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	service, err := protoregistry.GlobalFiles.FindDescriptorByName("runtime.v1.RuntimeService")
	require.NoError(t, err)
	methods := service.(protoreflect.ServiceDescriptor).Methods()
	called := 0
	for i := range methods.Len() {
		m := methods.Get(i)
		for _, id := range []string{foreign, foreign[:12], "foreign"} {
			req, names := b.request(m, id)
			if !names || m.IsStreamingServer() {
				continue
			}
			called++
			err := conn.Invoke(t.Context(), "/runtime.v1.RuntimeService/"+string(m.Name()), req, dynamicpb.NewMessage(m.Output()))
			want := codes.NotFound
			switch m.Name() {
			case "UpdatePodSandboxResources": // does nothing to anything
				want = codes.OK
			case "CheckpointContainer":
				want = codes.Unimplemented
			case "ReopenContainerLog": // goes by the logs that are written
				want = codes.FailedPrecondition
			}
			require.Equal(t, want, status.Code(err), "%s %s: %v", m.Name(), id, err)
		}
	}
	require.GreaterOrEqual(t, called, 3*14)
	require.Equal(t, before, b.inspect(foreign))
	b.Stop()
	for _, method := range []string{"StopContainer", "RemoveContainer", "UpdateContainerResources", "ExecSync", "Exec", "Attach", "StopPodSandbox"} {
		line := `"msg":"request failed","method":"/runtime.v1.RuntimeService/` + method + `","code":"NotFound","err":"`
		require.Equal(t, 3, strings.Count(b.Log(), line), method)
	}
	b.Run()
}

// foreign is a container named foreign that Docker runs for somebody else.
func (b *bed) foreign() string {
	made, err := b.e.ContainerCreate(b.t.Context(), client.ContainerCreateOptions{
		Name:       "foreign",
		Config:     &container.Config{Image: docker.Busybox, Cmd: []string{"sleep", "3600"}},
		HostConfig: &container.HostConfig{NetworkMode: "none", Resources: container.Resources{CPUShares: 77}},
	})
	require.NoError(b.t, err)
	_, err = b.e.ContainerStart(b.t.Context(), made.ID, client.ContainerStartOptions{})
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		_, err := b.e.ContainerRemove(context.WithoutCancel(b.t.Context()), made.ID, client.ContainerRemoveOptions{Force: true})
		require.NoError(b.t, err)
	})
	return made.ID
}

// inspect is all that Docker knows of a container.
func (b *bed) inspect(id string) string {
	b.t.Helper()
	r, err := b.e.ContainerInspect(b.t.Context(), id, client.ContainerInspectOptions{})
	require.NoError(b.t, err)
	text, err := json.Marshal(r.Container)
	require.NoError(b.t, err)
	return string(text)
}

// request is one for a container or sandbox, if the method's names any, with all
// else that the method needs to go on to it.
func (b *bed) request(m protoreflect.MethodDescriptor, id string) (*dynamicpb.Message, bool) {
	base := map[protoreflect.Name]proto.Message{
		"ExecSync": &cri.ExecSyncRequest{Cmd: []string{"touch", "/touched"}, Timeout: 20},
		"Exec":     &cri.ExecRequest{Cmd: []string{"true"}, Stdout: true},
		"Attach":   &cri.AttachRequest{Stdout: true},
		"UpdateContainerResources": &cri.UpdateContainerResourcesRequest{
			Linux: &cri.LinuxContainerResources{CpuShares: 500},
		},
		"CreateContainer": &cri.CreateContainerRequest{
			Config: sleeper("in"), SandboxConfig: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "p", Uid: "u"}},
		},
		"PortForward": &cri.PortForwardRequest{Port: []int32{80}},
	}[m.Name()]
	req := dynamicpb.NewMessage(m.Input())
	if base != nil {
		text, err := proto.Marshal(base)
		require.NoError(b.t, err)
		require.NoError(b.t, proto.Unmarshal(text, req))
	}
	found := false
	for _, name := range []protoreflect.Name{"container_id", "pod_sandbox_id"} {
		if f := m.Input().Fields().ByName(name); f != nil {
			req.Set(f, protoreflect.ValueOfString(id))
			found = true
		}
	}
	return req, found
}

// TestImageRef: the status of a container names its image by repository and
// digest, as pods' status.imageID does everywhere.
func TestImageRef(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	name := docker.Registry(t, b.n, 5001, "", "") + "/some/image:1"
	b.e.Docker("tag", docker.Busybox, name)
	b.e.Docker("push", "-q", name)
	pod := b.pod("web")
	sandbox := b.run(pod)
	imageRef := func(attempt uint32, image string) string {
		c := sleeper("main")
		c.Metadata.Attempt, c.Image.Image = attempt, image
		st, err := b.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: b.create(sandbox, pod, c)})
		require.NoError(t, err)
		require.Regexp(t, "^sha256:[0-9a-f]{64}$", st.Status.ImageId)
		return st.Status.ImageRef
	}
	require.Regexp(t, "^127.0.0.1:5001/some/image@sha256:[0-9a-f]{64}$", imageRef(0, name))
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", imageRef(1, docker.Pause), "it was in no registry")
	b.remove(sandbox)
}
