package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/match"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// field is a field of an object, and whether something is set in it.
type field struct {
	path string
	set  bool
}

// set are the paths of fields in which something is set.
func set(all []field) (out []string) {
	for _, f := range all {
		if f.set {
			out = append(out, f.path)
		}
	}
	return out
}

// UndoneSubnet are the fields of a Subnet that are set and that nobody carries out.
func UndoneSubnet(s v1.SubnetSpec) []string {
	not := func(field string) string {
		return "spec." + field + " (OVN does not carry provider " + s.Provider + ")"
	}
	elsewhere := !v1.Routed(s.Provider)
	another := !elsewhere && s.Vpc != "" && s.Vpc != v1.DefaultVpc
	balanced := s.EnableLb != nil && *s.EnableLb
	all := []field{
		{not("private"), s.Private && elsewhere},
		{not("acls"), len(s.Acls) > 0 && elsewhere},
		{not("allowEWTraffic"), s.AllowEWTraffic && elsewhere},
		{not("natOutgoing"), s.NatOutgoing && elsewhere},
		{not("enableLb"), balanced && elsewhere},
	}
	all = append(all, undoneGateway(s, elsewhere, another)...)
	return append(set(append(all, []field{
		undoneRules(s),
		{not("disableInterConnection"), s.DisableInterConnection && elsewhere},
		{"spec.enableExternalLBAddress", s.EnableExternalLBAddress},
		{"spec.natOutgoing (Vpc " + s.Vpc + " has no way out by nodes)", s.NatOutgoing && another},
		{"spec.enableLb (Services are reached in Vpc " + v1.DefaultVpc + " alone)", balanced && another},
		{"spec.vips", len(s.Vips) > 0},
		{"spec.nodeNetwork", s.NodeNetwork != ""},
		{"spec.u2oFeatures", len(s.U2OFeatures) > 0},
	}...)), slices.Concat(undoneEgress(s), undoneOffers(s, not), undoneUnderlay(s), declare.UnheardOffers(s), unread(s.Acls), Unknown(s.Unknown))...)
}

// byPhysical is why a field does nothing.
const byPhysical = " (an underlay Subnet's pods leave by its physical gateway)"

// ofCentralized is why a field does nothing.
const ofCentralized = " (of gatewayType " + v1.GatewayCentralized + " alone)"

// undoneGateway are the fields about gateway nodes, of a Subnet that OVN does not carry
// (elsewhere) or that is in another Vpc than the default one.
func undoneGateway(s v1.SubnetSpec, elsewhere, another bool) []field {
	central := s.GatewayType == v1.GatewayCentralized
	return []field{
		{"spec.enableEcmp" + ofCentralized, s.EnableEcmp && !central},
		{"spec.gatewayType (OVN does not carry provider " + s.Provider + ")", central && elsewhere},
		{"spec.gatewayType: " + s.GatewayType + " (Vpc " + s.Vpc + " has no way out by nodes)", central && another},
		{"spec.gatewayNode" + ofCentralized, s.GatewayNode != "" && !central},
		undoneExits(s),
		{"spec.gatewayNodeSelectors" + ofCentralized, len(s.GatewayNodeSelectors) > 0 && !central},
	}
}

// undoneExits are the addresses of gateway nodes as which no pod is seen.
func undoneExits(s v1.SubnetSpec) field {
	f := field{"spec.gatewayNode: addresses", strings.Contains(s.GatewayNode, ":") && declare.Centralizes(s)}
	if !s.NatOutgoing {
		f.path += " (natOutgoing is off)"
		return f
	}
	exits, _ := declare.Exits(s.GatewayNode)
	f.set = false
	for _, e := range exits {
		for _, ip := range e.IPs {
			if !strings.Contains(s.CIDRBlock, map[bool]string{true: ":", false: "."}[ip.Is6()]) {
				f.path += fmt.Sprintf(" (%s of node %s is of a family that cidrBlock does not have)", ip, e.Node)
				f.set = true
			}
		}
	}
	return f
}

// undoneEgress are the fields of a gateway outside of the cluster by which pods do not
// leave.
func undoneEgress(s v1.SubnetSpec) []string {
	by, why := s.ExternalEgressGateway != "", "distributed and without natOutgoing in Vpc "+v1.DefaultVpc+" alone"
	if !v1.Routed(s.Provider) {
		why = "OVN does not carry provider " + s.Provider
	}
	return set([]field{
		{"spec.externalEgressGateway (" + why + ")", by && !declare.LeavesBy(s)},
		{"spec.policyRoutingPriority (without externalEgressGateway)", s.PolicyRoutingPriority != 0 && !by},
		{"spec.policyRoutingTableID (without externalEgressGateway)", s.PolicyRoutingTableID != 0 && !by},
	})
}

// undoneRules are the rules about translation of a Subnet that has none.
func undoneRules(s v1.SubnetSpec) field {
	f := field{"spec.natOutgoingPolicyRules", len(s.NatOutgoingPolicy) > 0}
	switch {
	case !v1.Routed(s.Provider):
		f.path += " (OVN does not carry provider " + s.Provider + ")"
	case s.Vpc != "" && s.Vpc != v1.DefaultVpc:
	case !s.NatOutgoing:
		f.path += " (natOutgoing is off)"
	default:
		f.set = false
	}
	return f
}

