// Package handover keeps what Kube-OVN has in a node's packet filter before Fairlead's agent
// takes that over, and puts it back as it was: chains and sets of its names, and the rules
// that lead to them. Rules of others it never touches. It must not know who asks, or
// where it is kept.
package handover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/ipset"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Kept is what there was.
type Kept struct {
	When   time.Time
	Sets   []ipset.Set
	Tables []Table
}

// Table is one table of one family in one backend.
type Table struct {
	V6      bool
	Backend iptables.Backend
	Name    string
	Chains  []iptables.Chain // of Kube-OVN's names
	Hooks   []Hook           // in their order
}

// Hook is a rule of another chain that leads to one of these, and its place there, from 0.
type Hook struct {
	Chain string
	At    int
	Rule  string
}

// ErrNothing is why there is nothing to keep; ErrOurs why it is too late.
var (
	ErrNothing = errors.New("the node's packet filter has no chains and sets of Kube-OVN")
	ErrOurs    = errors.New("the agent has taken over Kube-OVN's chains and sets already")
)

// Look reads what Kube-OVN has. ErrNothing, or ErrOurs, where that cannot be known any
// more.
func Look(ctx context.Context, host *netns.Handle) (Kept, error) {
	k := Kept{When: time.Now().UTC()}
	sets, err := ipset.New(host).Read()
	if err != nil {
		return k, err
	}
	for name, s := range sets {
		if rules.Made(name) {
			return k, ErrOurs
		}
		if rules.OwnSet(name) {
			k.Sets = append(k.Sets, s.Set)
		}
	}
	slices.SortFunc(k.Sets, func(a, b ipset.Set) int { return strings.Compare(a.Name, b.Name) })
	err = each(ctx, host, func(place) bool { return false }, func(p place, have iptables.Tables) error {
		for name, chains := range have.Chains {
			if t := tableOf(p, name, chains); len(t.Chains)+len(t.Hooks) > 0 {
				k.Tables = append(k.Tables, t)
			}
		}
		return nil
	})
	slices.SortFunc(k.Tables, func(a, b Table) int { return strings.Compare(a.text(), b.text()) })
	if err == nil && len(k.Sets)+len(k.Tables) == 0 {
		err = ErrNothing
	}
	return k, err
}

func (t Table) text() string { return fmt.Sprint(t.V6, t.Backend, t.Name) }

// place is where a family's rules are.
type place struct {
	v6      bool
	backend iptables.Backend
}

