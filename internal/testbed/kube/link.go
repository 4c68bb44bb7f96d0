package kube

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

// Link lets a network namespace reach the API server at the address that all
// kubeconfigs of the cluster name.
type Link struct {
	s     *server
	netns string

	mu    sync.Mutex
	relay *relay.Relay // nil while cut
}

// newLink opens the link. The listening socket lives in the namespace; the
// bytes go through this process.
func newLink(s *server, netns string) (*Link, error) {
	l := &Link{s: s, netns: netns}
	if err := l.open(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.links[l] = struct{}{}
	s.mu.Unlock()
	return l, nil
}

func (l *Link) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.relay != nil {
		return nil
	}
	addr := fmt.Sprintf("127.0.0.1:%d", l.s.port)
	listener, err := relay.Listen(l.netns, "tcp4", addr)
	if err != nil {
		return err
	}
	l.relay = relay.New(listener, func(net.Conn) (net.Conn, error) {
		return net.DialTimeout("tcp4", addr, patience)
	})
	return nil
}

// close breaks the link's connections; open makes it whole again.
func (l *Link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.relay != nil {
		l.relay.Close()
		l.relay = nil
	}
}

// egress is how the API server reaches kubelets (exec, logs): it asks for each
// connection with HTTP CONNECT on a unix socket, and the connection is made in
// the network namespace of the node that has the address.
type egress struct {
	relay *relay.Relay

	mu    sync.Mutex
	nodes map[string]string // IP address -> network namespace; "": that of all others
}

const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`

func newEgress(dir string) (*egress, error) {
	socket := filepath.Join(dir, "egress.sock")
	if err := os.WriteFile(filepath.Join(dir, "egress.yaml"), fmt.Appendf(nil, egressConfig, socket), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	e := &egress{nodes: map[string]string{}}
	e.relay = relay.New(l, e.connect)
	return e, nil
}

// route says in which namespace an address is; "" forgets it.
func (e *egress) route(ip, netns string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if netns == "" {
		delete(e.nodes, ip)
		return
	}
	e.nodes[ip] = netns
}

// connect reads the CONNECT request and answers it.
func (e *egress) connect(c net.Conn) (net.Conn, error) {
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

func (e *egress) dial(addr string) (net.Conn, error) {
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

func (e *egress) close() { e.relay.Close() }
