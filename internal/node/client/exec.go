package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	upgrade "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// ping is how often a stream on which nothing is said is looked after.
const ping = 5 * time.Second

// Size of a terminal, in characters.
type Size struct{ Width, Height uint16 }

// Command is what is run in a container, with its streams; nil ones are not
// wanted.
type Command struct {
	Argv   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer // with a terminal, all output is on Stdout
	TTY    bool
	Sizes  <-chan Size // of the terminal, as it changes; closed at the end
}

// Exec runs a command in a container and gives its exit code.
func (c *Client) Exec(ctx context.Context, t Target, cmd Command) (int, error) {
	q := url.Values{"command": cmd.Argv}
	for name, set := range map[string]bool{
		"input": cmd.Stdin != nil, "output": cmd.Stdout != nil, "error": cmd.Stderr != nil && !cmd.TTY, "tty": cmd.TTY,
	} {
		if set {
			q.Set(name, "1")
		}
	}
	streams, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{PingPeriod: ping, UpgradeTransport: c.transport})
	if err != nil {
		return 0, fmt.Errorf("streams: %w", err)
	}
	at := &url.URL{Scheme: "http", Host: "node", Path: t.path("exec"), RawQuery: q.Encode()}
	e, err := remotecommand.NewSPDYExecutorForTransports(streams, upgrade.NewUpgraderForStreaming(streams), http.MethodPost, at)
	if err != nil {
		return 0, fmt.Errorf("streams: %w", err)
	}
	o := remotecommand.StreamOptions{Stdin: cmd.Stdin, Stdout: cmd.Stdout, Tty: cmd.TTY}
	if !cmd.TTY {
		o.Stderr = cmd.Stderr
	}
	if cmd.Sizes != nil {
		o.TerminalSizeQueue = sizes(cmd.Sizes)
	}
	err = e.StreamWithContext(ctx, o)
	if exit := (exec.CodeExitError{}); errors.As(err, &exit) {
		return exit.Code, nil
	}
	if failed := (*httpstream.UpgradeFailureError)(nil); errors.As(err, &failed) {
		err = failed.Cause
	}
	if err != nil {
		return 0, c.absent(err)
	}
	return 0, nil
}

// sizes is remotecommand's form of them.
type sizes <-chan Size

// Next waits for the terminal's next size; nil at the end.
func (s sizes) Next() *remotecommand.TerminalSize {
	size, more := <-s
	if !more {
		return nil
	}
	return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
}
