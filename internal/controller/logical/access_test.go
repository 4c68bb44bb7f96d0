package logical_test

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestAccess: a private Subnet is reached by nodes and by what it allows alone,
// and reaches no more; while its rules change hundreds of times no packet passes.
// Rules of its own count by their priority. What it drops is logged by its name, and a
// flood does not fill the log.
func TestAccess(t *testing.T) {
	t.Parallel()
	central, c, a, b := newSite(t)
	join := subnet(logical.JoinSubnet, "100.64.0.0/16", "fd00:100:64::/112")
	second := a.rows.Ports[0]
	second.Name, second.MAC = "qn1.ns", mac(t, "0a:00:00:00:17:01")
	second.IPs = []netip.Addr{netip.MustParseAddr("10.16.1.11"), netip.MustParseAddr("fd16:1::11")}
	apply := func(n logical.Subnet) {
		t.Helper()
		require.NoError(t, c.Apply(t.Context(), logical.Switch(n)))
	}
	require.NoError(t, c.Apply(t.Context(), logical.Router(logical.Vpc{Name: v1.DefaultVpc, Routes: logical.DefaultRoutes(join.Subnet)})))
	for _, n := range []logical.Subnet{join, a.net, b.net} {
		apply(n)
	}
	for _, m := range []*machine{a, b} {
		require.NoError(t, c.Apply(t.Context(), logical.Host(m.host)))
		require.NoError(t, c.Apply(t.Context(), logical.Ports(m.rows)))
		m.bind()
		m.bindHost()
	}
	near := logical.Pod{Pod: core.Pod{Namespace: "ns", Name: "qn1"}, Ports: []logical.Port{second}}
	require.NoError(t, c.Apply(t.Context(), logical.Ports(near)))
	q := a.node.NewPod("ns/qn1")
	a.ch.Bind(q, bed.NIC{
		Port: second.Name, MAC: second.MAC.String(), Addresses: []string{"10.16.1.11/24", "fd16:1::11/64"},
		Gateways: []string{a.net.Gateways[0].String(), a.net.Gateways[1].String()},
	})
	central.Sync()
	// reach says who reaches whom: p is the pod of the Subnet under test, q another
	// of it, r one of another Subnet on the other node, n that node.
	reach := func() string {
		tries := []struct {
			name string
			from interface{ Ping(addr string) error }
			to   string
		}{
			{"q>p", q, a.v4}, {"q>p6", q, a.v6}, {"r>p", b.pod, a.v4}, {"r>p6", b.pod, a.v6},
			{"p>r", a.pod, b.v4}, {"p>r6", a.pod, b.v6}, {"n>p", b.node, a.v4}, {"n>p6", b.node, a.v6},
		}
		answered := make([]string, len(tries))
		var wg sync.WaitGroup
		for i, try := range tries {
			wg.Go(func() {
				if try.from.Ping(try.to) == nil {
					answered[i] = try.name
				}
			})
		}
		wg.Wait()
		return strings.Join(strings.Fields(strings.Join(answered, " ")), " ")
	}
	with := func(change func(*declare.Access)) logical.Subnet {
		n := a.net
		n.Nodes = join.CIDRs
		change(&n.Access)
		return n
	}
	settles(t, reach, "q>p q>p6 r>p r>p6 p>r p>r6 n>p n>p6", "reach")

	private := with(func(x *declare.Access) { x.Private = true })
	apply(private)
	central.Sync()
	settles(t, reach, "q>p q>p6 n>p n>p6", "reach")

	allowing := with(func(x *declare.Access) {
		x.Private, x.Allow = true, []netip.Prefix{netip.MustParsePrefix("10.16.2.0/25")}
	})
	apply(allowing)
	central.Sync()
	settles(t, reach, "q>p q>p6 r>p p>r n>p n>p6", "reach")

	// IPv6 stays cut while what is allowed changes.
	flood := b.pod.Cmd(t.Context(), "ping", "-n", "-i", "0.002", "-W", "1", a.v6)
	var said strings.Builder
	flood.Stdout = &said
	require.NoError(t, flood.Start())
	for i := range 200 {
		apply([]logical.Subnet{private, allowing}[i%2])
	}
	central.Sync()
	require.NoError(t, flood.Process.Signal(os.Interrupt))
	_ = flood.Wait() // it ends with 1 where nobody answered
	require.Contains(t, said.String(), " 0 received, 100% packet loss")

	const sent = 2000
	_ = b.pod.Cmd(t.Context(), "ping", "-n", "-q", "-i", "0.002", "-W", "1", "-c", strconv.Itoa(sent), a.v6).Run() // nobody answers
	log := a.ch.Logged()
	require.Regexp(t, `name="private/`+a.net.Name+`", verdict=drop, severity=info, direction=to-lport: icmp6,.*ipv6_src=`+b.v6, log)
	require.Less(t, strings.Count(log, "verdict=drop"), sent/5, "lines of %d packets", sent)

	rules := func(x *declare.Access) {
		x.Rules = []declare.Rule{
			{Direction: v1.ToPort, Priority: 1500, Match: "ip", Action: "drop"},
			{Direction: v1.ToPort, Priority: 1600, Match: "ip4.src == 10.16.2.10 && icmp4", Action: "allow-related"},
		}
	}
	apply(with(rules))
	central.Sync()
	settles(t, reach, "r>p", "and nothing goes out to the router")
	apply(with(func(x *declare.Access) { rules(x); x.EastWest = true }))
	central.Sync()
	settles(t, reach, "q>p q>p6 r>p", "reach")

	apply(a.net)
	require.Zero(t, central.Count("ACL")+central.Count("Meter")+central.Count("Meter_Band"))
	central.Sync()
	settles(t, reach, "q>p q>p6 r>p r>p6 p>r p>r6 n>p n>p6", "reach")
}
