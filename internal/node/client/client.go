// Package client is the other end of a node loop's socket: what the loop knows
// of its pods, containers' logs, and commands in containers. It knows the requests
// and their answers, and nothing of how pods are run.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
)

// Client speaks to one node loop. It is safe for concurrent use.
type Client struct {
	socket    string
	transport *http.Transport
}

// New is a client of the loop that listens on the unix socket. Nothing is
// dialled yet.
func New(socket string) *Client {
	return &Client{socket: socket, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, // one command is one request
	}}
}

// AbsentError says that nobody answers on the socket. It wraps
// core.ErrUnavailable.
type AbsentError struct {
	Socket string
	Err    error // of the dial
}

func (e *AbsentError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrNotExist):
		return "no node loop: the socket " + e.Socket + " does not exist"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "no node loop: nobody listens on " + e.Socket
	case errors.Is(e.Err, fs.ErrPermission):
		return "no access to the node loop: only root may open " + e.Socket
	}
	return "no node loop: " + e.Err.Error()
}

// Unwrap gives the sentinel and the cause.
func (e *AbsentError) Unwrap() []error { return []error{core.ErrUnavailable, e.Err} }

// Hint is the next command.
func (e *AbsentError) Hint() string {
	if errors.Is(e.Err, fs.ErrPermission) {
		return "run the same command with sudo"
	}
	return "start it (`fairlead up`, or `fairlead node`), or name its socket with --node-socket; with kubelet, `kubectl` does the same"
}

// Target is a container of a pod. A static pod's name may leave out the node's.
type Target struct {
	Pod       core.Pod
	Container string
}

func (t Target) path(verb string) string {
	return "/" + strings.Join([]string{verb, url.PathEscape(t.Pod.Namespace), url.PathEscape(t.Pod.Name), url.PathEscape(t.Container)}, "/")
}

// Live is nil while the loop hears of its runtime's containers.
func (c *Client) Live(ctx context.Context) error {
	body, err := c.get(ctx, "/livez", nil)
	if err != nil {
		return err
	}
	return body.Close()
}

// Pods are all pods of the loop, with their status.
func (c *Client) Pods(ctx context.Context) ([]v1.Pod, error) {
	list := v1.PodList{}
	err := c.ask(ctx, "/pods", &list)
	return list.Items, err
}

// Run is what the loop knows of a pod; one that it does not run is
// core.ErrNotFound.
func (c *Client) Run(ctx context.Context, pod core.Pod) (agent.PodRun, error) {
	out := agent.PodRun{}
	err := c.ask(ctx, "/pods/"+url.PathEscape(pod.Namespace)+"/"+url.PathEscape(pod.Name), &out)
	return out, err
}

// ask reads an answer in JSON.
func (c *Client) ask(ctx context.Context, path string, into any) error {
	body, err := c.get(ctx, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("answer of the node loop: %w", err)
	}
	return nil
}

// LogOptions choose what of a log is read.
type LogOptions struct {
	Follow, Previous, Timestamps bool
	Tail                         int           // lines; -1 is all
	Since                        time.Duration // ago; 0 is all
}

// Logs is a container's output; who reads it closes it.
func (c *Client) Logs(ctx context.Context, t Target, o LogOptions) (io.ReadCloser, error) {
	q := url.Values{}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			q.Set(name, "true")
		}
	}
	if o.Tail >= 0 {
		q.Set("tailLines", strconv.Itoa(o.Tail))
	}
	if o.Since > 0 {
		q.Set("sinceTime", time.Now().Add(-o.Since).Format(time.RFC3339Nano))
	}
	return c.get(ctx, t.path("containerLogs"), q)
}

func (c *Client) get(ctx context.Context, path string, q url.Values) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+path+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: c.transport}).Do(req)
	if err != nil {
		return nil, c.absent(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refused(resp)
}

// refused is the loop's own word why it did not do what was asked.
func refused(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	return &refusal{text: strings.TrimSpace(string(text)), absent: resp.StatusCode == http.StatusNotFound}
}

type refusal struct {
	text   string
	absent bool
}

func (r *refusal) Error() string { return r.text }

// Is tells core.ErrNotFound.
func (r *refusal) Is(target error) bool { return r.absent && target == core.ErrNotFound }

func (c *Client) absent(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return &AbsentError{Socket: c.socket, Err: op}
	}
	return err
}
