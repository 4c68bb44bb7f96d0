package inside

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
