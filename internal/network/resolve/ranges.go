package resolve

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// readRanges reads the ranges of a network whose addresses whereabouts gives. It has none
// where the agent does not make the interface itself, or where whereabouts' own program is
// installed: then that has the book.
func (r *resolution) readRanges(n *network) error {
	if n.ranges != nil || n.own != nil || len(n.chain.Plugins) == 0 || r.in.Inside == nil || ipamType(n.chain.Plugins[0]) != whereabouts.Type {
		return nil
	}
	first := n.chain.Plugins[0]
	path := slices.Clone(r.in.Request.Path)
	if r.conf.BinDir != "" {
		path = slices.Insert(path, 0, r.conf.BinDir)
	}
	if !r.in.Inside(core.Exec{Type: first.Type, Conf: first.Raw, Path: path}) || !r.in.Inside(core.Exec{Type: whereabouts.Type, Path: path}) {
		return nil
	}
	keys, err := cniconf.Keys(first.Raw)
	if err == nil {
		n.ranges, err = whereabouts.Parse(keys["ipam"])
	}
	return core.WithCode(core.CodeConfig, n.field(), err)
}

// fixInRanges has declared addresses take the place of chosen ones.
func (r *resolution) fixInRanges(n *network, s *declared.Settings) error {
	if err := r.readRanges(n); err != nil || n.ranges == nil || s.From[declared.IPs] == "" {
		return err
	}
	if err := s.InRanges(n.ranges); err != nil {
		return err
	}
	n.configured = append(n.configured, declared.IPs, declared.Gateway)
	return nil
}

// fromRanges writes into the configuration of a network's first plugin what its ranges say
// of an interface; the addresses are yet to be chosen.
func (r *resolution) fromRanges(n *network) error {
	if err := r.readRanges(n); err != nil {
		return err
	}
	if n.ranges == nil {
		return r.unclaimable(n)
	}
	if key, asked := n.elem.OtherIPs(nil); key != "" {
		return annotation.Refused(core.CodeValue, key, strings.Join(asked, ","), "cannot be asked for: network %s gives addresses of its ranges", n.label)
	}
	first := n.chain.Plugins[0]
	raw, err := n.ranges.Static(first.Raw)
	if err != nil {
		return core.WithCode(core.CodeConfig, n.field(), err)
	}
	first.Raw, first.Capabilities = raw, maps.Clone(first.Capabilities)
	delete(first.Capabilities, "ips") // the runtime's would take the place of those that are leased
	n.chain.Plugins = slices.Concat([]core.Plugin{first}, n.chain.Plugins[1:])
	return nil
}

// chosen are the claims of addresses that are chosen when they are claimed. What is declared
// of any pod in the network is not among them.
func (r *resolution) chosen(ctx context.Context, n *network) (out []core.Claim, err error) {
	if n.ranges == nil {
		return nil, nil
	}
	if n.domain != "" {
		err = n.domainFault()
	}
	var kept []core.AddrRange
	for _, k := range r.keptIn(ctx, n) {
		kept = append(kept, k.AddrRange)
	}
	by, keeper := r.claimOf(n), ""
	if by != nil {
		keeper = by.String()
	}
	for _, part := range n.ranges.Ranges {
		pool, cut := n.ranges.Pool(part, kept)
		err = errors.Join(err, cut)
		pool.Label += " of network " + n.label
		pool.For = by
		c := n.pooled(part.CIDR.Addr(), core.Claim{Domain: n.ownDomain(), Wire: n.wire()})
		c.Declared, c.Pool = keeper, pool
		out = append(out, c)
	}
	return out, core.WithCode(core.CodeConfig, n.field(), err)
}

// claimRef is where an element names an IPAMClaim.
func (n *network) claimRef() string { return n.elem.Field + ".ipam-claim-reference" }

// claimOf is the IPAMClaim that the pod refers to in a network of ranges, nil for none. By its
// spec.network it may mean the network's name, which its makers write there, or the NAD.
func (r *resolution) claimOf(n *network) *core.IPAMClaim {
	if n.elem.IPAMClaim == "" {
		return nil
	}
	return &core.IPAMClaim{
		Namespace: r.pod.Namespace, Name: n.elem.IPAMClaim, Field: n.claimRef(), Networks: []string{n.chain.Name, n.nad, n.elem.Name},
	}
}

// leavesToClaim tells, before the ranges are read, that an IPAMClaim keeps the addresses.
func (n *network) leavesToClaim() bool {
	return n.elem.IPAMClaim != "" && n.own == nil && len(n.chain.Plugins) > 0 && ipamType(n.chain.Plugins[0]) == whereabouts.Type
}

// unclaimable refuses an IPAMClaim where others than ranges give the addresses. A plugin that is
// asked for them itself may know what to do with it, but for those that read no annotation.
func (r *resolution) unclaimable(n *network) error {
	if n.elem.IPAMClaim == "" || r.in.Request.Op == core.Del {
		return nil
	}
	why := "a Subnet gives its addresses"
	if n.own == nil && !n.lends() {
		i := slices.IndexFunc(n.chain.Plugins, func(p core.Plugin) bool { return slices.Contains([]string{hostLocal, "static", "dhcp"}, ipamType(p)) })
		if i < 0 {
			return nil
		}
		why = ipamType(n.chain.Plugins[i]) + " gives its addresses"
	}
	return annotation.Refused(core.CodeValue, n.claimRef(), n.elem.IPAMClaim, "cannot be used: network %s has no IPAM claims: %s", n.label, why)
}

// poolDomain is the domain in which an address of the network's ranges is claimed: what the
// NAD names, else what the ranges say; otherwise is that of networks without ranges.
func (n *network) poolDomain(a netip.Addr, otherwise string) string {
	return n.pooled(a, core.Claim{Domain: otherwise}).Domain
}

// pooled is poolDomain of a claim.
func (n *network) pooled(a netip.Addr, otherwise core.Claim) core.Claim {
	if n.ranges == nil || n.domain != "" {
		return otherwise
	}
	if r, ok := n.ranges.Of(a); ok {
		return core.Claim{Domain: n.ranges.Domain(r)}
	}
	return otherwise
}

// Ranged is what a NAD says of whereabouts: the network_name, and the domain in which the
// addresses of each range are leased. Of other networks, and of what cannot be read, it has no
// ranges.
type Ranged struct {
	Network string
	Domains map[netip.Prefix]string
}

// RangesOf reads a NAD.
func RangesOf(nad NAD) (out Ranged) {
	c, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
	if err != nil || len(c.Plugins) == 0 {
		return out
	}
	n := onWire(nad, c)
	if n.ranges == nil {
		return out
	}
	out = Ranged{n.ranges.Network(), map[netip.Prefix]string{}}
	for _, r := range n.ranges.Ranges {
		out.Domains[r.CIDR] = n.poolDomain(r.CIDR.Addr(), n.ownDomain())
	}
	return out
}
