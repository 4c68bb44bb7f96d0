package declare

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Fault is one thing that is wrong with an object.
type Fault struct {
	Path   string // of the field: spec.excludeIps[1]
	Reason string
}

func (f Fault) String() string { return f.Path + ": " + f.Reason }

// Subnet is a Subnet before its Vlan is looked up.
type Subnet struct {
	core.Subnet
	Vlan    string // name of a Vlan object, "" for none
	Access  Access
	Offers  Offers
	Gateway Gateway
	// Interconnection are the addresses that are asked for OVN's router, nil for any.
	Interconnection []netip.Addr
	// NoServices keeps its pods' packets to Services away from OVN.
	NoServices bool
}

// Builtin is the subnet that serves when no other is the default (spec/sdn.md,
// section 11).
func Builtin() core.Subnet {
	return core.Subnet{
		Name: v1.DefaultSubnet, Provider: v1.DefaultProvider, Vpc: v1.DefaultVpc, Default: true, NATOutgoing: true, Builtin: true,
		CIDRs:    []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.16.0.1")},
	}
}

// Vlan is what a Vlan object says.
type Vlan struct {
	ID      int    // 802.1Q, 0 = untagged
	Network string // the provider network, "" for none
	Fault   string // why no Subnet may begin to be on it, "" for nothing
	// Conflict: that is another Vlan of the provider network, which has the id.
	Conflict bool
}

// ReadVlan reads a Vlan object by itself.
func ReadVlan(spec v1.VlanSpec) (Vlan, []Fault) {
	vid, field := spec.ID, "spec.id"
	if vid == 0 && spec.OldID != 0 {
		vid, field = spec.OldID, "spec.vlanId"
	}
	if vid < 0 || vid > 4094 {
		return Vlan{}, []Fault{{field, fmt.Sprintf("%d is not an 802.1Q id from 0 to 4094", vid)}}
	}
	return Vlan{ID: vid, Network: cmp.Or(spec.Provider, spec.OldProvider)}, nil
}

// ReadSubnet checks one Subnet by itself, field by field. It goes on past
// faults so that a user sees all of them at once; with any, the Subnet is not
// to be used.
func ReadSubnet(name string, spec v1.SubnetSpec) (Subnet, []Fault) {
	r := subnetReader{spec: spec}
	r.out.Name, r.out.Default, r.out.NATOutgoing = name, spec.Default, spec.NatOutgoing
	r.out.Vlan, r.out.Vpc, r.out.Namespaces = spec.Vlan, cmp.Or(spec.Vpc, v1.DefaultVpc), spec.Namespaces
	r.out.Interconnected = spec.U2OInterconnection && spec.Vlan != "" && !spec.LogicalGateway
	r.out.Centralized = spec.GatewayType == v1.GatewayCentralized
	r.out.LogicalGateway, r.out.Unchecked = spec.LogicalGateway, spec.DisableGatewayCheck
	r.cidrs()
	r.protocol()
	r.gateways()
	r.excludes()
	r.provider()
	r.mtu()
	r.access()
	r.offers()
	r.interconnection()
	r.natRules()
	r.egress()
	r.exits()
	return r.out, r.faults
}

// ReadNotes adds to a Subnet what its annotations say.
func ReadNotes(s *core.Subnet, notes map[string]string) (faults []Fault) {
	refuse := func(key, reason string) {
		faults = append(faults, Fault{"metadata.annotations[" + key + "]", strconv.Quote(notes[key]) + " " + reason})
	}
	switch notes[v1.AnnAllocate] {
	case "":
	case v1.AllocateNodeBlock:
		s.NodeBlock = true
	default:
		refuse(v1.AnnAllocate, "is not "+v1.AllocateNodeBlock)
	}
	switch notes[v1.AnnPortSecurity] {
	case "", "true":
	case "false":
		s.Open = true
	default:
		refuse(v1.AnnPortSecurity, "is neither true nor false")
	}
	return faults
}

type subnetReader struct {
	spec   v1.SubnetSpec
	out    Subnet
	faults []Fault
}

func (r *subnetReader) refuse(path, format string, args ...any) {
	r.faults = append(r.faults, Fault{"spec." + path, fmt.Sprintf(format, args...)})
}

// pair splits a value that may be dual stack.
func pair(s string) []string {
	out := strings.Split(s, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

func (r *subnetReader) cidrs() {
	if r.spec.CIDRBlock == "" {
		r.refuse("cidrBlock", "is missing")
		return
	}
	for _, text := range pair(r.spec.CIDRBlock) {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil || p.Addr().Is4In6():
			r.refuse("cidrBlock", "%q is not a network in CIDR form", text)
		case p != p.Masked():
			r.refuse("cidrBlock", "%q has bits set behind its prefix length; the network is %s", text, p.Masked())
		case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Bits() == 0:
			r.refuse("cidrBlock", "%q is no range for pods", text)
		case p.Addr().BitLen()-p.Bits() < 1:
			r.refuse("cidrBlock", "%q has no room for a gateway and a pod", text)
		case slices.ContainsFunc(r.out.CIDRs, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }):
			r.refuse("cidrBlock", "two networks of one family")
		default:
			r.out.CIDRs = append(r.out.CIDRs, p)
		}
	}
}

