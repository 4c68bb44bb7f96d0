package annotation

import (
	"net/netip"
	"strconv"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Bounds of numbers: wide enough for any real link, narrow enough that OVS'
// 32-bit columns (kbit/s, microseconds) hold the product.
const (
	MaxMbit   = core.MaxMbps // Mbit/s
	maxMillis = 3_600_000    // one hour
	maxLimit  = 10_000_000
	maxVLAN   = 4094
)

// column is one annotation of a NIC.
type column struct {
	field string // of its key
	// read brings a value into Requested, or refuses it.
	read func(n *Notes, a *Requested, key, value string)
	// check is about what came with it; columns above are read by then. nil: it
	// stands for itself.
	check func(n *Notes, a *Requested)
	tunes bool // it may change while the NIC is in use
}

// columns are all annotations of a NIC, in the order in which they are refused.
var columns = []column{
	{field: v1.FieldIP, read: into(parseAddrs, func(a *Requested) *[]netip.Addr { return &a.IPs })},
	{field: v1.FieldIPPool, read: readPool},
	{field: v1.FieldFamily, read: into(parseFamily, func(a *Requested) *core.Family { return &a.Family })},
	{field: v1.FieldMAC, read: into(ParseMAC, func(a *Requested) *core.MAC { return &a.MAC })},
	{field: v1.FieldSubnet, read: into(parseName, func(a *Requested) *string { return &a.Subnet })},
	{field: v1.FieldCIDR, read: into(parseCIDRs, func(a *Requested) *[]netip.Prefix { return &a.CIDRs })},
	{field: v1.FieldGateway, read: into(parseAddrs, func(a *Requested) *[]netip.Addr { return &a.Gateways }), check: gatewaysInside},
	{field: v1.FieldRoutes, read: into(parseRoutes, func(a *Requested) *[]core.Route { return &a.Routes })},

	{field: v1.FieldIngressRate, read: into(number(MaxMbit, "Mbit/s"), ingress), tunes: true},
	{field: v1.FieldEgressRate, read: into(number(MaxMbit, "Mbit/s"), egress), tunes: true},
	{
		field: v1.FieldIngressBurst, read: into(number(MaxMbit, "Mbit"), ingressBurst), tunes: true,
		check: needs(v1.FieldIngressBurst, ingressBurst, v1.FieldIngressRate, ingress),
	},
	{
		field: v1.FieldEgressBurst, read: into(number(MaxMbit, "Mbit"), egressBurst), tunes: true,
		check: needs(v1.FieldEgressBurst, egressBurst, v1.FieldEgressRate, egress),
	},
	{field: v1.FieldLatency, read: into(number(maxMillis, "ms"), latency), tunes: true},
	{
		field: v1.FieldJitter, read: into(number(maxMillis, "ms"), jitter), tunes: true,
		check: needs(v1.FieldJitter, jitter, v1.FieldLatency, latency),
	},
	{field: v1.FieldLimit, read: into(number(maxLimit, "packets"), func(a *Requested) *int { return &a.QoS.LimitPackets }), tunes: true},
	{field: v1.FieldLoss, read: into(number(100, "percent"), func(a *Requested) *int { return &a.QoS.LossPercent }), tunes: true},

	{field: v1.FieldNICType, read: into(oneOf(v1.NICVeth, v1.NICInternal), func(a *Requested) *string { return &a.NICType })},
	{field: v1.FieldVLAN, read: into(number(maxVLAN, "an 802.1Q id"), func(a *Requested) *int { a.HasVLAN = true; return &a.VLAN })},
	{field: v1.FieldMirror, read: into(parseFlag, func(a *Requested) *bool { return &a.Mirror }), tunes: true},
	{field: v1.FieldPortSecurity, read: into(ParseOpen, func(a *Requested) *bool { return &a.Open }), tunes: true},
	{field: v1.FieldPortVIPs, read: into(parseVIPs, func(a *Requested) *core.AddrList { return &a.VIPs }), tunes: true},
	{field: v1.FieldSecurityGroups, read: controlled},
	{field: v1.FieldVip, read: controlled},
	{field: v1.FieldAAPs, read: controlled},
	{field: v1.FieldDefaultRoute, read: into(parseFlag, func(a *Requested) *bool { a.HasDefault = true; return &a.DefaultRoute })},
	{field: v1.FieldAllocated, read: into(parseFlag, func(a *Requested) *bool { return &a.Allocated })},
	// A controller's own.
	{field: v1.FieldRouted, read: into(parseFlag, func(a *Requested) *bool { return &a.Routed })},
	{field: v1.FieldDeclared, read: into(parseDeclared, nowhere[string])},
	{field: v1.FieldMachine, read: into(parseName, nowhere[string])},
	{field: v1.FieldProviderNetwork, read: into(parseName, nowhere[string])},
	{field: v1.FieldNetworkType, read: into(oneOf("geneve", "vxlan", "stt", "vlan"), nowhere[string])},
}

func ingress(a *Requested) *int      { return &a.QoS.IngressMbps }
func egress(a *Requested) *int       { return &a.QoS.EgressMbps }
func ingressBurst(a *Requested) *int { return &a.QoS.IngressBurstMbit }
func egressBurst(a *Requested) *int  { return &a.QoS.EgressBurstMbit }
func latency(a *Requested) *int      { return &a.QoS.LatencyMs }
func jitter(a *Requested) *int       { return &a.QoS.JitterMs }

// nowhere is for values that are proven and not acted upon.
func nowhere[T any](*Requested) *T { return new(T) }

// into parses a value and puts it where at says.
func into[T any](parse func(string) (T, error), at func(*Requested) *T) func(*Notes, *Requested, string, string) {
	return func(n *Notes, a *Requested, key, value string) {
		v, err := parse(value)
		if err != nil {
			n.refuse(key+placeOf(err), value, "%v", err)
			return
		}
		*at(a) = v
	}
}

// needs refuses a part that means nothing without another one.
func needs(field string, part func(*Requested) *int, baseField string, base func(*Requested) *int) func(*Notes, *Requested) {
	return func(n *Notes, a *Requested) {
		if v := *part(a); v != 0 && *base(a) == 0 {
			n.refuse(n.Key(field), strconv.Itoa(v), "is set without %s", baseField)
		}
	}
}

func gatewaysInside(n *Notes, a *Requested) {
	for _, gw := range a.Gateways {
		if len(a.CIDRs) > 0 && !Within(gw, a.CIDRs) {
			n.refuse(n.Key(v1.FieldGateway), gw.String(), "lies outside of %s", n.Key(v1.FieldCIDR))
		}
	}
}
