// Package nft keeps nftables tables: one that masquerades what leaves a set of
// source networks, and one that drops what the IP stack receives by a group of
// links; and it tells when somebody removes a part of such a table. The first is
// a value (Ruleset), replaced as a whole in one transaction and only when it
// differs. It needs the nft program (written by sigs.k8s.io/knftables, read with
// List), so it is for changes of configuration and for audits, never for single
// pods. The package knows prefixes and groups and no subnets or pods.
package nft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"go4.org/netipx"
	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

const (
	chain = "postrouting"
	// A rule's comment carries this version: a change of the rules below must
	// raise it, so that a table of an earlier program is seen as different.
	version = "v2"
)

// Ruleset is what a Table should do. Both families may be mixed; prefixes may
// overlap.
type Ruleset struct {
	Masquerade []netip.Prefix // packets from here are masqueraded ...
	Internal   []netip.Prefix // ... unless they go here
	// Direct are packets that another program has led elsewhere (to an endpoint of a
	// Service): they are masqueraded too, since answers would come past this machine,
	// which is to lead them back.
	Direct []Way
}

// Way is what leaves by a link from a network that lies behind the same link.
type Way struct {
	Link string
	From netip.Prefix
}

// Table is one nftables table of one namespace. It is safe for concurrent use.
type Table struct {
	ns   *netns.Handle
	name string

	mu     sync.Mutex
	client knftables.Interface
}

// New names a table of family inet in ns (nil: the current namespace). Nothing
// is touched before Apply. The whole table is taken to be ours.
func New(ns *netns.Handle, name string) *Table { return &Table{ns: ns, name: name} }

// half is the part of a table for one address family.
type half struct {
	family string // as nft calls the protocol
	kind   string // nft's type of address
	is4    bool
}

var halves = []half{{"ip", "ipv4_addr", true}, {"ip6", "ipv6_addr", false}}

// One set per family for the sources and one for the destinations: a set is
// looked up in one step however many networks it holds, and, unlike a rule, it
// can be read back.
func (h half) masquerade() string { return "masquerade-" + h.family }
func (h half) internal() string   { return "internal-" + h.family }
func (h half) direct() string     { return "direct-" + h.family }

// rule is a rule by its comment.
type rule struct{ comment, text string }

// rules hide a source behind the address that the packet leaves by. Ports are
// drawn fully at random: two clients that want the same port would otherwise
// race for it and one lose its packet.
func (h half) rules() []rule {
	const hide = "masquerade random,fully-random"
	return []rule{
		{version + " " + h.direct(), knftables.Concat("oifname", ".", h.family, "saddr", "@", h.direct(), "ct status dnat", hide)},
		{version + " " + h.family, knftables.Concat(h.family, "saddr", "@", h.masquerade(), h.family, "daddr", "!=", "@", h.internal(), hide)},
	}
}

// state is a table in comparable form: what its sets hold, and the comments of
// its rules. knftables does not read rules back, hence the version in them.
type state struct {
	exists bool
	chains []string
	names  []string                 // of sets, sorted
	sets   map[string]*netipx.IPSet // of one with links "SET of LINK"
	rules  []string
}

