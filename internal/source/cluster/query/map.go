package query

import (
	"context"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/source/catalog"
)

// Map is what becomes of each address of a Subnet; core.ErrNotFound without one.
func (c *Client) Map(ctx context.Context, subnet string) (agent.AddressMap, error) {
	pools, err := c.pools(ctx)
	if err != nil {
		return agent.AddressMap{}, err
	}
	at := slices.IndexFunc(pools, func(s core.Subnet) bool { return s.Name == subnet })
	if at < 0 {
		return agent.AddressMap{}, fmt.Errorf("Subnet %s: %w", subnet, core.ErrNotFound)
	}
	s, err := c.census(ctx)
	if err != nil {
		return agent.AddressMap{}, err
	}
	kept, err := c.kept(ctx, subnet)
	if err != nil {
		return agent.AddressMap{}, err
	}
	m := mapping{net: pools[at], pools: kept}
	for _, h := range c.holders(s, pools) {
		if h.Subnet == subnet {
			m.held = append(m.held, h)
		}
	}
	out := agent.AddressMap{Subnet: catalog.Subnet(pools[at]), Counted: s.knowsRecords, Parts: m.parts()}
	out.Subnet.Usage = usageOf(pools[at], out.Parts)
	return out, nil
}

// part of a Subnet that an IPPool has.
type kept struct {
	name string
	set  *netipx.IPSet
}

// kept are a Subnet's IPPools, by name.
func (c *Client) kept(ctx context.Context, subnet string) (out []kept, err error) {
	err = c.Each(ctx, Pools, Scope{}, func(o Object) {
		var spec v1.IPPoolSpec
		if Read(o.Spec, &spec) != nil || spec.Subnet != subnet {
			return
		}
		var b netipx.IPSetBuilder
		for _, item := range spec.IPs {
			addRange(&b, string(item))
		}
		if set, err := b.IPSet(); err == nil {
			out = append(out, kept{o.Metadata.Name, set})
		}
	})
	_, err = c.Lacking(err, "IPPools are not shown")
	return out, err
}

// addRange adds "address", "from..to" or a network; what is none of them, nobody
// gives addresses of.
func addRange(b *netipx.IPSetBuilder, item string) {
	if p, err := netip.ParsePrefix(item); err == nil {
		b.AddPrefix(p)
		return
	}
	from, to, isRange := strings.Cut(item, "..")
	if !isRange {
		to = from
	}
	a, errA := netip.ParseAddr(from)
	z, errZ := netip.ParseAddr(to)
	if errA == nil && errZ == nil {
		b.AddRange(netipx.IPRangeFrom(a.Unmap(), z.Unmap()))
	}
}

// mapping is a Subnet with who has addresses of it.
type mapping struct {
	net   core.Subnet
	held  []agent.IP // by address
	pools []kept
}

// parts are all addresses of the Subnet, cut where their state changes.
func (m mapping) parts() (out []agent.AddressPart) {
	var used, free netipx.IPSetBuilder
	for _, h := range m.held {
		used.Add(h.Address)
	}
	whole := []core.AddrRange{}
	for _, p := range m.net.CIDRs {
		r := netipx.RangeOfPrefix(p)
		whole = append(whole, core.AddrRange{From: r.From(), To: r.To()})
	}
	taken, _ := used.IPSet() // of addresses, which cannot fail
	for _, r := range ipam.Choosable(m.net, whole) {
		free.AddRange(netipx.IPRangeFrom(r.From, r.To))
	}
	chosen, _ := free.IPSet()
	free.RemoveSet(taken)
	for _, k := range m.pools {
		out = append(out, m.ofPool(k, chosen, taken)...)
		free.RemoveSet(k.set)
	}
	out = append(out, stretches(&free, agent.IPFree, "")...)
	out = append(out, m.closed(whole, chosen, taken)...)
	for i := range m.held {
		h := &m.held[i]
		out = append(out, agent.AddressPart{From: h.Address, To: h.Address, State: h.State, Pool: m.poolOf(h.Address), By: h})
	}
	slices.SortStableFunc(out, func(a, b agent.AddressPart) int { return a.From.Compare(b.From) })
	return out
}

func (m mapping) poolOf(ip netip.Addr) string {
	for _, k := range m.pools {
		if k.set.Contains(ip) {
			return k.name
		}
	}
	return ""
}

// ofPool are a pool's addresses that may be given and that nobody has.
func (m mapping) ofPool(k kept, chosen, taken *netipx.IPSet) []agent.AddressPart {
	var b netipx.IPSetBuilder
	b.AddSet(k.set)
	b.Intersect(chosen)
	b.RemoveSet(taken)
	return stretches(&b, agent.IPFree, k.name)
}

// closed are the addresses that nobody may be given.
func (m mapping) closed(whole []core.AddrRange, chosen, taken *netipx.IPSet) (out []agent.AddressPart) {
	var b netipx.IPSetBuilder
	for _, r := range whole {
		b.AddRange(netipx.IPRangeFrom(r.From, r.To))
	}
	b.RemoveSet(chosen)
	b.RemoveSet(taken)
	for _, g := range m.net.Gateways {
		if !taken.Contains(g) {
			out = append(out, agent.AddressPart{From: g, To: g, State: agent.IPGateway})
		}
		b.Remove(g)
	}
	var x netipx.IPSetBuilder
	for _, r := range m.net.Exclude {
		x.AddRange(netipx.IPRangeFrom(r.From, r.To))
	}
	excluded, _ := x.IPSet()
	x.RemoveSet(taken)
	rest, _ := b.IPSet()
	x.Intersect(rest)
	b.RemoveSet(excluded)
	return append(append(out, stretches(&x, agent.IPExcluded, "")...), stretches(&b, agent.IPNetwork, "")...)
}

func stretches(b *netipx.IPSetBuilder, state, pool string) (out []agent.AddressPart) {
	set, err := b.IPSet()
	if err != nil {
		return nil
	}
	for _, r := range set.Ranges() {
		out = append(out, agent.AddressPart{From: r.From(), To: r.To(), State: state, Pool: pool})
	}
	return out
}

// usageOf counts the parts.
func usageOf(s core.Subnet, parts []agent.AddressPart) (out []agent.Usage) {
	for _, cidr := range s.CIDRs {
		u := agent.Usage{Family: core.FamilyOf(cidr.Addr()).String()}
		seen := netip.Addr{}
		for _, p := range parts {
			if !cidr.Contains(p.From) || p.From == seen { // what two have is one address
				continue
			}
			seen = p.From
			n := size(p)
			u.Total = more(u.Total, n)
			switch {
			case p.By != nil:
				u.Used = more(u.Used, n)
			case p.State == agent.IPFree:
				u.Free = more(u.Free, n)
			default:
				u.Excluded = more(u.Excluded, n)
			}
		}
		out = append(out, u)
	}
	return out
}

// most is where counts stop (agent.Usage).
const most = 1<<63 - 1

func more(a, b uint64) uint64 { return min(a+b, most) }

// size is the number of addresses of a part, at most `most`.
func size(p agent.AddressPart) uint64 {
	n := new(big.Int).Sub(new(big.Int).SetBytes(p.To.AsSlice()), new(big.Int).SetBytes(p.From.AsSlice()))
	if !n.IsUint64() || n.Uint64() >= most {
		return most
	}
	return n.Uint64() + 1
}
