package networks

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/underlay"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// former is a good Subnet with the networks and the provider that it had under an earlier
// leader: of what was in force then the database alone tells, and what has its addresses.
func (n *Networks) former(d declare.Subnet, good bool) (version *declare.Subnet, ok bool) {
	was, ok := n.rows[d.Name]
	if !good || !ok || d.Interconnected { // of which the router has others than the gateways
		return nil, false
	}
	if was.Provider != "" && v1.Routed(was.Provider) != v1.Routed(d.Provider) {
		d.Provider = was.Provider
	}
	if len(was.CIDRs) > 0 {
		d.CIDRs, d.Gateways = was.CIDRs, was.Gateways
	}
	d.Exclude = slices.DeleteFunc(slices.Clone(d.Exclude), func(r core.AddrRange) bool {
		return !annotation.Within(r.From, d.CIDRs) || !annotation.Within(r.To, d.CIDRs)
	})
	misfit, _ := n.leases.Misfit(d.Subnet, underlay.RouterPort(d.Name))
	return &d, !misfit.IsValid()
}

// Formerly says of which Vpc a Subnet is in the database, and what its networks are, each with
// its gateway's address. It is for a leader that begins.
func (n *Networks) Formerly(subnet, vpc string, networks []netip.Prefix) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := core.Subnet{Name: subnet, Vpc: vpc, Provider: n.rows[subnet].Provider}
	for _, p := range networks {
		was.CIDRs, was.Gateways = append(was.CIDRs, p.Masked()), append(was.Gateways, p.Addr())
	}
	n.rows[subnet] = was
}

// Came says by which provider an interface came to its address of a Subnet. Of several the
// shortest counts: others name the interface too. It is for a leader that begins.
func (n *Networks) Came(subnet, provider string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.rows[subnet]
	if was.Provider == "" || len(provider) < len(was.Provider) {
		was.Name, was.Provider = subnet, provider
		n.rows[subnet] = was
	}
}

// RouterIn are the addresses of OVN's router in a Subnet, as the database has them, else as the
// Subnet's status tells. It is for a leader that begins.
func (n *Networks) RouterIn(o *v1.Subnet) []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was := n.rows[o.Name]; len(was.Gateways) > 0 {
		return was.Gateways
	}
	return logical.Addrs(o.Status.U2OInterconnectionIP, ",")
}

// runs tells that a network of a Subnet is in force, or was under an earlier leader: its
// rows or an address of it are there.
func (n *Networks) runs(subnet string, c netip.Prefix) bool {
	if n.book.Has(subnet) {
		return slices.Contains(n.book.Declared(subnet).CIDRs, c)
	}
	return slices.Contains(n.rows[subnet].CIDRs, c) || slices.ContainsFunc(n.leases.Held(subnet), c.Contains)
}

// inUse tells whose address a changed Subnet would no longer have, or would have of another
// provider: its rows would go, or come to an interface that is not OVN's. Objects keep such
// changes out by their status, which is written a moment after the pod; a restored
// etcd may have other ones.
func (n *Networks) inUse(d *declare.Subnet) []declare.Fault {
	now := n.book.Declared(d.Name)
	if was, other := n.otherwise(d); other {
		if ip, by := n.holder(d.Name, netip.Addr.IsValid); ip.IsValid() {
			n.held[d.Name] = true
			return []declare.Fault{{Path: "spec.provider", Reason: fmt.Sprintf("%s has %s of provider %s, which cannot become %s before it is given back; what is in force stays until then",
				by, ip, was, d.Provider)}}
		}
	}
	if slices.Equal(now.CIDRs, d.CIDRs) && slices.Equal(now.Gateways, d.Gateways) {
		return nil
	}
	ip, port := n.leases.Misfit(d.Subnet, underlay.RouterPort(d.Name)) // which takes another
	if !ip.IsValid() {
		return nil
	}
	n.held[d.Name] = true
	return []declare.Fault{{Path: "spec", Reason: fmt.Sprintf("%s has %s, which lies outside of %s or would be the gateway's; what is in force stays until it is given back",
		port, ip, logical.Join(d.CIDRs))}}
}

// otherwise tells that a Subnet is declared with another provider than the one in force;
// after an earlier leader, with one that has something else carry it.
func (n *Networks) otherwise(d *declare.Subnet) (was string, other bool) {
	if n.book.Has(d.Name) {
		was = n.book.Declared(d.Name).Provider
		return was, was != d.Provider
	}
	was = n.rows[d.Name].Provider
	return was, was != "" && v1.Routed(was) != v1.Routed(d.Provider)
}

// holder is who has the lowest address of a Subnet of which is tells true, but for OVN's router,
// which takes its own wherever it is; the zero address is nobody's.
func (n *Networks) holder(subnet string, is func(netip.Addr) bool) (lowest netip.Addr, by string) {
	ports := map[netip.Addr]string{}
	for _, l := range n.leases.All() {
		for _, ip := range l.IPs {
			if l.Subnet == subnet {
				ports[ip] = l.Owner.Key.IfName
			}
		}
	}
	for _, ip := range n.leases.Held(subnet) {
		port, known := ports[ip]
		if !is(ip) || port == underlay.RouterPort(subnet) || lowest.IsValid() && lowest.Less(ip) {
			continue
		}
		if lowest, by = ip, port; !known {
			by = "a pod that is gone or not known yet" // its node or an AddressLease says so
		}
	}
	return lowest, by
}

// Restored says that the leases are known from now on: what was in force before is
// looked at with them.
func (n *Networks) Restored() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.anew, n.whole, n.book = true, true, declare.Book{}
}

// Freed says that an address of a Subnet was given back, and tells whether it may
// change now.
func (n *Networks) Freed(subnet string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.anew = n.anew || n.held[subnet]
	return n.held[subnet]
}
