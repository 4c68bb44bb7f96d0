package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	docker "github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// pipes are the ends of a stream; nil ones are not wanted.
type pipes struct {
	in       io.Reader
	out, err io.Writer
	tty      bool
	resize   <-chan remotecommand.TerminalSize
}

// connection is what Docker gives for exec and attach alike.
type connection struct {
	docker.HijackedResponse
	resize func(context.Context, remotecommand.TerminalSize) error
}

// served are the calls of the streaming server, under its own names.
type served struct{ *Server }

var _ streaming.Runtime = served{}

func (s *Server) runtime() streaming.Runtime { return served{s} }

// Exec runs a command with the client's streams. A command that fails is an
// exec.CodeExitError, which the protocol carries as the exit code.
//
//nolint:revive // the arguments are those of streaming.Runtime
func (s served) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	code, err := s.exec(ctx, id, cmd, wanted(in, out, errs, tty, resize))
	if err != nil {
		return s.failed(fault.Of(err, "exec in container %s", id))
	}
	if code != 0 {
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

// failed notes what else only the client of a stream would hear of.
func (s *Server) failed(err error) error {
	if err != nil {
		s.conf.Log.Warn("exec, attach or port-forward failed", "err", err)
	}
	return err
}

// wanted keeps interfaces that hold nothing from looking like streams.
func wanted(in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) pipes {
	p := pipes{in: in, tty: tty, resize: resize}
	if out != nil {
		p.out = out
	}
	if errs != nil {
		p.err = errs
	}
	return p
}

// ExecSync runs a command and gives its output, of which it keeps 16 MiB of each
// stream, and its exit code; 126 and 127 also stand for a command that cannot be
// started, with the reason as output. A command that takes longer than its
// timeout is killed with all that it started in its session: DeadlineExceeded.
func (s *Server) ExecSync(ctx context.Context, req *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error) {
	if len(req.GetCmd()) == 0 || req.GetContainerId() == "" {
		return nil, status.Error(codes.InvalidArgument, "exec: a container and a command are needed")
	}
	limit, stop := ctx, context.CancelFunc(func() {})
	if req.Timeout > 0 {
		limit, stop = context.WithTimeout(ctx, time.Duration(req.Timeout)*time.Second)
	}
	defer stop()
	var out, errs limited
	code, err := s.exec(limit, req.ContainerId, req.Cmd, pipes{out: &out, err: &errs})
	if err != nil && ctx.Err() == nil && limit.Err() != nil {
		return nil, status.Errorf(codes.DeadlineExceeded, "exec in container %s: %q took longer than %d s", req.ContainerId, req.Cmd, req.Timeout)
	}
	if err != nil {
		return nil, fault.Of(err, "exec in container %s", req.ContainerId)
	}
	return &runtime.ExecSyncResponse{Stdout: out.Bytes(), Stderr: errs.Bytes(), ExitCode: int32(code)}, nil
}

// maxOutput is what ExecSync keeps of each stream, in bytes (CRI: 16 MB; more
// would let a container fill our memory, CVE-2022-1708).
const maxOutput = 16 << 20

// limited keeps the first maxOutput bytes and takes the rest without keeping it,
// so the command goes on.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	_, _ = l.Buffer.Write(p[:min(len(p), maxOutput-l.Len())]) // a Buffer takes all
	return len(p), nil
}

