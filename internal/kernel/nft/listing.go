package nft

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// errElement: an element is of a kind that this package does not read, such as a verdict.
var errElement = errors.New("element of")

// Listing is a table as `nft --json list table` prints it (libnftables-json(5)).
type Listing struct {
	Exists  bool
	Flagged bool // the table has flags, as "dormant"; which ones not every nft tells
	Chains  []Form
	Rules   []Rule // in the order of their chains
	Sets    map[string][]Element
	Maps    map[string][]Element
	Counts  map[string]Counts // of counters that have names
}

// Counts are what a counter has seen.
type Counts struct{ Packets, Bytes uint64 }

// Form is a chain without its rules. One that the kernel does not call has a name alone.
type Form struct {
	Name, Type, Hook string
	Priority         int    `json:"prio"`
	Policy           string // what becomes of packets that no rule decides about
}

// FormOf is that of a chain as it is written.
func FormOf(c *knftables.Chain) (Form, error) {
	f := Form{Name: c.Name}
	if c.Hook == nil {
		return f, nil
	}
	f.Type, f.Hook, f.Policy = string(*c.Type), string(*c.Hook), string(knftables.AcceptPolicy)
	if c.Policy != nil {
		f.Policy = string(*c.Policy)
	}
	var err error
	if f.Priority, err = knftables.ParsePriority(knftables.InetFamily, string(*c.Priority)); err != nil {
		return f, fmt.Errorf("chain %s: %w", c.Name, err)
	}
	return f, nil
}

// String is the form in words.
func (f Form) String() string {
	if f.Hook == "" {
		return f.Name
	}
	return fmt.Sprintf("%s (%s %s %d, policy %s)", f.Name, f.Type, f.Hook, f.Priority, f.Policy)
}

// Rule is a rule as it is there.
type Rule struct {
	Chain   string
	Handle  int             // the kernel's number for it
	Comment string          // "": none
	Expr    json.RawMessage // what it does, in nft's own form, which nft alone can make of a text
}

// String is all of the rule.
func (r Rule) String() string { return r.Chain + ": " + r.Comment + " " + string(r.Expr) }

// Does is what the rules of each chain do, in their order. The listing of what was just
// written says so of what was meant.
func (l Listing) Does() (out []string) { return does(l.byChain()) }

// byChain are the rules of each chain, in their order.
func (l Listing) byChain() map[string][]Rule {
	out := map[string][]Rule{}
	for _, r := range l.Rules {
		out[r.Chain] = append(out[r.Chain], r)
	}
	return out
}

// Element is an element of a set or, with a value, of a map, as nft writes it: an
// address, a prefix, a range A-B, a number or a name, or several with " . " between.
type Element struct{ Key, Value string }

// List reads the table of family inet and this name in ns (nil: the current
// namespace). No table is a Listing that does not exist. One process tells all of
// it; knftables starts one for each set.
func List(ctx context.Context, ns *netns.Handle, name string) (Listing, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", "--json", "list", "table", "inet", name)
	cmd.Stdout, cmd.Stderr = &out, &said
	switch err := ns.Do(cmd.Run); { // Do's thread starts nft, which is so born in the namespace
	case err != nil && missing(err, said.String()):
		return Listing{}, nil
	case err != nil:
		return Listing{}, fmt.Errorf("list nft table %s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	l, err := parseListing(out.Bytes())
	if err != nil {
		return Listing{}, fmt.Errorf("list nft table %s: %w", name, err)
	}
	return l, nil
}

// missing tells that nft ran and found no such table. It sets no locale, so what it
// says is English; the linker, which misses a library, says the same words otherwise.
func missing(err error, said string) bool {
	var exit *exec.ExitError
	first, _, _ := strings.Cut(said, "\n")
	return errors.As(err, &exit) && strings.HasPrefix(first, "Error: ") && strings.Contains(first, "No such file or directory")
}

// object is one object of a listing: one of these is set, or none that matters.
type object struct {
	Add, Insert *struct{ Rule *Rule } // of what nft tells of a transaction

	Metainfo *struct {
		Schema int `json:"json_schema_version"`
	}
	Table *struct{ Flags any } // nft 1.0.6 writes the table's name instead
	Chain *Form
	Rule  *Rule
	Set   *set
	Map   *set

	Counter *struct {
		Name string
		Counts
	}
}

type set struct {
	Name string
	Elem []any
}

func parseListing(b []byte) (Listing, error) {
	var all struct{ Nftables []object }
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return Listing{}, fmt.Errorf("parse nft's JSON: %w", err)
	}
	if len(all.Nftables) == 0 || all.Nftables[0].Metainfo == nil || all.Nftables[0].Metainfo.Schema != 1 {
		return Listing{}, errors.New("nft's JSON is not of version 1")
	}
	l := Listing{Exists: true, Sets: map[string][]Element{}, Maps: map[string][]Element{}, Counts: map[string]Counts{}}
	for _, o := range all.Nftables {
		if err := l.take(o); err != nil {
			return Listing{}, err
		}
	}
	return l, nil
}

func (l *Listing) take(o object) (err error) {
	switch {
	case o.Table != nil:
		l.Flagged = o.Table.Flags != nil
	case o.Chain != nil:
		l.Chains = append(l.Chains, *o.Chain)
	case o.Rule != nil:
		l.Rules = append(l.Rules, *o.Rule)
	case o.Set != nil:
		l.Sets[o.Set.Name], err = elements(o.Set, func(e any) (Element, error) { key, err := text(e); return Element{Key: key}, err })
	case o.Counter != nil:
		l.Counts[o.Counter.Name] = o.Counter.Counts
	case o.Map != nil:
		l.Maps[o.Map.Name], err = elements(o.Map, pair)
	}
	return err
}

func elements(s *set, read func(any) (Element, error)) ([]Element, error) {
	out := make([]Element, 0, len(s.Elem))
	for _, raw := range s.Elem {
		e, err := read(raw)
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", errElement, s.Name, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// pair reads the key and the value of a map's element.
func pair(raw any) (Element, error) {
	both, _ := raw.([]any)
	if len(both) != 2 {
		return Element{}, fmt.Errorf("no key and value: %v", raw)
	}
	key, err := text(both[0])
	if err != nil {
		return Element{}, err
	}
	value, err := text(both[1])
	return Element{Key: key, Value: value}, err
}

// text is a value as nft writes it.
func text(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case map[string]any:
		for kind, inner := range v { // one
			if s, err := compound(kind, inner); err == nil {
				return s, nil
			}
		}
	}
	return "", fmt.Errorf("not understood: %v", raw)
}

// compound is a value of several: an element with a comment, a prefix, a range or a
// concatenation.
func compound(kind string, inner any) (string, error) {
	switch v := inner.(type) {
	case map[string]any:
		if kind == "elem" {
			return text(v["val"])
		}
		if kind == "prefix" {
			return join("/", v["addr"], v["len"])
		}
	case []any:
		if sep := map[string]string{"range": "-", "concat": " . "}[kind]; sep != "" {
			return join(sep, v...)
		}
	}
	return "", fmt.Errorf("%s is not understood", kind)
}

func join(sep string, parts ...any) (string, error) {
	out := make([]string, len(parts))
	for i, p := range parts {
		var err error
		if out[i], err = text(p); err != nil {
			return "", err
		}
	}
	return strings.Join(out, sep), nil
}
