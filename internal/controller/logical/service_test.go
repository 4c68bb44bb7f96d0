package logical_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed/inside"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// hang ends what no answer ends; it decides nothing.
const hang = 20 * time.Second

// service is a Service of namespace ns with TCP and UDP port 80, named as its
// protocols are.
func service(name string, ips ...string) logical.Service {
	s := logical.Service{Namespace: "ns", Name: name, UID: "1", Ports: []logical.ServicePort{{"t", "TCP", 80}, {"u", "UDP", 80}}}
	for _, ip := range ips {
		s.IPs = append(s.IPs, netip.MustParseAddr(ip))
	}
	return s
}

// endpoints are an EndpointSlice whose pods serve port 8080.
func endpoints(s logical.Service, ips ...string) logical.Endpoints {
	e := logical.Endpoints{Namespace: s.Namespace, Service: s.Name}
	for _, p := range s.Ports {
		e.Ports = append(e.Ports, logical.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
	}
	for _, ip := range ips {
		e.All = append(e.All, logical.Endpoint{IPs: []netip.Addr{netip.MustParseAddr(ip)}, Ready: true})
	}
	return e
}

// applies makes what writes Sets.
func applies(t *testing.T, c *ovn.Client) func(...*ovn.Set) {
	return func(sets ...*ovn.Set) {
		t.Helper()
		for _, s := range sets {
			require.NoError(t, c.Apply(t.Context(), s))
		}
	}
}

// TestServices: a pod reaches the addresses of a Service whose endpoint is on
// the other node by TCP and UDP, IPv4 and IPv6, and so does that endpoint
// itself; without endpoints it is refused at once; with affinity it stays with
// one endpoint.
func TestServices(t *testing.T) {
	t.Parallel()
	central, c, a, b := newSite(t)
	apply := applies(t, c)
	second := b.rows.Ports[0]
	second.Name, second.MAC = "qn2.ns", mac(t, "0a:00:00:00:17:02")
	second.IPs = []netip.Addr{netip.MustParseAddr("10.16.2.11"), netip.MustParseAddr("fd16:2::11")}
	apply(logical.Router(logical.Vpc{Name: v1.DefaultVpc}), logical.Switch(a.net), logical.Switch(b.net), logical.Ports(a.rows), logical.Ports(b.rows),
		logical.Ports(logical.Pod{Pod: core.Pod{Namespace: "ns", Name: "qn2"}, Ports: []logical.Port{second}}))
	a.bind()
	b.bind()
	q := b.node.NewPod("ns/qn2")
	b.ch.Bind(q, bed.NIC{
		Port: second.Name, MAC: second.MAC.String(), Addresses: []string{"10.16.2.11/24", "fd16:2::11/64"},
		Gateways: []string{b.net.Gateways[0].String(), b.net.Gateways[1].String()},
	})
	client, server, other := inside.Open(t, a.pod.NetnsPath()), inside.Open(t, b.pod.NetnsPath()), inside.Open(t, q.NetnsPath())
	inside.Serve(t, server, "b", 8080)
	inside.Serve(t, other, "q", 8080)
	const four, six = "10.96.0.10", "fd96::10"
	web := service("web", four, six)
	itself := map[string]string{four: "169.254.96.1", six: "fd00:a9fe:96::1"} // what a pod sees of itself
	limit := hang
	ask := func(network, host string) string {
		return inside.Query(client, inside.Peer{Network: network, Host: host, Port: 80, Limit: limit})
	}
	// refused tells what a client hears of nobody.
	refused := func(network, host string) error {
		return client.Do(func() error {
			conn, err := net.DialTimeout(network, net.JoinHostPort(host, "80"), hang)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(hang))
			_, _ = conn.Write([]byte("?"))
			_, err = conn.Read(make([]byte, 1))
			return err
		})
	}

	apply(logical.Balance(web, nil))
	central.Sync()
	for _, to := range [][2]string{{"tcp", four}, {"udp", four}, {"tcp", six}, {"udp", six}} {
		require.ErrorIs(t, refused(to[0], to[1]), syscall.ECONNREFUSED, "%v without endpoints", to)
	}

	apply(logical.Balance(web, []logical.Endpoints{endpoints(web, b.v4, b.v6)}))
	central.Sync()
	for _, network := range []string{"tcp", "udp"} {
		require.Equal(t, "b sees "+a.v4, ask(network, four), network)
		require.Equal(t, "b sees "+a.v6, ask(network, six), network)
		for _, host := range []string{four, six} {
			require.Equal(t, "b sees "+itself[host], inside.Query(server, inside.Peer{Network: network, Host: host, Port: 80, Limit: hang}),
				"%s to itself by %s", network, host)
		}
	}

	private := b.net
	private.Access.Private = true
	private.Access.Allow = a.net.CIDRs
	apply(logical.Switch(private))
	central.Sync()
	for _, network := range []string{"tcp", "udp"} {
		for _, host := range []string{four, six} {
			require.Contains(t, inside.Query(server, inside.Peer{Network: network, Host: host, Port: 80, Limit: hang}), "b sees ", "%s of a private Subnet to itself by %s", network, host)
			require.Contains(t, ask(network, host), "b sees ", "%s to a private Subnet by %s", network, host)
		}
	}
	apply(logical.Switch(b.net))

	both := []logical.Endpoints{endpoints(web, b.v4, b.v6, "10.16.2.11", "fd16:2::11")}
	apply(logical.Balance(web, both))
	central.Sync()
	// by are the endpoints that answer n connections.
	by := func(network, host string, n int) string {
		seen := map[string]bool{}
		for range n {
			name, _, _ := strings.Cut(ask(network, host), " ")
			seen[name] = true
		}
		return fmt.Sprint(seen)
	}
	spread := func(host string) error { // OVN hashes: a hundred of one endpoint alone are no accident
		if got := by("tcp", host, 100); got != "map[b:true q:true]" {
			return errors.New(got)
		}
		return nil
	}
	require.NoError(t, spread(four))
	require.NoError(t, spread(six))
	web.Affinity = 10800
	apply(logical.Balance(web, both))
	central.Sync()
	for _, to := range [][2]string{{"tcp", four}, {"udp", four}, {"tcp", six}, {"udp", six}} {
		// OVN 23.03 drops the first packet of a client, which TCP sends again.
		limit = 2 * time.Second
		require.Eventually(t, func() bool { return ask(to[0], to[1]) != "" }, time.Minute, time.Millisecond)
		limit = hang
		require.Contains(t, []string{"map[b:true]", "map[q:true]"}, by(to[0], to[1], 20), "%v", to)
	}

	// When b goes, its flows of UDP go to q.
	web.Affinity = 0
	apply(logical.Balance(web, []logical.Endpoints{endpoints(web, b.v4, b.v6)}))
	central.Sync()
	var flows []net.Conn
	for _, host := range []string{four, six} {
		conn := inside.Dial(client, inside.Peer{Network: "udp", Host: host, Port: 80, Limit: hang})
		defer func() { _ = conn.Close() }()
		require.Contains(t, inside.Talk(conn, hang), "b sees ")
		flows = append(flows, conn)
	}
	apply(logical.Balance(web, []logical.Endpoints{endpoints(web, "10.16.2.11", "fd16:2::11")}))
	central.Sync()
	for _, conn := range flows {
		require.Contains(t, inside.Talk(conn, hang), "q sees ")
	}

	apply(&ovn.Set{Owner: logical.ServiceOwner("ns", "web")})
	require.Zero(t, central.Count("Load_Balancer"))
}

