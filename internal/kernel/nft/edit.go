package nft

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// edit makes a table another one by what differs alone.
type edit struct {
	now, want Ruleset
	there     map[string][]Rule // of now, by chain
}

// fits tells that now becomes want so: no set or chain is to be of another form.
func (e edit) fits(now Ruleset) bool {
	for _, s := range e.want.Sets {
		if had, is := now.set(s.Name); is && (had.V6 != s.V6 || had.Counters != s.Counters) {
			return false
		}
	}
	for _, c := range e.want.Chains {
		had, is := now.chain(c.Name)
		if is && (had.Hook == nil) != (c.Hook == nil) || is && c.Hook != nil && *had.Hook != *c.Hook {
			return false
		}
	}
	return true
}

func (r Ruleset) set(name string) (Set, bool) {
	for _, s := range r.Sets {
		if s.Name == name {
			return s, true
		}
	}
	return Set{}, false
}

func (r Ruleset) chain(name string) (Chain, bool) {
	for _, c := range r.Chains {
		if c.Name == name {
			return c, true
		}
	}
	return Chain{}, false
}

// transaction is the edit: sets grow and shrink, chains get their rules, and what nothing
// speaks of any more goes.
func (e edit) transaction(c knftables.Interface) *knftables.Transaction {
	tx := c.NewTransaction()
	for _, s := range e.want.Sets {
		had, is := e.now.set(s.Name)
		if !is {
			s.write(tx)
			continue
		}
		old, wanted := had.elements(), s.elements()
		had.remove(tx, without(old, wanted)) // first: what comes may lie across it
		missing := without(wanted, old)
		s.counters(tx, missing)
		s.add(tx, missing)
	}
	for _, ch := range e.want.Chains {
		if _, is := e.now.chain(ch.Name); !is {
			tx.Add(ch.made())
		}
	}
	for _, ch := range e.want.Chains {
		e.rules(tx, ch)
	}
	e.remove(tx)
	return tx
}

// step is what becomes of one rule of a chain: it stays (both), goes (old alone) or comes.
type step struct {
	old *Rule
	new *Entry
}

// steps make a chain's rules those that are wanted. Of rules that change places some go and
// come back.
func (e edit) steps(want Chain) (out []step) {
	had, _ := e.now.chain(want.Name)
	left := map[Entry]int{}
	for _, r := range had.Rules {
		left[r]++
	}
	at, there := 0, e.there[want.Name]
	for i := range want.Rules {
		r := &want.Rules[i]
		for left[*r] > 0 && had.Rules[at] != *r {
			out = append(out, step{old: &there[at]})
			left[had.Rules[at]]--
			at++
		}
		if left[*r] == 0 {
			out = append(out, step{new: r})
			continue
		}
		out = append(out, step{old: &there[at], new: r})
		left[*r]--
		at++
	}
	for ; at < len(there); at++ {
		out = append(out, step{old: &there[at]})
	}
	return out
}

// rules carries out the steps of a chain: what comes is put before the next rule that stays.
func (e edit) rules(tx *knftables.Transaction, want Chain) {
	steps := e.steps(want)
	next := make([]*Rule, len(steps)+1)
	for i := len(steps) - 1; i >= 0; i-- {
		if next[i] = next[i+1]; steps[i].old != nil && steps[i].new != nil {
			next[i] = steps[i].old
		}
	}
	for i, s := range steps {
		switch {
		case s.new == nil:
			tx.Delete(&knftables.Rule{Chain: want.Name, Handle: knftables.PtrTo(s.old.Handle)})
		case s.old == nil && next[i] != nil:
			tx.Insert(&knftables.Rule{Chain: want.Name, Rule: s.new.Text, Comment: knftables.PtrTo(s.new.known()), Handle: knftables.PtrTo(next[i].Handle)})
		case s.old == nil:
			tx.Add(&knftables.Rule{Chain: want.Name, Rule: s.new.Text, Comment: knftables.PtrTo(s.new.known())})
		}
	}
}

// remove takes away chains and then sets.
func (e edit) remove(tx *knftables.Transaction) {
	var gone []string
	for _, c := range e.now.Chains {
		if _, is := e.want.chain(c.Name); !is {
			gone = append(gone, c.Name)
			tx.Flush(&knftables.Chain{Name: c.Name})
		}
	}
	for _, name := range gone {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, s := range e.now.Sets {
		if _, is := e.want.set(s.Name); !is {
			s.destroy(tx)
		}
	}
}

// after is what stands in the chains once nft told the rules that came; false if that cannot
// be said.
func (e edit) after(news []Rule) (map[string][]Rule, bool) {
	came := map[string][]Rule{}
	for _, r := range news {
		came[r.Chain] = append(came[r.Chain], r)
	}
	out := map[string][]Rule{}
	for _, c := range e.want.Chains {
		for _, s := range e.steps(c) {
			switch fresh := came[c.Name]; {
			case s.new == nil:
			case s.old != nil:
				out[c.Name] = append(out[c.Name], *s.old)
			case len(fresh) == 0 || fresh[0].Comment != s.new.known():
				return nil, false
			default:
				out[c.Name] = append(out[c.Name], fresh[0])
				came[c.Name] = fresh[1:]
			}
		}
	}
	return out, true
}

// echo has nft carry out a transaction, and tell the rules that came as a listing would. What
// nft reads with --json it reads twice: it gets a file.
func echo(ctx context.Context, text string) (news []Rule, err error) {
	fd, err := unix.MemfdCreate("nft", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("nft: %w", err)
	}
	in := os.NewFile(uintptr(fd), "nft")
	defer func() { _ = in.Close() }()
	if _, err := in.WriteString(text); err != nil {
		return nil, fmt.Errorf("nft: %w", err)
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", "--json", "--echo", "--file", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(said.String()))
	}
	var all struct{ Nftables []object }
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		return nil, nil // it is done: what came is asked for otherwise
	}
	for _, o := range all.Nftables {
		for _, one := range []*struct{ Rule *Rule }{o.Add, o.Insert} {
			if one != nil && one.Rule != nil {
				news = append(news, *one.Rule)
			}
		}
	}
	return news, nil
}
