package hostport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Config says where ports are opened.
type Config struct {
	Host *netns.Handle // the node's namespace; nil = current
	// Table is the nft table's name, "" = TableName: who opens ports beside the
	// agent has a table of their own.
	Table string
	// Late leaves the flush of connections to Run, which does it for many pods at
	// once; else each Attach and Detach does it.
	Late bool
	Log  *slog.Logger
}

// Spoilt has a value when a Check found the table not to be as it should be:
// the time for an Audit.
func (t *Table) Spoilt() <-chan struct{} { return t.spoilt }

func (t *Table) spoil() {
	select {
	case t.spoilt <- struct{}{}:
	default:
	}
}

// entry is what one interface of a pod has.
type entry struct {
	key   core.Key
	pod   core.Pod
	netns core.Netns
	ports []core.PortMapping
	addrs []netip.Prefix
}

// entryOf refuses a Spec that is about something else.
func entryOf(s core.Spec) (entry, error) {
	if s.Kind() != core.KindHostPorts {
		return entry{}, core.Errorf(core.CodeConfig, "host ports of %s: the spec names none", s.Key)
	}
	return entry{key: s.Key, pod: s.Pod, netns: s.Netns, ports: slices.Clone(s.HostPorts.Ports), addrs: s.HostPorts.Addrs}, nil
}

// mark is a comment for whoever reads the table.
func (e entry) mark() string {
	if e.pod.IsZero() {
		return e.key.Container[:min(len(e.key.Container), 64)]
	}
	return e.pod.String()[:min(len(e.pod.String()), 64)]
}

// use counts who needs an element: two pods of one network need the same.
type use struct {
	count int
	mark  string
}

// Table holds the host ports of a node. It is the driver of the Specs that
// open them: what is desired is what was attached and not detached, and Restore
// tells it after a start. It is safe for concurrent use.
type Table struct {
	cfg Config

	mu      sync.Mutex
	entries map[core.Key]entry
	held    map[place][]claim
	want    map[element]use
	touched map[element]bool // since the last transaction

	tracked *conntrack.Table
	late    *forgetting

	spoilt chan struct{} // a Check has found a difference

	writing sync.Mutex       // one transaction at a time; the fields below are its
	have    map[element]bool // in the kernel; nil: not known
	does    []string         // what the rules do, as listed behind the last writing of all
	client  knftables.Interface
	conn    *nftables.Conn // for small changes; stays open, as in conntrack
	open    map[string]int // devices by which the node's loopback addresses reach pods, and their indexes
}

// New makes a Table; nothing is touched before Restore or Attach.
func New(cfg Config) *Table {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Table == "" {
		cfg.Table = TableName
	}
	return &Table{
		cfg: cfg, tracked: conntrack.New(cfg.Host), late: newForgetting(), entries: map[core.Key]entry{}, held: map[place][]claim{},
		want: map[element]use{}, touched: map[element]bool{}, open: map[string]int{},
		spoilt: make(chan struct{}, 1),
	}
}

// Restore makes the table hold the ports of exactly these Specs, in one
// transaction; what an agent left that died is gone with it. Of two Specs that
// claim one port the later one has it. It implements driver.Restorer; a Spec
// without ports is passed over.
func (t *Table) Restore(ctx context.Context, specs []core.Spec) error {
	t.mu.Lock()
	for _, key := range slices.Collect(maps.Keys(t.entries)) {
		t.drop(key)
	}
	for _, s := range specs {
		e, err := entryOf(s)
		if err != nil {
			continue
		}
		for key := range t.rivals(e) {
			t.cfg.Log.Warn("two pods claim one host port", "pod", e.pod, "container", e.key.Container, "other", t.entries[key].pod)
			t.cede(key, e)
		}
		t.enter(e)
	}
	t.mu.Unlock()
	if err := t.Rewrite(ctx); err != nil {
		return fmt.Errorf("restore host ports: %w", err)
	}
	t.mu.Lock()
	open := slices.Collect(maps.Keys(t.entries))
	t.mu.Unlock()
	if err := t.settle(nil, open...); err != nil { // who opened them may have been killed before
		return fmt.Errorf("restore host ports: %w", err)
	}
	return nil
}

