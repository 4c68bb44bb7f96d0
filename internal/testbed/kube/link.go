package kube

import (
	"fmt"
	"net"
	"sync"

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
