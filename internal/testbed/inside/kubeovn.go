package inside

import (
	"fmt"
	"strings"
)

// KubeOVN are the commands of Kube-OVN's daemon for a Subnet 10.16.0.0/16 with natOutgoing
// and a policy rule, by its documents (sdn.md, sections 8 and 9), beside rules of others.
const KubeOVN = `
iptables -t nat -A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE
iptables -t nat -N KUBE-SERVICES; iptables -t nat -A PREROUTING -j KUBE-SERVICES
iptables -A FORWARD -i lo -j DROP
for f in 4 6; do
	family=inet; [ $f = 4 ] || family=inet6
	for s in services subnets subnets-nat subnets-distributed-gw other-node subnets-nat-policy natpr-0123456789ab-dst; do
		ipset create ovn${f}0$s hash:net family $family maxelem 1048576
	done
	ipset create ovn${f}0local-pod-ip-nat hash:ip family $family maxelem 1048576
done
for s in subnets subnets-nat subnets-distributed-gw subnets-nat-policy; do ipset add ovn40$s 10.16.0.0/16; ipset add ovn60$s fd00:10:16::/112; done
ipset add ovn40subnets 100.64.0.0/16; ipset add ovn40services 10.96.0.0/12; ipset add ovn40other-node 192.0.2.9; ipset add ovn40local-pod-ip-nat 10.16.0.5
ipset add ovn40natpr-0123456789ab-dst 198.51.100.0/24
for t in iptables ip6tables; do
	p=ovn40; [ $t = iptables ] || p=ovn60
	$t -t nat -N OVN-PREROUTING; $t -t nat -N OVN-POSTROUTING; $t -t nat -N OVN-MASQUERADE; $t -t nat -N OVN-NAT-POLICY; $t -t nat -N OVN-NAT-PSUBNET-0123456789ab
	$t -t mangle -N OVN-POSTROUTING
	$t -t nat -I PREROUTING 1 -m comment --comment "kube-ovn prerouting rules" -j OVN-PREROUTING
	$t -t nat -I POSTROUTING 1 -m comment --comment "kube-ovn postrouting rules" -j OVN-POSTROUTING
	$t -t mangle -I POSTROUTING 1 -m comment --comment "kube-ovn postrouting rules" -j OVN-POSTROUTING
	$t -t nat -A OVN-MASQUERADE -j MARK --set-xmark 0x0/0xffffffff
	$t -t nat -A OVN-MASQUERADE -j MASQUERADE --random-fully
	$t -t nat -A OVN-PREROUTING -i ovn0 -m set --match-set ${p}subnets src -m set --match-set ${p}services dst -j MARK --set-xmark 0x4000/0x4000
	$t -t nat -A OVN-POSTROUTING -m mark --mark 0x4000/0x4000 -j OVN-MASQUERADE
	$t -t nat -A OVN-POSTROUTING -m set --match-set ${p}subnets src -m set --match-set ${p}subnets dst -j OVN-MASQUERADE
	$t -t nat -A OVN-POSTROUTING -m mark --mark 0x80000/0x80000 -m set --match-set ${p}subnets-distributed-gw dst -j RETURN
	$t -t nat -A OVN-POSTROUTING -m mark --mark 0x80000/0x80000 -j OVN-MASQUERADE
	$t -t nat -A OVN-POSTROUTING -p tcp -m tcp ! --tcp-flags SYN SYN -m conntrack --ctstate NEW -j RETURN
	$t -t nat -A OVN-POSTROUTING -m set ! --match-set ${p}subnets src -m set ! --match-set ${p}other-node src -m set --match-set ${p}subnets-nat dst -j RETURN
	$t -t nat -A OVN-POSTROUTING -m set --match-set ${p}subnets-nat-policy src -m set ! --match-set ${p}subnets dst -j OVN-NAT-POLICY
	$t -t nat -A OVN-POSTROUTING -m mark --mark 0x90001 -j OVN-MASQUERADE
	$t -t nat -A OVN-POSTROUTING -m mark --mark 0x90002 -j RETURN
	$t -t nat -A OVN-POSTROUTING -m set --match-set ${p}subnets-nat src -m set ! --match-set ${p}subnets dst -j OVN-MASQUERADE
	$t -t nat -A OVN-NAT-PSUBNET-0123456789ab -m set --match-set ${p}natpr-0123456789ab-dst dst -j MARK --set-xmark 0x90002/0xffffffff
	$t -t mangle -A OVN-POSTROUTING -p tcp -m set --match-set ${p}subnets src -m tcp --tcp-flags RST RST -m conntrack --ctstate INVALID -j DROP
	for c in INPUT FORWARD; do for s in subnets services; do for d in src dst; do $t -I $c 1 -m set --match-set $p$s $d -j ACCEPT; done; done; done
	for port in 6081 4789; do $t -I OUTPUT 1 -p udp -m udp --dport $port -j MARK --set-xmark 0x0/0xffffffff; done
done
iptables -t nat -A OVN-NAT-POLICY -s 10.16.0.0/16 -m comment --comment natPolicySubnet-web -j OVN-NAT-PSUBNET-0123456789ab
iptables -A FORWARD -s 10.16.0.0/16 -m comment --comment ovn-subnet-gateway,web
iptables -A FORWARD -d 10.16.0.0/16 -m comment --comment ovn-subnet-gateway,web
`

