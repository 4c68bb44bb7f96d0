// Package nft keeps nftables tables: one that is a value (Ruleset), written in
// one transaction and only as far as it differs, and one that drops what the IP
// stack receives by a group of links; and it tells when somebody removes a part of
// such a table. The first needs the nft program (written by sigs.k8s.io/knftables,
// read with List), so it is for changes of configuration and for audits, never for
// single pods. The package knows networks, chains and rules, and not what they are
// for.
package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go4.org/netipx"
	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Ruleset is what a Table should be. One without chains is no table.
type Ruleset struct {
	Sets   []Set
	Chains []Chain // one stands behind those that it jumps to
}

// Set is a set of networks of one family; they may overlap. Rules look it up in one
// step however many it holds.
type Set struct {
	Name string
	V6   bool
	// Counters has each member count what it matches: the set is a map to counters, and a
	// rule says `counter name ip saddr map @NAME`. Its members must not overlap.
	Counters bool
	Members  []netip.Prefix
}

// counter is the name of a member's counter.
func (s Set) counter(p netip.Prefix) string {
	sum := sha256.Sum256([]byte(p.String()))
	return s.Name + "-" + hex.EncodeToString(sum[:6])
}

// kind is the type of its elements, as nft calls it.
func (s Set) kind() string {
	if s.V6 {
		return "ipv6_addr"
	}
	return "ipv4_addr"
}

// Chain is a chain of rules; one with a hook is called by the kernel.
type Chain struct {
	Name  string
	Hook  *Hook
	Rules []Entry
}

// made is the chain as it is written.
func (c Chain) made() *knftables.Chain {
	out := &knftables.Chain{Name: c.Name}
	if h := c.Hook; h != nil {
		out.Type, out.Hook, out.Priority = &h.Type, &h.At, &h.Priority
	}
	return out
}

// Hook is where the kernel calls a chain, and when among others there.
type Hook struct {
	Type     knftables.BaseChainType
	At       knftables.BaseChainHook
	Priority knftables.BaseChainPriority
}

// Entry is a rule as nft reads it. Its comment carries a hash of the text, by which another
// text is another rule: what nft lists of a rule is no such text.
type Entry struct{ Comment, Text string }

// known is the comment that the rule has in the table.
func (e Entry) known() string {
	sum := sha256.Sum256([]byte(e.Text))
	return strings.TrimSpace(e.Comment + " " + hex.EncodeToString(sum[:4]))
}

// Table is one nftables table of one namespace. It is safe for concurrent use.
type Table struct {
	ns   *netns.Handle
	name string

	mu     sync.Mutex
	client knftables.Interface
	wrote  *Ruleset             // what Apply made last; nil: nothing yet, or it failed
	made   atomic.Pointer[made] // nil: nothing yet
	bytes  atomic.Int64         // that nft was given

	reading sync.Mutex
	seen    Reading[state]
}

// made is what was listed right behind a write: the rules by their comments, and what each
// of them does.
type made struct{ rules, does []string }

// New names a table of family inet in ns (nil: the current namespace). Nothing
// is touched before Apply. The whole table is taken to be ours.
func New(ns *netns.Handle, name string) *Table { return &Table{ns: ns, name: name} }

// state is a table in comparable form: what its sets hold, the comments of its rules, and
// what these do, which is not known of a table that is wanted.
type state struct {
	exists bool
	flags  bool     // it has some, as "dormant": the kernel calls none of its chains then
	chains []string // with where the kernel calls them
	names  []string // of sets, sorted
	sets   map[string]*netipx.IPSet
	rules  []string          // sorted by chain
	does   []string          // in the same order
	there  map[string][]Rule // by chain
}

// Difference is one way in which a table is not as it should be. Of is the network
// that it is about, or none.
type Difference struct {
	Text string
	Of   netip.Prefix
}

// Apply makes the table equal to want; when it is so already, nothing is
// written, and of a table that nobody else touched only what is to be another. What another Table wrote is
// written once more: what its rules do is not known. On error the old table stays as it was. What
// want holds must not be altered later.
func (t *Table) Apply(ctx context.Context, want Ruleset) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	desired, have, err := t.look(ctx, want)
	if err == nil && (len(desired.rules) > 0 && t.meant(desired) == nil || len(t.differences(desired, have)) > 0) {
		err = t.change(ctx, want, desired, have)
	}
	if err != nil {
		return fmt.Errorf("apply nft table %s: %w", t.name, err)
	}
	return nil
}

