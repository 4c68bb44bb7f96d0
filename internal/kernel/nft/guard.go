package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Guard is one nftables table of one namespace that drops what its IP stack
// receives by the devices of one group (`ip link set group`). Frames that a
// packet socket or a switch in the kernel takes from such a device it does not
// touch: these have theirs before. It goes over netlink and starts no process.
// It is safe for concurrent use.
type Guard struct {
	ns    *netns.Handle
	table *nftables.Table
	group uint32

	mu   sync.Mutex
	conn *nftables.Conn // stays open, as in conntrack
}

// NewGuard names a table of family inet in ns (nil: the current namespace);
// nothing is touched before Apply. The whole table is taken to be ours.
func NewGuard(ns *netns.Handle, name string, group uint32) *Guard {
	return &Guard{ns: ns, table: &nftables.Table{Name: name, Family: nftables.TableFamilyINet}, group: group}
}

// guardComment is for whoever reads the rule set.
var guardComment = userdata.AppendString(nil, userdata.TypeComment, "only the switch takes what pods send")

// Apply makes the table, or writes it anew if it is not as it should be; when
// it is, nothing is written.
func (g *Guard) Apply(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("apply nft table %s: %w", g.table.Name, err)
	}
	return g.do("apply", func(c *nftables.Conn) error {
		if same, err := g.inForce(c); err != nil || same {
			return err
		}
		chain := g.chain()
		c.AddTable(g.table) // so that there is one to delete
		c.DelTable(g.table)
		c.AddTable(g.table)
		c.AddChain(chain)
		c.AddRule(&nftables.Rule{Table: g.table, Chain: chain, Exprs: g.rule(), UserData: guardComment})
		return c.Flush()
	})
}

// Check proves that the table is in force; the error wraps core.ErrDrift.
func (g *Guard) Check() error {
	return g.do("check", func(c *nftables.Conn) error {
		if same, err := g.inForce(c); err != nil || same {
			return err
		}
		return fmt.Errorf("it does not drop what comes in by link group %#x: %w", g.group, core.ErrDrift)
	})
}

// Remove deletes the table; none is success.
func (g *Guard) Remove() error {
	return g.do("remove", func(c *nftables.Conn) error {
		c.AddTable(g.table) // so that there is one to delete
		c.DelTable(g.table)
		return c.Flush()
	})
}

// chain looks at packets before connections are tracked: what is dropped shall
// cost nothing and leave no trace.
func (g *Guard) chain() *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{
		Name: "guard", Table: g.table, Type: nftables.ChainTypeFilter, Policy: &accept,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	}
}

// rule is `iifgroup GROUP drop`.
func (g *Guard) rule() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(g.group)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

// inForce compares the kernel's table with ours.
func (g *Guard) inForce(c *nftables.Conn) (bool, error) {
	all, err := c.ListChainsOfTableFamily(g.table.Family)
	if err != nil {
		return false, fmt.Errorf("list chains: %w", err)
	}
	var have []*nftables.Chain
	for _, ch := range all {
		if ch.Table != nil && ch.Table.Name == g.table.Name {
			have = append(have, ch)
		}
	}
	want := g.chain()
	if flags, err := g.flagged(c); err != nil || flags {
		return false, err
	}
	if len(have) != 1 || !sameChain(have[0], want) {
		return false, nil
	}
	rules, err := c.GetRules(g.table, want)
	if err != nil {
		return false, fmt.Errorf("list rules: %w", err)
	}
	return len(rules) == 1 && bytes.Equal(rules[0].UserData, guardComment) && sameExprs(rules[0].Exprs, g.rule()), nil
}

// flagged tells that the table has flags, of which ours has none: the kernel calls no chain of
// a dormant one.
func (g *Guard) flagged(c *nftables.Conn) (bool, error) {
	tables, err := c.ListTablesOfFamily(g.table.Family)
	if err != nil {
		return false, fmt.Errorf("list tables: %w", err)
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == g.table.Name && t.Flags != 0 }), nil
}

func sameChain(a, b *nftables.Chain) bool {
	return a.Name == b.Name && a.Type == b.Type && reflect.DeepEqual(a.Hooknum, b.Hooknum) && reflect.DeepEqual(a.Priority, b.Priority) &&
		reflect.DeepEqual(a.Policy, b.Policy)
}

func sameExprs(a, b []expr.Any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, isCmp := a[i].(*expr.Cmp)
		y, both := b[i].(*expr.Cmp)
		if isCmp && both { // the one has its bytes from the kernel
			if x.Op != y.Op || x.Register != y.Register || !bytes.Equal(x.Data, y.Data) {
				return false
			}
		} else if !reflect.DeepEqual(a[i], b[i]) {
			return false
		}
	}
	return true
}

// do calls fn with the socket; one that failed may hold the rest of an answer.
func (g *Guard) do(verb string, fn func(*nftables.Conn) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.dial()
	if err == nil {
		err = fn(g.conn)
	}
	if err == nil {
		return nil
	}
	if g.conn != nil && !errors.Is(err, core.ErrDrift) {
		_ = g.conn.CloseLasting()
		g.conn = nil
	}
	return fmt.Errorf("%s nft table %s: %w", verb, g.table.Name, err)
}

func (g *Guard) dial() error {
	if g.conn != nil {
		return nil
	}
	opts := []nftables.ConnOption{nftables.AsLasting()}
	if g.ns != nil {
		opts = append(opts, nftables.WithNetNSFd(g.ns.Fd()))
	}
	conn, err := nftables.New(opts...)
	if err != nil {
		return fmt.Errorf("open nfnetlink: %w", err)
	}
	g.conn = conn
	return nil
}
