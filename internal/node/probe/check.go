package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/node/action"
	"github.com/fairlead/fairlead/internal/node/env"
)

// Checks makes looks as the probes say.
type Checks struct{ Exec action.Execer }

// most is how much of what a container said is repeated, in bytes.
const most = 512

// Check makes one look.
func (c Checks) Check(ctx context.Context, i Instance, p *v1.Probe) (ok bool, said string, err error) {
	switch {
	case p.Exec != nil:
		return c.exec(ctx, i, p)
	case p.HTTPGet != nil:
		return get(ctx, i, p.HTTPGet)
	case p.TCPSocket != nil:
		return connect(ctx, i, p.TCPSocket)
	case p.GRPC != nil:
		return ask(ctx, i, p.GRPC)
	}
	return false, "", errors.New("the probe says nothing to do")
}

func (c Checks) exec(ctx context.Context, i Instance, p *v1.Probe) (ok bool, said string, err error) {
	command := env.Fixed(i.Spec).ExpandAll(p.Exec.Command)
	limit := seconds(p.TimeoutSeconds, 1)
	out, exit, err := c.Exec.Exec(ctx, i.ID, command, limit)
	text := strings.Join(command, " ")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Sprintf("%s: not done within %s", text, limit), nil
	case err != nil:
		return false, "", fmt.Errorf("%s: %w", text, err)
	case exit != 0:
		return false, shorten(fmt.Sprintf("%s: exit status %d: %s", text, exit, out)), nil
	}
	return true, "", nil
}

// get passes with a code from 200 to 399 (core/v1 HTTPGetAction).
func get(ctx context.Context, i Instance, h *v1.HTTPGetAction) (ok bool, said string, err error) {
	port, err := action.Port(h.Port, i.Spec)
	if err != nil {
		return false, "", err
	}
	answer, err := action.Get(ctx, h, i.IP, port)
	if err != nil {
		return false, "GET " + answer.URL + ": " + plain(err), nil
	}
	if answer.Code < http.StatusOK || answer.Code >= http.StatusBadRequest {
		return false, shorten(fmt.Sprintf("GET %s: %s: %s", answer.URL, answer.Status, answer.Body)), nil
	}
	return true, "", nil
}

func connect(ctx context.Context, i Instance, t *v1.TCPSocketAction) (ok bool, said string, err error) {
	port, err := action.Port(t.Port, i.Spec)
	if err != nil {
		return false, "", err
	}
	host := i.IP
	if t.Host != "" {
		host = t.Host
	}
	if err := action.Connect(ctx, host, port); err != nil {
		return false, plain(err), nil
	}
	return true, "", nil
}

func ask(ctx context.Context, i Instance, g *v1.GRPCAction) (ok bool, said string, err error) {
	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	if err := action.Healthy(ctx, i.IP, g.Port, service); err != nil {
		return false, fmt.Sprintf("gRPC port %d: %s", g.Port, plain(err)), nil
	}
	return true, "", nil
}

// plain says that time was over in words that are the same for all.
func plain(err error) string {
	if timeout := (interface{ Timeout() bool })(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	// The URL stands before it already.
	text := err.Error()
	if _, after, ok := strings.Cut(text, `": `); ok && strings.HasPrefix(text, "Get ") {
		text = after
	}
	return shorten(text)
}

func shorten(text string) string {
	text = strings.TrimSuffix(strings.TrimSpace(text), ":")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
