package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/inside"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// serves proves that pods reach a pod by the address of a Service; it answers on
// port 8080 until the test ends.
func (o *ovnCluster) serves(to *ovnPod, from ...*ovnPod) {
	o.t.Helper()
	inside.Serve(o.t, inside.Open(o.t, to.NetnsPath()), to.Name, 8080)
	o.c.Apply(together(
		object("v1", "Service", "web/svc", nil, map[string]any{"ports": []any{map[string]any{"port": 80}}}),
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: svc, namespace: web, labels: {kubernetes.io/service-name: svc}}\n"+
			"addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: ["+to.ips[0]+"]}]\n",
	))
	ip := o.c.Kubectl("get", "service", "-n", "web", "svc", "-o", "jsonpath={.spec.clusterIP}")
	for _, p := range from {
		ns := inside.Open(o.t, p.NetnsPath())
		eventually(o.t, func() string {
			got := inside.Query(ns, inside.Peer{Network: "tcp", Host: ip, Port: 80, Limit: time.Second})
			if want := to.Name + " sees " + p.ips[0]; got != want {
				return fmt.Sprintf("Service %s answers %s with %q, not %q", ip, p.port(), got, want)
			}
			return ""
		})
	}
}

// traces proves that the operator is told a packet's way from a pod: into the tunnel to
// another node, to a pod of the same one, and by a Service, with the policy that cuts
// it named; the node's own switch is asked too.
func (o *ovnCluster) traces(from, near, far, served *ovnPod) {
	o.t.Helper()
	trace := func(args ...string) string {
		out, _ := from.n.TryFairlead(append([]string{"trace", "--ovsdb", from.n.OVS.Endpoint(), "--nb", o.central.NB(), from.Namespace + "/" + from.Name}, args...)...)
		return out
	}
	out := trace(far.Namespace+"/"+far.Name, "tcp:80")
	require.Contains(o.t, out, "ARRIVES at pod "+far.Namespace+"/"+far.Name)
	require.Contains(o.t, out, far.n.name+" by tunnel geneve "+far.n.at.IP4)
	require.Contains(o.t, out, "this switch    br-int sends it into the tunnel")
	out = trace(near.ips[1])
	require.Contains(o.t, out, "ARRIVES at pod "+near.Namespace+"/"+near.Name)
	require.Contains(o.t, out, from.n.name+" itself")
	require.Contains(o.t, out, "this switch    br-int sends it on: ")
	require.Contains(o.t, trace("svc/web/svc", "tcp:80"), "ARRIVES at pod "+served.Namespace+"/"+served.Name)

	o.c.Apply("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed, namespace: " + far.Namespace + "}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n")
	eventually(o.t, func() string {
		if out := trace(far.Namespace+"/"+far.Name, "tcp:80"); !strings.HasSuffix(out, "\nDROPPED by NetworkPolicy "+far.Namespace+"/closed\n") {
			return out
		}
		return ""
	})
	require.NoError(o.t, o.c.Client().NetworkingV1().NetworkPolicies(far.Namespace).Delete(o.t.Context(), "closed", metav1.DeleteOptions{}))
	eventually(o.t, func() string {
		if out := trace(far.Namespace+"/"+far.Name, "tcp:80"); !strings.Contains(out, "ARRIVES") {
			return out
		}
		return ""
	})
	tool := from.n.Fairlead("ovn", "sbctl", "--ovsdb", from.n.OVS.Endpoint(), "get", "chassis", far.n.name, "name")
	require.Contains(o.t, tool, far.n.name)
}

// seen proves as whom a pod comes to a server at a site, by IPv4 and IPv6.
func (o *ovnCluster) seen(p *ovnPod, name string, at *testbed.Site, as ...string) {
	o.t.Helper()
	ns := inside.Open(o.t, p.NetnsPath())
	for i, ip := range []string{at.IP4, at.IP6} {
		eventually(o.t, func() string {
			got := inside.Query(ns, inside.Peer{Network: "tcp", Host: ip, Port: 8090, Limit: time.Second})
			if want := name + " sees " + as[i]; got != want {
				return fmt.Sprintf("%s answers %s with %q, not %q", ip, p.port(), got, want)
			}
			return ""
		})
	}
}

