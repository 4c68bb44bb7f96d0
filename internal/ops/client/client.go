// Package client is the other side of the agent's unix socket: it asks for the
// operator's views (api/agent) and makes CNI calls as the plugin does
// (api/cni), without a runtime and without the plugin's binary. It knows no
// flags and prints nothing.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
)

// maxAnswer bounds an answer, in bytes: a node of 1,000 pods needs about 2 MiB.
const maxAnswer = 64 << 20

// Client speaks to one agent. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// New is a client of the agent that listens on the unix socket. Nothing is
// dialled yet.
func New(socket string) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		// One command is one request: an idle connection would only count
		// against the agent's limit.
		DisableKeepAlives: true,
	}
	return &Client{socket: socket, http: &http.Client{Transport: t}}
}

// Socket is the path that the client dials.
func (c *Client) Socket() string { return c.socket }

// Pods lists the pods of a namespace, "" for all.
func (c *Client) Pods(ctx context.Context, namespace string) (agent.PodList, error) {
	return ask[agent.PodList](ctx, c, http.MethodGet, inNamespace(agent.PathPods, namespace))
}

// Pod describes one pod. A pod that the agent does not know is core.ErrNotFound.
func (c *Client) Pod(ctx context.Context, pod core.Pod) (agent.Pod, error) {
	return ask[agent.Pod](ctx, c, http.MethodGet, agent.PodPath(pod.Namespace, pod.Name))
}

// Settings tells what is declared of a pod, be it there or not.
func (c *Client) Settings(ctx context.Context, pod core.Pod) (agent.PodSettings, error) {
	return ask[agent.PodSettings](ctx, c, http.MethodGet, agent.SettingsPath(pod.Namespace, pod.Name))
}

// PodNetworks lists what PodNetworks declare, of a namespace, "" for all.
func (c *Client) PodNetworks(ctx context.Context, namespace string) (agent.PodNetworkList, error) {
	return ask[agent.PodNetworkList](ctx, c, http.MethodGet, inNamespace(agent.PathPodNetworks, namespace))
}

// Nets lists the networks that a pod can name.
func (c *Client) Nets(ctx context.Context) (agent.NetList, error) {
	return ask[agent.NetList](ctx, c, http.MethodGet, agent.PathNets)
}

// Subnets lists the pools of addresses and their use.
func (c *Client) Subnets(ctx context.Context) (agent.SubnetList, error) {
	return ask[agent.SubnetList](ctx, c, http.MethodGet, agent.PathSubnets)
}

// IPs lists the held addresses of a namespace, "" for all.
func (c *Client) IPs(ctx context.Context, namespace string) (agent.IPList, error) {
	return ask[agent.IPList](ctx, c, http.MethodGet, inNamespace(agent.PathIPs, namespace))
}

// Who tells what an address means on the node.
func (c *Client) Who(ctx context.Context, addr string) (agent.Who, error) {
	return ask[agent.Who](ctx, c, http.MethodGet, agent.IPPath(addr))
}

// Status asks how the agent is.
func (c *Client) Status(ctx context.Context) (agent.Status, error) {
	return ask[agent.Status](ctx, c, http.MethodGet, agent.PathStatus)
}

// Outward asks how pods leave the node.
func (c *Client) Outward(ctx context.Context) (agent.Outward, error) {
	return ask[agent.Outward](ctx, c, http.MethodGet, agent.PathOutward)
}

// GC has the agent remove what belongs to namespaces that are gone.
func (c *Client) GC(ctx context.Context) (agent.GCResult, error) {
	return ask[agent.GCResult](ctx, c, http.MethodPost, agent.PathGC)
}

// GCPreview tells what GC would do. Nothing is changed.
func (c *Client) GCPreview(ctx context.Context) (agent.GCResult, error) {
	return ask[agent.GCResult](ctx, c, http.MethodGet, agent.PathGC)
}

// Detach has the agent forget an attachment whatever its plugins say.
func (c *Client) Detach(ctx context.Context, container, ifName string) (agent.DetachResult, error) {
	in, err := json.Marshal(agent.Detach{Container: container, IfName: ifName})
	if err != nil {
		return agent.DetachResult{}, err
	}
	return send[agent.DetachResult](ctx, c, http.MethodPost, agent.PathDetach, in)
}

