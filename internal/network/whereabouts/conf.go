// Package whereabouts reads the configuration of the IPAM plugin whereabouts: which
// addresses an interface may get, and in which domain nobody else has them. It is pure, and
// does not know who has which.
//
// Source: the plugin's own description of its configuration (version 0.9).
package whereabouts

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/lease"
)

// Type is the plugin's `ipam.type`.
const Type = "whereabouts"

// Keys of a configuration: own say what a pod gets, others how the program keeps its
// book, which is another one here.
var (
	own    = []string{"type", "range", "range_start", "range_end", "exclude", "ipRanges", "gateway", "routes", "addresses", "dns", "network_name", "enable_overlapping_ranges"}
	others = []string{
		"datastore", "kubernetes", "configuration_path", "log_file", "log_level", "sleep_for_race", "reconciler_cron_expression",
		"etcd_host", "etcd_username", "etcd_password", "etcd_key_file", "etcd_cert_file", "etcd_ca_cert_file",
		"leader_lease_duration", "leader_renew_deadline", "leader_retry_period", "lease_duration", "backoff",
	}
	ofRange   = []string{"range", "range_start", "range_end", "exclude"}
	ofAddress = []string{"address", "gateway"}
)

// Conf is a configuration that was read.
type Conf struct {
	// Ranges are those of which an interface gets an address each.
	Ranges []Range

	all       []Range // also those that gave way to a fixed address
	gateway   netip.Addr
	network   string // network_name
	apart     bool   // enable_overlapping_ranges is false
	addresses []address
	routes    json.RawMessage
	dns       json.RawMessage
}

// Range is a network, and what of it may be given.
type Range struct {
	CIDR netip.Prefix
	Free []core.AddrRange
}

type address struct {
	Address string `json:"address"`
	Gateway string `json:"gateway,omitempty"`
}

// written is a range as it stands in a configuration.
type written struct {
	Range   string   `json:"range"`
	Start   string   `json:"range_start"`
	End     string   `json:"range_end"`
	Exclude []string `json:"exclude"`
}

// keys are what of a configuration is read.
type keys struct {
	written

	Ranges      []written       `json:"ipRanges"`
	Gateway     string          `json:"gateway"`
	Routes      json.RawMessage `json:"routes"`
	DNS         json.RawMessage `json:"dns"`
	Addresses   []address       `json:"addresses"`
	Network     string          `json:"network_name"`
	Overlapping *bool           `json:"enable_overlapping_ranges"`
}

// Parse reads an `ipam`. Errors have code 7 and name the key.
func Parse(ipam json.RawMessage) (*Conf, error) {
	c, err := parse(ipam)
	if err != nil {
		return nil, core.Errorf(core.CodeConfig, "ipam of type whereabouts: %w", err)
	}
	return c, nil
}

func parse(ipam json.RawMessage) (*Conf, error) {
	if err := known(ipam); err != nil {
		return nil, err
	}
	var w keys
	if err := json.Unmarshal(ipam, &w); err != nil {
		return nil, err
	}
	c := &Conf{network: w.Network, apart: w.Overlapping != nil && !*w.Overlapping, addresses: w.Addresses, routes: w.Routes, dns: w.DNS}
	var err error
	if c.gateway, err = addrOf("gateway", w.Gateway); err != nil {
		return nil, err
	}
	if err := errors.Join(c.nameable(), c.addAll(w)); err != nil {
		return nil, err
	}
	c.all = slices.Clone(c.Ranges)
	return c, nil
}

// addAll reads the ranges, of which there must be one.
func (c *Conf) addAll(w keys) error {
	if w.Range != "" {
		if err := c.add("", w.written); err != nil {
			return err
		}
	} else if w.Start+w.End != "" || len(w.Exclude) > 0 {
		return errors.New(`keys "range_start", "range_end" and "exclude" need key "range"`)
	}
	for i, r := range w.Ranges {
		if err := c.add(fmt.Sprintf("ipRanges[%d].", i), r); err != nil {
			return err
		}
	}
	if len(c.Ranges) == 0 {
		return errors.New(`neither key "range" nor "ipRanges" has a range`)
	}
	return nil
}

