package netfilter

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/ipset"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Writers of rules, as people know them.
const (
	ByUs      = "fairlead"
	ByKubeOVN = "Kube-OVN"
	ByOthers  = "another program"
)

// Inventory is what the node's packet filter has for pods.
type Inventory struct {
	By     string // what keeps our rules: "iptables (nft)", "iptables (legacy)", "nftables"
	Sets   []SetEntry
	Chains []ChainEntry
	Above  []Foreign // rules of others that decide before ours do
	Found  []Difference
}

// SetEntry is a set.
type SetEntry struct {
	Name    string
	Does    string // what it holds; "" of one that is not ours
	Writer  string
	Members []netip.Prefix // that it has
	Missing bool
}

// ChainEntry is a chain of one family.
type ChainEntry struct {
	V6                  bool
	Table, Name, Parent string
	Writer              string
	Missing             bool
	Rules               []RuleEntry // as they are there
}

// RuleEntry is a rule, in the words of what keeps it; Does is "" of one that is not ours.
type RuleEntry struct{ Text, Does string }

// Foreign is a rule of others before the one that leads to ours.
type Foreign struct {
	V6                  bool
	Backend             iptables.Backend
	Table, Chain, Text  string
	Hides               string // our chain, which may not see the packet
	Remove, AppendAgain string // commands: the rule goes, and comes behind ours
}

// Inventory tells what is there for in, who wrote it, and what differs. It waits for a
// change under way.
func (f *Filter) Inventory(ctx context.Context, in rules.Input) (Inventory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.look(ctx, in)
	if v == nil {
		return Inventory{}, err
	}
	table, errTable := f.table.Show(ctx, v.table)
	inv := Inventory{Found: append(f.named(table.Found), v.found...), By: "nftables"}
	if len(v.plans) == 0 && (v.speaks(false) || v.speaks(true)) { // somebody else's, which we leave alone
		if errOthers := v.plan(ctx); !errors.Is(errOthers, iptables.ErrNotInstalled) {
			err = errors.Join(err, errOthers)
		}
	}
	if errTable == nil || len(v.want.Families) > 0 { // else nobody knows of ours
		inv.sets(v, table)
		inv.chains(v, table)
	}
	inv.setsOfOthers(v)
	for _, p := range v.plans {
		if p.uses && len(v.want.Families) > 0 {
			inv.By = "iptables (" + string(cmp.Or(p.backend, iptables.Usual())) + ")"
			inv.Above = append(inv.Above, p.above(v.family(p.v6), in)...)
		}
		inv.others(p, v.family(p.v6))
	}
	return inv, errors.Join(err, errTable)
}

// family is what iptables is to have of one.
func (v *view) family(v6 bool) rules.Family {
	for _, f := range v.want.Families {
		if f.V6 == v6 {
			return f
		}
	}
	return rules.Family{V6: v6}
}

// sets are ours, as they are there.
func (inv *Inventory) sets(v *view, table nft.Shown) {
	for _, f := range v.all.Families {
		for _, s := range f.Sets {
			if s.Hosts && len(v.want.Families) == 0 {
				continue
			}
			e := SetEntry{Name: s.Name, Does: s.Does, Writer: ByUs}
			if len(v.want.Families) > 0 {
				have, there := v.sets[s.Name]
				e.Members, e.Missing = have.Members, !there
			} else {
				have, there := table.Sets[s.Name]
				e.Members, e.Missing = have, !there
			}
			inv.Sets = append(inv.Sets, e)
		}
	}
}

// setsOfOthers have names of ours, and nobody wants them here.
func (inv *Inventory) setsOfOthers(v *view) {
	want := v.wanted()
	for name, have := range v.sets {
		if rules.OwnSet(name) && !slices.ContainsFunc(want, func(s ipset.Set) bool { return s.Name == name }) {
			inv.Sets = append(inv.Sets, SetEntry{Name: name, Writer: ByKubeOVN, Members: have.Members})
		}
	}
	slices.SortFunc(inv.Sets, func(a, b SetEntry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Writer, b.Writer)) })
}

// chains are ours, as they are there.
func (inv *Inventory) chains(v *view, table nft.Shown) {
	for _, f := range v.all.Families {
		at := slices.IndexFunc(v.plans, func(p plan) bool { return p.v6 == f.V6 && p.uses })
		for _, c := range f.Chains {
			e := ChainEntry{V6: f.V6, Table: c.Table, Name: c.Name, Parent: c.Parent, Writer: ByUs}
			switch {
			case len(v.want.Families) == 0:
				e.asShown(c, v.table, table)
			case at >= 0:
				e.asThere(c, v.plans[at].have)
			}
			inv.Chains = append(inv.Chains, e)
		}
	}
}

// asShown fills in what a chain has in nftables, where both families' rules stand in one.
// What has nothing to do there is not missed.
func (e *ChainEntry) asShown(c rules.Chain, want nft.Ruleset, table nft.Shown) {
	now, there := table.Chains[c.NFT()]
	e.Missing = !there && slices.ContainsFunc(want.Chains, func(w nft.Chain) bool { return w.Name == c.NFT() })
	if now.Altered {
		e.Writer = ByOthers
	}
	for _, r := range now.Rules {
		i := slices.IndexFunc(c.Rules, func(w rules.Rule) bool { return r.Ours && w.NFT(e.V6) == r.Text })
		switch {
		case i >= 0:
			e.Rules = append(e.Rules, RuleEntry{Text: r.Text, Does: c.Rules[i].Does})
		case !r.Ours:
			e.Writer = ByOthers
			e.Rules = append(e.Rules, RuleEntry{Text: r.Text})
		}
	}
}

