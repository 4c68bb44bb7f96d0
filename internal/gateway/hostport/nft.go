package hostport

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// A rule's comment carries this version: a change of the rules below must
// raise it, so that a table of an earlier program is seen as different.
const version = "v1"

const (
	chainTranslate = "translate"
	chainPre       = "prerouting"
	chainOut       = "output"
	chainPost      = "postrouting"
	chainGuard     = "guard"
)

// rule is one rule of the table, in order. What nft lists of a rule is not its text,
// hence the comment.
type rule struct{ chain, comment, text string }

func rules() (out []rule) {
	add := func(chain, what, text string) { out = append(out, rule{chain, version + " " + what, text}) }
	for _, h := range halves {
		// The address of a port that is bound need not be the node's yet.
		add(chainTranslate, "bound "+h.suffix, fmt.Sprintf("dnat %s to meta l4proto . %s daddr . th dport map @%s", h.suffix, h.suffix, h.bound()))
		add(chainTranslate, "any "+h.suffix, fmt.Sprintf("fib daddr type local dnat %s to meta l4proto . th dport map @%s", h.suffix, h.anywhere()))
	}
	add(chainPre, "in", "jump "+chainTranslate)
	// From ::1 the kernel leads nothing out: a refusal is better than a silence.
	add(chainOut, "loopback ip6", "ip6 daddr ::1 return")
	add(chainOut, "own", "jump "+chainTranslate)
	// A pod has no way back to the node's loopback, and answers a neighbour past
	// the node; of both it must see the node itself.
	add(chainPost, "loopback", fmt.Sprintf("%s ip saddr 127.0.0.0/8 masquerade fully-random", halves[0].ours()))
	for _, h := range halves {
		add(chainPost, "neighbour "+h.suffix, fmt.Sprintf("%s %s saddr . %s daddr @%s masquerade fully-random", h.ours(), h.suffix, h.suffix, h.networks()))
	}
	// What opens 127.0.0.0/8 towards pods (route_localnet) must not let anybody
	// in: here, before answers are translated back, no packet from outside has
	// such an address (CVE-2020-8558).
	add(chainGuard, "to loopback", `iifname != "lo" ip daddr 127.0.0.0/8 drop`)
	add(chainGuard, "from loopback", `iifname != "lo" ip saddr 127.0.0.0/8 drop`)
	return out
}

// ours matches, behind the translation, what comes to a port that we opened.
func (h half) ours() string {
	return fmt.Sprintf("ct status dnat meta l4proto . %s daddr . th dport @%s", h.suffix, h.targets())
}

// chains are the table's chains. They hook in where everybody's translation
// does: other tables' rules at the same hook still run, and whoever translates
// first has the connection.
func chains() []*knftables.Chain {
	base := func(name string, kind knftables.BaseChainType, hook knftables.BaseChainHook, prio knftables.BaseChainPriority) *knftables.Chain {
		return &knftables.Chain{Name: name, Type: &kind, Hook: &hook, Priority: &prio}
	}
	return []*knftables.Chain{
		{Name: chainTranslate},
		base(chainPre, knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority),
		base(chainOut, knftables.NATType, knftables.OutputHook, "-100"), // nft 1.0 knows the name for prerouting only
		base(chainPost, knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority),
		base(chainGuard, knftables.FilterType, knftables.PreroutingHook, knftables.RawPriority),
	}
}

// transaction does c. A table that is written anew replaces the old one as a
// whole: no packet sees a state between.
func transaction(client knftables.Interface, c change) *knftables.Transaction {
	tx := client.NewTransaction()
	if c.all {
		tx.Add(&knftables.Table{}) // so that there is one to delete
		tx.Delete(&knftables.Table{})
		if len(c.add) == 0 {
			return tx
		}
		frame(tx)
	} else {
		for _, el := range c.remove { // first: a port may go from one pod to another
			tx.Delete(nftElement(el, ""))
		}
	}
	for _, el := range slices.SortedFunc(maps.Keys(c.add), func(a, b element) int { return strings.Compare(a.set+a.key, b.set+b.key) }) {
		tx.Add(nftElement(el, c.add[el]))
	}
	return tx
}

