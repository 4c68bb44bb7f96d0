package netfilter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Names of kube-proxy's that ours have to do with.
const (
	proxyChains   = "KUBE-"
	proxyServices = "KUBE-SERVICES"
)

// plan is what is to become of one family's rules in one backend.
type plan struct {
	v6      bool
	backend iptables.Backend
	uses    bool            // the node's rules are kept there
	have    iptables.Tables // what is there
	change  iptables.Change
	found   []Difference
}

// planFamily compares a family's chains: they stand in the backend that the node uses,
// and no others of ours in the other.
func (f *Filter) planFamily(ctx context.Context, want rules.Family, backends []iptables.Backend) ([]plan, error) {
	have := map[iptables.Backend]iptables.Tables{}
	for _, b := range backends {
		if b == iptables.Legacy {
			used, err := iptables.UsesLegacy(f.cfg.Host, want.V6)
			if err != nil {
				return nil, err
			}
			if !used {
				have[b] = iptables.Tables{}
				continue
			}
		}
		tables, err := f.tables(ctx, want.V6, b)
		if err != nil {
			return nil, err
		}
		have[b] = tables
	}
	uses := used(have)
	var out []plan
	for _, b := range backends {
		p := plan{v6: want.V6, backend: b, uses: b == uses, have: have[b]}
		var chains []rules.Chain
		if p.uses {
			chains = want.Chains
		}
		p.compare(chains, have[b])
		out = append(out, p)
	}
	return out, nil
}

// tables are a family's rules in one backend. Of those in nf_tables the kernel tells whether
// they were changed, and the program is asked only then.
func (f *Filter) tables(ctx context.Context, v6 bool, b iptables.Backend) (iptables.Tables, error) {
	read := func() (iptables.Tables, error) { return iptables.Read(ctx, f.cfg.Host, v6, b) }
	if b != iptables.NFT {
		return read()
	}
	return f.read[v6].Get(f.cfg.Host, read)
}

// used is the backend that the node uses: where kube-proxy's chains are, else where
// others have more rules, else that of the machine's `iptables`.
func used(have map[iptables.Backend]iptables.Tables) iptables.Backend {
	usual := iptables.Usual()
	weight := func(b iptables.Backend) (proxy, foreign, own int) {
		t := have[b]
		if hasPrefix(t, proxyChains) {
			proxy = 1
		}
		for _, chains := range t.Chains {
			for _, c := range chains {
				foreign += len(slices.DeleteFunc(slices.Clone(c.Rules), func(r string) bool {
					return ours(c.Name) || ours(target(r))
				}))
			}
		}
		if b == usual {
			own = 1
		}
		return proxy, foreign, own
	}
	var all []iptables.Backend
	for b := range have {
		all = append(all, b)
	}
	return slices.MaxFunc(all, func(a, b iptables.Backend) int {
		p, f, u := weight(a)
		q, g, w := weight(b)
		return cmp.Or(cmp.Compare(p, q), cmp.Compare(f, g), cmp.Compare(u, w), strings.Compare(string(a), string(b)))
	})
}

func ours(chain string) bool { return strings.HasPrefix(chain, rules.ChainPrefix) }

// target is the chain that a rule leads to, "" for none.
func target(rule string) string {
	_, to, _ := strings.Cut(" "+rule, " -j ")
	to, _, _ = strings.Cut(to, " ")
	return to
}

// compare plans a backend's chains to be these and no others of ours.
func (p *plan) compare(want []rules.Chain, have iptables.Tables) {
	p.change = iptables.Change{Chains: map[string][]iptables.Chain{}, Lines: map[string][]string{}, Gone: map[string][]string{}}
	for _, c := range want {
		p.compareChain(c, have)
		if c.Parent != "" {
			p.compareHook(c, have)
		}
	}
	for table, chains := range have.Chains {
		for _, c := range chains {
			wanted := slices.ContainsFunc(want, func(w rules.Chain) bool { return w.Table == table && w.Name == c.Name })
			if ours(c.Name) && !wanted {
				p.drop(table, c.Name, chains)
			}
		}
	}
}

// note notes a difference of a chain.
func (p *plan) note(table, chain, format string, args ...any) {
	program := "iptables"
	if p.v6 {
		program = "ip6tables"
	}
	p.found = append(p.found, Difference{Text: fmt.Sprintf("%s -t %s chain %s: ", program, table, chain) + fmt.Sprintf(format, args...)})
}

func (p *plan) compareChain(c rules.Chain, have iptables.Tables) {
	made := iptables.Chain{Name: c.Name}
	for _, r := range c.Rules {
		made.Rules = append(made.Rules, r.IPTables())
	}
	now, there := have.Chain(c.Table, c.Name)
	if there && slices.Equal(now.Rules, made.Rules) {
		return
	}
	p.change.Chains[c.Table] = append(p.change.Chains[c.Table], made)
	switch i := firstOther(now.Rules, made.Rules); {
	case !there:
		p.note(c.Table, c.Name, "is missing")
	case i < len(now.Rules) && i < len(made.Rules):
		p.note(c.Table, c.Name, "rule %d is %q, want %q", i+1, now.Rules[i], made.Rules[i])
	case i < len(made.Rules):
		p.note(c.Table, c.Name, "lacks %q", made.Rules[i])
	default:
		p.note(c.Table, c.Name, "has %q too much", now.Rules[i])
	}
}

// firstOther is where two lists are no more the same.
func firstOther(a, b []string) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// compareHook plans the one rule that leads into a chain. Before kube-proxy's it must
// stand where that leads packets elsewhere.
func (p *plan) compareHook(c rules.Chain, have iptables.Tables) {
	parent, _ := have.Chain(c.Table, c.Parent)
	hook := c.Hook().IPTables()
	var leads []string
	at, proxy := -1, len(parent.Rules)
	for i, r := range parent.Rules {
		switch target(r) {
		case c.Name:
			leads = append(leads, r)
			at = i
		case proxyServices:
			proxy = min(proxy, i)
		}
	}
	late := c.Parent == "PREROUTING" && at > proxy
	if len(leads) == 1 && leads[0] == hook && !late {
		return
	}
	switch {
	case len(leads) == 0:
		p.note(c.Table, c.Parent, "does not lead to %s", c.Name)
	case late:
		p.note(c.Table, c.Parent, "leads to %s after %s", c.Name, proxyServices)
	default:
		p.note(c.Table, c.Parent, "leads to %s by %q", c.Name, leads)
	}
	for _, r := range leads {
		p.line(c.Table, "-D %s %s", c.Parent, r)
	}
	p.line(c.Table, "-I %s 1 %s", c.Parent, hook)
}

func (p *plan) line(table, format string, args ...any) {
	p.change.Lines[table] = append(p.change.Lines[table], fmt.Sprintf(format, args...))
}

// drop plans a chain of ours away, and what leads there from chains of others.
func (p *plan) drop(table, name string, chains []iptables.Chain) {
	p.note(table, name, "is there though nothing needs it")
	for _, c := range chains {
		for _, r := range c.Rules {
			if !ours(c.Name) && target(r) == name {
				p.line(table, "-D %s %s", c.Name, r)
			}
		}
	}
	p.change.Gone[table] = append(p.change.Gone[table], name)
}