// change writes the table: what differs where it is as Apply left it, else, or where that
// fails, all of it.
func (t *Table) change(ctx context.Context, want Ruleset, desired, have state) error {
	if e := (edit{want: want, there: have.there}); t.untouched(have) && desired.exists && e.fits(*t.wrote) {
		before, errBefore := Generation(t.ns)
		e.now = *t.wrote
		if news, err := t.edit(ctx, e); err == nil {
			t.wrote = &want
			there, ok := e.after(news)
			if !ok {
				return t.keep(ctx, desired)
			}
			desired.there, desired.does = there, does(there)
			t.made.Store(&made{desired.rules, desired.does})
			t.follow(before, errBefore, desired)
			return nil
		}
	}
	t.wrote = nil
	err := t.write(ctx, func(c knftables.Interface) error {
		tx := whole(c, want)
		t.bytes.Add(int64(len(tx.String())))
		return c.Run(ctx, tx)
	})
	if err == nil {
		t.wrote = &want
		err = t.keep(ctx, desired)
	}
	return err
}

// edit makes one transaction of an edit, and gives the rules that came by it.
func (t *Table) edit(ctx context.Context, e edit) (news []Rule, err error) {
	err = t.write(ctx, func(c knftables.Interface) (err error) {
		text := e.transaction(c).String()
		if _, why, bad := strings.Cut(text, "# ERROR: "); bad { // so knftables says that it is not all there
			return errors.New(why)
		}
		t.bytes.Add(int64(len(text)))
		news, err = echo(ctx, text)
		return err
	})
	return news, err
}

// untouched tells that the table is as Apply left it.
func (t *Table) untouched(have state) bool {
	if t.wrote == nil {
		return false
	}
	left, err := desire(*t.wrote)
	return err == nil && left.exists && t.meant(left) != nil && len(t.differences(left, have)) == 0
}

// follow knows what a write has made of the table that was read in the generation before,
// without another look, if nobody else wrote meanwhile.
func (t *Table) follow(before uint32, errBefore error, now state) {
	t.reading.Lock()
	defer t.reading.Unlock()
	known := t.seen.of == before
	t.seen = Reading[state]{}
	if after, err := Generation(t.ns); err == nil && errBefore == nil && known && after == before+1 {
		t.seen = Reading[state]{of: after, value: now}
	}
}

// Written is how many bytes nft was given to read, until now.
func (t *Table) Written() int64 { return t.bytes.Load() }

// keep notes what the rules do that were written now.
func (t *Table) keep(ctx context.Context, desired state) error {
	t.made.Store(nil)
	have, err := t.read(ctx)
	if err == nil && slices.Equal(desired.rules, have.rules) { // nobody was faster
		t.made.Store(&made{have.rules, have.does})
	}
	return err
}

// meant is what the rules of a table are to do; nil while nobody knows.
func (t *Table) meant(desired state) []string {
	if m := t.made.Load(); m != nil && slices.Equal(m.rules, desired.rules) {
		return m.does
	}
	return nil
}

// look reads what is wanted, and what is there.
func (t *Table) look(ctx context.Context, want Ruleset) (desired, have state, err error) {
	if desired, err = desire(want); err != nil {
		return desired, have, fmt.Errorf("nft table %s: %w", t.name, err)
	}
	have, err = t.read(ctx)
	return desired, have, err
}

// Differences tells how the table is not as want says. What the rules do is known of those
// that Apply wrote.
func (t *Table) Differences(ctx context.Context, want Ruleset) ([]Difference, error) {
	desired, have, err := t.look(ctx, want)
	if err != nil {
		return nil, err
	}
	return t.differences(desired, have), nil
}

// differences are those of two states, and then of rules that are called as they should be
// and do something else.
func (t *Table) differences(desired, have state) []Difference {
	out := differences(desired, have)
	if meant := t.meant(desired); meant != nil && slices.Equal(desired.rules, have.rules) {
		for i, does := range have.does {
			if does != meant[i] {
				out = append(out, Difference{Text: fmt.Sprintf("a rule is %q, want %q", does, meant[i])})
			}
		}
	}
	return out
}

// Check compares the table with want; the error wraps core.ErrDrift and names
// every difference.
func (t *Table) Check(ctx context.Context, want Ruleset) error {
	found, err := t.Differences(ctx, want)
	errs := []error{err}
	for _, d := range found {
		errs = append(errs, fmt.Errorf("nft table %s: %s: %w", t.name, d.Text, core.ErrDrift))
	}
	return errors.Join(errs...)
}

// write calls how with what makes transactions, in the namespace. The caller has the turn.
func (t *Table) write(ctx context.Context, how func(knftables.Interface) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Do's thread starts nft itself, so the child is born in the namespace.
	return t.ns.Do(func() (err error) {
		if t.client == nil {
			// New runs nft to learn its version; once is enough.
			if t.client, err = knftables.New(knftables.InetFamily, t.name); err != nil {
				t.client = nil
				return err
			}
		}
		return how(t.client)
	})
}

// desire turns a Ruleset into the table that does it.
func desire(want Ruleset) (state, error) {
	if len(want.Chains) == 0 {
		return state{}, nil
	}
	s := state{exists: true, sets: map[string]*netipx.IPSet{}}
	for _, one := range want.Sets {
		var err error
		if s.sets[one.Name], err = ipset(one); err != nil {
			return state{}, err
		}
		if one.Counters {
			one.Name += " of counters"
		}
		s.names = append(s.names, one.Name)
	}
	for _, c := range want.Chains {
		form, err := FormOf(c.made())
		if err != nil {
			return state{}, err
		}
		s.chains = append(s.chains, form.String())
		for _, r := range c.Rules {
			s.rules = append(s.rules, c.Name+": "+r.known())
		}
	}
	s.sort()
	return s, nil
}