// admit enters a pod's ports among the desired ones, or tells who has them.
func (t *Table) admit(e entry) error {
	if err := e.itself(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rivals := t.rivals(e)
	for key, at := range rivals {
		if old := t.entries[key]; !old.yields(e) {
			return old.refuses(at)
		}
	}
	for key := range rivals {
		t.cfg.Log.Info("host ports taken over", "pod", e.pod, "container", e.key.Container, "from", key.Container)
		t.cede(key, e)
	}
	t.drop(e.key)
	t.enter(e)
	return nil
}

// cede takes from the pod of key the ports that e claims.
func (t *Table) cede(key core.Key, e entry) {
	old := t.entries[key]
	t.drop(key)
	old.ports = slices.DeleteFunc(slices.Clone(old.ports), func(p core.PortMapping) bool {
		part := entry{key: key, ports: []core.PortMapping{p}, addrs: old.addrs}
		for at, list := range part.claims() {
			for _, mine := range e.claims()[at] {
				if slices.ContainsFunc(list, mine.meets) {
					return true
				}
			}
		}
		return false
	})
	if len(old.ports) > 0 {
		t.enter(old)
	}
}

func (t *Table) enter(e entry) {
	t.entries[e.key] = e
	for at, list := range e.claims() {
		t.held[at] = append(t.held[at], list...)
	}
	for _, el := range elements(e.ports, e.addrs) {
		u := t.want[el]
		t.want[el] = use{u.count + 1, e.mark()}
		t.touched[el] = true
	}
}

func (t *Table) drop(key core.Key) {
	e, ok := t.entries[key]
	if !ok {
		return
	}
	delete(t.entries, key)
	for at := range e.claims() {
		t.held[at] = slices.DeleteFunc(t.held[at], func(c claim) bool { return c.by == key })
		if len(t.held[at]) == 0 {
			delete(t.held, at)
		}
	}
	for _, el := range elements(e.ports, e.addrs) {
		u := t.want[el]
		if u.count--; u.count > 0 {
			t.want[el] = u
		} else {
			delete(t.want, el)
		}
		t.touched[el] = true
	}
}

// change is what a transaction is to do.
type change struct {
	add    map[element]string // with its comment
	remove []element
	all    bool // the table is to be written anew
}

// take is the change from what the kernel has to what is desired now. The
// caller has the turn to write.
func (t *Table) take(anew bool) change {
	t.mu.Lock()
	defer t.mu.Unlock()
	touched := t.touched
	t.touched = map[element]bool{}
	switch {
	case anew, t.have == nil, len(t.have) == 0 && len(t.want) > 0, len(t.have) > 0 && len(t.want) == 0:
		return t.whole() // also when nothing is left: nor is the table then
	}
	c := change{add: map[element]string{}}
	for el := range touched {
		u, wanted := t.want[el]
		if wanted && !t.have[el] {
			c.add[el] = u.mark
		} else if !wanted && t.have[el] {
			c.remove = append(c.remove, el)
		}
	}
	return c
}

// whole is the change to what is desired from anything.
func (t *Table) whole() change {
	c := change{add: map[element]string{}, all: true}
	for el, u := range t.want {
		c.add[el] = u.mark
	}
	return c
}

// commit writes what is desired and not written yet: that of all who wait
// meanwhile in one transaction. A table that is not as it was left is written
// anew.
func (t *Table) commit(ctx context.Context) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	c := t.take(false)
	if !c.all && len(c.add)+len(c.remove) == 0 {
		return nil
	}
	err := t.write(ctx, c)
	if err != nil && !c.all && ctx.Err() == nil {
		t.cfg.Log.Warn("change of host ports failed: writing all of them anew", "err", err)
		err = t.write(ctx, t.take(true))
	}
	return err
}

// Rewrite writes the whole table anew, in one transaction; connections that are
// translated already stay so.
func (t *Table) Rewrite(ctx context.Context) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	c := t.take(true)
	return errors.Join(t.write(ctx, c), t.reopen())
}

// write runs one transaction and remembers its outcome.
func (t *Table) write(ctx context.Context, c change) error {
	var err error
	if c.small() {
		err = t.send(c)
	} else {
		err = t.replace(ctx, c)
	}
	if err != nil {
		t.have = nil
		return fmt.Errorf("write nft table %s: %w", t.cfg.Table, err)
	}
	if c.all {
		t.have = map[element]bool{}
		if len(c.add) > 0 {
			t.keep(ctx)
		}
	}
	for _, el := range c.remove {
		delete(t.have, el)
	}
	for el := range c.add {
		t.have[el] = true
	}
	if len(t.have) == 0 {
		t.shut()
	}
	return nil
}

// replace runs one transaction of nft where the node's tables are: nft inherits the
// namespace from the thread. The caller has the turn to write.
func (t *Table) replace(ctx context.Context, c change) error {
	return t.cfg.Host.Do(func() error {
		if t.client == nil {
			// New runs nft to learn its version; once is enough.
			client, err := knftables.New(knftables.InetFamily, t.cfg.Table)
			if err != nil {
				return err
			}
			t.client = client
		}
		return t.client.Run(ctx, transaction(t.client, c))
	})
}
