package logical_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// resident is a pod of a namespace.
type resident struct {
	in string
	logical.Member
}

// people are the pods of two namespaces: of ns, which is governed, and of other.
func people() []resident {
	one := func(in, name, app string, web int, ips ...string) resident {
		m := logical.Member{Name: name, Labels: map[string]string{"app": app}}
		if web != 0 {
			m.Ports = []logical.ContainerPort{{Name: "web", Protocol: "TCP", Number: web}}
		}
		for _, ip := range ips {
			m.IPs = append(m.IPs, netip.MustParseAddr(ip))
		}
		return resident{in, m}
	}
	return []resident{
		one("ns", "s1", "server", 80, "10.0.0.1", "fd00::1"), one("ns", "s2", "server", 8080, "10.0.0.2"), one("ns", "c", "client", 0, "10.0.0.3"),
		one("other", "c", "client", 81, "10.0.1.3", "fd00:1::3"),
	}
}

// pods is an index of all of them, with policies.
func pods(all []resident, policies ...*logical.NetworkPolicy) *logical.Pods {
	x := logical.NewPods()
	x.Label("ns", map[string]string{"team": "a"})
	x.Label("other", map[string]string{"team": "b"})
	for _, r := range all {
		x.Put(r.in, r.Name, &r.Member)
	}
	for _, p := range policies {
		x.Add(p)
	}
	return x
}

// TestNetworkPolicyRows: what passes by each kind of rule, and whom an address
// set names.
func TestNetworkPolicyRows(t *testing.T) {
	t.Parallel()
	db := bed.NewNB(t, testbed.Bare(t))
	c := leader(t, db.NB())
	group := logical.GroupOf("ns", "pol")
	short := strings.NewReplacer(group, "G", "outport == @G && ", "", "inport == @G && ", "")
	var hairpins []string
	for _, ip := range logical.Hairpins() {
		hairpins = append(hairpins, map[bool]string{true: "ip4", false: "ip6"}[ip.Is4()]+".src == "+ip.String())
	}
	rows := func() (out []string) {
		for line := range strings.Lines(db.Nbctl("--format=csv", "--no-headings", "--data=bare", "--columns=match", "find", "ACL", "priority=2001")) {
			if match := short.Replace(strings.ReplaceAll(strings.TrimSpace(line), group, "G")); match != "ct.est && ct.rpl" && !slices.Contains(hairpins, match) {
				out = append(out, match)
			}
		}
		for line := range strings.Lines(db.Nbctl("--format=csv", "--no-headings", "--data=bare", "--columns=name,addresses", "list", "Address_Set")) {
			name, list, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(line), group, "G"), ",")
			if words := strings.Fields(list); len(words) > 0 {
				slices.Sort(words)
				out = append(out, name+" "+strings.Join(words, " "))
			}
		}
		slices.Sort(out)
		return out
	}
	for _, c1 := range []struct{ spec, want, undone string }{
		{spec: "podSelector: {}", want: ""},
		{spec: "{podSelector: {}, ingress: [{}]}", want: "ip"},
		{spec: "{podSelector: {}, ingress: [{ports: [{}, {protocol: SCTP, port: 7}, {protocol: UDP, port: 5, endPort: 9}]}]}",
			want: "ip && 5 <= udp.dst <= 9|ip && sctp.dst == 7|ip && tcp"},
		{spec: "{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}",
			want: "G.in0.ip4 10.0.0.3|ip4.src == $G.in0.ip4|ip6.src == $G.in0.ip6"},
		{spec: "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}",
			want: "G.in0.ip4 10.0.1.3|G.in0.ip6 fd00:1::3|ip4.src == $G.in0.ip4|ip6.src == $G.in0.ip6"},
		{spec: "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}]}]}",
			want: "G.in0.ip4 10.0.0.3 10.0.1.3|G.in0.ip6 fd00:1::3|ip4.src == $G.in0.ip4|ip6.src == $G.in0.ip6"},
		{spec: "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.7/30, except: [10.0.0.6/31]}}, {ipBlock: {cidr: 10.0.0.3/32}}, {podSelector: {}}]}]}",
			want: "G.in0.ip4 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4/31|G.in0.ip6 fd00::1|ip4.src == $G.in0.ip4|ip6.src == $G.in0.ip6"},
		{spec: "{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: web}]}]}",
			want: "G.in0.p0.80.ip4 10.0.0.1|G.in0.p0.80.ip6 fd00::1|G.in0.p0.8080.ip4 10.0.0.2|" +
				"ip && ip4.dst == $G.in0.p0.80.ip4 && tcp.dst == 80|ip && ip4.dst == $G.in0.p0.8080.ip4 && tcp.dst == 8080|" +
				"ip && ip6.dst == $G.in0.p0.80.ip6 && tcp.dst == 80|ip && ip6.dst == $G.in0.p0.8080.ip6 && tcp.dst == 8080"},
		{spec: "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}, {ipBlock: {cidr: 1.0.0.0/8}}], ports: [{port: web}]}]}",
			want: "G.out0.ip4 1.0.0.0/8 10.0.1.3|G.out0.ip6 fd00:1::3|G.out0.p0.81.ip4 10.0.1.3|G.out0.p0.81.ip6 fd00:1::3|" +
				"ip4.dst == $G.out0.p0.81.ip4 && tcp.dst == 81|ip6.dst == $G.out0.p0.81.ip6 && tcp.dst == 81",
			undone: `spec.egress[0].ports[0]: addresses of an ipBlock name no ports: "web" lets only pods pass`},
		{spec: "{podSelector: {}, policyTypes: [Ingress], egress: [{}]}", want: ""},
		{spec: "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: x}}, {podSelector: {matchExpressions: [{key: a, operator: Like}]}}], ports: [{protocol: GRE}, {port: 70000}, {port: 5, endPort: 4}, {port: web, endPort: 4}]}]}",
			want: "", undone: `spec.ingress[0].from[0].ipBlock.cidr: "x" is no network in CIDR form|` +
				`spec.ingress[0].from[1].podSelector: "Like" is not a valid label selector operator|` +
				`spec.ingress[0].ports[0].protocol: "GRE" is none of TCP, UDP, SCTP|spec.ingress[0].ports[1].port: 70000 is not from 1 to 65535|` +
				`spec.ingress[0].ports[2].endPort: 4 is not the end of a range that begins with a number|` +
				`spec.ingress[0].ports[3].endPort: 4 is not the end of a range that begins with a number`},
	} {
		p := policy(t, c1.spec)
		set, undone := p.Set(pods(people(), p).Seen(p), nil)
		require.Equal(t, c1.undone, strings.Join(undone, "|"), c1.spec)
		require.NoError(t, c.Apply(t.Context(), set), c1.spec)
		require.Equal(t, c1.want, strings.Join(rows(), "|"), c1.spec)
	}
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "networkpolicy/ns/pol"}))
	require.Empty(t, rows())
}

