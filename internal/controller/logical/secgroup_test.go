package logical_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/inside"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// securityGroup reads a spec; there are groups a and b besides.
func securityGroup(t *testing.T, name, spec string) (set *ovn.Set, faults, undone []string) {
	t.Helper()
	var s v1.SecurityGroupSpec
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &s))
	return logical.Guard(name, s, func(group string) bool { return group == "a" || group == "b" }, nil)
}

// TestSecurityGroupRows: what passes by each kind of rule, in which order, and that a
// rule which cannot be carried out lets nothing pass.
func TestSecurityGroupRows(t *testing.T) {
	t.Parallel()
	db := bed.NewNB(t, testbed.Bare(t))
	c := leader(t, db.NB())
	short := strings.NewReplacer("outport == @"+logical.SecurityGroupOf("a"), "in", "inport == @"+logical.SecurityGroupOf("a"), "out",
		logical.SecurityGroupOf("a"), "A", logical.SecurityGroupOf("b"), "B", "allow-related", "allow")
	for spec, want := range map[string]struct{ rows, faults, undone string }{
		"{}": {},
		"allowSameGroupTraffic: true": {rows: "3102 allow in && ip4.src == $A_ip4|3102 allow in && ip6.src == $A_ip6|" +
			"3102 allow out && ip4.dst == $A_ip4|3102 allow out && ip6.dst == $A_ip6"},
		`ingressRules:
- {ipVersion: ipv4, protocol: tcp, priority: 1, remoteType: address, remoteAddress: 10.0.0.0/8, portRangeMin: 80, portRangeMax: 90, policy: allow}
- {ipVersion: ipv4, protocol: udp, priority: 16384, remoteType: address, remoteAddress: 10.0.0.7, portRangeMin: 53, portRangeMax: 53, sourcePortRangeMin: 9, sourcePortRangeMax: 9, policy: drop}
- {ipVersion: ipv6, protocol: icmp, priority: 2, remoteType: cidr, remoteAddress: '::/0', localAddress: 'fd00::/64', policy: allow}`: {
			rows: "19583 allow in && ip4 && ip4.src == 10.0.0.0/8 && tcp && 80 <= tcp.dst <= 90|" +
				"19582 allow in && ip6 && ip6.dst == fd00::/64 && icmp6|" +
				"3200 drop in && ip4 && ip4.src == 10.0.0.7 && udp && udp.dst == 53 && udp.src == 9"},
		`egressRules:
- {ipVersion: IPv4, protocol: all, priority: 5, remoteType: securityGroup, remoteSecurityGroup: b, policy: allow}
- {ipVersion: ipv4, priority: 6, remoteType: address, remoteAddress: 10.0.0.7, localAddress: 10.0.0.9, policy: drop}`: {
			rows: "19579 allow out && ip4 && ip4.dst == $B_ip4|19578 drop out && ip4 && ip4.dst == 10.0.0.7 && ip4.src == 10.0.0.9"},
		`tier: 1
ingressRules:
- {ipVersion: ipv4, priority: 5, remoteType: securityGroup, remoteSecurityGroup: none, policy: allow}
- {ipVersion: ipv4, priority: 6, remoteType: address, remoteAddress: 'fd00::1', policy: allow}
- {ipVersion: ipv4, priority: 7, remoteType: address, remoteAddress: x, policy: drop}
- {ipVersion: ipv4, priority: 8, remoteType: address, remoteAddress: 0.0.0.0/0, portRangeMin: 5, portRangeMax: 6, policy: allow}
- {ipVersion: ipv4, protocol: tcp, priority: 9, remoteType: address, remoteAddress: 0.0.0.0/0, portRangeMin: 5, policy: allow}
- {ipVersion: ipv4, protocol: tcp, priority: 10, remoteType: address, remoteAddress: 10.0.0.1, policy: pass}
- {ipVersion: ipv4, protocol: gre, priority: 11, remoteType: any, remoteAddress: 10.0.0.1, policy: allow}`: {
			rows: "19577 drop in && ip|19574 drop in && ip4 && ip4.src == 10.0.0.1 && tcp",
			faults: "spec.ingressRules[0].remoteSecurityGroup: there is no SecurityGroup none: the rule is about nobody|" +
				"spec.ingressRules[1].remoteAddress: fd00::1 is not of ipVersion ipv4|" +
				`spec.ingressRules[2].remoteAddress: "x" is neither an address nor a network in CIDR form|` +
				"spec.ingressRules[3].portRangeMin: only tcp and udp have ports: leave them out, or name the protocol|" +
				"spec.ingressRules[4].portRangeMin: 5 to 0 is no range of ports: give portRangeMin and portRangeMax|" +
				`spec.ingressRules[6].remoteType: "any" is neither address nor securityGroup|` +
				`spec.ingressRules[6].protocol: "gre" is none of all, icmp, tcp, udp`,
			undone: "spec.tier (all groups' rules are in one order)|spec.ingressRules[5].policy: pass (it drops: there is no next tier)"},
	} {
		set, faults, undone := securityGroup(t, "a", spec)
		require.Equal(t, want.faults, strings.Join(faults, "|"), spec)
		require.Equal(t, want.undone, strings.Join(undone, "|"), spec)
		require.NoError(t, c.Apply(t.Context(), set), spec)
		var rows []string
		for line := range strings.Lines(db.Nbctl("--format=csv", "--no-headings", "--data=bare", "--columns=priority,action,match", "list", "ACL")) {
			rows = append(rows, short.Replace(strings.Join(strings.SplitN(strings.TrimSpace(line), ",", 3), " ")))
		}
		var wanted []string
		if want.rows != "" {
			wanted = strings.Split(want.rows, "|")
		}
		require.ElementsMatch(t, wanted, rows, spec)
	}
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: logical.ClosedOwner + "a"}))
	require.Zero(t, db.Count("ACL")+db.Count("Port_Group"))
}