// known refuses keys that the plugin may know and this package does not: what they say
// would not be carried out.
func known(ipam json.RawMessage) error {
	keys, err := cniconf.Keys(ipam)
	if err != nil {
		return err
	}
	if err := cniconf.OnlyKeys(keys, slices.Concat(own, others)...); err != nil {
		return err
	}
	for key, names := range map[string][]string{"ipRanges": ofRange, "addresses": ofAddress} {
		var list []map[string]json.RawMessage
		if raw := keys[key]; raw != nil {
			if err := json.Unmarshal(raw, &list); err != nil {
				return fmt.Errorf("key %q: %w", key, err)
			}
		}
		for i, one := range list {
			if err := cniconf.OnlyKeys(one, names...); err != nil {
				return fmt.Errorf("%s[%d]: %w", key, i, err)
			}
		}
	}
	return nil
}

// add reads a range; at is where it stands.
func (c *Conf) add(at string, w written) error {
	cidr, start, end, err := network(w.Range)
	if err != nil {
		return fmt.Errorf("key %q: %w", at+"range", err)
	}
	for _, o := range []struct {
		key, text string
		to        *netip.Addr
	}{{"range_start", w.Start, &start}, {"range_end", w.End, &end}} {
		a, err := addrOf(at+o.key, o.text)
		switch {
		case err != nil:
			return err
		case a.IsValid() && !cidr.Contains(a):
			return fmt.Errorf("key %q: %s is not in %s", at+o.key, a, cidr)
		case a.IsValid():
			*o.to = a
		}
	}
	if end.Less(start) {
		return fmt.Errorf("key %q: %s comes before the start, %s", at+"range_end", end, start)
	}
	free, err := c.usable(cidr, netipx.IPRangeFrom(start, end), at+"exclude", w.Exclude)
	c.Ranges = append(c.Ranges, Range{cidr, free})
	return err
}

// network reads "10.0.0.0/24" and "10.0.0.10-10.0.0.20/24", with the first and the last
// address that they mean.
func network(text string) (cidr netip.Prefix, first, last netip.Addr, err error) {
	from, rest, spans := strings.Cut(text, "-")
	if !spans {
		rest = text
	}
	p, err := netip.ParsePrefix(rest)
	if err != nil {
		return cidr, first, last, err
	}
	if p.Addr().Is4In6() {
		return cidr, first, last, fmt.Errorf("%s is an IPv4 address in the form of IPv6", p.Addr())
	}
	cidr = p.Masked()
	if cidr.Addr().BitLen()-cidr.Bits() < 2 {
		return cidr, first, last, fmt.Errorf("%s has no addresses for pods: it needs 2 bits for them", cidr)
	}
	first, last = cidr.Addr(), netipx.PrefixLastIP(cidr)
	if !spans {
		return cidr, first, last, nil
	}
	last = p.Addr()
	if first, err = netip.ParseAddr(from); err == nil && !cidr.Contains(first) {
		err = fmt.Errorf("%s is not in %s", first, cidr)
	}
	return cidr, first, last, err
}

// usable are the addresses of a span that pods may have: not the network's first and last,
// not the gateway's, and not what is excluded.
func (c *Conf) usable(cidr netip.Prefix, span netipx.IPRange, key string, exclude []string) (out []core.AddrRange, err error) {
	var b netipx.IPSetBuilder
	b.AddRange(span)
	b.Remove(cidr.Addr())
	b.Remove(netipx.PrefixLastIP(cidr))
	if c.gateway.IsValid() {
		b.Remove(c.gateway)
	}
	for i, text := range exclude {
		r, err := excluded(text)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", fmt.Sprintf("%s[%d]", key, i), err)
		}
		b.RemoveRange(r)
	}
	return ranges(&b)
}

func ranges(b *netipx.IPSetBuilder) (out []core.AddrRange, err error) {
	set, err := b.IPSet()
	if err != nil {
		return nil, err
	}
	for _, r := range set.Ranges() {
		out = append(out, core.AddrRange{From: r.From(), To: r.To()})
	}
	return out, nil
}

// excluded reads a network, an address, or two with a dash between them.
func excluded(text string) (netipx.IPRange, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return netipx.RangeOfPrefix(p.Masked()), nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netipx.IPRangeFrom(a, a), nil
	}
	return netipx.ParseIPRange(text)
}

func addrOf(key, text string) (a netip.Addr, err error) {
	if text == "" {
		return a, nil
	}
	if a, err = netip.ParseAddr(text); err != nil {
		return a, fmt.Errorf("key %q: %w", key, err)
	}
	return a.Unmap(), nil
}