func (r *subnetReader) protocol() {
	if r.spec.Protocol == "" || len(r.faults) > 0 {
		return
	}
	is := v1.ProtocolDual
	if len(r.out.CIDRs) == 1 {
		is = v1.ProtocolIPv6
		if r.out.CIDRs[0].Addr().Is4() {
			is = v1.ProtocolIPv4
		}
	}
	if r.spec.Protocol != is {
		r.refuse("protocol", "%q, but cidrBlock %q is %s", r.spec.Protocol, r.spec.CIDRBlock, is)
	}
}

// gateways brings the gateways into the order of the CIDRs; without any, each
// is the first address of its CIDR.
func (r *subnetReader) gateways() {
	r.out.Gateways = make([]netip.Addr, len(r.out.CIDRs))
	if r.spec.Gateway != "" {
		for _, text := range pair(r.spec.Gateway) {
			r.gateway(text)
		}
	}
	for i, p := range r.out.CIDRs {
		switch {
		case r.out.Gateways[i].IsValid():
		case r.spec.Gateway == "":
			r.out.Gateways[i] = p.Addr().Next()
		case len(r.faults) == 0:
			r.refuse("gateway", "there is none for %s", p)
		}
	}
}

func (r *subnetReader) gateway(text string) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is4In6() || a.Zone() != "" {
		r.refuse("gateway", "%q is not an IP address", text)
		return
	}
	i := slices.IndexFunc(r.out.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
	switch {
	case i < 0:
		r.refuse("gateway", "%s lies outside of cidrBlock %q", a, r.spec.CIDRBlock)
	case a == r.out.CIDRs[i].Addr() && a.BitLen()-r.out.CIDRs[i].Bits() > 1:
		r.refuse("gateway", "%s is the network address of %s", a, r.out.CIDRs[i])
	case r.out.Gateways[i].IsValid():
		r.refuse("gateway", "two gateways for %s", r.out.CIDRs[i])
	default:
		r.out.Gateways[i] = a
	}
}

// excludes reads "address" and "from..to".
func (r *subnetReader) excludes() {
	for n, text := range r.spec.ExcludeIps {
		path := fmt.Sprintf("excludeIps[%d]", n)
		from, to, isRange := strings.Cut(text, "..")
		if !isRange {
			to = from
		}
		a, errA := netip.ParseAddr(strings.TrimSpace(from))
		b, errB := netip.ParseAddr(strings.TrimSpace(to))
		switch {
		case errA != nil || errB != nil:
			r.refuse(path, "%q is neither an address nor a range from..to", text)
		case a.BitLen() != b.BitLen() || b.Less(a):
			r.refuse(path, "%q does not go upwards", text)
		case len(r.out.CIDRs) > 0 && !slices.ContainsFunc(r.out.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) && p.Contains(b) }):
			r.refuse(path, "%q lies outside of cidrBlock %q", text, r.spec.CIDRBlock)
		default:
			r.out.Exclude = append(r.out.Exclude, core.AddrRange{From: a, To: b})
		}
	}
}

func (r *subnetReader) provider() {
	r.out.Provider = r.spec.Provider
	if r.spec.Provider == "" {
		r.out.Provider = v1.DefaultProvider
	}
	if len(validation.IsDNS1123Subdomain(r.out.Provider)) > 0 {
		r.refuse("provider", "%q is neither %q nor <nad>.<namespace>.%s", r.spec.Provider, v1.DefaultProvider, v1.DefaultProvider)
	}
	if r.spec.Default && r.out.Provider != v1.DefaultProvider {
		r.refuse("default", "only a Subnet of provider %q can be the default one, not %q", v1.DefaultProvider, r.out.Provider)
	}
}

// interconnection reads the addresses of OVN's router in an underlay Subnet.
func (r *subnetReader) interconnection() {
	if r.spec.U2OInterconnectionIP == "" || !r.out.Interconnected {
		return
	}
	for _, text := range pair(r.spec.U2OInterconnectionIP) {
		a, err := netip.ParseAddr(text)
		inside := func(p netip.Prefix) bool { return err == nil && p.Contains(a) }
		if !slices.ContainsFunc(r.out.CIDRs, inside) || slices.Contains(r.out.Gateways, a) {
			r.refuse("u2oInterconnectionIP", "%q is no address of cidrBlock %q beside the gateway", text, r.spec.CIDRBlock)
			continue
		}
		r.out.Interconnection = append(r.out.Interconnection, a)
	}
	lacks := func(c netip.Prefix) bool { return !slices.ContainsFunc(r.out.Interconnection, c.Contains) }
	if n := len(r.out.Interconnection); n > 0 && (n != len(r.out.CIDRs) || slices.ContainsFunc(r.out.CIDRs, lacks)) {
		r.refuse("u2oInterconnectionIP", "%q: each network of cidrBlock %q needs one", r.spec.U2OInterconnectionIP, r.spec.CIDRBlock)
	}
}

// mtu holds to the smallest MTU that each family must carry (RFC 791, 8200).
func (r *subnetReader) mtu() {
	least := 576
	if slices.ContainsFunc(r.out.CIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		least = 1280
	}
	if r.out.MTU = r.spec.Mtu; r.out.MTU != 0 && (r.out.MTU < least || r.out.MTU > 65535) {
		r.refuse("mtu", "%d is not from %d to 65535", r.out.MTU, least)
	}
}
