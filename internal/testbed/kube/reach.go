package kube

import (
	"net"
	"strconv"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
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
	c.s.egress.Route(ip, netns)
	c.t.Cleanup(func() { c.s.egress.Route(ip, "") })
	return Serving{CA: c.s.path("ca.crt"), Cert: c.s.path(name + ".crt"), Key: c.s.path(name + ".key")}
}

// Publish lets pods and the API server reach each other: it is served at an address
// of a machine too, under its port, and goes from there to whom no node is. The
// API server should tell of that address (--advertise-address). It ends with the
// test.
func (c *Cluster) Publish(ip, netns string) {
	c.t.Helper()
	port := strconv.Itoa(c.s.port)
	listener, err := relay.Listen(netns, "tcp4", net.JoinHostPort(ip, port))
	require.NoError(c.t, err)
	r := relay.New(listener, func(net.Conn) (net.Conn, error) {
		return net.DialTimeout("tcp4", "127.0.0.1:"+port, patience)
	})
	c.t.Cleanup(r.Close)
	c.s.egress.Route("", netns)
}