// nameable refuses a network_name that cannot be in the name of an object.
func (c *Conf) nameable() error {
	if c.network != "" && !lease.Nameable(strings.ToLower(c.network)) {
		return fmt.Errorf("key \"network_name\": %q cannot be a part of an object's name", c.network)
	}
	return nil
}

// Domain is where nobody else has an address of r: all ranges of one network_name are in
// one, unless overlapping ranges are nothing to each other, which have one each.
func (c *Conf) Domain(r Range) string {
	name := CommonDomain(c.network)
	if c.apart {
		name += fmt.Sprintf(".%s-%d", lease.Text(r.CIDR.Addr()), r.CIDR.Bits())
	}
	return lease.Domain(name, 0)
}

// CommonDomain is that of all ranges of a network_name, "" for none.
func CommonDomain(network string) string {
	name := Type
	if network != "" {
		name += "." + network
	}
	return lease.Domain(name, 0)
}

// Network is the network_name, "" for none.
func (c *Conf) Network() string { return c.network }

// Of is the range whose network an address is of, whether it may be given or not.
func (c *Conf) Of(a netip.Addr) (Range, bool) {
	at := slices.IndexFunc(c.all, func(r Range) bool { return r.CIDR.Contains(a) })
	if at < 0 {
		return Range{}, false
	}
	return c.all[at], true
}

// Gateway is that of an address, the zero value for none.
func (c *Conf) Gateway(a netip.Addr) netip.Addr {
	if c.gateway.BitLen() != a.BitLen() {
		return netip.Addr{}
	}
	return c.gateway
}

// Fix has an interface get an address in the place of one of its range r.
func (c *Conf) Fix(r Range, a netip.Addr, gateway string) {
	c.Ranges = slices.DeleteFunc(slices.Clone(c.Ranges), func(o Range) bool { return o.CIDR == r.CIDR })
	if gw := c.Gateway(a); gateway == "" && gw.IsValid() {
		gateway = gw.String()
	}
	c.addresses = append(slices.Clone(c.addresses), address{netip.PrefixFrom(a, r.CIDR.Bits()).String(), gateway})
}

// Pool is what may be given of a range, without what is kept for others.
func (c *Conf) Pool(r Range, kept []core.AddrRange) (*core.Pool, error) {
	var b netipx.IPSetBuilder
	for _, f := range r.Free {
		b.AddRange(netipx.IPRangeFrom(f.From, f.To))
	}
	for _, k := range kept {
		b.RemoveRange(netipx.IPRangeFrom(k.From, k.To))
	}
	all, err := ranges(&b)
	return &core.Pool{Label: "range " + r.CIDR.String(), Ranges: all, Bits: r.CIDR.Bits(), Gateway: c.Gateway(r.CIDR.Addr())}, err
}

// Static is a plugin's configuration in which plugin static stands for whereabouts, so far
// without addresses that are yet to be chosen.
func (c *Conf) Static(plugin json.RawMessage) (json.RawMessage, error) {
	ipam := map[string]any{"type": "static"}
	for key, raw := range map[string]json.RawMessage{"routes": c.routes, "dns": c.dns} {
		if len(raw) > 0 {
			ipam[key] = raw
		}
	}
	if len(c.addresses) > 0 {
		ipam["addresses"] = c.addresses
	}
	return with(plugin, "ipam", ipam)
}

// Give adds a chosen address to the configuration that Static made.
func Give(plugin json.RawMessage, c core.Claim) (json.RawMessage, error) {
	ipam, err := cniconf.Keys(plugin, "ipam")
	if err != nil {
		return nil, err
	}
	var all []address
	if raw := ipam["addresses"]; raw != nil {
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, err
		}
	}
	one := address{Address: netip.PrefixFrom(c.Addr, c.Pool.Bits).String()}
	if c.Pool.Gateway.IsValid() {
		one.Gateway = c.Pool.Gateway.String()
	}
	if ipam["addresses"], err = json.Marshal(append(all, one)); err != nil {
		return nil, err
	}
	return with(plugin, "ipam", ipam)
}

// with is a configuration with another value under a key.
func with(conf json.RawMessage, key string, value any) (json.RawMessage, error) {
	all, err := cniconf.Keys(conf)
	if err != nil {
		return nil, err
	}
	if all[key], err = json.Marshal(value); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
