package gc

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime has one container that runs, and begins its log anew unless it fails.
type runtime struct {
	cri.RuntimeServiceClient
	log  string
	fail error
}

func (r *runtime) ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c"}}}, nil
}

func (r *runtime) ContainerStatus(context.Context, *cri.ContainerStatusRequest, ...grpc.CallOption) (*cri.ContainerStatusResponse, error) {
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{LogPath: r.log}}, nil
}

func (r *runtime) ReopenContainerLog(context.Context, *cri.ReopenContainerLogRequest, ...grpc.CallOption) (*cri.ReopenContainerLogResponse, error) {
	if r.fail != nil {
		return nil, r.fail
	}
	return &cri.ReopenContainerLogResponse{}, os.WriteFile(r.log, nil, 0o600)
}

// TestLogThatWasPutAside: a process that was killed after it put a log aside leaves the
// runtime to be told; of a container that has ended meanwhile nobody hears.
func TestLogThatWasPutAside(t *testing.T) {
	r := &runtime{log: filepath.Join(t.TempDir(), "0.log")}
	c := New(Config{Runtime: r, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	for code, told := range map[codes.Code]bool{codes.NotFound: false, codes.FailedPrecondition: false, codes.Internal: true} {
		r.fail = status.Error(code, "no")
		require.Equal(t, told, c.rotate(t.Context()) != nil, code)
	}
	r.fail = nil
	require.NoError(t, c.rotate(t.Context()))
	require.FileExists(t, r.log)
}
