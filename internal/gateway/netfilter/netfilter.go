// Package netfilter gives a node's packet filter the rules that package rules
// computes: as chains of iptables with sets of ipset, or as a table of nftables. It
// compares before it writes, changes what is ours alone, and removes what it made when
// the other way is taken. It must not know Subnets, pods or bridges.
package netfilter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/ipset"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Mode says by what rules are kept.
type Mode string

// Values of Mode. Auto is iptables where OVN serves, if it is installed, else nftables: on
// a node without OVN chains and sets with our names are those of a Kube-OVN that serves
// beside us, and its own.
const (
	Auto     Mode = "auto"
	IPTables Mode = "iptables"
	NFTables Mode = "nft"
)

// Modes are all of them.
var Modes = []Mode{Auto, IPTables, NFTables}

// OwnTable is the agent's table of nftables, family inet.
const OwnTable = "fairlead"

// Config says where rules are kept.
type Config struct {
	Host  *netns.Handle // the node's namespace; nil = current
	Mode  Mode          // "" is Auto
	Table string        // of nftables, family inet
}

// Filter keeps them. Of what it wrote it remembers the node's own pods, which come
// and go between two changes, and what it read of nftables until that is changed. It is safe for concurrent use.
type Filter struct {
	cfg   Config
	sets  *ipset.Table
	table *nft.Table
	mu    sync.Mutex // one change at a time
	pods  []netip.Addr
	kept  []ipset.Set                            // of these, as the last change made them; none of nftables
	read  map[bool]*nft.Reading[iptables.Tables] // of iptables-nft, of IPv6 or not
	wrote Written
}

// Written is what changes gave to the kernel until now.
type Written struct {
	Bytes   int64 // of text, to nft and iptables-restore
	Members int   // of sets of ipset, over netlink: added and removed
}

// Written tells it.
func (f *Filter) Written() Written {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.wrote
	out.Bytes += f.table.Written()
	return out
}

// New makes a Filter; nothing is touched before Apply.
func New(cfg Config) *Filter {
	return &Filter{
		cfg: cfg, sets: ipset.New(cfg.Host), table: nft.New(cfg.Host, cfg.Table),
		read: map[bool]*nft.Reading[iptables.Tables]{false: {}, true: {}},
	}
}

// Difference is one way in which the node's rules are not as they should be. Of is
// the network that it is about, or none.
type Difference = nft.Difference

// Apply makes the rules those that follow from in; where they are, nothing is
// written. It goes on past failures and returns them all: that one family's rules cannot
// be kept costs the other none.
func (f *Filter) Apply(ctx context.Context, in rules.Input) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.look(ctx, in)
	if v == nil {
		return err
	}
	err = errors.Join(err, v.apply(ctx, err))
	f.kept = slices.DeleteFunc(v.wanted(), func(s ipset.Set) bool { return !s.Hosts })
	return err
}

// apply has the node's renderer first, and removes what the other one has once that did:
// no packet passes between the two, and where the new one fails the old one's rules go on.
// read is why a part of what is there is not known, nil for none.
func (v *view) apply(ctx context.Context, read error) error {
	if len(v.table.Chains) > 0 {
		if err := v.f.table.Apply(ctx, v.table); err != nil {
			return err
		}
		return v.write(ctx)
	}
	err := v.write(ctx)
	if len(v.want.Families) > 0 && (err != nil || read != nil) {
		return err
	}
	return errors.Join(err, v.f.table.Apply(ctx, v.table))
}

