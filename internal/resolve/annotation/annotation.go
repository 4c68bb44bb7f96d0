package annotation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// Bounds of annotation values: wide enough for any real link, narrow enough
// that OVS' 32-bit columns (kbit/s, microseconds) hold the product.
const (
	MaxMbit   = 1_000_000 // Mbit/s: 1 Tbit/s
	maxMillis = 3_600_000 // one hour
	maxLimit  = 10_000_000
	maxValue  = 8 << 10 // bytes (reliability.md, Security)
)

// Notes reads the annotations of one NIC. The first refusal stays in err and
// later reads give zero values, so that a reader asks once at the end.
type Notes struct {
	All      map[string]string
	Provider string // "ovn" or the NAD's provider
	IfName   string
	err      error
}

// places are the keys that may hold field, the most specific first
// (spec/sdn.md sections 2 and 3): for one interface of a NAD that is attached
// twice, for the provider, for the NAD written without ".ovn".
func (n *Notes) places(field string) []string {
	if n.Provider == v1.DefaultProvider {
		return []string{v1.DefaultProvider + v1.ProviderSuffix + field}
	}
	nad := strings.TrimSuffix(n.Provider, "."+v1.DefaultProvider)
	keys := []string{
		n.Provider + "." + n.IfName + v1.ProviderSuffix + field,
		nad + v1.ProviderSuffix + field + "." + n.IfName,
		n.Provider + v1.ProviderSuffix + field,
		nad + v1.ProviderSuffix + field,
	}
	return slices.Compact(keys)
}

// get finds field and the key that holds it. An empty value is no value:
// controllers blank keys that they cannot remove.
func (n *Notes) get(field string) (key, value string, ok bool) {
	if n.err != nil {
		return "", "", false
	}
	for _, key := range n.places(field) {
		if v := strings.TrimSpace(n.All[key]); v != "" {
			if len(v) > maxValue {
				n.refuse(key, v, "has %d bytes, the limit is %d", len(v), maxValue)
				return "", "", false
			}
			return key, v, true
		}
	}
	return "", "", false
}

// Key is the key that holds field, for messages about it.
func (n *Notes) Key(field string) string {
	keys := n.places(field)
	for _, k := range keys {
		if strings.TrimSpace(n.All[k]) != "" {
			return k
		}
	}
	return n.Provider + v1.ProviderSuffix + field
}

func (n *Notes) refuse(key, value, format string, args ...any) {
	if n.err == nil {
		n.err = Refused(core.CodeValue, key, value, format, args...)
	}
}

// addrs reads "v4", "v6" or "v4,v6".
func (n *Notes) addrs(field string) []netip.Addr {
	key, value, ok := n.get(field)
	if !ok {
		return nil
	}
	var out []netip.Addr
	for _, s := range strings.Split(value, ",") {
		a, err := ParseAddr(s)
		if err != nil {
			n.refuse(key, value, "%v", err)
			return nil
		}
		out = append(out, a)
	}
	if err := OnePerFamily(out); err != nil {
		n.refuse(key, value, "%v", err)
		return nil
	}
	return out
}

// cidrs reads one network per family.
func (n *Notes) cidrs(field string) []netip.Prefix {
	key, value, ok := n.get(field)
	if !ok {
		return nil
	}
	var out []netip.Prefix
	var addrs []netip.Addr
	for _, s := range strings.Split(value, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
			n.refuse(key, value, "is not a network in CIDR form")
			return nil
		}
		out, addrs = append(out, p.Masked()), append(addrs, p.Addr())
	}
	if OnePerFamily(addrs) != nil {
		n.refuse(key, value, "names two networks of one family")
		return nil
	}
	return out
}

// number reads a whole number within [least, most]; ok tells that it was there.
func (n *Notes) number(field string, least, most int, unit string) (v int, ok bool) {
	key, value, ok := n.get(field)
	if !ok {
		return 0, false
	}
	v, err := strconv.Atoi(value)
	if err != nil || v < least || v > most {
		n.refuse(key, value, "is not a whole number of %s from %d to %d", unit, least, most)
		return 0, false
	}
	return v, true
}

// flag reads true or false; ok tells that it was there.
func (n *Notes) flag(field string) (v, ok bool) {
	key, value, ok := n.get(field)
	if ok && value != "true" && value != "false" {
		n.refuse(key, value, "is neither true nor false")
	}
	return value == "true", ok
}

func (n *Notes) oneOf(field string, values ...string) string {
	key, value, ok := n.get(field)
	if ok && !slices.Contains(values, value) {
		n.refuse(key, value, "is none of %s", strings.Join(values, ", "))
	}
	return value
}

func (n *Notes) name(field string) string {
	key, value, ok := n.get(field)
	if ok && !IsName(value) {
		n.refuse(key, value, "is not a DNS-1123 name")
	}
	return value
}

func (n *Notes) mac(field string) core.MAC {
	key, value, ok := n.get(field)
	if !ok {
		return nil
	}
	mac, err := ParseMAC(value)
	if err != nil {
		n.refuse(key, value, "%v", err)
	}
	return mac
}

// routes reads a JSON list of {dst, gw}; without gw a route is on-link.
func (n *Notes) routes(field string) []core.Route {
	key, value, ok := n.get(field)
	if !ok {
		return nil
	}
	var list []struct {
		Dst string `json:"dst"`
		GW  string `json:"gw"`
	}
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.DisallowUnknownFields()
	if err := cniconf.Strict([]byte(value)); err != nil {
		n.refuse(key, value, "is not a list of routes: %v", err)
		return nil
	}
	if err := d.Decode(&list); err != nil {
		n.refuse(key, value, "is not a list of routes: %v", err)
		return nil
	}
	var out []core.Route
	for i, e := range list {
		r, err := parseRoute(e.Dst, e.GW)
		if err != nil {
			n.refuse(fmt.Sprintf("%s[%d]", key, i), value, "%v", err)
			return nil
		}
		out = append(out, r)
	}
	return out
}

