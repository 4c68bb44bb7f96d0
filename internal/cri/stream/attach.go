package stream

import (
	"context"
	"io"

	docker "github.com/moby/moby/client"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// Attach connects the client with the streams of a container's own process until
// that ends or the client's input does. Whether they are a terminal is decided by
// the container. With StdinOnce Docker closes the process's input at the end of
// the client's; without, it stays open for the next client.
//
//nolint:revive // the arguments are those of streaming.Runtime
func (s served) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	return s.failed(fault.Of(s.attach(ctx, id, wanted(in, out, errs, false, resize)), "attach to container %s", id))
}

func (s *Server) attach(ctx context.Context, id string, p pipes) error {
	c, err := s.running(ctx, id)
	if err != nil {
		return err
	}
	p.tty = c.Config.Tty
	conn, err := s.conf.Docker.ContainerAttach(ctx, c.ID, docker.ContainerAttachOptions{
		Stream: true, Stdin: p.in != nil, Stdout: p.out != nil, Stderr: p.err != nil && !p.tty,
	})
	if err != nil {
		return err
	}
	return s.join(ctx, connection{conn.HijackedResponse, func(ctx context.Context, size remotecommand.TerminalSize) error {
		_, err := s.conf.Docker.ContainerResize(ctx, c.ID, docker.ContainerResizeOptions{Height: uint(size.Height), Width: uint(size.Width)})
		return err
	}}, p)
}
