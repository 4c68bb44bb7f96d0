package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxOutput is how much of each stream ExecSync gives back, in bytes; gRPC's
// callers take no more.
const maxOutput = 16 << 20

// Pauses between two looks at a process that gives no event.
const (
	execTick  = 10 * time.Millisecond
	killLimit = 10 * time.Second
)

// ExecSync runs a command in a container and gives its output and exit code. A
// command that takes longer than its timeout is killed.
func (s *Service) ExecSync(ctx context.Context, req *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	limit, stop := ctx, context.CancelFunc(func() {})
	if req.Timeout > 0 {
		limit, stop = context.WithTimeout(ctx, time.Duration(req.Timeout)*time.Second)
	}
	defer stop()
	out, err := s.exec(limit, req)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(limit.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, status.Errorf(codes.DeadlineExceeded, "exec in container %s: %v timed out after %d s", req.ContainerId, req.Cmd, req.Timeout)
	}
	return nil, fmt.Errorf("exec in container %s: %w", req.ContainerId, err)
}

func (s *Service) exec(ctx context.Context, req *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	c, err := s.inspect(ctx, req.ContainerId)
	if err != nil {
		return nil, err
	}
	if !c.State.Running {
		return nil, fmt.Errorf("%w: it does not run", errdefs.ErrFailedPrecondition)
	}
	made, err := s.Docker.ExecCreate(ctx, c.ID, client.ExecCreateOptions{Cmd: req.Cmd, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return nil, err
	}
	stream, err := s.Docker.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var stdout, stderr limited
	read := make(chan error, 1)
	go func() {
		_, err := stdcopy.StdCopy(&stdout, &stderr, stream.Reader)
		read <- err
	}()
	select {
	case err = <-read:
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), s.killExec(ctx, made.ID))
	}
	if err != nil {
		return nil, err
	}
	code, err := s.exitCode(ctx, made.ID)
	return &cri.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: code}, err
}

// exitCode waits for the end of a command whose output has ended: it may have
// closed it earlier.
func (s *Service) exitCode(ctx context.Context, exec string) (int32, error) {
	r, err := s.ended(ctx, exec)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, s.killExec(ctx, exec))
	}
	return int32(r.ExitCode), err
}

// ended waits for the end of a command.
func (s *Service) ended(ctx context.Context, exec string) (client.ExecInspectResult, error) {
	for {
		r, err := s.Docker.ExecInspect(ctx, exec, client.ExecInspectOptions{})
		if err != nil || !r.Running {
			return r, err
		}
		select {
		case <-time.After(execTick):
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}
}

// killExec kills the process of a command, which Docker has no call for, and
// waits until the engine has seen its end: who asks next must not find it.
func (s *Service) killExec(ctx context.Context, exec string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
	defer stop()
	r, err := s.Docker.ExecInspect(ctx, exec, client.ExecInspectOptions{})
	if err != nil || !r.Running || r.PID == 0 {
		return err
	}
	if err := s.kill(ctx, exec, r.PID); err != nil {
		return fmt.Errorf("kill %d: %w", r.PID, err)
	}
	_, err = s.ended(ctx, exec)
	return err
}

// kill holds the process before the engine is asked once more whether it still
// runs: then its number cannot have become another one's.
func (s *Service) kill(ctx context.Context, exec string, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := s.Docker.ExecInspect(ctx, exec, client.ExecInspectOptions{})
	if err != nil || !r.Running {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// limited keeps the first maxOutput bytes and drops the rest.
type limited struct{ bytes.Buffer }

var _ io.Writer = (*limited)(nil)

func (l *limited) Write(p []byte) (int, error) {
	if room := maxOutput - l.Len(); room > 0 {
		_, _ = l.Buffer.Write(p[:min(room, len(p))]) // a Buffer takes all
	}
	return len(p), nil
}
