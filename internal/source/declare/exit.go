package declare

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Centralizes tells that pods of a Subnet leave the cluster by gateway nodes, where OVN
// carries it.
func Centralizes(spec v1.SubnetSpec) bool {
	return spec.GatewayType == v1.GatewayCentralized && v1.Routed(spec.Provider) && (spec.Vpc == "" || spec.Vpc == v1.DefaultVpc)
}

// Gateway says by which nodes pods of a Subnet leave the cluster, as its fields do.
type Gateway struct {
	Centralized bool
	Nodes       string // spec.gatewayNode: read it with Exits
	Selectors   []metav1.LabelSelector
	ECMP        bool
}

// ReadGateway reads these fields, whoever carries the Subnet.
func ReadGateway(s v1.SubnetSpec) Gateway {
	return Gateway{s.GatewayType == v1.GatewayCentralized, s.GatewayNode, s.GatewayNodeSelectors, s.EnableEcmp}
}

// exits reads the gateway nodes. What is wrong with one costs the Subnet nothing: who
// chooses among them tells it.
func (r *subnetReader) exits() {
	r.out.Gateway, r.out.Centralized = ReadGateway(r.spec), Centralizes(r.spec)
	if !r.out.Centralized || !r.spec.NatOutgoing {
		return
	}
	all, _ := Exits(r.spec.GatewayNode)
	for _, e := range all {
		e.IPs = slices.DeleteFunc(e.IPs, func(ip netip.Addr) bool {
			return !slices.ContainsFunc(r.out.CIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == ip.Is4() })
		})
		if len(e.IPs) > 0 {
			r.out.Exits = append(r.out.Exits, e)
		}
	}
}

// Exits reads spec.gatewayNode: "node1,node2", or "node1:172.18.0.2" with the address as
// which pods are seen that leave by the node; a node that is named twice has an address of
// each family. What cannot be read is left out, and a fault tells it.
func Exits(text string) (out []core.Exit, faults []Fault) {
	refuse := func(format string, args ...any) {
		faults = append(faults, Fault{"spec.gatewayNode", fmt.Sprintf(format, args...)})
	}
	for word := range strings.SplitSeq(text, ",") {
		node, addr, has := strings.Cut(strings.TrimSpace(word), ":")
		if node = strings.TrimSpace(node); node == "" && !has {
			continue
		}
		if why := validation.IsDNS1123Subdomain(node); len(why) > 0 {
			refuse("%q is not a node's name", node)
			continue
		}
		at := slices.IndexFunc(out, func(e core.Exit) bool { return e.Node == node })
		if at < 0 {
			at, out = len(out), append(out, core.Exit{Node: node})
		}
		if !has {
			continue
		}
		if why := seenAs(&out[at], addr); why != "" {
			refuse("%s", why)
		}
	}
	return out, faults
}

// seenAs adds an address to an Exit, or says what is wrong with it.
func seenAs(e *core.Exit, addr string) (why string) {
	ip, err := netip.ParseAddr(strings.TrimSpace(addr))
	switch {
	case err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast():
		return fmt.Sprintf("%q of node %s is not an address as which pods can be seen", addr, e.Node)
	case slices.ContainsFunc(e.IPs, func(o netip.Addr) bool { return o.Is4() == ip.Unmap().Is4() }):
		return fmt.Sprintf("node %s has a second address of one family, %s", e.Node, ip)
	}
	e.IPs = append(e.IPs, ip.Unmap())
	return ""
}
