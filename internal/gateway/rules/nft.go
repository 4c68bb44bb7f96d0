package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// hooks are where the kernel calls the chains that iptables has below a parent, by
// table and parent. Packets are marked before anybody translates their destinations.
// At srcnat, everybody's: other tables' rules there still run, and whoever translates
// first has the connection.
var hooks = map[string]nft.Hook{
	NAT + " PREROUTING":     {Type: knftables.NATType, At: knftables.PreroutingHook, Priority: "-101"},
	NAT + " POSTROUTING":    {Type: knftables.NATType, At: knftables.PostroutingHook, Priority: knftables.SNATPriority},
	Mangle + " PREROUTING":  {Type: knftables.FilterType, At: knftables.PreroutingHook, Priority: knftables.ManglePriority},
	Mangle + " OUTPUT":      {Type: knftables.RouteType, At: knftables.OutputHook, Priority: knftables.ManglePriority}, // a marked packet finds another way
	Mangle + " POSTROUTING": {Type: knftables.FilterType, At: knftables.PostroutingHook, Priority: knftables.ManglePriority},
	Filter + " INPUT":       {Type: knftables.FilterType, At: knftables.InputHook, Priority: knftables.FilterPriority},
	Filter + " FORWARD":     {Type: knftables.FilterType, At: knftables.ForwardHook, Priority: knftables.FilterPriority},
	Filter + " OUTPUT":      {Type: knftables.FilterType, At: knftables.OutputHook, Priority: knftables.FilterPriority},
}

// NFT is the Ruleset as one table for both families. It has no rule that only lets
// packets through, which spares them no other table's, none about kube-proxy's
// sets, which nftables does not know, where none of ours stands in, and no set that no
// rule speaks of.
func (r Ruleset) NFT() (out nft.Ruleset) {
	at := map[string]int{} // chains, by their names
	for _, f := range r.Families {
		for _, s := range f.Sets {
			if s.Hosts {
				continue
			}
			out.Sets = append(out.Sets, nft.Set{Name: s.Name, V6: f.V6, Counters: s.Counters, Members: s.Members})
		}
		for _, c := range f.Chains {
			name := c.NFT()
			if _, known := at[name]; !known {
				at[name] = len(out.Chains)
				out.Chains = append(out.Chains, nft.Chain{Name: name, Hook: c.hook()})
			}
			into := &out.Chains[at[name]]
			for _, rule := range c.Rules {
				if !rule.Spared() {
					into.Rules = append(into.Rules, nft.Entry{Comment: rule.Comment, Text: rule.NFT(f.V6)})
				}
			}
		}
	}
	out.Chains = slices.DeleteFunc(out.Chains, func(c nft.Chain) bool { return len(c.Rules) == 0 && c.Hook != nil })
	return out
}

// NFT is the name of a chain in the table, which has no tables within.
func (c Chain) NFT() string {
	if c.Parent == "" {
		return c.Name
	}
	return c.Table + "-" + lower(c.Parent)
}

func (c Chain) hook() *nft.Hook {
	if c.Parent == "" {
		return nil
	}
	h := hooks[c.Table+" "+c.Parent]
	return &h
}

// Spared tells that nftables has no such rule.
func (r Rule) Spared() bool {
	return r.Do.Verb == Accept || slices.ContainsFunc(r.Sets, func(m Match) bool { return m.Else == "" && strings.HasPrefix(m.Set, proxySets) })
}

// NFT is the rule as nft reads it, for one family.
func (r Rule) NFT(v6 bool) string {
	ip, version := "ip", "ipv4"
	if v6 {
		ip, version = "ip6", "ipv6"
	}
	b := words{"meta nfproto " + version}
	b.when(r.In != "", "iifname", fmt.Sprintf("%q", r.In))
	b.when(r.Out != "", "oifname", fmt.Sprintf("%q", r.Out))
	b.when(r.Src.IsValid(), ip, "saddr", r.Src.String())
	b.when(r.Dst.IsValid(), ip, "daddr", r.Dst.String())
	b.when(r.Proto != "", "meta l4proto", r.Proto)
	b.when(r.Port != 0, r.Proto, "dport", fmt.Sprint(r.Port))
	b.when(r.Flags != AnyFlags, map[Flags]string{
		NotSYN: "tcp flags & (fin|syn|rst|ack) != syn", SYN: "tcp flags & (syn|rst) == syn", RST: "tcp flags & rst == rst",
	}[r.Flags])
	b.when(r.ToNode, "fib daddr type local")
	for _, m := range r.Sets {
		dir, _, _ := strings.Cut(m.Dir, ",")
		side := map[string]string{"src": ip + " saddr", "dst": ip + " daddr"}[dir]
		if r.Do.Verb == Count {
			b.add("counter name", side, "map", "@"+m.Set)
			continue
		}
		b.add(side)
		b.when(m.Not, "!=")
		b.add("@" + cmp.Or(m.Else, m.Set))
	}
	b.when(r.State != AnyState, map[State]string{New: "ct state new", Invalid: "ct state invalid", Translated: "ct status dnat"}[r.State])
	b.when(r.Mark.Mask != 0, r.Mark.nft())
	b.add(r.Do.nft(ip)...)
	return b.String()
}

func (m Mark) nft() string {
	is := map[bool]string{false: "==", true: "!="}[m.Not]
	if m.Mask == every {
		return fmt.Sprintf("meta mark %s %#x", is, m.Value)
	}
	return fmt.Sprintf("meta mark & %#x %s %#x", m.Mask, is, m.Value)
}

// nft is the end of a rule. Ports are drawn fully at random: two clients that want
// the same port would otherwise race for it and one lose its packet.
func (a Action) nft(ip string) []string {
	switch a.Verb {
	case Drop, Return:
		return []string{map[Verb]string{Drop: "drop", Return: "return"}[a.Verb]}
	case Reject:
		return []string{"reject with tcp reset"}
	case Jump:
		return []string{"jump", a.Chain}
	case SetMark:
		if a.Mark.Mask == every {
			return []string{"meta mark set", fmt.Sprintf("%#x", a.Mark.Value)}
		}
		return []string{"meta mark set meta mark or", fmt.Sprintf("%#x", a.Mark.Value)}
	case Masquerade:
		return []string{"masquerade fully-random"}
	case SNAT:
		return []string{"snat", ip, "to", a.To.String(), "fully-random"}
	case Proxy:
		return []string{"tproxy", ip, "to", netip.AddrPortFrom(a.To, a.Port).String(), "meta mark set", fmt.Sprintf("%#x", a.Mark.Value)}
	case MSS:
		if a.Size == 0 {
			return []string{"tcp option maxseg size set rt mtu"}
		}
		return []string{"tcp option maxseg size set", fmt.Sprint(a.Size)}
	}
	return nil // of Accept and Count
}
