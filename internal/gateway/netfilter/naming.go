package netfilter

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Naming is a rule of others that is for packets which come or go by a link.
type Naming struct {
	Where string // "iptables-nft -t filter, chain INPUT"
	Text  string
}

// Names finds the rules of others, of iptables and nftables, that are for packets by a link
// and not for those by another one, which has the link's packets now. Rules that cannot be
// read are an error beside those that can.
func Names(ctx context.Context, host *netns.Handle, link, instead string) (out []Naming, err error) {
	backends, err := iptables.Installed()
	managed := err == nil
	if errors.Is(err, iptables.ErrNotInstalled) {
		err = nil
	}
	errs := []error{err}
	for _, b := range backends {
		for _, v6 := range []bool{false, true} {
			found, err := named(ctx, host, plan{v6: v6, backend: b}, link, instead)
			out, errs = append(out, found...), append(errs, err)
		}
	}
	rules, err := nft.Naming(ctx, host, link, instead)
	for _, r := range rules {
		if !managed || !slices.Contains(xtables, r.Table) || !strings.HasPrefix(r.Family, "ip") { // else told above
			out = append(out, Naming{Where: "nft table " + r.Family + " " + r.Table + ", chain " + r.Chain, Text: r.Text})
		}
	}
	return out, errors.Join(append(errs, err)...)
}

// xtables are the tables that iptables has.
var xtables = []string{"filter", "nat", "mangle", "raw", "security"}

// named are the rules of one family in one backend.
func named(ctx context.Context, host *netns.Handle, p plan, link, instead string) (out []Naming, err error) {
	if p.backend == iptables.Legacy { // to read them would make tables
		if used, err := iptables.UsesLegacy(host, p.v6); !used || err != nil {
			return nil, err
		}
	}
	have, err := iptables.Read(ctx, host, p.v6, p.backend)
	for _, table := range xtables {
		for _, c := range have.Chains[table] {
			if ours(c.Name) {
				continue
			}
			for _, r := range c.Rules {
				fellow := rewrite(r, link, instead)
				if isFor(r, link) && !isFor(r, instead) && (fellow == r || !slices.Contains(c.Rules, fellow)) {
					out = append(out, Naming{Where: p.program() + " -t " + table + ", chain " + c.Name, Text: r})
				}
			}
		}
	}
	return out, err
}

// isFor tells that a rule of iptables names a link; a + at a name's end stands for anything.
func isFor(rule, link string) bool {
	words := strings.Fields(rule)
	for i, w := range words[:max(len(words)-1, 0)] {
		if w != "-i" && w != "-o" {
			continue
		}
		begin, any := strings.CutSuffix(words[i+1], "+")
		if words[i+1] == link || any && strings.HasPrefix(link, begin) {
			return true
		}
	}
	return false
}

// rewrite is a rule for another link.
func rewrite(rule, link, instead string) string {
	words := strings.Split(rule, " ")
	for i, w := range words {
		if i > 0 && w == link && (words[i-1] == "-i" || words[i-1] == "-o") {
			words[i] = instead
		}
	}
	return strings.Join(words, " ")
}