// filtered proves, where a Subnet's packets are translated, that its own rules spare what
// they match, and that what somebody flushes of the node's rules comes back, while rules
// of others stay as they are.
func (o *ovnCluster) filtered(p *ovnPod, web func(more map[string]any)) {
	o.t.Helper()
	o.flushed(p.n)
	require.Contains(o.t, p.n.Fairlead("status"), "rules of the packet filter")
	p.n.Run("iptables", "-t", "nat", "-I", "POSTROUTING", "-d", "203.0.113.0/24", "-j", "ACCEPT")
	said := p.n.Fairlead("describe", "node")
	p.n.Run("iptables", "-t", "nat", "-D", "POSTROUTING", "-d", "203.0.113.0/24", "-j", "ACCEPT")
	require.Contains(o.t, said, `! IPv4 nat POSTROUTING: "-d 203.0.113.0/24 -j ACCEPT" of another program decides before OVN-POSTROUTING does`)
	require.Contains(o.t, said, "rules of the packet filter was put right ")
	require.Contains(o.t, p.n.Fairlead("explain", p.Namespace+"/"+p.Name), " of fairlead in chain OVN-POSTROUTING of table nat (iptables (")
	o.seen(p, "world", o.world, p.n.at.IP4, p.n.at.IP6)

	web(map[string]any{"natOutgoingPolicyRules": []any{map[string]any{"match": map[string]any{"dstIPs": o.world.IP4}, "action": "forward"}}})
	o.seen(p, "world", o.world, p.ips[0], p.n.at.IP6)
	_, metrics, err := p.n.agent.Get("/metrics")
	require.NoError(o.t, err)
	require.Regexp(o.t, `ovn_subnet_gateway_packets\{cidr="10.16.0.0/16",direction="egress",hostname="`+p.n.name+`",protocol="IPv4",subnet_name="web"\} [1-9]`, metrics)
}

// Parts of what a packet filter has, without counters: of a set's members, which have no
// order, what the kernel lists first.
const (
	ownRules     = "{ iptables-save; ip6tables-save; } | grep OVN- | sed 's/ \\[.*//'; ipset save | grep ovn | sed 's/ packets.*//' | sort"
	foreignRules = "{ iptables-save; ip6tables-save; } | grep -v '^#\\|OVN-' | sed 's/ \\[.*//'; ipset save | grep -v ovn || true"
	// What kube-proxy made goes, its own --cleanup leaves some, and all else keeps its place.
	unproxied = `for p in iptables ip6tables; do $p-save | awk '/^\*/ { print } /^:KUBE/ { c[n++] = substr($1, 2) }
		/^-A/ && !/^-A KUBE/ && /-j KUBE/ { sub(/^-A/, "-D"); print }
		/^COMMIT/ { for (i = 0; i < n; i++) print "-F " c[i]; for (i = 0; i < n; i++) print "-X " c[i]; n = 0; print }' | $p-restore --noflush; done
		nft delete chain ip nat OUTPUT; nft delete chain ip6 nat OUTPUT`
	flushRules = `ipset flush; for p in iptables ip6tables; do
		$p-save | awk '/^\*/ { print } /^:OVN-/ { print $1, "-" } /^COMMIT/ { print }' | $p-restore --noflush; done`
)

// flushed proves that all of a node's rules and sets are back within a second after somebody
// flushed them, or, on a busy machine, within ten looks at them, by the median of three times, and within a while what somebody removes one
// by one. kube-proxy's rules, and those of others, are the same text in the same order.
func (o *ovnCluster) flushed(n *ovnNode) {
	o.t.Helper()
	stop := kube.StartProxy(o.t, o.c, n.Node, n.name, "--proxy-mode=iptables")
	n.Run("sh", "-c", "iptables -t nat -A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE; iptables -A FORWARD -i lo -j DROP")
	own, foreign := func() string { return n.Run("sh", "-c", ownRules) }, func() string { return n.Run("sh", "-c", foreignRules) }
	eventually(o.t, func() string {
		nat := n.Run("iptables", "-t", "nat", "-S")
		mine, its := strings.Index(nat, "-j OVN-PREROUTING"), strings.Index(nat, "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES")
		made := strings.Count(foreign(), "-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE") // of each family
		if made < 2 || !strings.Contains(nat, "web/svc cluster IP") || its < 0 || mine < 0 || mine > its {
			return "kube-proxy's rules are not there, or ours not before them:\n" + nat
		}
		return ""
	})
	looked := time.Now()
	was, theirs := own(), foreign()
	bound := max(time.Second, 5*time.Since(looked)) // two looks
	require.Contains(o.t, was, "-A OVN-POSTROUTING -m set --match-set ovn40subnets-nat src -m set ! --match-set ovn40subnets dst -j OVN-MASQUERADE")
	require.Contains(o.t, theirs, "-A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE")
	var took []time.Duration
	for i, harm := range []string{
		flushRules, flushRules, flushRules, "ipset flush ovn60subnets-nat",
		"iptables -t nat -D POSTROUTING -m comment --comment 'kube-ovn postrouting rules' -j OVN-POSTROUTING",
		"ip6tables -t nat -D PREROUTING -m comment --comment 'kube-ovn prerouting rules' -j OVN-PREROUTING",
	} {
		n.Run("sh", "-c", harm)
		began := time.Now()
		if i == 0 {
			o.t.Logf("flushed: %d lines of %d are there", strings.Count(own(), "\n"), strings.Count(was, "\n"))
		}
		eventually(o.t, func() string {
			if now := own(); now != was {
				return "after " + harm + ":\n" + now
			}
			return ""
		})
		took = append(took, time.Since(began).Round(time.Millisecond))
		require.Equal(o.t, theirs, foreign(), "after %s", harm)
	}
	o.t.Log("rules are back after", took)
	all := took[:3]
	slices.Sort(all)
	require.Less(o.t, all[1], bound, "median of three times that all was flushed")
	n.Run("sh", "-c", "iptables -t nat -D POSTROUTING -s 192.0.2.0/24 -j MASQUERADE; iptables -D FORWARD -i lo -j DROP")
	stop()
	n.Run("sh", "-ec", unproxied)
}