// sort forgets the order of all but a chain's rules.
func (s *state) sort() {
	slices.Sort(s.names)
	slices.Sort(s.chains)
	slices.SortStableFunc(s.rules, func(a, b string) int {
		a, _, _ = strings.Cut(a, ": ")
		b, _, _ = strings.Cut(b, ": ")
		return strings.Compare(a, b)
	})
}

// ipset merges networks: nft refuses a set with overlapping ones.
func ipset(s Set) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, p := range s.Members {
		b.AddPrefix(p)
	}
	return b.IPSet()
}

// read gets the table as it is. nft is asked only where something was changed since it was.
// One with elements that no Ruleset has is none that is wanted.
func (t *Table) read(ctx context.Context) (state, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	return t.seen.Get(t.ns, func() (state, error) {
		l, err := List(ctx, t.ns, t.name)
		if errors.Is(err, errElement) {
			return state{exists: true, names: []string{err.Error()}}, nil
		}
		if err != nil {
			return state{}, err
		}
		return stateOf(l), nil
	})
}

// stateOf is a listing in comparable form.
func stateOf(l Listing) state {
	s := state{exists: l.Exists, flags: l.Flagged, there: l.byChain(), does: l.Does(), sets: map[string]*netipx.IPSet{}}
	s.names = slices.Sorted(maps.Keys(l.Sets))
	for name, elements := range l.Maps { // of counters; a map and a set have no common name
		l.Sets[name] = elements
		s.names = append(s.names, name+" of counters")
	}
	for name, elements := range l.Sets {
		var addrs []string
		for _, e := range elements {
			addrs = append(addrs, e.Key)
		}
		networks, err := parse(addrs)
		if err != nil { // a former version's, or somebody else's: none of a Ruleset
			s.names = append(s.names, fmt.Sprintf("%s of other elements: %v", name, err))
			continue
		}
		s.sets[name] = networks
	}
	for _, c := range l.Chains {
		s.chains = append(s.chains, c.String())
	}
	for _, r := range l.Rules {
		text := r.Comment
		if text == "" {
			text = "a foreign rule"
		}
		s.rules = append(s.rules, r.Chain+": "+text)
	}
	s.sort()
	return s
}

// does is what the rules of each chain do, in their order. The listing of what was just
// written says so of what was meant.
func does(there map[string][]Rule) (out []string) {
	for _, chain := range slices.Sorted(maps.Keys(there)) {
		for _, r := range there[chain] {
			out = append(out, r.String())
		}
	}
	return out
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
func differences(want, have state) (out []Difference) {
	add := func(of netip.Prefix, format string, args ...any) {
		out = append(out, Difference{fmt.Sprintf(format, args...), of})
	}
	switch {
	case !want.exists && !have.exists:
		return nil
	case !want.exists:
		add(netip.Prefix{}, "is there though nothing is to be done")
		return out
	case !have.exists:
		add(netip.Prefix{}, "is missing")
		return out
	}
	if have.flags {
		add(netip.Prefix{}, "has flags, want none: a dormant table's rules are not asked")
	}
	for _, c := range []struct {
		what       string
		want, have []string
	}{
		{"chains", want.chains, have.chains},
		{"rules", want.rules, have.rules},
		{"sets", want.names, have.names},
	} {
		if !slices.Equal(c.want, c.have) {
			add(netip.Prefix{}, "%s are %q, want %q", c.what, c.have, c.want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.sets)) {
		// Networks, not elements: nft may show two that touch as one range.
		for _, p := range minus(want.sets[name], have.sets[name]) {
			add(p, "set %s lacks %s", name, p)
		}
		for _, p := range minus(have.sets[name], want.sets[name]) {
			add(p, "set %s holds %s too much", name, p)
		}
	}
	return out
}

// minus is what a holds and b does not; nil is none.
func minus(a, b *netipx.IPSet) []netip.Prefix {
	var d netipx.IPSetBuilder
	if a != nil && b != nil && a.Equal(b) {
		return nil
	}
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

// Counts are what the members of sets with counters have matched, by set and network.
func (t *Table) Counts(ctx context.Context, of Ruleset) (map[string]map[netip.Prefix]Counts, error) {
	l, err := List(ctx, t.ns, t.name)
	if err != nil {
		return nil, err
	}
	out := map[string]map[netip.Prefix]Counts{}
	for _, s := range of.Sets {
		if !s.Counters {
			continue
		}
		out[s.Name] = map[netip.Prefix]Counts{}
		for _, p := range s.Members {
			out[s.Name][p] = l.Counts[s.counter(p)]
		}
	}
	return out, nil
}
