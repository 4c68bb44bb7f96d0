package annotation

import (
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// maxValue is the most that an annotation's value may have, in bytes
// (reliability.md, Security).
const maxValue = 8 << 10

// Notes reads the annotations of one NIC. The first refusal stays in err and
// later reads give zero values, so that a reader asks once at the end.
type Notes struct {
	All      map[string]string
	Provider string // "ovn" or the NAD's provider
	IfName   string
	// Controlled: a controller serves what an IPPool's name asks for.
	Controlled bool
	err        error
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

// Requested is what the annotations of one NIC ask for. Of Settings nobody can ask for
// MTU and DNS here.
type Requested struct {
	core.Settings
	HasVLAN      bool // VLAN 0 was asked for, too
	IPs          []netip.Addr
	Pool         [][]netip.Addr
	Family       core.Family
	Subnet       string
	CIDRs        []netip.Prefix
	Gateways     []netip.Addr
	NICType      string
	Allocated    bool // a controller did
	Routed       bool // and the network carries it
	DefaultRoute bool
	HasDefault   bool
}

// Read takes everything in; keys that only a controller acts upon are checked
// too, since a value that nobody can read was meant to say something.
func (n *Notes) Read() (Requested, error) {
	a := n.take(func(column) bool { return true })
	if a.NICType == "" {
		a.NICType = v1.NICVeth
	}
	return a, n.err
}

// Tuning reads what may change while the NIC is in use.
func (n *Notes) Tuning() (core.Tuning, error) {
	a := n.take(func(c column) bool { return c.tunes })
	return a.Tuning, n.err
}

// Limits reads VLAN and rates, which also an interface can have that is no NIC of ours, and
// whether a controller gave addresses.
func (n *Notes) Limits() (Requested, error) {
	fields := []string{v1.FieldVLAN, v1.FieldIngressRate, v1.FieldEgressRate, v1.FieldAllocated}
	a := n.take(func(c column) bool { return slices.Contains(fields, c.field) })
	return a, n.err
}

// take reads the columns that pick chooses.
func (n *Notes) take(pick func(column) bool) (a Requested) {
	for _, c := range columns {
		if !pick(c) {
			continue
		}
		if key, value, ok := n.get(c.field); ok {
			c.read(n, &a, key, value)
		}
		if c.check != nil && n.err == nil {
			c.check(n, &a)
		}
	}
	return a
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
