package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// States of the matrix's subject, a pod of the first node.
const (
	open    = "open"    // no policy
	policed = "policed" // a NetworkPolicy of both directions names two of its peers
	private = "private" // its Subnet is private
	apart   = "apart"   // it is in another Vpc
)

// pair is a row of the matrix: who begins, towards whom, and in which states that
// is answered, by TCP and UDP, in both families. A mate is in the subject's Subnet,
// a stranger in another one of the default Vpc; what is far is on the other node.
type pair struct {
	from, to string
	reach    []string
	why      string
}

// always are all states.
var always = []string{open, policed, private, apart}

var pairs = []pair{
	{"subject", "mate", always, "a switch of one node; the policy names it"},
	{"subject", "far mate", []string{open, private, apart}, "a switch over two nodes; the policy does not name it"},
	{"subject", "stranger", []string{open}, "nothing leaves a private Subnet but for itself, and no router joins two Vpcs"},
	{"subject", "far stranger", []string{open, policed}, "the policy names it by its namespace"},
	{"subject", "node", []string{open}, "a policy must name nodes as it must anybody"},
	{"subject", "far node", []string{open}, "as the own one"},
	{"subject", "outside", []string{open}, "by the own node; another Vpc has no way out"},
	{"subject", "mate's Service", []string{open, policed, private}, "the endpoint counts; Services are the default Vpc's"},
	{"subject", "far mate's Service", []string{open, private}, "the endpoint counts"},
	{"subject", "far stranger's Service", []string{open, policed}, "the endpoint counts"},
	{"subject", "subject's Service", []string{open, policed, private}, "no pod is cut off from itself"},

	{"mate", "subject", always, "a switch of one node; the policy names it"},
	{"far mate", "subject", []string{open, private, apart}, "a switch over two nodes; the policy does not name it"},
	{"stranger", "subject", []string{open}, "it is in no private Subnet, and in no other Vpc"},
	{"far stranger", "subject", []string{open, policed}, "the policy names it by its namespace"},
	{"node", "subject", []string{open, policed, private}, "nodes reach every pod of the default Vpc, which probes need"},
	{"far node", "subject", []string{open, policed, private}, "nodes of other pods too"},
	{"outside", "subject", []string{open}, "a sender whom neither the policy nor a private Subnet knows"},
	{"mate", "subject's Service", []string{open, policed, private}, "the sender counts, not the Service"},
	{"far mate", "subject's Service", []string{open, private}, "the sender counts"},
	{"stranger", "subject's Service", []string{open}, "the sender counts"},
	{"far stranger", "subject's Service", []string{open, policed}, "the sender counts"},
	{"node", "subject's Service", []string{open, policed, private}, "kube-proxy's, under the address of the node's own port"},
	{"far node", "subject's Service", []string{open, policed, private}, "kube-proxy's, as on the own node"},
	{"outside", "subject's Service", nil, "a cluster IP is the cluster's: no way leads there"},

	{"node", "far node", always, "no matter of OVN"},
	{"node", "outside", always, "no matter of OVN"},
	{"outside", "node", always, "no matter of OVN"},
	{"node", "far mate's Service", []string{open, policed, private}, "kube-proxy's; pods of another Vpc are no node's to reach"},
}

// matrixPolicy names the mate of its node and the far stranger, both ways. ours is
// another network that it names, which is nobody's.
func matrixPolicy(ours string) string {
	if ours == "" {
		return policyOf()
	}
	return policyOf(map[string]any{"ipBlock": map[string]any{"cidr": ours}})
}

// labelled is a peer of a policy: pods of its namespace with that role.
func labelled(role string) any {
	return map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"role": role}}}
}

// policyOf is that policy with more peers.
func policyOf(more ...any) string {
	peers := append([]any{
		labelled("mate"),
		map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "data"}},
			"podSelector":       map[string]any{"matchLabels": map[string]any{"role": "far"}},
		},
	}, more...)
	return object("networking.k8s.io/v1", "NetworkPolicy", "web/matrix", nil, map[string]any{
		"podSelector": map[string]any{"matchLabels": map[string]any{"role": "subject"}},
		"policyTypes": []string{"Ingress", "Egress"},
		"ingress":     []any{map[string]any{"from": peers}},
		"egress":      []any{map[string]any{"to": peers}},
	})
}