// Apply makes the table equal to want; when it is so already, nothing is
// written. With nothing to masquerade the table is removed. On error the old
// table stays as it was.
func (t *Table) Apply(ctx context.Context, want Ruleset) error {
	desired, err := desire(want)
	if err != nil {
		return fmt.Errorf("nft table %s: %w", t.name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	have, err := t.read(ctx)
	if err == nil && len(differences(desired, have)) > 0 {
		err = t.write(ctx, desired)
	}
	if err != nil {
		return fmt.Errorf("apply nft table %s: %w", t.name, err)
	}
	return nil
}

// Read gives what the table does now; a Ruleset without prefixes when there is
// no table. Prefixes are sorted, and merged where they overlap. A table that
// does anything else than a Ruleset can say is core.ErrDrift.
func (t *Table) Read(ctx context.Context) (Ruleset, error) {
	have, err := t.read(ctx)
	if err != nil || !have.exists {
		return Ruleset{}, err
	}
	if err := t.drift(formDifferences(form(), have)); err != nil {
		return Ruleset{}, err
	}
	var r Ruleset
	for _, h := range halves {
		r.Masquerade = append(r.Masquerade, have.sets[h.masquerade()].Prefixes()...)
		r.Internal = append(r.Internal, have.sets[h.internal()].Prefixes()...)
		for _, name := range slices.Sorted(maps.Keys(have.sets)) {
			if link, ok := strings.CutPrefix(name, h.direct()+of); ok {
				for _, p := range have.sets[name].Prefixes() {
					r.Direct = append(r.Direct, Way{link, p})
				}
			}
		}
	}
	return r, nil
}

// of stands between the name of a set and a link.
const of = " of "

// Check compares the table with want; the error wraps core.ErrDrift and names
// every difference.
func (t *Table) Check(ctx context.Context, want Ruleset) error {
	desired, err := desire(want)
	if err != nil {
		return fmt.Errorf("nft table %s: %w", t.name, err)
	}
	have, err := t.read(ctx)
	if err != nil {
		return err
	}
	return t.drift(differences(desired, have))
}

// drift makes errors of differences.
func (t *Table) drift(differences []string) error {
	var errs []error
	for _, d := range differences {
		errs = append(errs, fmt.Errorf("nft table %s: %s: %w", t.name, d, core.ErrDrift))
	}
	return errors.Join(errs...)
}

// write replaces the table. The caller has the turn.
func (t *Table) write(ctx context.Context, want state) error {
	// Do's thread starts nft itself, so the child is born in the namespace.
	return t.ns.Do(func() (err error) {
		if t.client == nil {
			// New runs nft to learn its version; once is enough.
			if t.client, err = knftables.New(knftables.InetFamily, t.name); err != nil {
				t.client = nil
				return err
			}
		}
		return t.client.Run(ctx, transaction(t.client, want))
	})
}

// form is a table with empty sets: what is the same for all Rulesets.
func form() state {
	s := state{exists: true, chains: []string{chain}, sets: map[string]*netipx.IPSet{}}
	for _, h := range halves {
		for _, r := range h.rules() {
			s.rules = append(s.rules, r.comment)
		}
		s.names = append(s.names, h.masquerade(), h.internal(), h.direct())
	}
	slices.Sort(s.names)
	return s
}

// desire turns a Ruleset into the table that does it.
func desire(want Ruleset) (state, error) {
	if len(want.Masquerade)+len(want.Direct) == 0 {
		return state{}, nil
	}
	s := form()
	for _, h := range halves {
		all := map[string][]netip.Prefix{h.masquerade(): want.Masquerade, h.internal(): want.Internal}
		for _, w := range want.Direct {
			if w.From.Addr().Is4() == h.is4 {
				all[h.direct()+of+w.Link] = append(all[h.direct()+of+w.Link], w.From)
			}
		}
		for name, list := range all {
			var err error
			if s.sets[name], err = ipset(list, h.is4); err != nil {
				return state{}, err
			}
		}
	}
	return s, nil
}

// ipset merges prefixes: nft refuses a set with overlapping ones.
func ipset(list []netip.Prefix, is4 bool) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, p := range list {
		if p.Addr().Is4() == is4 {
			b.AddPrefix(p)
		}
	}
	return b.IPSet()
}

// read gets the table as it is.
func (t *Table) read(ctx context.Context) (state, error) {
	l, err := List(ctx, t.ns, t.name)
	if err != nil {
		return state{}, err
	}
	s := state{exists: l.Exists, chains: l.Chains, names: slices.Sorted(maps.Keys(l.Sets)), sets: map[string]*netipx.IPSet{}}
	for name, elements := range l.Sets {
		parts := map[string][]string{name: nil}
		for _, e := range elements {
			part, addr := name, e.Key
			if link, rest, ok := strings.Cut(e.Key, " . "); ok {
				part, addr = name+of+link, rest
			}
			parts[part] = append(parts[part], addr)
		}
		for part, addrs := range parts {
			if s.sets[part], err = parse(addrs); err != nil {
				return state{}, fmt.Errorf("read nft table %s: set %s: %w", t.name, part, err)
			}
		}
	}
	for _, r := range l.Rules {
		text := "a foreign rule"
		if r.Comment != "" && r.Chain == chain {
			text = r.Comment
		}
		s.rules = append(s.rules, text)
	}
	return s, nil
}

// parse reads an address, a prefix or a range each.
func parse(texts []string) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, text := range texts {
		if r, err := netipx.ParseIPRange(text); err == nil {
			b.AddRange(r)
			continue
		}
		if p, err := netip.ParsePrefix(text); err == nil {
			b.AddPrefix(p)
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		b.Add(a)
	}
	return b.IPSet()
}

// differences says in words how have is not want.
func differences(want, have state) []string {
	switch {
	case !want.exists && !have.exists:
		return nil
	case !want.exists:
		return []string{"is there though nothing is masqueraded"}
	case !have.exists:
		return []string{"is missing"}
	}
	out := formDifferences(want, have)
	all := maps.Clone(want.sets)
	maps.Copy(all, have.sets)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if set, _, _ := strings.Cut(name, of); slices.Contains(want.names, set) && slices.Contains(have.names, set) {
			out = append(out, setDifferences(name, want.sets[name], have.sets[name])...)
		}
	}
	return out
}