// TestLocalServices: with internalTrafficPolicy: Local a pod reaches the endpoints of its
// own node alone, itself among them, by TCP and UDP in both families; what changes there
// changes it, and without endpoints on its node it hears nothing. ovn-controller takes all
// of it, the end of the last such Service too.
func TestLocalServices(t *testing.T) {
	t.Parallel()
	central, c, a, b := newSite(t)
	apply := applies(t, c)
	apply(logical.Router(logical.Vpc{Name: v1.DefaultVpc}), logical.Switch(a.net), logical.Switch(b.net), logical.Ports(a.rows), logical.Ports(b.rows))
	a.bind()
	b.bind()
	pods := map[string]*netns.Handle{"a": inside.Open(t, a.pod.NetnsPath()), "b": inside.Open(t, b.pod.NetnsPath())}
	inside.Serve(t, pods["a"], "a", 8080)
	inside.Serve(t, pods["b"], "b", 8080)
	web := service("web", "10.96.0.10", "fd96::10")
	web.Local = true
	at := func(node string, ips ...string) logical.Endpoints {
		e := endpoints(web, ips...)
		for i := range e.All {
			e.All[i].Node = node
		}
		return e
	}
	chassis := map[string][]logical.Place{a.ch.Name: {{Node: "node-a", Zone: "east"}}, b.ch.Name: {{Node: "node-b", Zone: "west"}}}
	serve := func(from ...logical.Endpoints) {
		t.Helper()
		apply(logical.Locals([]logical.Service{web}, func(string, string) []logical.Endpoints { return from }, chassis), logical.Balance(web, from))
		central.Sync()
	}
	// hears wants that the pod hears these, "" for nobody.
	hears := func(pod, whom string, limit time.Duration) {
		t.Helper()
		for _, network := range []string{"tcp", "udp"} {
			for _, host := range []string{"10.96.0.10", "fd96::10"} {
				name, _, _ := strings.Cut(inside.Query(pods[pod], inside.Peer{Network: network, Host: host, Port: 80, Limit: limit}), " ")
				require.Equal(t, whom, name, "%s asks %s by %s", pod, host, network)
			}
		}
	}
	serve(at("node-a", a.v4, a.v6), at("node-b", b.v4, b.v6))
	hears("a", "a", hang)
	hears("b", "b", hang)
	serve(at("node-b", b.v4, b.v6))
	hears("a", "", 2*time.Second)
	hears("b", "b", hang)
	serve(at("node-a", b.v4, b.v6)) // what counts is what the EndpointSlice says
	hears("a", "b", hang)
	hears("b", "", 2*time.Second)

	// Hints choose among all; of one that has none for it a node reaches all.
	web.Local = false
	hinted := func(e logical.Endpoints, zone string) logical.Endpoints {
		for i := range e.All {
			e.All[i].ForZones = []string{zone}
		}
		return e
	}
	serve(hinted(at("node-b", a.v4, a.v6), "west"), hinted(at("node-a", b.v4, b.v6), "east"))
	hears("a", "b", hang)
	hears("b", "a", hang)
	serve(hinted(at("node-b", b.v4, b.v6), "west"))
	hears("a", "b", hang)
	apply(logical.Balance(web, []logical.Endpoints{at("node-b", b.v4, b.v6)}), logical.Locals(nil, nil, chassis))
	central.Sync()
	hears("a", "b", hang)
	apply(&ovn.Set{Owner: logical.ServiceOwner("ns", "web")})
	require.Equal(t, 2, central.Count("Chassis_Template_Var"))
	central.Sync() // both are alive
}
