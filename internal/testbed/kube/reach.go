package kube

import (
	"net"

	"github.com/stretchr/testify/require"
)

// Serving are the files of a server that the API server goes to as to a kubelet.
type Serving struct {
	CA        string // of the API server's own client certificate, and of Cert
	Cert, Key string
}

// Reach lets the API server reach a node that is none of this package's, at an
// address in a network namespace, until the test ends.
func (c *Cluster) Reach(ip, node, netns string) Serving {
	c.t.Helper()
	p, err := c.s.ca.Server([]net.IP{net.ParseIP(ip)}, node)
	require.NoError(c.t, err)
	name := "serving-" + ip
	require.NoError(c.t, p.Write(c.s.dir, name))
	c.s.egress.route(ip, netns)
	c.t.Cleanup(func() { c.s.egress.route(ip, "") })
	return Serving{CA: c.s.path("ca.crt"), Cert: c.s.path(name + ".crt"), Key: c.s.path(name + ".key")}
}
