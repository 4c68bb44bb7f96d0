package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// HTTPAddr is where a node's agent serves metrics, /livez and /readyz, in the
// node's own network namespace.
const HTTPAddr = "127.0.0.1:10460"

// Agent is a `fairlead agent` process. Kill, Stop, Wait and Killed are those
// of Process.
type Agent struct{ *Process }

// Agent starts the agent with private flags and args and waits until it
// serves. OVSDB, socket, state and conf folder have their default paths, which
// are private in a node.
func (n *Node) Agent(args ...string) *Agent {
	n.t.Helper()
	a := n.StartAgent(args...)
	a.WaitServing()
	return a
}

// AgentOf is Agent of another program, such as that of a former version.
func (n *Node) AgentOf(program string, args ...string) *Agent {
	n.t.Helper()
	a := n.startAgent(program, args)
	a.WaitServing()
	return a
}

// StartAgent starts the agent and does not wait: for agents that are to crash
// while they start.
func (n *Node) StartAgent(args ...string) *Agent {
	n.t.Helper()
	return n.startAgent(programs(n.t).fairlead, args)
}

func (n *Node) startAgent(program string, args []string) *Agent {
	n.t.Helper()
	n.agents++
	argv := []string{program, "agent", "--node-name", "node1", "--http", HTTPAddr}
	if !slices.ContainsFunc(args, clustered) {
		argv = append(argv, "--objects", n.Objects())
	}
	argv = append(argv, args...)
	return &Agent{n.Start(fmt.Sprintf("agent-%d", n.agents), argv...)}
}

// clustered tells the flags of an agent that reads an API server, which has no
// folder of objects.
func clustered(arg string) bool { return arg == "--kubeconfig" || arg == "--bootstrap-kubeconfig" }

// WaitServing returns when the socket accepts and /livez is good. An agent
// that ends meanwhile fails the test.
func (a *Agent) WaitServing() {
	a.node.t.Helper()
	require.NoError(a.node.t, until("agent", a.serving))
}

// WaitReady returns when /readyz is good: ADD works and the gateways are up, so
// that from then on the node changes only by what a test does.
func (a *Agent) WaitReady() {
	a.node.t.Helper()
	require.NoError(a.node.t, until("agent", func() error { return a.good("/readyz") }))
}

func (a *Agent) serving() error {
	if !a.Running() {
		require.FailNow(a.node.t, a.Name+" ended while it started", a.tail())
	}
	c, err := net.Dial("unix", a.node.Path(cni.DefaultSocket))
	if err != nil {
		return err
	}
	_ = c.Close()
	return a.good("/livez")
}

func (a *Agent) good(path string) error {
	status, body, err := a.Get(path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", path, status, body)
	}
	return err
}

// Get asks the agent's HTTP server, e.g. for /metrics.
func (a *Agent) Get(path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+HTTPAddr+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Transport: &http.Transport{DialContext: a.node.Dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Dial connects from inside the node's network namespace. addr is an IP
// address and port. Safe in any goroutine.
func (n *Node) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = relay.InNetns(n.NetnsPath(), func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}
