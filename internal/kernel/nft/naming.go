package nft

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// NamedRule is a rule that means a link by its name.
type NamedRule struct {
	Family, Table, Chain string
	Text                 string // as nft writes it
}

// Naming gives the rules of ns (nil: the current namespace), of all families and tables, that
// are for packets which come or go by a link and not for those of another one, which has the
// link's packets now: neither by the rule itself nor by one that is the same but for the name.
// One process reads all of them, and one more each chain that has such a rule.
func Naming(ctx context.Context, ns *netns.Handle, link, instead string) (out []NamedRule, err error) {
	text, err := printed(ctx, ns, "--json", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	found, err := naming(text, link, instead)
	if err != nil {
		return nil, fmt.Errorf("nft list ruleset: %w", err)
	}
	for _, r := range found {
		text, err := printed(ctx, ns, "--handle", "list", "chain", r.Family, r.Table, r.Chain)
		if err != nil {
			return out, err
		}
		out = append(out, NamedRule{Family: r.Family, Table: r.Table, Chain: r.Chain, Text: lineOf(string(text), r.Handle)})
	}
	return out, nil
}

// lineOf is a rule in a chain that was printed with handles.
func lineOf(chain string, handle int) string {
	mark := fmt.Sprintf("handle %d", handle)
	for line := range strings.Lines(chain) {
		if rule, its := strings.CutSuffix(strings.TrimSpace(line), " # "+mark); its {
			return rule
		}
	}
	return mark // of a rule that takes several lines, or is gone
}

func printed(ctx context.Context, ns *netns.Handle, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", args...) //nolint:gosec // names of what is there
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := ns.Do(cmd.Run); err != nil { // Do's thread starts it, which is so born in the namespace
		return nil, fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

// ruleset is what is read of one.
type ruleset []struct {
	Rule     *handled
	Set, Map *members
}

// members are a set's, or a map's.
type members struct {
	Family, Table, Name string
	Elem                any
}

// handled is a rule with what it says.
type handled struct {
	Family, Table, Chain string
	Handle               int
	Expr                 []any
}

// place is where a rule's fellows are.
func (r handled) place() string { return r.Family + " " + r.Table + " " + r.Chain }

// says is a rule's text, for one of another link if the link is called otherwise there.
func (r handled) says(link, otherwise string) string {
	expr := slices.DeleteFunc(slices.Clone(r.Expr), func(e any) bool {
		m, _ := e.(map[string]any)
		_, counts := m["counter"]
		return counts
	})
	text, _ := json.Marshal(expr) // of what was JSON
	return strings.ReplaceAll(string(text), strconv.Quote(link), strconv.Quote(otherwise))
}

// naming finds the rules in nft's JSON (libnftables-json(5)).
func naming(text []byte, link, instead string) (out []handled, err error) {
	var all struct{ Nftables ruleset }
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	sets, there := all.Nftables.known(link)
	for _, o := range all.Nftables {
		if o.Rule == nil {
			continue
		}
		seen := meant{sets: sets, table: o.Rule.Family + " " + o.Rule.Table + " "}
		seen.walk(o.Rule.Expr)
		own, fellow := o.Rule.says(link, link), o.Rule.says(link, instead)
		if seen.links && seen.means(link) && !seen.means(instead) && (own == fellow || !there[o.Rule.place()+fellow]) {
			out = append(out, *o.Rule)
		}
	}
	return out, nil
}

// known are the members of all sets and maps, by family, table and @name, and what rules
// say, with their places.
func (r ruleset) known(link string) (sets map[string]any, there map[string]bool) {
	sets, there = map[string]any{}, map[string]bool{}
	for _, o := range r {
		for _, s := range []*members{o.Set, o.Map} {
			if s != nil {
				sets[s.Family+" "+s.Table+" @"+s.Name] = s.Elem
			}
		}
		if o.Rule != nil {
			there[o.Rule.place()+o.Rule.says(link, link)] = true
		}
	}
	return sets, there
}

// meant is what a rule names.
type meant struct {
	sets  map[string]any
	table string // family and name, before that of a set
	links bool   // it looks at packets' links
	names []string
}

// linkKeys are what nft calls packets' links.
var linkKeys = []string{"iif", "oif", "iifname", "oifname", "ibrname", "obrname", "sdif", "sdifname"}

func (m *meant) walk(v any) {
	switch v := v.(type) {
	case map[string]any:
		if key, _ := v["key"].(string); slices.Contains(linkKeys, key) {
			m.links = true
		}
		for key, inner := range v {
			if key != "log" { // whose prefix may be anything
				m.walk(inner)
			}
		}
	case []any:
		for _, inner := range v {
			m.walk(inner)
		}
	case string:
		m.names = append(m.names, v)
		m.walk(m.sets[m.table+v]) // nil of what names no set
	}
}

// means tells that one of the names is a link's; a * at its end stands for anything.
func (m *meant) means(link string) bool {
	return slices.ContainsFunc(m.names, func(name string) bool {
		begin, any := strings.CutSuffix(name, "*")
		return name == link || any && strings.HasPrefix(link, begin)
	})
}