// Pods says which addresses the node's own pods of Subnets with NAT have, whatever an
// Input says of that. Where iptables keep the rules the sets of them follow at once, by
// netlink alone.
func (f *Filter) Pods(addrs []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = addrs
	var errs []error
	for i, was := range f.kept {
		now := &f.kept[i]
		now.Members = nil
		for _, a := range addrs {
			if a.Is6() == now.V6 {
				now.Members = append(now.Members, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		_, gone := now.Lacks(ipset.State{Set: was})
		errs = append(errs, f.sets.Add(*now), f.sets.Remove(*now, gone))
	}
	return errors.Join(errs...)
}

// Differences tells how the rules are not those that follow from in. It waits for a
// change under way.
func (f *Filter) Differences(ctx context.Context, in rules.Input) ([]Difference, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.look(ctx, in)
	if v == nil {
		return nil, err
	}
	found, errTable := v.differences(ctx)
	return found, errors.Join(err, errTable)
}

// differences are those of nftables, and then those of iptables.
func (v *view) differences(ctx context.Context) ([]Difference, error) {
	found, err := v.f.table.Differences(ctx, v.table)
	return append(v.f.named(found), v.found...), err
}

// named says of differences which table has them.
func (f *Filter) named(found []Difference) []Difference {
	for i := range found {
		found[i].Text = "nft table " + f.cfg.Table + ": " + found[i].Text
	}
	return found
}

// Check proves that the rules follow from in; the error joins a core.Difference for
// each way in which they do not.
func (f *Filter) Check(ctx context.Context, in rules.Input) error {
	found, err := f.Differences(ctx, in)
	return errors.Join(err, Errors(found))
}

// Errors joins a core.Difference for each; nil for none.
func Errors(found []Difference) error {
	var errs []error
	for _, d := range found {
		errs = append(errs, core.Difference(d.Text))
	}
	return errors.Join(errs...)
}

// view is what is there, and what is to become of it.
type view struct {
	f     *Filter
	all   rules.Ruleset // what is wanted, whatever keeps it
	table nft.Ruleset   // of it what nftables keeps
	want  rules.Ruleset // of it what iptables keeps
	sets  map[string]ipset.State
	plans []plan // of iptables
	found []Difference
}

// look reads what is there and plans what to do; with an error as far as that could be
// learnt, nil if nothing could. Where rules are kept by nftables, and
// no set tells of rules of ours in iptables, no program is asked for these.
func (f *Filter) look(ctx context.Context, in rules.Input) (*view, error) {
	sets, err := f.sets.Read()
	if err != nil {
		return nil, err
	}
	v := &view{f: f, sets: sets}
	in.Pods = f.pods
	for name := range sets {
		in.Proxy = append(in.Proxy, name)
	}
	want := rules.Compute(in)
	v.all = want
	left := slices.ContainsFunc(in.Proxy, rules.Made)
	byTables, err := f.byTables(in)
	if err != nil {
		return nil, err
	}
	if !byTables {
		v.table = want.NFT()
	} else {
		v.want = want
	}
	if left || byTables && len(want.Families) > 0 {
		err = v.plan(ctx)
	}
	if !errors.Is(err, iptables.ErrNotInstalled) {
		return v, err
	}
	if byTables {
		return nil, err
	}
	return v, nil // sets alone were left
}

// byTables tells that rules are to be kept by iptables.
func (f *Filter) byTables(in rules.Input) (bool, error) {
	switch f.cfg.Mode {
	case NFTables:
		return false, nil
	case IPTables:
		return true, nil
	}
	if in.Join == "" {
		return false, nil
	}
	_, err := iptables.Installed()
	if errors.Is(err, iptables.ErrNotInstalled) {
		return false, nil
	}
	return err == nil, err
}

// plan compares sets and rules of both families, as far as they can be read.
func (v *view) plan(ctx context.Context) error {
	v.compareSets()
	backends, err := iptables.Installed()
	if err != nil {
		return err
	}
	var errs []error
	for _, v6 := range []bool{false, true} {
		fam := rules.Family{V6: v6}
		for _, f := range v.want.Families {
			if f.V6 == v6 {
				fam = f
			}
		}
		if len(fam.Chains) == 0 && !v.speaks(v6) {
			continue
		}
		plans, err := v.f.planFamily(ctx, fam, backends)
		errs = append(errs, err)
		for _, p := range plans {
			v.found = append(v.found, p.found...)
		}
		v.plans = append(v.plans, plans...)
	}
	return errors.Join(errs...)
}

// speaks tells that the node has sets of ours of a family, and so may have rules.
func (v *view) speaks(v6 bool) bool {
	for name, s := range v.sets {
		if s.V6 == v6 && rules.OwnSet(name) {
			return true
		}
	}
	return false
}

// setOf is a set as the kernel is to have it.
func setOf(s rules.Set, v6 bool) ipset.Set {
	return ipset.Set{Name: s.Name, V6: v6, Counters: s.Counters, Hosts: s.Hosts, Members: s.Members}
}

// wanted are all sets of both families.
func (v *view) wanted() (out []ipset.Set) {
	for _, f := range v.want.Families {
		for _, s := range f.Sets {
			out = append(out, setOf(s, f.V6))
		}
	}
	return out
}

// stale are sets of ours that nobody wants.
func (v *view) stale() (out []string) {
	want := v.wanted()
	for name := range v.sets {
		if rules.OwnSet(name) && !slices.ContainsFunc(want, func(s ipset.Set) bool { return s.Name == name }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (v *view) compareSets() {
	note := func(of netip.Prefix, format string, args ...any) {
		v.found = append(v.found, Difference{Text: fmt.Sprintf(format, args...), Of: of})
	}
	for _, s := range v.wanted() {
		have, there := v.sets[s.Name]
		if !there || !s.Fits(have) {
			note(netip.Prefix{}, "set %s is missing, or of another form", s.Name)
			have = ipset.State{}
		}
		missing, extra := s.Lacks(have)
		for _, p := range missing {
			note(p, "set %s lacks %s", s.Name, p)
		}
		for _, p := range extra {
			note(p, "set %s holds %s too much", s.Name, p)
		}
	}
	for _, name := range v.stale() {
		if !v.sets[name].Used { // by rules of ours, which are noted, or by others'
			note(netip.Prefix{}, "set %s is there though no rule needs it", name)
		}
	}
}

// write makes what differs right: sets grow before rules speak of them, and shrink and
// go after.
func (v *view) write(ctx context.Context) error {
	failed, errs := v.grow()
	errs = append(errs, v.restore(ctx, failed))
	for _, s := range v.wanted() {
		if _, extra := s.Lacks(v.sets[s.Name]); len(extra) > 0 && s.Fits(v.sets[s.Name]) {
			v.f.wrote.Members += len(extra)
			errs = append(errs, v.f.sets.Remove(s, extra))
		}
	}
	for _, name := range v.stale() {
		if err := v.f.sets.Destroy(name); !errors.Is(err, ipset.ErrUsed) { // a rule that is not ours speaks of it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// restore carries out the plans. Of each family rules come in the backend that the node
// uses before they go from the other, and stay there where they could not come. Nothing is
// done for families that failed.
func (v *view) restore(ctx context.Context, failed map[bool]bool) error {
	var errs []error
	for _, comes := range []bool{true, false} {
		for _, p := range v.plans {
			if p.uses != comes || failed[p.v6] {
				continue
			}
			v.f.wrote.Bytes += int64(len(p.change.String()))
			err := iptables.Restore(ctx, v.f.cfg.Host, p.v6, p.backend, p.change)
			if err != nil && len(v.family(p.v6).Chains) > 0 {
				failed[p.v6] = true
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// grow adds what sets lack. A family of which one failed gets no rules, which would speak
// of what is not there.
func (v *view) grow() (failed map[bool]bool, errs []error) {
	failed = map[bool]bool{}
	for _, s := range v.wanted() {
		have, there := v.sets[s.Name]
		missing, _ := s.Lacks(have)
		fits := there && s.Fits(have)
		if fits && len(missing) == 0 {
			continue
		}
		add := func() error { return v.f.sets.Put(s, missing) } // the kernel is not asked again what it has
		if !fits {
			missing, add = s.Members, func() error { return v.f.sets.Add(s) }
		}
		v.f.wrote.Members += len(missing)
		if err := add(); err != nil {
			failed[s.V6] = true
			errs = append(errs, err)
		}
	}
	return failed, errs
}

// hasPrefix finds a chain whose name begins so.
func hasPrefix(t iptables.Tables, prefix string) bool {
	for _, chains := range t.Chains {
		if slices.ContainsFunc(chains, func(c iptables.Chain) bool { return strings.HasPrefix(c.Name, prefix) }) {
			return true
		}
	}
	return false
}
