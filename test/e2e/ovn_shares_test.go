package e2e

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// TestGatewayShares: several gateways at once each carry connections. When one of three is
// lost none breaks that another one carries, and when it is back none but those that began
// meanwhile in its part. Then: a centralized Subnet's gateway outside.
func TestGatewayShares(t *testing.T) {
	t.Parallel()
	o := newOVNCluster(t)
	o.probes = append(o.probes, "10666")
	o.nodes[0].Start("controller-a", o.controls(o.central.Endpoint(), "a", "127.0.0.1:10666")...)
	lost := o.join(o.under, "node-3") // which a controller gives its certificate
	lost.settle()
	nodes := append(slices.Clone(o.nodes), lost)
	for _, n := range nodes {
		n.joined()
	}
	o.c.Apply(together(object("v1", "Namespace", "shared", nil, nil), object("v1", "Namespace", "led", nil, nil),
		subnetObject("shared", map[string]any{"cidrBlock": sharedSubnet, "namespaces": []string{"shared"}, "natOutgoing": true,
			"gatewayType": "centralized", "gatewayNode": "node-1,node-2,node-3", "enableEcmp": true})))
	var pods []*ovnPod
	for i := range 8 {
		pods = append(pods, nodes[i%2].run(fmt.Sprintf("shared/p%d", i)))
	}
	o.has("subnets", ready, "shared: CarriedOut")
	o.holds(8091)
	var held heldConns
	eventually(t, func() string {
		before := held.ways()
		if held = o.connect(pods, 8091); !maps.Equal(before, held.ways()) {
			return "not all nodes have read the routes"
		}
		for _, n := range nodes {
			if by := held.by(); by[n.at.IP4] == 0 || by[n.at.IP6] == 0 {
				return fmt.Sprintf("%s carries nothing: %v", n.name, by)
			}
		}
		return ""
	})
	t.Logf("connections by gateway: %v", held.by())
	lost.at.Cut()
	o.has("subnets", ready, "shared: SomeNotReady")
	rest := slices.DeleteFunc(slices.Clone(held), func(c heldConn) bool { return c.as == lost.at.IP4 || c.as == lost.at.IP6 })
	broken := rest.broken()
	t.Logf("one is lost: %d of %d broke that others carry", len(broken), len(rest))
	more := o.connect(pods, 8091)
	t.Logf("connections by gateway: %v", more.by())

	lost.at.Mend()
	o.has("subnets", ready, "shared: CarriedOut")
	var now heldConns
	eventually(t, func() string {
		if now = o.connect(pods, 8091); !maps.Equal(held.ways(), now.ways()) {
			return fmt.Sprintf("%s has not its part: %v", lost.name, now.by())
		}
		return ""
	})
	t.Logf("connections by gateway: %v", now.by())
	others := slices.DeleteFunc(slices.Clone(more), func(c heldConn) bool { // what is not in its part
		return slices.ContainsFunc(now, func(n heldConn) bool {
			return n.from == c.from && n.to == c.to && (n.as == lost.at.IP4 || n.as == lost.at.IP6)
		})
	})
	again, meanwhile := rest.broken(), others.broken()
	t.Logf("it is back: %d of %d broke, and %d of %d that began meanwhile, of %d", len(again), len(rest), len(meanwhile), len(others), len(more))
	require.NotEmpty(t, others)
	require.Empty(t, broken, "carried by gateways that are not lost")
	require.Empty(t, again, "carried by gateways that were not lost")
	require.Empty(t, meanwhile, "in the parts of others")
	o.ledOut(nodes)
}

// heldConn is a pod's connection to the world, which sees it as an address.
type heldConn struct {
	net.Conn
	from *ovnPod
	to   string
	as   string
}

// heldConns are several.
type heldConns []heldConn

// holds has the world answer each byte on a connection with as whom it sees the other end.
func (o *ovnCluster) holds(port int) {
	o.t.Helper()
	var l net.Listener
	netnstest.Do(o.t, inside.Open(o.t, o.site.NetnsPath()), func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	o.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.t.Cleanup(func() { _ = c.Close() })
			go func() {
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				for one := make([]byte, 1); ; {
					if _, err := c.Read(one); err != nil {
						return
					}
					_, _ = fmt.Fprintln(c, host)
				}
			}()
		}
	}()
}

// connect makes connections of pods to the world, two of each family.
func (o *ovnCluster) connect(pods []*ovnPod, port int) (out heldConns) {
	o.t.Helper()
	for _, p := range pods {
		ns := inside.Open(o.t, p.NetnsPath())
		for _, ip := range []string{o.world.IP4, o.world.IP6} {
			for range 2 {
				var c heldConn
				eventually(o.t, func() string {
					conn := inside.Dial(ns, inside.Peer{Network: "tcp", Host: ip, Port: port, Limit: time.Second})
					if conn == nil {
						return p.port() + " does not reach " + ip
					}
					c = heldConn{Conn: conn, from: p, to: ip}
					if c.as = c.ask(); c.as == "" {
						_ = conn.Close()
						return p.port() + " is not answered by " + ip
					}
					return ""
				})
				o.t.Cleanup(func() { _ = c.Close() })
				out = append(out, c)
			}
		}
	}
	return out
}

// ask gives as whom the world sees the connection, "" if it does not answer.
func (c heldConn) ask() string { return inside.Talk(c, 5*time.Second) }

// by counts connections by gateway.
func (h heldConns) by() map[string]int {
	out := map[string]int{}
	for _, c := range h {
		out[c.as]++
	}
	return out
}

// ways are the gateways by pods and whom they ask, "" for several.
func (h heldConns) ways() map[string]string {
	out := map[string]string{}
	for _, c := range h {
		way := c.from.port() + " " + c.to
		if as, known := out[way]; known && as != c.as {
			c.as = ""
		}
		out[way] = c.as
	}
	return out
}

// broken are those that are not answered.
func (h heldConns) broken() (out []string) {
	all := make([]string, len(h))
	var wg sync.WaitGroup
	for i, c := range h {
		wg.Go(func() {
			if got := c.ask(); got != c.as {
				all[i] = fmt.Sprintf("%s to %s as %s: %q", c.from.port(), c.to, c.as, got)
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}