// privateWeb is the Subnet web as a private one, which allows another network.
func privateWeb(ours string) string {
	if ours == "" {
		return webWith(map[string]any{"private": true})
	}
	return webWith(map[string]any{"private": true, "allowSubnets": strings.Split(ours, ",")})
}

// webWith is the Subnet web with more in its spec.
func webWith(more map[string]any) string {
	spec := map[string]any{"cidrBlock": webSubnet, "default": true}
	maps.Copy(spec, more)
	return subnetObject("web", spec)
}

// TestClusterMatrix: who reaches whom, by TCP and UDP of both families, from pods,
// nodes, Services and the world outside: without a policy, under one, in a private
// Subnet and in another Vpc, on two nodes, in make soak on three. After each change of
// rules the data path is asked how soon it follows. What is cut stays cut while its rules
// change under a flood: 5 times each, in make soak 200 times. There new pods' first
// packets are counted too.
func TestClusterMatrix(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.is(open)
	m.is(apart)
	m.nodePort()
	m.probes()

	write := func(text string) func() { return func() { m.o.c.Apply(text) } }
	far, near := m.between("far mate", "subject"), m.between("stranger", "subject")
	m.follows("NetworkPolicy added", isCut, slices.Concat(far, m.between("subject", "stranger")), write(policyOf()))
	m.is(policed)
	m.holds([]string{"far mate", "stranger"}, matrixPolicy)
	m.follows("NetworkPolicy widened", passes, far, write(policyOf(labelled("far"))))
	m.follows("NetworkPolicy narrowed", isCut, far, write(policyOf()))
	m.follows("NetworkPolicy removed", passes, far, func() { m.o.c.Delete(policyOf()) })
	m.follows("acls added", isCut, far, write(webWith(map[string]any{"acls": m.drops("far mate")})))
	m.follows("acls removed", passes, far, write(webWith(nil)))
	m.is(open)

	m.follows("Subnet private", isCut, slices.Concat(near, m.between("subject", "far stranger")), write(privateWeb("")))
	m.is(private)
	m.holds([]string{"stranger", "far stranger"}, privateWeb)
	m.follows("private Subnet allows another", passes, near, write(privateWeb(dataSubnet)))
	m.follows("private Subnet allows none", isCut, near, write(privateWeb("")))
	m.follows("Subnet private no longer", passes, near, write(webWith(nil)))
	m.is(open)
	t.Logf("a change of rules was carried out by all nodes after %s at most", m.latest.Round(time.Millisecond))
	if soak() {
		require.Less(t, m.latest, latestBound)
		m.firstPackets()
	}
	m.o.agrees()
}

// matrixRows are the matrix's. With a third node the rows of who is far are there again for
// who is on that one, and more that join the two.
func matrixRows(nodes int) []pair {
	out := slices.Clone(pairs)
	if nodes < 3 {
		return out
	}
	for _, p := range pairs {
		from, to := strings.Replace(p.from, "far ", "third ", 1), strings.Replace(p.to, "far ", "third ", 1)
		if from != p.from || to != p.to {
			out = append(out, pair{from, to, p.reach, p.why})
		}
	}
	return append(out,
		pair{"far mate", "third mate", always, "the policy is the subject's alone"},
		pair{"third mate", "far mate", always, "the policy is the subject's alone"},
		pair{"far stranger", "third mate", []string{open, policed}, "it is in no private Subnet, and in no other Vpc"},
		pair{"third mate", "far mate's Service", []string{open, policed, private}, "Services are the default Vpc's"},
		pair{"far node", "third node", always, "no matter of OVN"})
}

// rowNames are all that rows mention.
func rowNames(rows []pair) (out []string) {
	seen := map[string]bool{}
	for _, p := range rows {
		for _, n := range []string{p.from, strings.TrimSuffix(p.to, "'s Service")} {
			if !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	return out
}
