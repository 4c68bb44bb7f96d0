package status

import v1 "github.com/fairlead/fairlead/api/v1"

// UndoneSubnet are the fields of a Subnet that are set and that nobody carries out.
func UndoneSubnet(s v1.SubnetSpec) (out []string) {
	not := func(field string) string {
		return "spec." + field + " (OVN does not carry provider " + s.Provider + ")"
	}
	elsewhere := !v1.Routed(s.Provider)
	for _, f := range []struct {
		path string
		set  bool
	}{
		{not("private"), s.Private && elsewhere},
		{not("acls"), len(s.Acls) > 0 && elsewhere},
		{not("allowEWTraffic"), s.AllowEWTraffic && elsewhere},
		{not("natOutgoing"), s.NatOutgoing && elsewhere},
		{"spec.gatewayNode", s.GatewayNode != ""},
		{"spec.gatewayType: " + s.GatewayType + " (pods leave by their own node)", s.GatewayType == v1.GatewayCentralized},
		{"spec.gatewayNodeSelectors", len(s.GatewayNodeSelectors) > 0},
		{"spec.natOutgoingPolicyRules", len(s.NatOutgoingPolicy) > 0},
		{"spec.disableInterConnection", s.DisableInterConnection},
		{"spec.enableExternalLBAddress", s.EnableExternalLBAddress},
		{"spec.natOutgoing (Vpc " + s.Vpc + " has no way out by nodes)", s.NatOutgoing && !elsewhere && s.Vpc != "" && s.Vpc != v1.DefaultVpc},
		{"spec.externalEgressGateway", s.ExternalEgressGateway != ""},
		{"spec.vips", len(s.Vips) > 0},
		{"spec.enableDHCP", s.EnableDHCP},
		{"spec.enableIPv6RA", s.EnableIPv6RA},
		{"spec.u2oInterconnection", s.U2OInterconnection},
		{"spec.enableMulticastSnoop", s.EnableMulticastSnoop},
		{"spec.routeTable", s.RouteTable != ""},
		{"spec.nodeNetwork", s.NodeNetwork != ""},
		{"spec.logicalGateway", s.LogicalGateway},
		{"spec.enableEcmp", s.EnableEcmp},
		{"spec.dhcpV4Options", s.DHCPv4Options != ""},
		{"spec.dhcpV6Options", s.DHCPv6Options != ""},
		{"spec.ipv6RAConfigs", s.IPv6RAConfigs != ""},
		{"spec.u2oInterconnectionIP", s.U2OInterconnectionIP != ""},
		{"spec.policyRoutingPriority", s.PolicyRoutingPriority != 0},
		{"spec.policyRoutingTableID", s.PolicyRoutingTableID != 0},
		{"spec.u2oFeatures", len(s.U2OFeatures) > 0},
	} {
		if f.set {
			out = append(out, f.path)
		}
	}
	return out
}

// UndonePool are the fields of an IPPool that are set and that nobody carries out.
func UndonePool(s v1.IPPoolSpec) (out []string) {
	if s.EnableAddressSet {
		out = append(out, "spec.enableAddressSet")
	}
	return out
}

// UndoneVip are the fields of a Vip that are set and that nobody carries out.
func UndoneVip(s v1.VipSpec) (out []string) {
	if s.Type != "" {
		out = append(out, "spec.type: "+s.Type+" (the address is kept, and that is all)")
	}
	if len(s.AttachSubnets) > 0 {
		out = append(out, "spec.attachSubnets")
	}
	return out
}

// UndoneQoSPolicy is what nobody carries out of a QoSPolicy: all of it.
const UndoneQoSPolicy = "spec (pods' rates are annotations: ovn.kubernetes.io/ingress_rate and egress_rate)"
