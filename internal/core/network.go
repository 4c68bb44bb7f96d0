package core

import "net/netip"

// AddrRange is an inclusive range of addresses of one family.
type AddrRange struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
}

// Contains tells whether a lies in the range.
func (r AddrRange) Contains(a netip.Addr) bool {
	return a.BitLen() == r.From.BitLen() && r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0
}

// NATRule is about packets of a Subnet with NATOutgoing that leave it: from these
// networks to these, all of one family; none are all.
type NATRule struct {
	Src  []netip.Prefix `json:"src,omitempty"`
	Dst  []netip.Prefix `json:"dst,omitempty"`
	Keep bool           `json:"keep,omitempty"` // the address that they have
}

// Egress is a gateway outside of the cluster to which nodes send all that pods of a
// Subnet send out of it, by a table of routes of its own (sdn.md, section 10).
type Egress struct {
	Gateways []netip.Addr `json:"gateways"` // at most one per family
	Table    int          `json:"table"`    // of routes: 1 to 2147483647 without the kernel's own
	Priority int          `json:"priority"` // of the rule that leads there, 1 to 32765; the lowest comes first
	// By and Where are the nodes, by name and by selectors of labels, that lead there what
	// pods of a centralized Subnet send; of another one each node does.
	By    []string `json:"by,omitempty"`
	Where []string `json:"where,omitempty"`
}