// TestManyBlocks: ten thousand networks are two rules and one address set, of
// which a change writes only what changed.
func TestManyBlocks(t *testing.T) {
	t.Parallel()
	db := bed.NewNB(t, testbed.Bare(t))
	c := leader(t, db.NB())
	apply := func(n int) {
		t.Helper()
		peers := make([]networking.NetworkPolicyPeer, n)
		for i := range peers { // every other network: none joins its neighbour
			peers[i].IPBlock = &networking.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/25", i/256, i%256)}
		}
		p := logical.ReadNetworkPolicy("ns", "pol", networking.NetworkPolicySpec{Ingress: []networking.NetworkPolicyIngressRule{{From: peers}}})
		set, undone := p.Set(nil, nil)
		require.Empty(t, undone)
		require.NoError(t, c.Apply(t.Context(), set))
		list := db.Nbctl("--bare", "--columns=addresses", "find", "Address_Set", "name="+p.Group()+".in0.ip4")
		require.Len(t, strings.Fields(list), n)
	}
	apply(10_000)
	require.Equal(t, 6, db.Count("ACL"), "drop, replies, the pod itself by a Service and a rule for each family")
	apply(9_999)
}

// TestManyRules: a policy of 2,000 rules, in make soak 10,000, each of a peer and a port,
// has a row for each rule and family; a change of one writes that one's alone.
func TestManyRules(t *testing.T) {
	t.Parallel()
	rules := 2_000
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		rules = 10_000
	}
	db := bed.NewNB(t, testbed.Bare(t))
	c := leader(t, db.NB())
	spec := networking.NetworkPolicySpec{Ingress: make([]networking.NetworkPolicyIngressRule, rules)}
	for i := range spec.Ingress {
		port := intstr.FromInt(i + 1)
		spec.Ingress[i] = networking.NetworkPolicyIngressRule{
			From:  []networking.NetworkPolicyPeer{{IPBlock: &networking.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/25", i/256, i%256)}}},
			Ports: []networking.NetworkPolicyPort{{Port: &port}},
		}
	}
	group := ""
	apply := func() {
		t.Helper()
		began := time.Now()
		p := logical.ReadNetworkPolicy("ns", "pol", spec)
		group = p.Group()
		set, undone := p.Set(nil, nil)
		require.Empty(t, undone)
		// A starved machine may need longer than an answer is waited for; who asks again
		// finds it done.
		require.Eventually(t, func() bool { return c.Apply(t.Context(), set) == nil }, 2*time.Minute, time.Second)
		t.Logf("%d rules: %s", len(spec.Ingress), time.Since(began).Round(time.Millisecond))
	}
	lets := func(i int, network string, port int) {
		t.Helper()
		set := fmt.Sprintf("%s.in%d.ip4", group, i)
		require.Equal(t, network, db.Nbctl("--bare", "--columns=addresses", "find", "Address_Set", "name="+set))
		match := fmt.Sprintf("outport == @%s && ip4.src == $%s && tcp.dst == %d", group, set, port)
		require.Equal(t, match, db.Nbctl("--bare", "--columns=match", "find", "ACL", fmt.Sprintf("match=%q", match)))
	}
	apply()
	require.Equal(t, 2*rules+4, db.Count("ACL"), "beside drop, replies and the pod itself by a Service")
	require.Equal(t, 2*rules, db.Count("Address_Set"))
	for _, i := range []int{0, rules / 2, rules - 1} {
		lets(i, fmt.Sprintf("10.%d.%d.0/25", i/256, i%256), i+1)
	}
	before := strings.Fields(db.Nbctl("--bare", "--columns=_uuid", "list", "ACL"))
	port := intstr.FromInt(rules + 1)
	spec.Ingress[7].Ports[0].Port = &port
	apply()
	lets(7, "10.0.7.0/25", rules+1)
	after := strings.Fields(db.Nbctl("--bare", "--columns=_uuid", "list", "ACL"))
	require.Len(t, after, len(before))
	had := map[string]bool{}
	for _, id := range before {
		had[id] = true
	}
	fresh := 0
	for _, id := range after {
		if !had[id] {
			fresh++
		}
	}
	require.LessOrEqual(t, fresh, 2, "rows of the other rules stay as they are")
}

// TestPolicyConcerns: the pods on which a policy's rows depend, and no others:
// what touches no policy has none looked at.
func TestPolicyConcerns(t *testing.T) {
	for spec, want := range map[string]string{
		"podSelector: {}": "",
		"{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80}]}]}":                                 "",
		"{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: web}]}]}":                                "ns/s1 ns/s2",
		"{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}": "ns/c",
		"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}":                         "other/c",
		"{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}":                     "",
	} {
		p, got := policy(t, spec), []string{}
		x := pods(people(), p)
		for _, r := range people() {
			for _, by := range x.Put(r.in, r.Name, nil) {
				require.Same(t, p, by)
				got = append(got, r.in+"/"+r.Name)
			}
			x.Put(r.in, r.Name, &r.Member) // it is there again: of the others none is the last
		}
		require.Equal(t, want, strings.Join(got, " "), spec)
	}
}

// TestGroupOf: names that would clean up to one have groups of their own.
func TestGroupOf(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range [][2]string{{"a-b", "c"}, {"a.b", "c"}, {"a", "b-c"}, {"a", "b.c"}, {"a-b", "C"}} {
		g := logical.GroupOf(n[0], n[1])
		require.Regexp(t, `^np\.[0-9a-f]{32}$`, g)
		require.False(t, seen[g])
		seen[g] = true
	}
}
