// Package egress is how the API server of a test's cluster reaches kubelets (exec,
// logs), and pods where the test wants it.
package egress

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// Egress asks for connections with HTTP CONNECT on a unix socket, and they are made
// in the network namespace of the node that has the address.
type Egress struct {
	relay *relay.Relay

	mu    sync.Mutex
	nodes map[string]string // IP address -> network namespace; "": that of all others
}

const config = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`

// New listens in a folder, with the file egress.yaml for the API server.
func New(dir string) (*Egress, error) {
	socket := filepath.Join(dir, "egress.sock")
	if err := os.WriteFile(filepath.Join(dir, "egress.yaml"), fmt.Appendf(nil, config, socket), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	e := &Egress{nodes: map[string]string{}}
	e.relay = relay.New(l, e.connect)
	return e, nil
}

// Route says in which namespace an address is, "" for all others; no namespace
// forgets it.
func (e *Egress) Route(ip, netns string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if netns == "" {
		delete(e.nodes, ip)
		return
	}
	e.nodes[ip] = netns
}

// connect reads the CONNECT request and answers it.
func (e *Egress) connect(c net.Conn) (net.Conn, error) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return nil, err
	}
	if req.Method != http.MethodConnect {
		return nil, errors.New("not CONNECT: " + req.Method)
	}
	to, err := e.dial(req.Host)
	if err != nil {
		fmt.Fprintf(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n%v", err)
		return nil, err
	}
	if _, err := fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		_ = to.Close()
		return nil, err
	}
	return to, nil
}

func (e *Egress) dial(addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	netns := cmp.Or(e.nodes[host], e.nodes[""])
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return relay.Dial(ctx, netns, "tcp", addr)
}

// Close ends all connections.
func (e *Egress) Close() { e.relay.Close() }
