package declare

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Bounds of policy routing: tables of the kernel's own (rtnetlink(7): compat, default,
// main, local), and priorities before the rule that leads to table main.
const (
	firstOwnTable = 252
	lastOwnTable  = 255
	lastTable     = 1<<31 - 1
	lastPriority  = 32765
)

// LeavesBy tells that pods of a Subnet leave the cluster by a gateway of its own, where
// nodes carry that out: their addresses are seen there, and nodes have routes to them.
func LeavesBy(spec v1.SubnetSpec) bool {
	return spec.ExternalEgressGateway != "" && !spec.NatOutgoing && v1.Routed(spec.Provider) && (spec.Vpc == "" || spec.Vpc == v1.DefaultVpc)
}

// egress reads the gateway outside of the cluster.
func (r *subnetReader) egress() {
	if !LeavesBy(r.spec) {
		return
	}
	e := &core.Egress{Table: int(r.spec.PolicyRoutingTableID), Priority: int(r.spec.PolicyRoutingPriority)}
	if Centralizes(r.spec) {
		e.By, e.Where = leaders(r.spec)
	}
	for _, text := range pair(r.spec.ExternalEgressGateway) {
		if gw, why := r.egressGateway(text, e.Gateways); why != "" {
			r.refuse("externalEgressGateway", "%s", why)
		} else {
			e.Gateways = append(e.Gateways, gw)
		}
	}
	switch {
	case e.Table == 0:
		r.refuse("policyRoutingTableID", "is missing: externalEgressGateway needs a table of routes")
	case e.Table > lastTable || e.Table >= firstOwnTable && e.Table <= lastOwnTable:
		r.refuse("policyRoutingTableID", "%d is not from 1 to %d, or a table of the kernel itself", e.Table, lastTable)
	}
	switch {
	case e.Priority == 0:
		r.refuse("policyRoutingPriority", "is missing: externalEgressGateway needs a rule")
	case e.Priority > lastPriority:
		r.refuse("policyRoutingPriority", "%d is not from 1 to %d", e.Priority, lastPriority)
	}
	r.out.Egress = e
}

// leaders are a Subnet's gateway nodes, those among them that stand by: who takes over
// leads pods to the gateway from the first packet on. Selectors are as labels.Parse reads
// them; what is wrong with one its condition says.
func leaders(spec v1.SubnetSpec) (by, where []string) {
	exits, _ := Exits(spec.GatewayNode)
	for _, e := range exits {
		by = append(by, e.Node)
	}
	for _, one := range spec.GatewayNodeSelectors {
		if s, err := metav1.LabelSelectorAsSelector(&one); err == nil && !s.Empty() {
			where = append(where, s.String())
		}
	}
	return by, where
}

// egressGateway reads one of the gateways; before are those of other families.
func (r *subnetReader) egressGateway(text string, before []netip.Addr) (gw netip.Addr, why string) {
	gw, err := netip.ParseAddr(text)
	family := func(is4 bool) bool { return is4 == gw.Is4() }
	switch {
	case err != nil || gw.Is4In6() || gw.Zone() != "":
		return gw, fmt.Sprintf("%q is not an IP address", text)
	case !slices.ContainsFunc(r.out.CIDRs, func(p netip.Prefix) bool { return family(p.Addr().Is4()) }):
		return gw, fmt.Sprintf("%s is of a family that cidrBlock %q does not have", gw, r.spec.CIDRBlock)
	case slices.ContainsFunc(r.out.CIDRs, func(p netip.Prefix) bool { return p.Contains(gw) }):
		return gw, fmt.Sprintf("%s lies in cidrBlock %q", gw, r.spec.CIDRBlock)
	case slices.ContainsFunc(before, func(o netip.Addr) bool { return family(o.Is4()) }):
		return gw, "two gateways of one family"
	}
	return gw, ""
}

// sameTable is the gateway that two Subnets want another one of in the same table.
func sameTable(a, b core.Subnet) (theirs netip.Addr, yes bool) {
	if a.Egress == nil || b.Egress == nil || a.Egress.Table != b.Egress.Table {
		return theirs, false
	}
	for _, p := range a.Egress.Gateways {
		for _, q := range b.Egress.Gateways {
			if p.Is4() == q.Is4() && p != q {
				return q, true
			}
		}
	}
	return theirs, false
}