// exec runs a command until it ends or ctx does; in the latter case it is killed.
func (s *Server) exec(ctx context.Context, id string, cmd []string, p pipes) (code int, err error) {
	c, err := s.running(ctx, id)
	if err != nil {
		return 0, err
	}
	made, err := s.conf.Docker.ExecCreate(ctx, c.ID, docker.ExecCreateOptions{
		Cmd: cmd, TTY: p.tty, AttachStdin: p.in != nil, AttachStdout: p.out != nil, AttachStderr: p.err != nil,
	})
	if err != nil {
		return 0, err
	}
	conn, err := s.conf.Docker.ExecAttach(ctx, made.ID, docker.ExecAttachOptions{TTY: p.tty})
	if err != nil {
		return 0, err
	}
	joined := connection{conn.HijackedResponse, func(ctx context.Context, size remotecommand.TerminalSize) error {
		_, err := s.conf.Docker.ExecResize(ctx, made.ID, docker.ExecResizeOptions{Height: uint(size.Height), Width: uint(size.Width)})
		return err
	}}
	if err = s.join(ctx, joined, p); err == nil {
		code, err = s.exitCode(ctx, made.ID)
	}
	if ctx.Err() != nil && s.ctx.Err() == nil {
		err = errors.Join(ctx.Err(), s.kill(context.WithoutCancel(ctx), made.ID))
	}
	return code, err
}

// join copies between the client and Docker until Docker's side ends.
func (s *Server) join(ctx context.Context, c connection, p pipes) error {
	defer c.Close()
	defer context.AfterFunc(ctx, c.Close)()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if p.in != nil {
		go s.feed(c, p.in)
	}
	if p.tty && p.resize != nil {
		go s.follow(ctx, c, p.resize)
	}
	err := receive(c.Reader, p)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("copy output: %w", err)
	}
	return nil
}

// feed ends with the client's input, or with the connection once it is closed
// and the client says something more, or goes away.
func (s *Server) feed(c connection, in io.Reader) {
	_, err := io.Copy(c.Conn, in)
	if err == nil {
		err = c.CloseWrite()
	}
	if err != nil {
		s.conf.Log.Debug("input ended", "err", err)
	}
}

// follow gives the terminal its sizes.
func (s *Server) follow(ctx context.Context, c connection, sizes <-chan remotecommand.TerminalSize) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if err := c.resize(ctx, size); err != nil {
				s.conf.Log.Debug("terminal not resized", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func receive(from io.Reader, p pipes) (err error) {
	out, errs := sink(p.out), sink(p.err)
	if p.tty {
		_, err = io.Copy(out, from)
	} else {
		_, err = stdcopy.StdCopy(out, errs, from)
	}
	return err
}

func sink(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// tick is the pause between two looks at a command that gives no event.
const tick = 10 * time.Millisecond

// exitCode waits for the end of a command whose output has ended: the command
// may have closed it earlier, and Docker notes the end a little later.
func (s *Server) exitCode(ctx context.Context, id string) (int, error) {
	for {
		r, err := s.conf.Docker.ExecInspect(ctx, id, docker.ExecInspectOptions{})
		if err != nil || !r.Running {
			return r.ExitCode, err
		}
		select {
		case <-time.After(tick):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// killLimit bounds how long a killed command's end is waited for.
const killLimit = 10 * time.Second

// kill ends a command, for which Docker has no call: its process leads a session
// of its own (runc), so the whole group is killed, and children do not stay
// behind. It returns when Docker knows of the end.
func (s *Server) kill(ctx context.Context, id string) error {
	ctx, stop := context.WithTimeout(ctx, killLimit)
	defer stop()
	for {
		r, err := s.conf.Docker.ExecInspect(ctx, id, docker.ExecInspectOptions{})
		if err != nil || !r.Running {
			return err
		}
		if r.PID > 0 { // 0: it is about to start
			if err := s.killGroup(ctx, id, r.PID); err != nil {
				return err
			}
		}
		select {
		case <-time.After(tick):
		case <-ctx.Done():
			return fmt.Errorf("kill process %d: it did not end: %w", r.PID, ctx.Err())
		}
	}
}

// killGroup holds the process while it asks once more whether it is the command:
// then its number cannot mean another process meanwhile.
func (s *Server) killGroup(ctx context.Context, id string, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hold process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := s.conf.Docker.ExecInspect(ctx, id, docker.ExecInspectOptions{})
	if err != nil || !r.Running {
		return err
	}
	err = unix.Kill(-pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) { // no leader of a group
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