// TestSecurityGroupTraffic: a pod in groups reaches, and is reached by, what their
// rules say alone, over two nodes: by address, by group and within a group.
func TestSecurityGroupTraffic(t *testing.T) {
	t.Parallel()
	central, c, a, b := newSite(t)
	join := subnet(logical.JoinSubnet, "100.64.0.0/16", "fd00:100:64::/112")
	apply := applies(t, c)
	apply(logical.Router(logical.Vpc{Name: v1.DefaultVpc, Routes: logical.DefaultRoutes(join.Subnet)}),
		logical.Switch(join), logical.Switch(a.net), logical.Switch(b.net), logical.Closed())
	for _, m := range []*machine{a, b} {
		apply(logical.Host(m.host), logical.Ports(m.rows))
		m.bind()
		m.bindHost()
	}
	pa, pb := within(t, a.pod), within(t, b.pod)
	inside.Serve(t, pa, "a", 8080)
	inside.Serve(t, pa, "a", 9090)
	inside.Serve(t, pb, "b", 8080)
	// in and out say at what the pod of a is reached by that of b, and b by a.
	tries := []struct {
		name, network, to string
		port              int
		out               bool
	}{
		{"t4:8080", "tcp", a.v4, 8080, false}, {"t6:8080", "tcp", a.v6, 8080, false}, {"u4:8080", "udp", a.v4, 8080, false}, {"t4:9090", "tcp", a.v4, 9090, false},
		{"out4", "tcp", b.v4, 8080, true}, {"out6", "tcp", b.v6, 8080, true}, {"outu4", "udp", b.v4, 8080, true},
	}
	reach := func() string {
		answered := make([]string, len(tries)+1)
		var wg sync.WaitGroup
		for i, try := range tries {
			wg.Go(func() {
				from := pb
				if try.out {
					from = pa
				}
				if inside.Query(from, inside.Peer{Network: try.network, Host: try.to, Port: try.port, Limit: cut}) != "" {
					answered[i] = try.name
				}
			})
		}
		wg.Go(func() {
			if a.node.Ping(a.v4) == nil {
				answered[len(tries)] = "node4"
			}
		})
		wg.Wait()
		return strings.Join(strings.Fields(strings.Join(answered, " ")), " ")
	}
	reaches := func(want, why string) { t.Helper(); central.Sync(); settles(t, reach, want, why) }
	const all = "t4:8080 t6:8080 u4:8080 t4:9090 out4 out6 outu4 node4"
	reaches(all, "no group")

	in := func(m *machine, groups ...string) {
		t.Helper()
		rows := m.rows
		rows.Ports = slices.Clone(rows.Ports)
		if len(groups) > 0 {
			rows.Ports[0].Groups = []string{logical.ClosedGroup}
		}
		for _, g := range groups {
			if g != "" {
				rows.Ports[0].Groups = append(rows.Ports[0].Groups, logical.SecurityGroupOf(g))
			}
		}
		apply(logical.Ports(rows))
	}
	group := func(name, spec string) {
		t.Helper()
		set, faults, undone := securityGroup(t, name, spec)
		require.Empty(t, faults)
		require.Empty(t, undone)
		apply(set)
	}
	in(a, "")
	reaches("", "a group that does not exist: closed, to nodes too")

	group("a", `
ingressRules:
- {ipVersion: ipv4, protocol: tcp, priority: 10, remoteType: address, remoteAddress: 0.0.0.0/0, portRangeMin: 8080, portRangeMax: 9090, policy: allow}
- {ipVersion: ipv4, protocol: tcp, priority: 5, remoteType: address, remoteAddress: 10.16.2.0/24, portRangeMin: 9090, portRangeMax: 9090, policy: drop}
- {ipVersion: ipv4, protocol: icmp, priority: 5, remoteType: address, remoteAddress: 100.64.0.0/16, policy: allow}
egressRules:
- {ipVersion: ipv6, protocol: all, priority: 1, remoteType: address, remoteAddress: '::/0', policy: allow}`)
	in(a, "a")
	reaches("t4:8080 out6 node4", "by address; replies pass")

	group("b", "{}")
	group("a", `
ingressRules: [{ipVersion: ipv4, protocol: udp, priority: 1, remoteType: securityGroup, remoteSecurityGroup: b, policy: allow}]
egressRules: [{ipVersion: ipv4, protocol: udp, priority: 1, remoteType: securityGroup, remoteSecurityGroup: b, policy: allow}]`)
	reaches("", "nobody is in group b")
	group("b", `
ingressRules: [{ipVersion: ipv4, priority: 1, remoteType: address, remoteAddress: 0.0.0.0/0, policy: allow}]
egressRules: [{ipVersion: ipv4, priority: 1, remoteType: address, remoteAddress: 0.0.0.0/0, policy: allow}]`)
	in(b, "b")
	reaches("u4:8080 outu4", "by group")

	group("a", "allowSameGroupTraffic: true")
	reaches("", "another group")
	in(b, "b", "a")
	reaches("t4:8080 t6:8080 u4:8080 t4:9090 out4 out6 outu4", "within a group")

	in(a)
	in(b)
	reaches(all, "no group again")
}
