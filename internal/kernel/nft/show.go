package nft

import (
	"context"
	"net/netip"
	"slices"
)

// Shown is what a table has of what it should have, and beside it.
type Shown struct {
	Found  []Difference
	Sets   map[string][]netip.Prefix // by name; of what should be there what is
	Chains map[string]ShownChain     // by name
}

// ShownChain is a chain that is there.
type ShownChain struct {
	Altered bool // the kernel calls it elsewhere, or by another policy
	Rules   []ShownRule
}

// ShownRule is a rule that is there: a text of ours, or what another one does in nft's own form.
type ShownRule struct {
	Text string
	Ours bool
}

// Show reads the table beside what it should be.
func (t *Table) Show(ctx context.Context, want Ruleset) (Shown, error) {
	desired, err := desire(want)
	if err != nil {
		return Shown{}, err
	}
	l, err := List(ctx, t.ns, t.name)
	if err != nil {
		return Shown{}, err
	}
	have := stateOf(l)
	out := Shown{Found: t.differences(desired, have), Sets: map[string][]netip.Prefix{}, Chains: map[string]ShownChain{}}
	for name, s := range have.sets {
		out.Sets[name] = s.Prefixes()
	}
	for _, f := range l.Chains {
		out.Chains[f.Name] = ShownChain{Altered: !slices.Contains(desired.chains, f.String())}
	}
	meant := t.meant(desired)
	for _, r := range l.Rules {
		c := out.Chains[r.Chain]
		c.Rules = append(c.Rules, shown(r, want, meant))
		out.Chains[r.Chain] = c
	}
	return out, nil
}

// shown is a rule as people see it. It is ours by its comment, and by what it does as far
// as that is known.
func shown(r Rule, want Ruleset, meant []string) ShownRule {
	for _, c := range want.Chains {
		if c.Name != r.Chain {
			continue
		}
		for _, e := range c.Rules {
			if e.known() == r.Comment && (meant == nil || slices.Contains(meant, r.String())) {
				return ShownRule{Text: e.Text, Ours: true}
			}
		}
	}
	return ShownRule{Text: string(r.Expr)}
}