// formDifferences compares all but what the sets hold.
func formDifferences(want, have state) (out []string) {
	for _, c := range []struct {
		what       string
		want, have []string
	}{
		{"chains", want.chains, have.chains},
		{"rules", want.rules, have.rules},
		{"sets", want.names, have.names},
	} {
		if !slices.Equal(c.want, c.have) {
			out = append(out, fmt.Sprintf("%s are %q, want %q", c.what, c.have, c.want))
		}
	}
	return out
}

// setDifferences names networks, not elements: nft may show two that touch as
// one range.
func setDifferences(name string, want, have *netipx.IPSet) (out []string) {
	for _, p := range minus(want, have) {
		out = append(out, fmt.Sprintf("set %s lacks %s", name, p))
	}
	for _, p := range minus(have, want) {
		out = append(out, fmt.Sprintf("set %s holds %s too much", name, p))
	}
	return out
}

// minus is what a holds and b does not; nil is none.
func minus(a, b *netipx.IPSet) []netip.Prefix {
	var d netipx.IPSetBuilder
	if a != nil {
		d.AddSet(a)
	}
	if b != nil {
		d.RemoveSet(b)
	}
	s, err := d.IPSet()
	if err != nil { // the operands are sets already: nothing is left to be malformed
		return nil
	}
	return s.Prefixes()
}

// transaction replaces the table as a whole: whatever was done to the old one
// is gone, and no packet sees a state between.
func transaction(c knftables.Interface, want state) *knftables.Transaction {
	tx := c.NewTransaction()
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
	if !want.exists {
		return tx
	}
	tx.Add(&knftables.Table{})
	// At srcnat, 100, as everybody's masquerade: other tables' rules at the same
	// hook still run, and whoever translates first has the connection.
	tx.Add(&knftables.Chain{
		Name:     chain,
		Type:     knftables.PtrTo(knftables.NATType),
		Hook:     knftables.PtrTo(knftables.PostroutingHook),
		Priority: knftables.PtrTo(knftables.SNATPriority),
	})
	for _, h := range halves {
		for _, set := range []knftables.Set{{Name: h.masquerade(), Type: h.kind}, {Name: h.internal(), Type: h.kind}, {Name: h.direct(), Type: "ifname . " + h.kind}} {
			set.Flags = []knftables.SetFlag{knftables.IntervalFlag}
			tx.Add(&set)
		}
		for _, r := range h.rules() {
			tx.Add(&knftables.Rule{Chain: chain, Rule: r.text, Comment: knftables.PtrTo(r.comment)})
		}
	}
	for _, part := range slices.Sorted(maps.Keys(want.sets)) {
		name, link, linked := strings.Cut(part, of)
		for _, p := range want.sets[part].Prefixes() {
			key := []string{p.String()}
			if linked {
				key = []string{link, p.String()}
			}
			tx.Add(&knftables.Element{Set: name, Key: key})
		}
	}
	return tx
}
