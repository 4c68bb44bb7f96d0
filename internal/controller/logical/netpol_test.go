package logical_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// cut is how long nobody answers where a policy cuts; who is late is asked again.
const cut = time.Second

// within opens a pod's network until the test ends.
func within(t *testing.T, p *testbed.Pod) *netns.Handle {
	t.Helper()
	ns, err := netns.Open(p.NetnsPath())
	require.NoError(t, err)
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func policy(t *testing.T, spec string) *logical.NetworkPolicy {
	t.Helper()
	var s networking.NetworkPolicySpec
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &s))
	return logical.ReadNetworkPolicy("ns", "pol", s)
}

// TestNetworkPolicyTraffic: what policies say passes, and nothing else, over two
// nodes by TCP and UDP of both families.
func TestNetworkPolicyTraffic(t *testing.T) {
	t.Parallel()
	central, c, a, b := newSite(t)
	join := subnet(logical.JoinSubnet, "100.64.0.0/16", "fd00:100:64::/112")
	apply := applies(t, c)
	apply(logical.Router(logical.Vpc{Name: v1.DefaultVpc, Routes: logical.DefaultRoutes(join.Subnet)}),
		logical.Switch(join), logical.Switch(a.net), logical.Switch(b.net))
	for _, m := range []*machine{a, b} {
		apply(logical.Host(m.host), logical.Ports(m.rows))
		m.bind()
		m.bindHost()
	}
	member := func(m *machine, app string) resident {
		return resident{"ns", logical.Member{Name: m.rows.Pod.Name, IPs: m.rows.Ports[0].IPs, Labels: map[string]string{"app": app},
			Ports: []logical.ContainerPort{{Name: "web", Protocol: "TCP", Number: 8080}}}}
	}
	all := []resident{member(a, "server"), member(b, "client")}
	pa, pb := within(t, a.pod), within(t, b.pod)
	for _, p := range []int{8080, 8081, 9090} {
		inside.Serve(t, pa, "a", p)
	}
	inside.Serve(t, pb, "b", 8080)
	central.Sync()

	ask := func(from *netns.Handle, network, to string, port int) bool {
		return inside.Query(from, inside.Peer{Network: network, Host: to, Port: port, Limit: cut}) != ""
	}
	tries := []struct {
		name, network, to string
		port              int
	}{
		{"t4:8080", "tcp", a.v4, 8080}, {"t6:8080", "tcp", a.v6, 8080}, {"u4:8080", "udp", a.v4, 8080}, {"u6:8080", "udp", a.v6, 8080},
		{"t4:8081", "tcp", a.v4, 8081}, {"t6:8081", "tcp", a.v6, 8081}, {"u4:8081", "udp", a.v4, 8081}, {"u6:8081", "udp", a.v6, 8081},
		{"t4:9090", "tcp", a.v4, 9090}, {"t6:9090", "tcp", a.v6, 9090}, {"u4:9090", "udp", a.v4, 9090}, {"u6:9090", "udp", a.v6, 9090},
	}
	// reach tells at what of a's pod the one of b is answered.
	reach := func() string {
		answered := make([]string, len(tries))
		var wg sync.WaitGroup
		for i, try := range tries {
			wg.Go(func() {
				if ask(pb, try.network, try.to, try.port) {
					answered[i] = try.name
				}
			})
		}
		wg.Wait()
		for name, to := range map[string]string{"node4": a.v4, "node6": a.v6} {
			if err := a.node.Ping(to); err != nil {
				answered = append(answered, name+" is cut off from its pod")
			}
		}
		return strings.Join(strings.Fields(strings.Join(answered, " ")), " ")
	}
	reaches := func(want, why string) { t.Helper(); settles(t, reach, want, why) }
	const everywhere = "t4:8080 t6:8080 u4:8080 u6:8080 t4:8081 t6:8081 u4:8081 u6:8081 t4:9090 t6:9090 u4:9090 u6:9090"
	reaches(everywhere, "all")
	governed := a.rows
	governed.Ports[0].Groups = []string{logical.GroupOf("ns", "pol")}
	with := func(spec string) {
		t.Helper()
		p := policy(t, spec)
		set, undone := p.Set(pods(all, p).Seen(p), join.CIDRs)
		require.Empty(t, undone)
		apply(set, logical.Ports(governed))
		central.Sync()
	}
	for _, c := range []struct{ spec, want string }{
		{"podSelector: {}", ""},
		{"{podSelector: {}, ingress: [{}]}", everywhere},
		{"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}", everywhere},
		{"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}", ""},
		{"{podSelector: {}, ingress: [{ports: [{port: 8080}]}]}", "t4:8080 t6:8080"},
		{"{podSelector: {}, ingress: [{ports: [{port: web}, {protocol: UDP, port: 9090}]}]}", "t4:8080 t6:8080 u4:9090 u6:9090"},
		{"{podSelector: {}, ingress: [{ports: [{port: 8080, endPort: 8081}]}]}", "t4:8080 t6:8080 t4:8081 t6:8081"},
		{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.16.2.0/24]}}, {ipBlock: {cidr: '::/0'}}], ports: [{port: 8081}]}]}", "t6:8081"},
		{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{protocol: UDP}]}]}", "u4:8080 u4:8081 u4:9090"},
	} {
		with(c.spec)
		reaches(c.want, c.spec)
	}

	// Egress: replies pass, connections of its own do not.
	with("{podSelector: {}, policyTypes: [Egress]}")
	reaches(everywhere, "all")
	out := func() string {
		var answered []string
		for name, try := range map[string][2]string{"t4": {"tcp", b.v4}, "t6": {"tcp", b.v6}, "u4": {"udp", b.v4}} {
			if ask(pa, try[0], try[1], 8080) {
				answered = append(answered, name)
			}
		}
		return strings.Join(answered, " ")
	}
	settles(t, out, "", "no egress")
	with("{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}")
	settles(t, out, "t4 t6", "egress to a port")

	apply(&ovn.Set{Owner: "networkpolicy/ns/pol"})
	central.Sync()
	reaches(everywhere, "all")
	require.Zero(t, central.Count("ACL"))
	require.Zero(t, central.Count("Address_Set"))
}
