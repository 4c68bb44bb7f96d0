// Package refusals is a table of objects that the API server must refuse, of the
// good ones beside them, and of the words that the refusal must have. Whoever
// reads such objects too (the agent, without an API server) is held against the
// same table: two readers that disagree are a hole. It must not know who reads.
package refusals

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Refusal is one bad object and the good one that is nearest to it.
type Refusal struct {
	// Kind is "KIND", or "KIND NAME" where the name is a part of the case.
	Kind string
	// Bad and Good are specs, as YAML's inner part of {}; Good may be "".
	Bad, Good string
	// Says are the path of the field, and the value where it is no number.
	Says []string
}

// All are the cases of every kind.
func All() []Refusal {
	return slices.Concat(subnets, underlay, vpcs, addresses, policies, leases, agentLeases, podNetworks, vfPolicies)
}

var subnets = []Refusal{
	{"Subnet", `cidrBlock: 10.16.0.0`, `cidrBlock: 10.16.0.0/16`, []string{"spec.cidrBlock", "cidrBlock 10.16.0.0 is not a network"}},
	{"Subnet", `cidrBlock: 10.16.0.5/16`, `cidrBlock: "fd00:10:16::/112"`, []string{"spec.cidrBlock", "10.16.0.5/16", "without bits behind the prefix length"}},
	{"Subnet", `cidrBlock: "10.16.0.0/16,fd00::/129"`, `cidrBlock: "10.16.0.0/16, fd00::/112"`, []string{"spec.cidrBlock", "10.16.0.0/16,fd00::/129 is not"}},
	{"Subnet", `cidrBlock: 0.0.0.0/0`, `cidrBlock: 10.0.0.0/8`, []string{"spec.cidrBlock", "cidrBlock 0.0.0.0/0 is no range for pods"}},
	{"Subnet", `cidrBlock: "10.16.0.0/16,::1/128"`, ``, []string{"spec.cidrBlock", "::1/128 is no range for pods"}},
	{"Subnet", `cidrBlock: 127.0.0.0/8`, `cidrBlock: 10.0.0.0/31`, []string{"spec.cidrBlock", "cidrBlock 127.0.0.0/8 is no range for pods"}},
	{"Subnet", `cidrBlock: "ff00::/8"`, `cidrBlock: "fd00::/127"`, []string{"spec.cidrBlock", "ff00::/8 is no range for pods"}},
	{"Subnet", `cidrBlock: 10.16.0.1/32`, ``, []string{"spec.cidrBlock", "10.16.0.1/32 is no range for pods"}},
	{"Subnet", `cidrBlock: "10.16.0.0/16,10.17.0.0/16"`, `cidrBlock: "fd00::/64,10.17.0.0/16"`, []string{"spec.cidrBlock", "10.16.0.0/16,10.17.0.0/16 is neither one network nor one of each family"}},
	{"Subnet", `cidrBlock: "10.16.0.0/16,fd00::/64,10.17.0.0/16"`, `cidrBlock: "fd00::/64,10.17.0.0/24"`, []string{"spec.cidrBlock", "10.17.0.0/16 is neither one network"}},
	{"Subnet", `cidrBlock: "10.16.0.0/16,fd00::/64", protocol: IPv4`, `cidrBlock: "10.16.0.0/16,fd00::/64", protocol: Dual`, []string{"spec.protocol", "protocol IPv4 is not that of cidrBlock 10.16.0.0/16,fd00::/64"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, protocol: Dual`, `cidrBlock: 10.16.0.0/16, protocol: ""`, []string{"spec.protocol", "protocol Dual is not that of cidrBlock 10.16.0.0/16"}},
	{"Subnet", `cidrBlock: "fd00::/64", protocol: IPv4`, `cidrBlock: "fd00::/64", protocol: IPv6`, []string{"spec.protocol", "protocol IPv4"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, gateway: gw`, `cidrBlock: 10.16.0.0/16, gateway: 10.16.0.1`, []string{"spec.gateway", "gateway gw is not an IP address"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, gateway: 10.17.0.1`, `cidrBlock: 10.16.0.0/16, gateway: ""`, []string{"spec.gateway", "gateway 10.17.0.1 lies outside of cidrBlock 10.16.0.0/16"}},
	{"Subnet", `cidrBlock: "10.16.0.0/16,fd00::/64", gateway: 10.16.0.1`, `cidrBlock: "10.16.0.0/16,fd00::/64", gateway: "fd00::1, 10.16.0.1"`, []string{"spec.gateway", "gateway 10.16.0.1 lies outside", "each network needs one inside"}},
	{"Subnet", `cidrBlock: "10.16.0.0/16,fd00::/64", gateway: "10.16.0.1,10.16.0.2"`, `cidrBlock: "10.16.0.0/16,fd00::/64"`, []string{"spec.gateway", "10.16.0.1,10.16.0.2 lies outside"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, gateway: 10.16.0.0`, `cidrBlock: 10.16.0.0/31, gateway: 10.16.0.0`, []string{"spec.gateway", "gateway 10.16.0.0 is the address of the network itself: cidrBlock 10.16.0.0/16"}},
	{"Subnet", `cidrBlock: "fd00::/64", gateway: "fd00::"`, `cidrBlock: "fd00::/127", gateway: "fd00::"`, []string{"spec.gateway", "gateway fd00:: is the address of the network itself"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, excludeIps: [10.16.0.1, 10.16.0.2-10.16.0.9]`, `cidrBlock: 10.16.0.0/16, excludeIps: [10.16.0.1, 10.16.0.2..10.16.0.9]`, []string{"spec.excludeIps[1]", "10.16.0.2-10.16.0.9 is neither an address nor a range"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, excludeIps: [10.16.0.1..10.16.0.2..10.16.0.3]`, `cidrBlock: 10.16.0.0/16, excludeIps: []`, []string{"spec.excludeIps[0]", "10.16.0.1..10.16.0.2..10.16.0.3 is neither"}},
	{"Subnet", `cidrBlock: 10.16.0.0/24, excludeIps: [10.16.0.1, 10.16.0.9..10.16.1.9]`, `cidrBlock: "10.16.0.0/24,fd00::/64", excludeIps: ["fd00::1..fd00::9", 10.16.0.1]`, []string{"spec.excludeIps", "10.16.0.9..10.16.1.9 lies outside of cidrBlock 10.16.0.0/24"}},
	{"Subnet", `cidrBlock: "10.16.0.0/24,fd00::/64", excludeIps: ["10.16.0.1..fd00::9"]`, ``, []string{"spec.excludeIps", "10.16.0.1..fd00::9 lies outside"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, provider: "Net 1"`, `cidrBlock: 10.16.0.0/16, provider: net-1.ns.ovn`, []string{"spec.provider", "provider Net 1 is neither ovn nor"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, provider: net.ns., default: false`, `cidrBlock: 10.16.0.0/16, provider: ""`, []string{"spec.provider", "provider net.ns. is neither"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, provider: net.ns, default: true`, `cidrBlock: 10.16.0.0/16, provider: ovn, default: true`, []string{"spec.default", "not of net.ns"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, allowSubnets: [10.1.0.0/16, all]`, `cidrBlock: 10.16.0.0/16, allowSubnets: [10.1.0.0/16, "::/0"]`, []string{"spec.allowSubnets[1]", "all is not a network"}},
	{"Subnet", `cidrBlock: "fd00::/64", mtu: 1279`, `cidrBlock: "fd00::/64", mtu: 1280`, []string{"spec.mtu", "1280"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, mtu: 575`, `cidrBlock: 10.16.0.0/16, mtu: 576`, []string{"spec.mtu", "576"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, mtu: 65536`, `cidrBlock: 10.16.0.0/16, mtu: 0`, []string{"spec.mtu", "65536"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, u2oInterconnectionIP: 10.17.0.5`, `cidrBlock: 10.16.0.0/16, u2oInterconnectionIP: 10.16.0.5`, []string{"spec.u2oInterconnectionIP", "10.17.0.5 is not an address of cidrBlock 10.16.0.0/16"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, policyRoutingTableID: 254`, `cidrBlock: 10.16.0.0/16, policyRoutingTableID: 256`, []string{"spec.policyRoutingTableID", "252 to 255"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, policyRoutingPriority: 32766`, `cidrBlock: 10.16.0.0/16, policyRoutingPriority: 32765`, []string{"spec.policyRoutingPriority", "32766"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, gatewayType: both`, `cidrBlock: 10.16.0.0/16, gatewayType: ""`, []string{"spec.gatewayType", "both"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, acls: [{priority: -1}]`, `cidrBlock: 10.16.0.0/16, acls: [{priority: 0}]`, []string{"spec.acls[0].priority", "-1"}},
	{"Subnet", `cidrBlock: 10.16.0.0/16, natOutgoingPolicyRules: [{action: masquerade}]`, `cidrBlock: 10.16.0.0/16, natOutgoingPolicyRules: [{action: nat}]`, []string{"spec.natOutgoingPolicyRules[0].action", "masquerade"}},
}

var underlay = []Refusal{
	{"Vlan", `id: 4095`, `id: 4094`, []string{"spec.id", "4095"}},
	{"Vlan", `id: -1`, `id: 0`, []string{"spec.id", "-1"}},
	{"Vlan", `vlanId: 4095`, `vlanId: 7, providerInterfaceName: net1`, []string{"spec.vlanId", "4095"}},
	{"ProviderNetwork", `defaultInterface: a-name-of-16-char`, `defaultInterface: a-name-of-15-ch`, []string{"spec.defaultInterface", "15"}},

	{"ProviderNetwork a-name-of-13c", `defaultInterface: eth0`, ``, []string{"name a-name-of-13c has more than 12 characters", "br-a-name-of-13c"}},
}

var vpcs = []Refusal{
	{"Vpc", `staticRoutes: [{cidr: all, nextHopIP: 10.0.0.1}]`, `staticRoutes: [{cidr: 10.1.0.0/16, nextHopIP: 10.0.0.1}]`, []string{"spec.staticRoutes[0].cidr", "cidr all is neither"}},
	{"Vpc", `staticRoutes: [{cidr: 0.0.0.0/0, nextHopIP: gw}]`, `staticRoutes: [{cidr: 10.1.0.5, nextHopIP: 10.0.0.1, policy: policySrc}]`, []string{"spec.staticRoutes[0].nextHopIP", "nextHopIP gw is not"}},
	{"Vpc", `staticRoutes: [{cidr: "::/0", nextHopIP: 10.0.0.1}]`, `staticRoutes: [{cidr: "::/0", nextHopIP: "fd00::1"}]`, []string{"spec.staticRoutes[0].nextHopIP", "nextHopIP 10.0.0.1 is of another family than cidr ::/0"}},
	{"Vpc", `staticRoutes: [{cidr: 0.0.0.0/0, nextHopIP: 10.0.0.1, policy: both}]`, `staticRoutes: []`, []string{"spec.staticRoutes[0].policy", "both"}},
	{"Vpc", `policyRoutes: [{priority: 32768, action: drop}]`, `policyRoutes: [{priority: 32767, action: drop}]`, []string{"spec.policyRoutes[0].priority", "32768"}},
	{"Vpc", `policyRoutes: [{action: reroute, nextHopIP: gw}]`, `policyRoutes: [{action: reroute, nextHopIP: "10.0.0.1, 10.0.0.2"}]`, []string{"spec.policyRoutes[0].nextHopIP", "nextHopIP gw is not"}},
	{"Vpc", `policyRoutes: [{action: reroute}]`, `policyRoutes: [{action: allow}]`, []string{"spec.policyRoutes[0].nextHopIP", "reroute needs nextHopIP"}},
	{"Vpc", `policyRoutes: [{action: pass}]`, `policyRoutes: [{action: drop, nextHopIP: ""}]`, []string{"spec.policyRoutes[0].action", "pass"}},
	{"Vpc", `vpcPeerings: [{remoteVpc: a, localConnectIP: 169.254.0.1}]`, `vpcPeerings: [{remoteVpc: a, localConnectIP: "169.254.0.1/30,fd00::1/126"}]`, []string{"spec.vpcPeerings[0].localConnectIP", "localConnectIP 169.254.0.1 is not"}},
	{"Vpc", `vpcPeerings: [{localConnectIP: 169.254.0.1/30}]`, `vpcPeerings: []`, []string{"spec.vpcPeerings[0].remoteVpc"}},
	{"Vpc", `bfdPort: {enabled: true}`, `bfdPort: {enabled: false}`, []string{"spec.bfdPort.ip", "needs ip"}},
	{"Vpc", `bfdPort: {enabled: true, ip: a}`, `bfdPort: {enabled: true, ip: 10.0.0.1}`, []string{"spec.bfdPort.ip", "ip a is not"}},
}

var addresses = []Refusal{
	{"IP", `ipAddress: "10.16.0.5;fd00::5"`, `ipAddress: "10.16.0.5,fd00::5"`, []string{"spec.ipAddress", "10.16.0.5;fd00::5 is not"}},
	{"IP", `v4IpAddress: "fd00::5"`, `v4IpAddress: 10.16.0.5, v6IpAddress: ""`, []string{"spec.v4IpAddress", "fd00::5 is not an IPv4"}},
	{"IP", `v6IpAddress: 10.16.0.5`, `v6IpAddress: "fd00::5"`, []string{"spec.v6IpAddress", "10.16.0.5 is not an IPv6"}},
	{"IP", `macAddress: "00:11:22:33:44"`, `macAddress: "00:00:00:B8:58:ab"`, []string{"spec.macAddress", "00:11:22:33:44 is not"}},

	{"IPPool", `subnet: a, ips: [10.16.0.5-10.16.0.9]`, `subnet: a, ips: [10.16.0.5..10.16.0.9, 10.16.1.0/24, "fd00::5"]`, []string{"spec.ips[0]", "10.16.0.5-10.16.0.9 is neither"}},
	{"IPPool", `subnet: a, ips: ["10.16.0.5..fd00::5"]`, `subnet: a, ips: ["fd00::5..fd00::9"]`, []string{"spec.ips[0]", "10.16.0.5..fd00::5 goes from one family to the other"}},
	{"IPPool", `subnet: a, ips: []`, `subnet: a, ips: [10.16.0.5]`, []string{"spec.ips"}},
	{"IPPool", `ips: [10.16.0.5]`, `subnet: a, ips: [10.16.0.5]`, []string{"spec.subnet"}},

	{"Vip", `v4ip: "fd00::5"`, `v4ip: 10.16.0.5, v6ip: "fd00::5"`, []string{"spec.v4ip", "fd00::5 is not an IPv4"}},
	{"Vip", `v6ip: 10.16.0.5`, `v6ip: ""`, []string{"spec.v6ip", "10.16.0.5 is not an IPv6"}},
	{"Vip", `macAddress: mac`, `macAddress: "00:00:00:00:00:0F"`, []string{"spec.macAddress", "mac is not of the form"}},
}

var policies = []Refusal{
	{"SecurityGroup", rule(`ipVersion: inet`), rule(`ipVersion: IPv4`), []string{"spec.ingressRules[0].ipVersion", "ipVersion inet"}},
	{"SecurityGroup", rule(`remoteAddress: all`), rule(`remoteAddress: 10.0.0.0/8`), []string{"spec.ingressRules[0].remoteAddress", "remoteAddress all is neither"}},
	{"SecurityGroup", rule(`localAddress: here`), rule(`localAddress: 10.0.0.5`), []string{"spec.ingressRules[0].localAddress", "localAddress here is neither"}},
	{"SecurityGroup", rule(`remoteAddress: "::/0"`), rule(`ipVersion: ipv6, remoteAddress: "::/0"`), []string{"spec.ingressRules[0].remoteAddress", "::/0 is not of ipVersion ipv4"}},
	{"SecurityGroup", rule(`remoteAddress: ""`), rule(`remoteAddress: 10.0.0.5`), []string{"spec.ingressRules[0].remoteAddress", "needs remoteAddress"}},
	{"SecurityGroup", rule(`remoteType: securityGroup`), rule(`remoteType: securityGroup, remoteSecurityGroup: a`), []string{"spec.ingressRules[0].remoteSecurityGroup", "needs remoteSecurityGroup"}},
	{"SecurityGroup", rule(`portRangeMin: 90, portRangeMax: 80`), rule(`portRangeMin: 80, portRangeMax: 80`), []string{"spec.ingressRules[0].portRangeMin", "above portRangeMax"}},
	{"SecurityGroup", rule(`sourcePortRangeMin: 90, sourcePortRangeMax: 80`), rule(`sourcePortRangeMin: 80, sourcePortRangeMax: 90`), []string{"spec.ingressRules[0].sourcePortRangeMin", "above sourcePortRangeMax"}},
	{"SecurityGroup", rule(`portRangeMax: 65536`), rule(`portRangeMax: 65535`), []string{"spec.ingressRules[0].portRangeMax", "65536"}},
	{"SecurityGroup", rule(`priority: 0`), rule(`priority: 1`), []string{"spec.ingressRules[0].priority", "0"}},
	{"SecurityGroup", rule(`policy: maybe`), rule(`policy: drop`), []string{"spec.ingressRules[0].policy", "maybe"}},
	{"SecurityGroup", rule(`protocol: ospf`), rule(`protocol: icmp`), []string{"spec.ingressRules[0].protocol", "ospf"}},
	{"SecurityGroup", `tier: -1`, `tier: 0`, []string{"spec.tier", "-1"}},

	{"QoSPolicy", `bandwidthLimitRules: [{name: a, rateMax: "-5"}]`, `bandwidthLimitRules: [{name: a, rateMax: "0"}]`, []string{"spec.bandwidthLimitRules[0].rateMax", "rateMax -5 is not"}},
	{"QoSPolicy", `bandwidthLimitRules: [{name: a, burstMax: 1k}]`, `bandwidthLimitRules: [{name: a, burstMax: "0.5"}]`, []string{"spec.bandwidthLimitRules[0].burstMax", "burstMax 1k is not"}},
	{"QoSPolicy", `bandwidthLimitRules: [{name: a, priority: -1}]`, `bandwidthLimitRules: [{name: a, priority: 0}]`, []string{"spec.bandwidthLimitRules[0].priority", "-1"}},
	{"QoSPolicy", `bandwidthLimitRules: [{name: a, direction: up}]`, `bandwidthLimitRules: [{name: a, direction: egress}]`, []string{"spec.bandwidthLimitRules[0].direction", "up"}},
	{"QoSPolicy", `bandwidthLimitRules: [{name: a}, {name: a}]`, `bandwidthLimitRules: [{name: a}, {name: b}]`, []string{"spec.bandwidthLimitRules", `name="a"`}},
}

var leases = []Refusal{
	{"AddressLease web.10.16.0.5", lease(`web`, `10.16.0.6`), lease(`web`, `10.16.0.5`), []string{"spec.address", "name web.10.16.0.5 is not that of address 10.16.0.6 of Subnet web"}},
	{"AddressLease web.10.16.0.7", lease(`we`, `10.16.0.7`), lease(`web`, `10.16.0.7`), []string{"spec.address", "of Subnet we"}},
	{"AddressLease web.fd00-0000-0000-0000-0000-0000-0000-0005", lease(`web`, `fd00::6`), lease(`web`, `fd00::0:5`), []string{"spec.address", "is not that of address fd00::6"}},
	{"AddressLease web.fd00--5", lease(`web`, `fd00::5`), ``, []string{"spec.address", "name web.fd00--5 is not"}},
	{"AddressLease web.10.16.0.256", lease(`web`, `10.16.0.256`), ``, []string{"spec.address", "address 10.16.0.256 is not an IP address"}},
	{"AddressLease web.10.16.0.8", lease(`web`, `10.16.0.8`) + `, mac: "0A:00:00:00:00:01"`, lease(`web`, `10.16.0.8`) + `, mac: "0a:00:00:00:00:01"`, []string{"spec.mac", "0A:00:00:00:00:01 is not"}},
	{"AddressLease web.10.16.0.9", `subnet: web, address: 10.16.0.9, owner: {kind: Pod, name: ""}`, lease(`web`, `10.16.0.9`), []string{"spec.owner.name"}},
}

// rule is a SecurityGroup of one good rule that is changed.
func rule(change string) string {
	spec := `ipVersion: ipv4, remoteType: address, remoteAddress: 10.0.0.0/8, policy: allow`
	for _, key := range []string{"ipVersion", "remoteType", "remoteAddress", "policy"} {
		if regexp.MustCompile(`(^|[ ,])` + key + `:`).MatchString(change) {
			spec = regexp.MustCompile(key+`: [^,]+(, )?`).ReplaceAllString(spec, "")
		}
	}
	return `ingressRules: [{` + strings.TrimSuffix(spec, ", ") + `, ` + change + `}]`
}

// agentLeases are AddressLeases of net.fairlead.io.
var agentLeases = []Refusal{
	{"AddressLease/net db.10.9.0.5", held(`address: 10.9.0.6`), held(`address: 10.9.0.5`), []string{"spec.domain", "name db.10.9.0.5 is not that of what it leases in domain db"}},
	{"AddressLease/net db.fd00-0000-0000-0000-0000-0000-0000-0005", held(`address: "fd00::6"`), held(`address: "fd00::5"`), []string{"spec.domain", "is not that of what it leases"}},
	{"AddressLease/net db.10.9.0.256", held(`address: 10.9.0.256`), ``, []string{"spec.domain", "is not that of what it leases"}},
	{"AddressLease/net db.mac.020000000005", held(`mac: "02:00:00:00:00:06"`), held(`mac: "02:00:00:00:00:05"`), []string{"spec.domain", "is not that of what it leases"}},
	{"AddressLease/net db.mac.0A0000000005", held(`mac: "0A:00:00:00:00:05"`), ``, []string{"spec.mac", "mac 0A:00:00:00:00:05 is not of the form"}},
	{"AddressLease/net db.10.9.0.7", held(`address: 10.9.0.7, mac: "02:00:00:00:00:07"`), held(`address: 10.9.0.7`), []string{"spec.domain", "a lease is of an address or of a MAC"}},
	{"AddressLease/net db.10.9.0.8", `domain: db, address: 10.9.0.8, owner: {namespace: a, pod: web, interface: net1}, holder: {sandbox: c1, epoch: 1}`,
		`domain: db, address: 10.9.0.8, owner: {namespace: a, pod: web, interface: net1}, holder: {epoch: 1}`, []string{"spec.holder", "a holder is on a node"}},
}

// held is an AddressLease that a sandbox has.
func held(what string) string {
	return fmt.Sprintf(`domain: db, %s, owner: {namespace: a, pod: web, interface: net1}, holder: {sandbox: c1, node: n1, epoch: 1}`, what)
}

// lease is an AddressLease of a pod.
func lease(subnet, address string) string {
	return fmt.Sprintf(`subnet: %s, address: "%s", owner: {kind: Pod, namespace: a, name: web}`, subnet, address)
}

var podNetworks = []Refusal{
	{"PodNetwork", `interfaces: []`, `interfaces: [{name: net1}]`, []string{"spec.interfaces"}},
	{"PodNetwork", `interfaces: [{name: a/b}]`, ``, []string{"spec.interfaces[0].name"}},
	{"PodNetwork", `interfaces: [{name: net1, ipRange: 10.9.0.16-10.9.0.31}]`, `statefulSet: db, interfaces: [{name: net1, ipRange: "fd00::10-fd00::1f", macBase: "02:0A:09:00:01:00"}]`, []string{"spec.interfaces", "ipRange and macBase are for the pods of a statefulSet"}},
	{"PodNetwork", `statefulSet: db, interfaces: [{name: net1, ips: [10.9.0.16]}]`, `interfaces: [{name: net1, ips: [10.9.0.16/24, "fd00::16"], mac: "02:0a:09:00:01:00"}]`, []string{"spec.interfaces", "ips and mac are of one pod: those of a statefulSet have an ipRange and a macBase"}},
	{"PodNetwork", `statefulSet: db, interfaces: [{name: net1, ipRange: 10.9.0.16}]`, ``, []string{"spec.interfaces[0].ipRange", "ipRange 10.9.0.16 is not of the form 10.9.0.16-10.9.0.31"}},
	{"PodNetwork", `statefulSet: db, interfaces: [{name: net1, ipRange: "10.9.0.16-fd00::1"}]`, `statefulSet: db, interfaces: [{name: net1, ipRange: 10.9.0.16-10.9.0.31/24}]`, []string{"spec.interfaces[0].ipRange", "ipRange 10.9.0.16-fd00::1 is not of the form"}},
	{"PodNetwork", `statefulSet: db, interfaces: [{name: net1, macBase: "01:0a:09:00:01:00"}]`, ``, []string{"spec.interfaces[0].macBase", "macBase 01:0a:09:00:01:00 is no unicast Ethernet address"}},
	{"PodNetwork", `interfaces: [{name: net1, ips: [10.9.0.300]}]`, ``, []string{"spec.interfaces[0].ips", "an element of ips is neither an address nor one with its prefix length"}},
	{"PodNetwork", `interfaces: [{name: net1, ips: [10.9.0.3, 10.9.0.4]}]`, ``, []string{"spec.interfaces[0].ips", "ips are at most one of each family"}},
	{"PodNetwork", `interfaces: [{name: net1, mac: "00:00:00:00:00:00"}]`, ``, []string{"spec.interfaces[0].mac", "mac 00:00:00:00:00:00 is no unicast Ethernet address"}},
	{"PodNetwork", `interfaces: [{name: net1, vlan: {id: 4095}}]`, `interfaces: [{name: net1, vlan: {id: 4094, qos: 7, proto: 802.1ad}}]`, []string{"spec.interfaces[0].vlan.id"}},
	{"PodNetwork", `interfaces: [{name: net1, vlan: {id: 0, qos: 3}}]`, `interfaces: [{name: net1, vlan: {id: 0}}]`, []string{"spec.interfaces[0].vlan.qos", "qos is a tag's priority: it needs an id"}},
	{"PodNetwork", `interfaces: [{name: net1, vlan: {id: 0, proto: 802.1ad}}]`, ``, []string{"spec.interfaces[0].vlan.proto", "802.1ad needs an id"}},
	{"PodNetwork", `interfaces: [{name: net1, bandwidth: {minMbps: 5, maxMbps: 4}}]`, `interfaces: [{name: net1, bandwidth: {minMbps: 5, maxMbps: 0}}]`, []string{"spec.interfaces[0].bandwidth.minMbps", "minMbps is more than maxMbps"}},
	{"PodNetwork", `interfaces: [{name: net1, sriov: {linkState: up}}]`, `interfaces: [{name: net1, sriov: {linkState: enable, pf: [ens1f0]}}]`, []string{"spec.interfaces[0].sriov.linkState"}},
	{"PodNetwork", `interfaces: [{name: net1, retain: Never}]`, `interfaces: [{name: net1, retain: WhileDeclared}]`, []string{"spec.interfaces[0].retain"}},
	{"PodNetwork", `interfaces: [{name: net1, ips: [10.9.0.3], retain: UntilScaleDown}]`, `statefulSet: db, interfaces: [{name: net1, ipRange: 10.9.0.3-10.9.0.9, retain: UntilScaleDown}]`, []string{"spec.interfaces", "retain UntilScaleDown is for the pods of a statefulSet"}},
	{"PodNetwork", `interfaces: [{name: net1, retain: Forever}]`, `interfaces: [{name: net1, mac: "02:0a:09:00:01:00", retain: Forever}]`, []string{"spec.interfaces[0].retain", "no address or MAC is declared that could be retained"}},
}

var vfPolicies = []Refusal{
	{"NodeVFPolicy", `resource: db, pf: [ens1f0]`, `resource: fairlead.io/db, pf: ["ens1f0#0-3,7"]`, []string{"spec.resource", "resource db is no name of the form vendor.example/db"}},
	{"NodeVFPolicy", `resource: kubernetes.io/db, pf: [ens1f0]`, `resource: fairlead.io/db, selectors: [{}]`, []string{"spec.resource", "resource kubernetes.io/db is no name"}},
	{"NodeVFPolicy", `resource: fairlead.io/db`, ``, []string{"spec", "pf or selectors must say which functions are meant"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: ["ens1f0#3-"]`, ``, []string{"spec.pf[0]"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, selectors: [{vendors: ["8086"]}], numVFs: 3`, `resource: fairlead.io/db, pf: [ens1f0], numVFs: 0`, []string{"spec.numVFs", "numVFs is a number for each physical function in pf"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], numVFs: -1`, ``, []string{"spec.numVFs"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, selectors: [{vendors: ["8086"]}], mtu: 9000`, `resource: fairlead.io/db, pf: [ens1f0], mtu: 9000`, []string{"spec.mtu", "mtu is that of the physical functions in pf"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], mtu: 67`, ``, []string{"spec.mtu"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], idMode: uuid`, ``, []string{"spec.idMode"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], driver: uio`, `resource: fairlead.io/db, pf: [ens1f0], driver: vfio-pci`, []string{"spec.driver"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], driver: vfio-pci, idMode: slot`, `resource: fairlead.io/db, pf: [ens1f0], driver: vfio-pci, idMode: pci`, []string{"spec.idMode", "functions of vfio-pci are given by their addresses"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], driver: vfio-pci, minRateBudgetPercent: 90`, `resource: fairlead.io/db, pf: [ens1f0], minRateBudgetPercent: 90`, []string{"spec.minRateBudgetPercent", "minRateBudgetPercent is of functions that the agent chooses"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], idMode: pci, minRateBudgetPercent: 90`, ``, []string{"spec.minRateBudgetPercent"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, selectors: [{isRdma: true}]`, `resource: fairlead.io/db, idMode: pci, selectors: [{isRdma: true}]`, []string{"spec.idMode", "RDMA device is given with its address"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], priority: 100`, `resource: fairlead.io/db, pf: [ens1f0], priority: 0`, []string{"spec.priority"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], minRateBudgetPercent: 101`, ``, []string{"spec.minRateBudgetPercent"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], baseline: {vlan: 4095}`, `resource: fairlead.io/db, pf: [ens1f0], baseline: {vlan: 4094, spoofchk: false, trust: true, maxMbps: 100}`, []string{"spec.baseline.vlan"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, pf: [ens1f0], baseline: {maxMbps: -1}`, ``, []string{"spec.baseline.maxMbps"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, selectors: [{vendors: [intel]}]`, `resource: fairlead.io/db, selectors: [{vendors: ["8086"], devices: [10ca], drivers: [igbvf], linkTypes: [ether]}]`, []string{"spec.selectors[0].vendors[0]"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, selectors: [{pciAddresses: ["01:10.0"]}]`, `resource: fairlead.io/db, selectors: [{pciAddresses: ["0000:01:10.0"], rootDevices: ["0000:01:00.0#0-3"], pfNames: ["pf0#1"]}]`, []string{"spec.selectors[0].pciAddresses[0]"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, selectors: [{rootDevices: ["0000:01:00.0#a"]}]`, ``, []string{"spec.selectors[0].rootDevices[0]"}},
	{"NodeVFPolicy", `resource: fairlead.io/db, selectors: [{linkTypes: [fibre]}]`, ``, []string{"spec.selectors[0].linkTypes[0]"}},
}