// Check has the agent prove every attachment of a pod.
func (c *Client) Check(ctx context.Context, pod core.Pod) (agent.CheckResult, error) {
	return ask[agent.CheckResult](ctx, c, http.MethodPost, agent.CheckPath(pod.Namespace, pod.Name))
}

// Raw gets a path's answer as it stands.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	return c.body(ctx, http.MethodGet, path, nil)
}

func inNamespace(path, namespace string) string {
	if namespace == "" {
		return path
	}
	return path + "?" + url.Values{agent.QueryNamespace: {namespace}}.Encode()
}

// ask makes one request and reads its answer as a T.
func ask[T any](ctx context.Context, c *Client, method, path string) (out T, err error) {
	return send[T](ctx, c, method, path, nil)
}

// send is ask with a body, nil for none.
func send[T any](ctx context.Context, c *Client, method, path string, in []byte) (out T, err error) {
	body, err := c.body(ctx, method, path, in)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, fmt.Errorf("read the agent's answer to %s: %w", path, err)
	}
	return out, nil
}

func (c *Client) body(ctx context.Context, method, path string, in []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(in))
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.dialError(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer to %s: %w", path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, refused(resp.StatusCode, path, body)
	}
	return body, nil
}

// NoAgentError says that nobody answers on the socket. It wraps core.ErrUnavailable.
type NoAgentError struct {
	Socket string
	Err    error // of the dial, or of the first read
	Fell   bool  // the agent was asked because nothing names a cluster
}

func (e *NoAgentError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrNotExist):
		return "no agent: the socket " + e.Socket + " does not exist"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "no agent: nobody listens on " + e.Socket
	case errors.Is(e.Err, fs.ErrPermission):
		return "no access to the agent: only root may open " + e.Socket
	case errors.Is(e.Err, os.ErrDeadlineExceeded):
		return "the agent does not answer: no `100 Continue` on " + e.Socket + " within " + cni.AcceptLimit.String()
	}
	return fmt.Sprintf("no agent: %s: %v", e.Socket, e.Err)
}

// Unwrap gives the sentinel and the cause.
func (e *NoAgentError) Unwrap() []error { return []error{core.ErrUnavailable, e.Err} }

// Hint is the next command.
func (e *NoAgentError) Hint() string {
	cluster := ""
	if e.Fell {
		cluster = "; to ask a cluster give --kubeconfig"
	}
	if errors.Is(e.Err, fs.ErrPermission) {
		return "run the same command with sudo" + cluster
	}
	return "start it (`systemctl start fairlead`, or `fairlead agent`), or name its socket with --socket; `fairlead doctor` needs no agent" + cluster
}

// dialError tells a missing agent from an answer that broke off.
func (c *Client) dialError(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return &NoAgentError{Socket: c.socket, Err: op}
	}
	if ue := (*url.Error)(nil); errors.As(err, &ue) {
		err = ue.Err // its text would repeat the made-up host name
	}
	return fmt.Errorf("ask the agent: %w", err)
}

// APIError is a failure that the agent reported.
type APIError struct {
	Status int // of HTTP
	Body   agent.Error
}

func (e *APIError) Error() string { return e.Body.Error() }

// Hint is what the agent says to do next, else what the code says.
func (e *APIError) Hint() string {
	if e.Body.Hint != "" {
		return e.Body.Hint
	}
	return agent.Hint(e.Body.Code)
}

// Unwrap tells a missing thing and a missing server by their sentinels.
func (e *APIError) Unwrap() error {
	switch e.Status {
	case http.StatusNotFound:
		return core.ErrNotFound
	case http.StatusServiceUnavailable:
		return core.ErrUnavailable
	}
	return nil
}

// refused makes an APIError of any answer, also of one that is no agent's.
func refused(status int, path string, body []byte) error {
	e := &APIError{Status: status}
	if json.Unmarshal(body, &e.Body) != nil || e.Body.Msg == "" {
		e.Body = agent.Error{
			Code: core.CodeIO,
			Msg:  fmt.Sprintf("the agent answered %s with %d %s", path, status, http.StatusText(status)),
			Hint: "the agent may be of another version: compare with `fairlead version`",
		}
	}
	return e
}
