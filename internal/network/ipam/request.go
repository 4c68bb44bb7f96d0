package ipam

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// family indexes what exists once per address family.
type family int

const (
	v4 family = iota
	v6
	families
)

// familyOf wants an unmapped address.
func familyOf(a netip.Addr) family {
	if a.Is4() {
		return v4
	}
	return v6
}

// String is the form used in errors and statistics.
func (f family) String() string { return [families]string{"IPv4", "IPv6"}[f] }

// wish is a validated Request.
type wish struct {
	subnet core.Subnet
	owner  core.Owner
	cidrs  [families]netip.Prefix // masked; invalid = the subnet lacks it
	only   core.Family            // of which an address is given
	within [families]netip.Prefix // invalid = all of cidrs
	fixed  [families]netip.Addr   // invalid = to be chosen
	pool   [][families]netip.Addr // fixed becomes the first that is free
	ranges [families][]core.AddrRange
	mac    core.MAC
	noMAC  bool // without mac the lease has none
	// former is what the same interface of the same pod name held last.
	former core.Released
}

// parse makes w of a request, and checks all that depends on that alone.
func (w *wish) parse(r *Request) (err error) {
	w.subnet, w.owner, w.only, w.mac, w.noMAC = r.Subnet, r.Owner, r.Family, r.MAC, r.NoMAC
	if w.cidrs, err = cidrsOf(r.Subnet.CIDRs); err != nil {
		return err
	}
	if !slices.ContainsFunc([]family{v4, v6}, w.wants) {
		return core.Errorf(core.CodeAddress, "an %s address is requested, and the subnet has none (%v)", w.only, r.Subnet.CIDRs)
	}
	w.confine(r.Within)
	for _, s := range r.Ranges {
		w.ranges[familyOf(s.From)] = append(w.ranges[familyOf(s.From)], s)
	}
	if r.MAC != nil {
		if err := checkMAC(r.MAC); err != nil {
			return err
		}
	}
	for _, ip := range r.IPs {
		if err := w.fix(ip); err != nil {
			return err
		}
	}
	if err := w.candidates(r.Pool); err != nil {
		return err
	}
	return w.choosable()
}

// choosable is nil where what is not requested can be chosen.
func (w *wish) choosable() error {
	for f := range families {
		if w.subnet.Implied && w.wants(f) && !w.fixed[f].IsValid() && !w.pooled(f) {
			return core.Errorf(core.CodeAddress,
				"no object declares the subnet, so that an %s address cannot be chosen: request one, or declare a Subnet", f)
		}
	}
	return nil
}

// wants tells that the lease has an address of family f.
func (w *wish) wants(f family) bool {
	return w.cidrs[f].IsValid() && w.only.Has(w.cidrs[f].Addr())
}

// confine keeps what is chosen to these parts, at most one of each family.
func (w *wish) confine(within []netip.Prefix) {
	for _, p := range within {
		w.within[familyOf(p.Addr())] = p.Masked()
	}
}

// part is what of the subnet's CIDR may be given.
func (w *wish) part(f int) netip.Prefix {
	if w.within[f].IsValid() {
		return w.within[f]
	}
	return w.cidrs[f]
}

// cidrsOf sorts a subnet's CIDRs by family.
func cidrsOf(all []netip.Prefix) ([families]netip.Prefix, error) {
	var out [families]netip.Prefix
	for _, c := range all {
		if !c.IsValid() {
			return out, core.Errorf(core.CodeAddress, "the subnet has an invalid CIDR")
		}
		f := familyOf(c.Addr())
		if out[f].IsValid() {
			return out, core.Errorf(core.CodeAddress, "the subnet has two %s CIDRs, %s and %s", f, out[f], c)
		}
		out[f] = c.Masked()
	}
	if len(all) == 0 {
		return out, core.Errorf(core.CodeAddress, "the subnet has no CIDR")
	}
	return out, nil
}

// fix takes one requested address.
func (w *wish) fix(ip netip.Addr) error {
	if !ip.IsValid() || ip.Zone() != "" {
		return core.Errorf(core.CodeValue, "requested address %q is not a plain IP address", ip)
	}
	ip = ip.Unmap()
	f := familyOf(ip)
	if w.fixed[f].IsValid() {
		return core.Errorf(core.CodeValue, "two %s addresses are requested, %s and %s", f, w.fixed[f], ip)
	}
	if !w.only.Has(ip) {
		return core.Errorf(core.CodeConflict, "the address %s is requested, and only an %s address", ip, w.only)
	}
	if !w.cidrs[f].Contains(ip) {
		return core.Errorf(core.CodeAddress, "requested address %s is outside of the subnet's CIDR %v", ip, w.subnet.CIDRs)
	}
	if why := taboo(w.cidrs[f], w.subnet.Gateways, ip); why != "" {
		return core.Errorf(core.CodeAddress, "requested address %s is the subnet's %s", ip, why)
	}
	if part := w.within[f]; part.IsValid() && !part.Contains(ip) {
		return core.Errorf(core.CodeAddress, "requested address %s is outside of this node's block %s of the subnet", ip, part)
	}
	w.fixed[f] = ip
	return nil
}

// taboo says why no pod may ever have ip, "" when one may.
func taboo(cidr netip.Prefix, gateways []netip.Addr, ip netip.Addr) string {
	for _, g := range gateways {
		if g.Unmap() == ip {
			return "gateway"
		}
	}
	first, last := ends(cidr)
	switch {
	case !hasEnds(cidr):
		return ""
	case ip == first && ip.Is4():
		return "network address"
	case ip == first:
		return "subnet-router anycast address (RFC 4291, 2.6.1)"
	case ip == last && ip.Is4():
		return "broadcast address"
	}
	return ""
}

// hasEnds tells whether the first and last address mean the network: not in
// IPv4 /31 (RFC 3021) and /32, nor in IPv6 /127 (RFC 6164) and /128.
func hasEnds(cidr netip.Prefix) bool { return cidr.Addr().BitLen()-cidr.Bits() > 1 }

// checkMAC wants a unicast address that is not zero.
func checkMAC(m core.MAC) error {
	switch {
	case len(m) != 6:
		return core.Errorf(core.CodeValue, "requested MAC %q has not 6 bytes", m)
	case m[0]&1 != 0:
		return core.Errorf(core.CodeValue, "requested MAC %s is a multicast address", m)
	case bytes.Equal(m, make([]byte, 6)):
		return core.Errorf(core.CodeValue, "requested MAC %s is zero", m)
	}
	return nil
}
