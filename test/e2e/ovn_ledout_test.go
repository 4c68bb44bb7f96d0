package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// ledOut proves that a centralized Subnet's gateway nodes, and no others, lead its pods to
// its gateway outside, under their own addresses, also the one that takes over.
func (o *ovnCluster) ledOut(nodes []*ovnNode) {
	o.t.Helper()
	inside.Serve(o.t, inside.Open(o.t, o.site.NetnsPath()), "world", 8090)
	behind := []string{"203.0.113.9", "2001:db8:113::9"} // no node has a way there
	o.site.Run("ip", "addr", "add", behind[0], "dev", "lo")
	o.site.Run("ip", "addr", "add", behind[1], "dev", "lo", "nodad")
	const led = "10.19.0.0/16,fd00:10:19::/112"
	gateways := func(names string) {
		o.c.Apply(subnetObject("led", map[string]any{
			"cidrBlock": led, "namespaces": []string{"led"}, "gatewayType": "centralized", "gatewayNode": names,
			"externalEgressGateway": o.world.IP4 + "," + o.world.IP6, "policyRoutingTableID": 1000, "policyRoutingPriority": 1000,
		}))
	}
	leads := func(n *ovnNode, yes bool) {
		o.t.Helper()
		eventually(o.t, func() string {
			for _, family := range []string{"-4", "-6"} {
				if rules := n.Run("ip", family, "rule"); strings.Contains(rules, "lookup 1000") != yes {
					return fmt.Sprintf("%s leads out: not %t: %s", n.name, yes, rules)
				}
			}
			return ""
		})
	}
	gateways("node-3,node-2")
	pod := nodes[0].run("led/pod")
	out := func(by *ovnNode) {
		o.t.Helper()
		o.has("subnets", active, "led: "+by.name)
		for i, cidr := range strings.Split(led, ",") { // the way back
			o.site.Run("ip", "route", "replace", cidr, "via", []string{by.at.IP4, by.at.IP6}[i])
		}
		for i, ip := range behind {
			eventually(o.t, func() string {
				got := inside.Query(inside.Open(o.t, pod.NetnsPath()), inside.Peer{Network: "tcp", Host: ip, Port: 8090, Limit: time.Second})
				if got != "world sees "+pod.ips[i] {
					return fmt.Sprintf("%s is answered by %s by %s: %q", pod.port(), ip, by.name, got)
				}
				return ""
			})
		}
	}
	out(nodes[2])
	leads(nodes[2], true)
	leads(nodes[1], true)
	leads(nodes[0], false)
	nodes[2].at.Cut()
	out(nodes[1])
	nodes[2].at.Mend()
	gateways("node-2")
	leads(nodes[2], false)
	out(nodes[1])
}
