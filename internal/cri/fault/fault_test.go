package fault_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

func TestCode(t *testing.T) {
	cases := map[codes.Code]error{
		codes.OK:                 nil,
		codes.NotFound:           fmt.Errorf("ask: %w", errdefs.ErrNotFound),
		codes.InvalidArgument:    errdefs.ErrInvalidArgument,
		codes.FailedPrecondition: errdefs.ErrConflict,
		codes.Unauthenticated:    errdefs.ErrUnauthenticated,
		codes.DeadlineExceeded:   fmt.Errorf("ask: %w", context.DeadlineExceeded),
		codes.Canceled:           context.Canceled,
		codes.OutOfRange:         fmt.Errorf("ask: %w", status.Error(codes.OutOfRange, "x")),
		codes.Internal:           errors.New("no kind"),
	}
	for code, err := range cases {
		require.Equal(t, code, fault.Code(err), "%v", err)
	}
}

func TestOfNamesWhatAndWhy(t *testing.T) {
	require.NoError(t, fault.Of(nil, "stop %s", "a"))
	err := fault.Of(errdefs.ErrNotFound, "stop container %s", "a")
	require.Equal(t, codes.NotFound, status.Code(err))
	require.Equal(t, "stop container a: not found", status.Convert(err).Message())

	again := fault.Of(err, "remove sandbox b")
	require.Equal(t, codes.NotFound, status.Code(again), "a status keeps its code")
	require.Equal(t, "remove sandbox b: stop container a: not found", status.Convert(again).Message())
}

// TestAway asks an engine that is not there.
func TestAway(t *testing.T) {
	cli, err := docker.New(docker.WithHost("unix://" + filepath.Join(t.TempDir(), "none.sock")))
	require.NoError(t, err)
	defer cli.Close()
	_, err = cli.Info(t.Context(), docker.InfoOptions{})
	require.Equal(t, codes.Unavailable, fault.Code(err))

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cli.Info(gone, docker.InfoOptions{})
	require.Equal(t, codes.Canceled, fault.Code(err), "%v", err)
}