// each reads the rules of each family in each backend that the node uses, or that is wanted.
func each(ctx context.Context, host *netns.Handle, wanted func(place) bool, use func(place, iptables.Tables) error) error {
	backends, err := iptables.Installed()
	if err != nil {
		return err
	}
	for _, v6 := range []bool{false, true} {
		for _, b := range backends {
			if b == iptables.Legacy && !wanted(place{v6, b}) {
				if used, err := iptables.UsesLegacy(host, v6); err != nil || !used {
					if err != nil {
						return err
					}
					continue
				}
			}
			have, err := iptables.Read(ctx, host, v6, b)
			if err == nil {
				err = use(place{v6, b}, have)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func own(chain string) bool { return strings.HasPrefix(chain, rules.ChainPrefix) }

// leads tells that a rule leads to a chain of Kube-OVN's names.
func leads(rule string) bool { return strings.Contains(" "+rule, " -j "+rules.ChainPrefix) }

// tableOf is Kube-OVN's part of a table.
func tableOf(p place, name string, chains []iptables.Chain) Table {
	t := Table{V6: p.v6, Backend: p.backend, Name: name}
	for _, c := range chains {
		if own(c.Name) {
			t.Chains = append(t.Chains, c)
			continue
		}
		for i, r := range c.Rules {
			if leads(r) {
				t.Hooks = append(t.Hooks, Hook{c.Name, i, r})
			}
		}
	}
	return t
}

// Restore makes the packet filter's part of Kube-OVN what was kept, whatever stands there
// now; table is the agent's of nftables, which goes. Each table of iptables changes at once;
// sets grow before that, and shrink after. It may be repeated, and goes on past failures
// of sets.
func (k Kept) Restore(ctx context.Context, host *netns.Handle, table string) error {
	sets := ipset.New(host)
	for _, s := range k.Sets {
		if err := sets.Add(s); err != nil {
			return err // rules would speak of what is not there
		}
	}
	kept := func(p place) bool {
		return slices.ContainsFunc(k.Tables, func(t Table) bool { return t.V6 == p.v6 && t.Backend == p.backend })
	}
	err := each(ctx, host, kept, func(p place, have iptables.Tables) error {
		return iptables.Restore(ctx, host, p.v6, p.backend, k.change(p, have))
	})
	if err != nil {
		return err
	}
	if err := nft.New(host, table).Apply(ctx, nft.Ruleset{}); err != nil {
		return err
	}
	return k.shrink(sets)
}

// change is what iptables is told in one place.
func (k Kept) change(p place, have iptables.Tables) iptables.Change {
	out := iptables.Change{Chains: map[string][]iptables.Chain{}, Lines: map[string][]string{}, Gone: map[string][]string{}}
	names := slices.Collect(maps.Keys(have.Chains))
	for _, t := range k.Tables {
		if t.V6 == p.v6 && t.Backend == p.backend && !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
	}
	for _, name := range names {
		want := k.find(p, name)
		for _, c := range want.Chains {
			if now, there := have.Chain(name, c.Name); !there || !slices.Equal(now.Rules, c.Rules) {
				out.Chains[name] = append(out.Chains[name], c)
			}
		}
		if gone := want.stale(have.Chains[name]); len(gone) > 0 {
			out.Gone[name] = gone
		}
		if lines := want.hooks(have.Chains[name]); len(lines) > 0 {
			out.Lines[name] = lines
		}
	}
	return out
}

// stale are chains with Kube-OVN's names that it did not have.
func (t Table) stale(have []iptables.Chain) (out []string) {
	for _, c := range have {
		if own(c.Name) && !slices.ContainsFunc(t.Chains, func(w iptables.Chain) bool { return w.Name == c.Name }) {
			out = append(out, c.Name)
		}
	}
	return out
}

func (k Kept) find(p place, name string) Table {
	for _, t := range k.Tables {
		if t.V6 == p.v6 && t.Backend == p.backend && t.Name == name {
			return t
		}
	}
	return Table{}
}

// hooks are the commands by which rules lead to Kube-OVN's chains as they did, at their
// places among those of others.
func (t Table) hooks(have []iptables.Chain) (lines []string) {
	for _, h := range t.Hooks {
		if !slices.ContainsFunc(have, func(c iptables.Chain) bool { return c.Name == h.Chain }) { // of a table that is not there, as after a reboot
			have = append(slices.Clip(have), iptables.Chain{Name: h.Chain})
		}
	}
	for _, c := range have {
		if own(c.Name) {
			continue
		}
		foreign := slices.DeleteFunc(slices.Clone(c.Rules), leads)
		want := slices.Clone(foreign)
		var put []string
		for _, h := range t.Hooks {
			if h.Chain == c.Name {
				at := min(h.At, len(want))
				want = slices.Insert(want, at, h.Rule)
				put = append(put, fmt.Sprintf("-I %s %d %s", c.Name, at+1, h.Rule))
			}
		}
		if slices.Equal(want, c.Rules) {
			continue
		}
		for _, r := range c.Rules {
			if leads(r) {
				lines = append(lines, "-D "+c.Name+" "+r)
			}
		}
		lines = append(lines, put...)
	}
	return lines
}

// shrink takes out of sets what was not in them, and removes those that were not there,
// but for such as somebody else's rule speaks of.
func (k Kept) shrink(sets *ipset.Table) error {
	now, err := sets.Read()
	errs := []error{err}
	for name, have := range now {
		i := slices.IndexFunc(k.Sets, func(s ipset.Set) bool { return s.Name == name })
		switch {
		case i >= 0:
			_, extra := k.Sets[i].Lacks(have)
			errs = append(errs, sets.Remove(k.Sets[i], extra))
		case rules.OwnSet(name):
			if err := sets.Destroy(name); !errors.Is(err, ipset.ErrUsed) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