// asThere fills in what a chain of iptables has. A line that is not ours makes it somebody
// else's.
func (e *ChainEntry) asThere(c rules.Chain, have iptables.Tables) {
	now, there := have.Chain(c.Table, c.Name)
	e.Missing = !there
	for i, text := range now.Rules {
		r := RuleEntry{Text: text}
		if i < len(c.Rules) && c.Rules[i].IPTables() == text {
			r.Does = c.Rules[i].Does
		} else {
			e.Writer = ByOthers
		}
		e.Rules = append(e.Rules, r)
	}
}

// others are chains with our names that we do not want: where we do not keep iptables' rules
// they are those of a Kube-OVN.
func (inv *Inventory) others(p plan, want rules.Family) {
	for table, chains := range p.have.Chains {
		for _, c := range chains {
			wanted := slices.ContainsFunc(want.Chains, func(w rules.Chain) bool { return w.Table == table && w.Name == c.Name })
			if !ours(c.Name) || p.uses && wanted {
				continue
			}
			e := ChainEntry{V6: p.v6, Table: table, Name: c.Name, Writer: ByKubeOVN}
			for _, text := range c.Rules {
				e.Rules = append(e.Rules, RuleEntry{Text: text})
			}
			inv.Chains = append(inv.Chains, e)
		}
	}
}

// program is the one that changes the rules.
func (p plan) program() string {
	name := "iptables"
	if p.v6 {
		name = "ip6tables"
	}
	if p.backend != iptables.Default {
		name += "-" + string(p.backend)
	}
	return name
}

// above are the rules of others that stand before those which lead to our chains, and
// may decide about pods' packets.
func (p plan) above(want rules.Family, in rules.Input) (out []Foreign) {
	for _, c := range want.Chains {
		parent, _ := p.have.Chain(c.Table, c.Parent)
		for _, r := range parent.Rules {
			if target(r) == c.Name {
				break
			}
			if !ours(target(r)) && !strings.HasPrefix(target(r), proxyChains) && decides(p.have, at{c.Table, c.Parent}, r, in, deepest) {
				command := func(verb string) string {
					return p.program() + " -t " + c.Table + " " + verb + " " + c.Parent + " " + r
				}
				out = append(out, Foreign{V6: p.v6, Backend: p.backend, Table: c.Table, Chain: c.Parent, Text: r, Hides: c.Name, Remove: command("-D"), AppendAgain: command("-A")})
			}
		}
	}
	return out
}

// deepest is how far jumps are followed.
const deepest = 8

// verdicts are the targets that end a packet's way through a table, so far as that keeps
// pods' packets from what ours do there.
var verdicts = map[string][]string{
	rules.NAT:    {"ACCEPT", "RETURN", "MASQUERADE", "SNAT", "DNAT", "REDIRECT", "NETMAP"},
	rules.Mangle: {"DROP", "ACCEPT", "RETURN"},
	rules.Filter: {"DROP", "REJECT"}, // whoever accepts here does what ours would
}

// at is a built-in chain.
type at struct{ table, chain string }

// decides tells that a rule, or one of those that it jumps to, may decide about packets of
// pods.
func decides(have iptables.Tables, where at, rule string, in rules.Input, depth int) bool {
	if !concerns(rule, where, in) {
		return false
	}
	to := target(rule)
	if slices.Contains(verdicts[where.table], to) {
		return true
	}
	next, ok := have.Chain(where.table, to)
	if !ok || depth == 0 {
		return false
	}
	return slices.ContainsFunc(next.Rules, func(r string) bool {
		return target(r) != "RETURN" && decides(have, where, r, in, depth-1) // which comes back
	})
}

// concerns tells that a rule may match what pods send or get: not one of other devices
// than those that it comes and leaves by, of other sources, or of what belongs to no
// connection.
func concerns(rule string, where at, in rules.Input) bool {
	words := strings.Fields(rule)
	devices := map[string]string{}
	for i, w := range words[:max(0, len(words)-1)] {
		if negated := i > 0 && words[i-1] == "!"; negated {
			continue
		}
		if w == "-i" || w == "-o" {
			devices[w] = words[i+1]
		}
		if elsewhere(w, words[i+1], where.table, in) {
			return false
		}
	}
	return !others(devices, where.chain, in)
}

// others tells that a rule of these devices is not about pods' way out. They come by the device
// that leads to them, and leave by one that leads to the world; answers the other way
// round. Without OVN each Subnet has a device.
func others(devices map[string]string, chain string, in rules.Input) bool {
	from, has := devices["-i"]
	to, leaves := devices["-o"]
	pods := []string{in.Join}
	way := func(a, b []string) bool { return (!has || means(from, a)) && (!leaves || means(to, b)) }
	switch {
	case from == "lo" || to == "lo":
		return true
	case in.Join == "" || chain == "POSTROUTING":
		return false
	case chain == "FORWARD":
		return !way(pods, slices.Concat(in.World, pods)) && !way(in.World, pods)
	}
	return !way(pods, pods)
}

// means tells that a rule's device is one of these; a + at its end is whatever follows.
func means(device string, of []string) bool {
	start, open := strings.CutSuffix(device, "+")
	return slices.ContainsFunc(of, func(d string) bool { return d == device || open && strings.HasPrefix(d, start) })
}

// elsewhere tells that a condition of a rule is not met by packets of pods.
func elsewhere(option, value, table string, in rules.Input) bool {
	switch option {
	case "--ctstate":
		return value == "INVALID"
	case "-s":
		from, err := netip.ParsePrefix(value)
		return err == nil && table == rules.NAT && !slices.ContainsFunc(in.Subnets, func(s rules.Subnet) bool { return slices.ContainsFunc(s.CIDRs, from.Overlaps) })
	}
	return false
}