func parseRoute(dst, gw string) (core.Route, error) {
	p, err := netip.ParsePrefix(dst)
	if err != nil || p.Addr().Is4In6() {
		return core.Route{}, fmt.Errorf("dst %q is not a network in CIDR form", dst)
	}
	r := core.Route{Dst: p.Masked()}
	if gw == "" {
		return r, nil
	}
	if r.GW, err = ParseAddr(gw); err != nil {
		return core.Route{}, fmt.Errorf("gw %q %w", gw, err)
	}
	if r.GW.Is4() != p.Addr().Is4() {
		return core.Route{}, fmt.Errorf("gw %q is not of the family of %s", gw, dst)
	}
	return r, nil
}

// qos reads rates and impairments, and refuses parts that mean nothing alone.
func (n *Notes) qos() core.QoS {
	var q core.QoS
	for _, f := range []struct {
		to    *int
		field string
		most  int
		unit  string
	}{
		{&q.IngressMbps, v1.FieldIngressRate, MaxMbit, "Mbit/s"},
		{&q.EgressMbps, v1.FieldEgressRate, MaxMbit, "Mbit/s"},
		{&q.IngressBurstMbit, v1.FieldIngressBurst, MaxMbit, "Mbit"},
		{&q.EgressBurstMbit, v1.FieldEgressBurst, MaxMbit, "Mbit"},
		{&q.LatencyMs, v1.FieldLatency, maxMillis, "ms"},
		{&q.JitterMs, v1.FieldJitter, maxMillis, "ms"},
		{&q.LimitPackets, v1.FieldLimit, maxLimit, "packets"},
		{&q.LossPercent, v1.FieldLoss, 100, "percent"},
	} {
		*f.to, _ = n.number(f.field, 0, f.most, f.unit)
	}
	n.needs(q.IngressBurstMbit, v1.FieldIngressBurst, q.IngressMbps, v1.FieldIngressRate)
	n.needs(q.EgressBurstMbit, v1.FieldEgressBurst, q.EgressMbps, v1.FieldEgressRate)
	n.needs(q.JitterMs, v1.FieldJitter, q.LatencyMs, v1.FieldLatency)
	return q
}

func (n *Notes) needs(v int, field string, base int, baseField string) {
	if v != 0 && base == 0 {
		n.refuse(n.Key(field), strconv.Itoa(v), "is set without %s", baseField)
	}
}

// Tuning is what may change while the NIC is in use: rates and delays, and
// whether it is mirrored.
func (n *Notes) Tuning() (core.QoS, bool, error) {
	q := n.qos()
	mirror, _ := n.flag(v1.FieldMirror)
	return q, mirror, n.err
}

// Asked is what the annotations of one NIC ask for.
type Asked struct {
	IPs          []netip.Addr
	Pool         [][]netip.Addr
	MAC          core.MAC
	Subnet       string
	CIDRs        []netip.Prefix
	Gateways     []netip.Addr
	Routes       []core.Route
	QoS          core.QoS
	VLAN         int
	HasVLAN      bool
	Mirror       bool
	NICType      string
	Allocated    bool // a controller did
	DefaultRoute bool
	HasDefault   bool
}

// Read takes everything in; keys that only a controller acts upon are checked
// too, since a value that nobody can read was meant to say something.
func (n *Notes) Read() (Asked, error) {
	a := Asked{
		IPs: n.addrs(v1.FieldIP), Pool: n.candidates(v1.FieldIPPool), MAC: n.mac(v1.FieldMAC), Subnet: n.name(v1.FieldSubnet),
		CIDRs: n.cidrs(v1.FieldCIDR), Gateways: n.addrs(v1.FieldGateway),
		Routes: n.routes(v1.FieldRoutes), QoS: n.qos(),
		NICType: n.oneOf(v1.FieldNICType, v1.NICVeth, v1.NICInternal),
	}
	a.VLAN, a.HasVLAN = n.number(v1.FieldVLAN, 0, 4094, "an 802.1Q id")
	a.Mirror, _ = n.flag(v1.FieldMirror)
	a.DefaultRoute, a.HasDefault = n.flag(v1.FieldDefaultRoute)
	a.Allocated, _ = n.flag(v1.FieldAllocated)
	n.flag(v1.FieldRouted)
	n.name(v1.FieldProviderNetwork)
	n.oneOf(v1.FieldNetworkType, "geneve", "vxlan", "stt", "vlan")
	for _, gw := range a.Gateways {
		if len(a.CIDRs) > 0 && !Within(gw, a.CIDRs) {
			n.refuse(n.Key(v1.FieldGateway), gw.String(), "lies outside of %s", n.Key(v1.FieldCIDR))
		}
	}
	if a.NICType == "" {
		a.NICType = v1.NICVeth
	}
	return a, n.err
}

// Within tells whether one of the networks has a.
func Within(a netip.Addr, cidrs []netip.Prefix) bool {
	return slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Providers are those that the annotation keys name for certain: "ovn" and all
// that end in ".ovn" or, for one interface, in ".ovn.<ifname>".
func Providers(all map[string]string) []string {
	var out []string
	for key := range all {
		p, _, ok := strings.Cut(key, v1.ProviderSuffix)
		if ok && (p == v1.DefaultProvider || strings.Contains(p+".", "."+v1.DefaultProvider+".")) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