// KubeOVNPod is a pod as Kube-OVN's daemon attaches it to br-int.
type KubeOVNPod struct {
	Vsctl           string // the command, with where the database is
	Container       string // id
	Netns           string // path
	Namespace, Name string
	MAC             string
	Addrs           []string // with length
	Gateways        []string
	More            string // further columns of the Interface, as ovs-vsctl takes them
}

// HostIf is its port, and the device of that.
func (p KubeOVNPod) HostIf() string { return p.Container[:12] + "_h" }

// Attach are the daemon's commands on the node.
func (p KubeOVNPod) Attach() string {
	far := p.Container[:12] + "_c"
	var ips []string
	for _, a := range p.Addrs {
		ip, _, _ := strings.Cut(a, "/")
		ips = append(ips, ip)
	}
	return fmt.Sprintf(`ip link add %[1]s mtu 1400 type veth peer name %[2]s mtu 1400
%[3]s --may-exist add-port br-int %[1]s -- set interface %[1]s external_ids:iface-id=%[4]s.%[5]s external_ids:vendor=kube-ovn external_ids:pod_name=%[4]s external_ids:pod_namespace=%[5]s external_ids:ip='"%[6]s"' external_ids:pod_netns=%[7]s %[8]s
ip link set %[1]s up txqueuelen 1000
ip link set %[2]s netns %[7]s`, p.HostIf(), far, p.Vsctl, p.Name, p.Namespace, strings.Join(ips, ","), p.Netns, p.More)
}

// Configure are its commands in the pod, which has its end of the pair.
func (p KubeOVNPod) Configure() string {
	far := p.Container[:12] + "_c"
	lines := []string{fmt.Sprintf("ip link set %s down; ip link set %s name eth0 address %s mtu 1400; ip link set eth0 up", far, far, p.MAC)}
	for _, a := range p.Addrs {
		nodad := ""
		if strings.Contains(a, ":") {
			nodad = " nodad"
		}
		lines = append(lines, "ip addr add "+a+" dev eth0"+nodad)
	}
	for _, gw := range p.Gateways {
		lines = append(lines, "ip route add default via "+gw+" dev eth0")
	}
	return strings.Join(lines, "\n")
}

// Before are the plugin's commands in the pod, before it calls the daemon.
func (p KubeOVNPod) Before() string {
	return "for c in all default; do sysctl -qw net.ipv6.conf.$c.disable_ipv6=0; sysctl -qw net.ipv6.conf.$c.accept_ra=0; done; ip link set lo up"
}

// Cached is what the runtime's libcni keeps of the answer, in /var/lib/cni/results.
func (p KubeOVNPod) Cached() string {
	return fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"config":"e30=","ifName":"eth0","networkName":"kube-ovn","netns":%q,"cniArgs":[["K8S_POD_NAMESPACE",%q],["K8S_POD_NAME",%q]],"result":{"cniVersion":"0.3.1"}}`,
		p.Container, p.Netns, p.Namespace, p.Name)
}

// KubeOVNBridge are the commands by which Kube-OVN's daemon gives a NIC, which has the address,
// to a provider network with VLAN 10. datapath is the type of br-int.
func KubeOVNBridge(vsctl, datapath, network, nic, addr string) string {
	return fmt.Sprintf(`br=br-%[2]s; mac=$(ip -o link show %[3]s | sed 's/.*ether //; s/ .*//')
%[1]s --may-exist add-br $br -- set bridge $br datapath_type=%[5]s other_config:mac-learning-fallback=true external_ids:vendor=kube-ovn external_ids:exchange-link-name=false
%[1]s set open_vswitch . external_ids:ovn-bridge-mappings=%[2]s:$br external_ids:ovn-chassis-mac-mappings='"%[2]s:02:00:00:00:0a:01"'
ip addr del %[4]s dev %[3]s; ip addr add %[4]s dev $br
%[1]s set bridge $br other_config:hwaddr='"'$mac'"'
ip link set $br up; ip link set %[3]s up
%[1]s --may-exist add-port $br %[3]s -- set port %[3]s trunks=0,10 external_ids:vendor=kube-ovn`, vsctl, network, nic, addr, datapath)
}