// routed proves that routes to pods that somebody deletes, or has elsewhere, come back by
// news of them: three times in a row long before the audit would see the third.
func (o *ovnCluster) routed(n *ovnNode) {
	o.t.Helper()
	routes := func() string { return n.Run("ip", "route") + n.Run("ip", "-6", "route", "show", "dev", "ovn0") }
	was, began := routes(), time.Now()
	for _, harm := range []string{"ip route del 10.16.0.0/16", "ip route flush dev ovn0 proto static", "ip route add 10.99.0.0/16 dev ovn0"} {
		n.Run("sh", "-c", harm)
		eventually(o.t, func() string {
			if now := routes(); now != was {
				return "after " + harm + ":\n" + now
			}
			return ""
		})
	}
	require.Less(o.t, time.Since(began), time.Minute, "the audit comes each two minutes, once")
}

// leaves proves as whom pods come to the world outside and to the nodes, by what a
// server there sees: as themselves, or as their node if the way is translated.
func (o *ovnCluster) leaves(translated bool, pods ...*ovnPod) {
	o.t.Helper()
	for _, p := range pods {
		as := p.ips
		if translated {
			as = []string{p.n.at.IP4, p.n.at.IP6}
		}
		o.seen(p, "world", o.world, as...)
		for _, n := range o.nodes {
			o.seen(p, n.name, n.at, p.ips...)
		}
	}
}

// egress proves that pods leave the cluster by the gateway that their Subnet names, as
// themselves: nodes have no way of their own to what lies behind it.
func (o *ovnCluster) egress(pods ...*ovnPod) {
	o.t.Helper()
	behind := []string{"203.0.113.9", "2001:db8:113::9"}
	o.site.Run("ip", "addr", "add", behind[0], "dev", "lo")
	o.site.Run("ip", "addr", "add", behind[1], "dev", "lo", "nodad")
	ask := func(p *ovnPod, ip string) string {
		return inside.Query(inside.Open(o.t, p.NetnsPath()), inside.Peer{Network: "tcp", Host: ip, Port: 8090, Limit: time.Second})
	}
	spec := map[string]any{"cidrBlock": webSubnet, "default": true, "natOutgoing": false,
		"externalEgressGateway": o.world.IP4 + "," + o.world.IP6, "policyRoutingTableID": 1000, "policyRoutingPriority": 1000}
	for _, with := range []bool{true, false} {
		if !with {
			spec["externalEgressGateway"], spec["policyRoutingTableID"], spec["policyRoutingPriority"] = "", 0, 0
		}
		o.c.Apply(subnetObject("web", spec))
		for _, p := range pods {
			for i, ip := range behind {
				eventually(o.t, func() string {
					if got := ask(p, ip); with && got != "world sees "+p.ips[i] || !with && strings.HasPrefix(got, "world") {
						return fmt.Sprintf("%s is answered by %s: %q; egress %t", p.port(), ip, got, with)
					}
					return ""
				})
			}
		}
	}
}

// outside has the nodes and the world answer pods; the world knows one way to them.
func (o *ovnCluster) outside() {
	o.t.Helper()
	inside.Serve(o.t, inside.Open(o.t, o.site.NetnsPath()), "world", 8090)
	for _, n := range o.nodes {
		inside.Serve(o.t, inside.Open(o.t, n.NetnsPath()), n.name, 8090)
	}
	for _, cidr := range strings.Split(webSubnet, ",") {
		gw := o.nodes[0].at.IP4
		if strings.Contains(cidr, ":") {
			gw = o.nodes[0].at.IP6
		}
		o.site.Run("ip", "route", "add", cidr, "via", gw)
	}
}