// frame makes the table without elements.
func frame(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("ports of this node that lead to pods; see the elements' comments")})
	for _, h := range halves {
		to := " : " + h.kind + " . inet_service"
		tx.Add(&knftables.Map{Name: h.anywhere(), Type: "inet_proto . inet_service" + to})
		tx.Add(&knftables.Map{Name: h.bound(), Type: "inet_proto . " + h.kind + " . inet_service" + to})
		tx.Add(&knftables.Set{Name: h.targets(), Type: "inet_proto . " + h.kind + " . inet_service"})
		tx.Add(&knftables.Set{Name: h.networks(), Type: h.kind + " . " + h.kind, Flags: []knftables.SetFlag{knftables.IntervalFlag}})
	}
	for _, c := range chains() {
		tx.Add(c)
	}
	for _, r := range rules() {
		tx.Add(&knftables.Rule{Chain: r.chain, Rule: r.text, Comment: knftables.PtrTo(r.comment)})
	}
}

// nftElement is el as nft knows it; keys are written as they are.
func nftElement(el element, comment string) *knftables.Element {
	out := &knftables.Element{Key: []string{el.key}}
	if el.value == "" {
		out.Set = el.set
	} else {
		out.Map, out.Value = el.set, []string{el.value}
	}
	if comment != "" && el.value != "" {
		out.Comment = &comment
	}
	return out
}

// read gives the elements of the table, and what of the rest is not as frame
// makes it. No table is an empty one.
func (t *Table) read(ctx context.Context) (have map[element]bool, faults []string, err error) {
	l, err := nft.List(ctx, t.cfg.Host, t.cfg.Table)
	if err != nil {
		return nil, nil, err
	}
	if !l.Exists {
		return nil, []string{"is missing"}, nil
	}
	have = map[element]bool{}
	for _, of := range []map[string][]nft.Element{l.Maps, l.Sets} {
		for name, list := range of {
			for _, el := range list {
				have[element{name, el.Key, el.Value}] = true
			}
		}
	}
	faults, err = frameFaults(l)
	if does := l.Does(); len(faults) == 0 && !slices.Equal(does, t.does) {
		faults = append(faults, fmt.Sprintf("rules do %q, want %q", does, t.does))
	}
	return have, faults, err
}

// keep notes what the rules do that were written now. Where that cannot be learnt they
// count as changed.
func (t *Table) keep(ctx context.Context) {
	l, err := nft.List(ctx, t.cfg.Host, t.cfg.Table)
	if err != nil {
		t.cfg.Log.Warn("rules of host ports not read back: they are written anew by the next audit", "err", err)
	}
	t.does = l.Does()
}

// frameFaults compares chains, maps, sets and rules.
func frameFaults(l nft.Listing) (faults []string, err error) {
	var wantChains, haveChains, wantMaps, wantSets, wantRules, haveRules []string
	for _, c := range chains() {
		form, err := nft.FormOf(c)
		if err != nil {
			return nil, err
		}
		wantChains = append(wantChains, form.String())
	}
	for _, c := range l.Chains {
		haveChains = append(haveChains, c.String())
	}
	for _, h := range halves {
		wantMaps = append(wantMaps, h.anywhere(), h.bound())
		wantSets = append(wantSets, h.targets(), h.networks())
	}
	for _, r := range rules() {
		wantRules = append(wantRules, r.chain+" "+r.comment)
	}
	for _, r := range l.Rules {
		haveRules = append(haveRules, r.Chain+" "+cmp.Or(r.Comment, "a foreign rule"))
	}
	for _, c := range []struct {
		what       string
		want, have []string
	}{
		{"chains", wantChains, haveChains}, {"maps", wantMaps, slices.Collect(maps.Keys(l.Maps))},
		{"sets", wantSets, slices.Collect(maps.Keys(l.Sets))}, {"rules", wantRules, haveRules},
	} {
		slices.Sort(c.want)
		slices.Sort(c.have)
		if !slices.Equal(c.want, c.have) {
			faults = append(faults, fmt.Sprintf("%s are %q, want %q", c.what, c.have, c.want))
		}
	}
	return faults, nil
}

// differences says in words what of want is not there.
func (t *Table) differences(want []element, have map[element]bool, faults []string) (out []error) {
	for _, f := range faults {
		out = append(out, core.Difference("nft table "+t.cfg.Table+" "+f))
	}
	for _, el := range want {
		if have != nil && !have[el] {
			out = append(out, core.Difference("nft table "+t.cfg.Table+" lacks "+el.String()))
		}
	}
	return out
}