// undoneOffers are those about what OVN would answer pods of a Subnet that it does not carry.
func undoneOffers(s v1.SubnetSpec, not func(field string) string) []string {
	if v1.Routed(s.Provider) {
		return nil
	}
	return set([]field{
		{not("enableDHCP"), s.EnableDHCP},
		{not("enableIPv6RA"), s.EnableIPv6RA},
		{not("enableMulticastSnoop"), s.EnableMulticastSnoop},
		{not("routeTable"), s.RouteTable != ""},
	})
}

// undoneUnderlay are those that mean nothing of this underlay Subnet, or of one that is none.
func undoneUnderlay(s v1.SubnetSpec) []string {
	physical := s.Vlan != "" && !s.LogicalGateway
	return set([]field{
		{"spec.natOutgoing" + byPhysical, s.NatOutgoing && physical},
		{"spec.gatewayType: centralized" + byPhysical, s.GatewayType == v1.GatewayCentralized && physical},
		{"spec.externalEgressGateway" + byPhysical, s.ExternalEgressGateway != "" && physical && declare.LeavesBy(s)},
		{"spec.u2oInterconnection (the Subnet names no Vlan, or its gateway is logical)", s.U2OInterconnection && !physical},
		{"spec.u2oInterconnectionIP (u2oInterconnection is not set)", s.U2OInterconnectionIP != "" && !s.U2OInterconnection},
	})
}

// UndoneShare is the annotation of a Subnet that says who gives its addresses, where a
// controller does.
func UndoneShare(notes map[string]string) []string {
	return set([]field{{"metadata.annotations[" + v1.AnnAllocate + "] (the controller gives the addresses)", notes[v1.AnnAllocate] != ""}})
}

// unread are the matches of rules that OVN does not read.
func unread(rules []v1.ACL) (out []string) {
	for i, r := range rules {
		if why := match.Fault(r.Match); why != "" {
			out = append(out, fmt.Sprintf("spec.acls[%d].match: %s", i, why))
		}
	}
	return out
}

// UndonePool are the fields of an IPPool that are set and that nobody carries out.
func UndonePool(s v1.IPPoolSpec) []string {
	return append(set([]field{{"spec.enableAddressSet", s.EnableAddressSet}}), Unknown(s.Unknown)...)
}

// UndoneVip are the fields of a Vip that are set and that nobody carries out.
func UndoneVip(s v1.VipSpec) []string {
	return append(set([]field{
		{"spec.type: " + s.Type + " (the address is kept, and that is all)", s.Type != ""},
		{"spec.attachSubnets", len(s.AttachSubnets) > 0},
	}), Unknown(s.Unknown)...)
}

// UndoneIP are the fields of an IP that are set and that nobody carries out. A pod's
// further interfaces have objects of their own.
func UndoneIP(s v1.IPSpec) []string {
	return append(set([]field{
		{"spec.attachSubnets", len(s.AttachSubnets) > 0},
		{"spec.attachIps", len(s.AttachIPs) > 0},
		{"spec.attachMacs", len(s.AttachMacs) > 0},
	}), Unknown(s.Unknown)...)
}

// Unknown are keys of a spec that this version does not know: a newer one of Kube-OVN has
// them, or they are misspelt.
func Unknown(paths string) (out []string) {
	for _, p := range strings.Fields(paths) {
		out = append(out, p+" (this version does not know it)")
	}
	return out
}

// undoneOfPods are fields of the annotations of a pod's interfaces that nobody carries
// out (sdn.md, 3), each with what it would be for.
var undoneOfPods = map[string]string{
	v1.ExternalEIP:        "pods have no floating address by an annotation",
	v1.ExternalSNAT:       "pods have no address of their own on the way out by an annotation",
	"north_gateway":       "pods leave by their own node",
	"dhcp-v4-options":     "no pod is answered by DHCP",
	"dhcp-v6-options":     "no pod is answered by DHCP",
	"layer2_forward":      "no interface gets frames of others",
	"activation_strategy": "interfaces do not move between nodes",
	"bgp":                 "no address is announced",
}

// undoneOfNodes is the same for nodes.
var undoneOfNodes = map[string]string{
	"node_networks": "tunnels have one address of each node",
}

// UndonePod are the annotations of a pod that are set and that nobody carries out, each
// with what it would be for. outside tells that somebody gives pods addresses outside.
func UndonePod(notes map[string]string, outside bool) []string {
	if outside {
		notes = maps.Clone(notes)
		for _, field := range []string{v1.ExternalEIP, v1.ExternalSNAT} {
			delete(notes, v1.DefaultProvider+v1.ProviderSuffix+field)
		}
	}
	return undoneNotes(notes, undoneOfPods)
}

// UndoneNode is the same for a node, with rates of its gateway that cannot be read.
func UndoneNode(notes map[string]string) []string {
	out := undoneNotes(notes, undoneOfNodes)
	if _, err := annotation.ReadNodeRates(notes); err != nil {
		out = append(out, err.Error()+": the node's gateway has no rate")
	}
	return out
}

func undoneNotes(notes, fields map[string]string) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		at, field, _ := strings.Cut(key, v1.ProviderSuffix)
		field, _, _ = strings.Cut(field, ".") // what follows is an interface
		why, undone := fields[field]
		if undone && v1.Routed(at) && notes[key] != "" && notes[key] != "false" {
			out = append(out, key+": "+why)
		}
	}
	return out
}

// UndoneQoSPolicy is what nobody carries out of a QoSPolicy: all of it.
const UndoneQoSPolicy = "spec (nobody carries out the EIPs and NAT gateways that it binds to; pods' rates are annotations: ovn.kubernetes.io/ingress_rate and egress_rate)"
