package podruntime

import (
	"cmp"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// oneContainer is a runtime with a sandbox and a container that runs until it is
// stopped.
type oneContainer struct {
	cri.RuntimeServiceClient
	now    func() time.Time
	status cri.ContainerStatus
	exit   int32 // its code
}

func (f *oneContainer) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest, ...grpc.CallOption) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{Id: "box"}}}, nil
}

func (f *oneContainer) PodSandboxStatus(context.Context, *cri.PodSandboxStatusRequest, ...grpc.CallOption) (*cri.PodSandboxStatusResponse, error) {
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{Id: "box", Network: &cri.PodSandboxNetworkStatus{Ip: "10.0.0.2"}}}, nil
}

func (f *oneContainer) ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c", PodSandboxId: "box"}}}, nil
}

func (f *oneContainer) ContainerStatus(context.Context, *cri.ContainerStatusRequest, ...grpc.CallOption) (*cri.ContainerStatusResponse, error) {
	return &cri.ContainerStatusResponse{Status: &f.status}, nil
}

func (f *oneContainer) StopContainer(context.Context, *cri.StopContainerRequest, ...grpc.CallOption) (*cri.StopContainerResponse, error) {
	f.status.State, f.status.ExitCode, f.status.FinishedAt = exited, f.exit, f.now().UnixNano()
	return &cri.StopContainerResponse{}, nil
}

// TestProbesBackOff: a container that probes fail again and again waits as one that
// crashes; one that was changed does not.
func TestProbesBackOff(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	clock := func() time.Time { return now }
	for name, c := range map[string]struct {
		policy v1.RestartPolicy
		exit   int32
		hash   string // of what runs; "" is the pod's
		want   string
	}{
		"a failed probe":              {v1.RestartPolicyAlways, 0, "", ReasonCrashLoop},
		"after failures alone":        {v1.RestartPolicyOnFailure, 137, "", ReasonCrashLoop},
		"and done, if it has to wait": {v1.RestartPolicyOnFailure, 0, "", ReasonInvalidImage},
		"changed":                     {v1.RestartPolicyAlways, 137, "other", ReasonInvalidImage},
	} {
		t.Run(name, func(t *testing.T) {
			// It names no image, by which one tells that it is to be started.
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.policy, Containers: []v1.Container{{Name: "m"}}}}
			pod.UID = "u"
			own := hashOf(&pod.Spec.Containers[0])
			f := &oneContainer{now: clock, exit: c.exit, status: cri.ContainerStatus{
				Id: "c", Metadata: &cri.ContainerMetadata{Name: "m"}, State: up, Annotations: map[string]string{noteHash: cmp.Or(c.hash, own)},
			}}
			r := New(Config{Runtime: f, PodDir: t.TempDir(), CgroupParent: "pods", Now: clock, Log: slog.New(slog.DiscardHandler)})
			require.Zero(t, r.delay.left(crashKey("u", "m", own), now.Add(-time.Minute)), "it has failed before")
			st, err := r.Status(t.Context(), "u")
			require.NoError(t, err)
			res, err := r.Sync(t.Context(), Want{Pod: pod, Health: map[string]Health{"m": {Failed: "liveness probe failed"}}}, st)
			require.NoError(t, err)
			require.Equal(t, c.want, res.Waiting["m"].Reason)
			require.Equal(t, firstDelay, res.Due["m"])
		})
	}
}
