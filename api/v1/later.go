package v1

import "k8s.io/apimachinery/pkg/runtime/schema"

// LaterKind is a kind of kubeovn.io/v1 that Fairlead stores whole and does not
// carry out: its objects get ConditionNotImplemented.
type LaterKind struct {
	Kind       string
	Plural     string
	Singular   string
	ShortNames []string
	Namespaced bool
}

// Resource is the kind's name for clients.
func (k LaterKind) Resource() schema.GroupVersionResource { return GroupVersion.WithResource(k.Plural) }

// Later are the kinds of Kube-OVN that are not carried out, by plural. Their
// CRDs in deploy/cluster are rendered of this list (deploy/later.yaml.tmpl).
func Later() []LaterKind {
	return []LaterKind{
		{Kind: "BgpConf", Plural: "bgp-confs", Singular: "bgp-conf"},
		{Kind: "DNSNameResolver", Plural: "dnsnameresolvers", Singular: "dnsnameresolver", ShortNames: []string{"dnr"}},
		{Kind: "EvpnConf", Plural: "evpn-confs", Singular: "evpn-conf"},
		{Kind: "IptablesDnatRule", Plural: "iptables-dnat-rules", Singular: "iptables-dnat-rule", ShortNames: []string{"dnat"}},
		{Kind: "IptablesEIP", Plural: "iptables-eips", Singular: "iptables-eip", ShortNames: []string{"eip"}},
		{Kind: "IptablesFIPRule", Plural: "iptables-fip-rules", Singular: "iptables-fip-rule", ShortNames: []string{"fip"}},
		{Kind: "IptablesSnatRule", Plural: "iptables-snat-rules", Singular: "iptables-snat-rule", ShortNames: []string{"snat"}},
		{Kind: "OvnDnatRule", Plural: "ovn-dnat-rules", Singular: "ovn-dnat-rule", ShortNames: []string{"odnat"}},
		{Kind: "OvnEip", Plural: "ovn-eips", Singular: "ovn-eip", ShortNames: []string{"oeip"}},
		{Kind: "OvnFip", Plural: "ovn-fips", Singular: "ovn-fip", ShortNames: []string{"ofip"}},
		{Kind: "OvnSnatRule", Plural: "ovn-snat-rules", Singular: "ovn-snat-rule", ShortNames: []string{"osnat"}},
		{Kind: "RouterLBRule", Plural: "router-lb-rules", Singular: "router-lb-rule", ShortNames: []string{"rlr"}},
		{Kind: "SwitchLBRule", Plural: "switch-lb-rules", Singular: "switch-lb-rule", ShortNames: []string{"slr"}},
		{Kind: "VpcDns", Plural: "vpc-dnses", Singular: "vpc-dns", ShortNames: []string{"vpc-dns"}},
		{Kind: "VpcEgressGateway", Plural: "vpc-egress-gateways", Singular: "vpc-egress-gateway", ShortNames: []string{"vpc-egress-gw", "veg"}, Namespaced: true},
		{Kind: "VpcNatGateway", Plural: "vpc-nat-gateways", Singular: "vpc-nat-gateway", ShortNames: []string{"vpc-nat-gw"}},
	}
}
