// Package leases keeps who has which address and MAC of a domain of layer 2: for this node
// in a book, which follows from the journal, and where there is a cluster with its API
// server. Leases are bound before anything of an interface is made, and given back when it
// is gone. It must not know how an interface is made.
package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/network/record"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
)

const (
	bindLimit   = 10 * time.Second // all of one interface
	reuseDelay  = 60 * time.Second // of a lease that nobody declares
	first, most = time.Second, 30 * time.Second
	workers     = 4
)

// Store is where a cluster keeps leases (package source/cluster/lease, which says what
// each method owes).
type Store interface {
	NodeNow(ctx context.Context, name string) (lease.Node, error)
	NodeOf(ctx context.Context, h lease.Holder) (lease.Node, error)
	Bind(ctx context.Context, h lease.Holder, c core.Claim, ours func(lease.Holder) bool, may func() error) (epoch int64, err error)
	Create(ctx context.Context, h lease.Holder, c core.Claim) (epoch int64, err error)
	Release(ctx context.Context, name string, ours func(lease.Holder) bool, conflict string) error
	Contest(ctx context.Context, name string, ours func(lease.Holder) bool, text string) error
	Settle(ctx context.Context, name, reason string) error
	Mine(ctx context.Context) ([]cluster.Record, error)
	Remove(ctx context.Context, name string) error
	Get(ctx context.Context, name string) (cluster.Record, bool, error)
	IPAMClaim(ctx context.Context, namespace, name string) (*cluster.IPAMClaim, error)
	Fill(ctx context.Context, claim *cluster.IPAMClaim, ips []netip.Prefix) error
}

// Config is what a Keeper is made of.
type Config struct {
	Node, BootID string
	Store        func() Store // nil, or gives nil: there is no cluster, and the book says all
	Seen         Seen         // required with a Store
	File         string       // keeps what is to be given back over a restart
	// Gone tells that no pod of that UID is on this node. An error proves nothing.
	Gone func(core.Pod) (bool, error)
	// Declared tells whether what a pod had is declared of it still; nil: all of it is.
	Declared func(context.Context, core.Pod, core.Claim) bool
	// Conflict hears that another has, or may have, what a pod of this node has; text "" that
	// this is over.
	Conflict func(pod core.Pod, text string)
	// Fences tells that this node takes an interface off the network by itself before others
	// may take it for dead; nil: none.
	Fences func(core.Spec) bool
	Log    *slog.Logger
}

// Keeper is the node's part in all leases.
type Keeper struct {
	Config
	book   lease.Book
	queue  *retry.Queue[string] // names of what is to be given back, or deleted
	audits chan struct{}

	mu    sync.Mutex
	saved bool // there is a file
	// strays are leases of this node without a sandbox, as the round before saw them;
	// conflicts are those told, by name, also by an earlier process.
	strays    map[string]cluster.Record
	conflicts map[string]core.Pod
	answered  map[string]lease.Entry // leases that the wire has kept from pods of this node, and were given back
	expiring  map[string]time.Time   // leases that nobody declares, when they are to be deleted
	looked    map[string]time.Time   // nodes, when they were asked for as holders of a pool's addresses
}

// New makes a Keeper; call Restore before the first Bind.
func New(c Config) *Keeper {
	return &Keeper{
		Config: c, queue: retry.NewQueue[string](first, most), audits: make(chan struct{}, 1),
		strays: map[string]cluster.Record{}, conflicts: map[string]core.Pod{}, answered: map[string]lease.Entry{}, expiring: map[string]time.Time{}, looked: map[string]time.Time{},
	}
}

func (k *Keeper) store() Store {
	if k.Store == nil {
		return nil
	}
	return k.Store()
}

// holder is an interface as the holder of leases, to find those that it has.
func (k *Keeper) holder(s core.Spec) lease.Holder {
	return lease.Holder{Pod: s.Pod, Key: s.Key, Node: k.Node, BootID: s.Netns.BootID, Device: record.Device(s)}
}

// claimant is holder as leases are to tell of it. Whether it can be fenced is asked of its
// device.
func (k *Keeper) claimant(s core.Spec) lease.Holder {
	h := k.holder(s)
	h.SelfFence = k.Fences != nil && k.Fences(s)
	return h
}

// Restore enters what the journal's records have, the older first, and what an earlier
// process had yet to give back.
func (k *Keeper) Restore(records []core.Record) {
	var kept []lease.Entry
	if there, err := recordfile.Load(k.File, &kept); err != nil {
		k.Log.Warn("leases that were to be given back are not known: they are looked for among those of this node", "err", err)
	} else {
		k.saved = there
	}
	for _, e := range kept {
		if e.Contested {
			k.conflicts[lease.Name(e.Claim)] = e.Holder.Pod
		} else {
			k.book.Restore([]lease.Entry{e})
		}
	}
	for _, r := range record.ByAge(records) {
		for _, s := range record.AllSpecs(r) {
			if len(s.Claims) == 0 {
				continue
			}
			h := k.claimant(s)
			for _, c := range s.Claims {
				k.book.Restore([]lease.Entry{{Claim: c, Holder: h, Since: r.Created}})
			}
		}
	}
	for _, e := range k.book.All() {
		if e.Free {
			k.queue.Add(lease.Name(e.Claim))
		}
	}
}

// Bind makes the interfaces of specs the holders of all that they claim, or of nothing,
// chooses addresses where they claim one of a pool, and notes these and the leases' epochs in
// the specs. It may be called again.
//
// AddressHeld (11) and MACInUse (103): another has it, whom the message names.
// core.ErrExhausted (103): the pool has none left. AddressOutsideSubnet (103): an IPAMClaim names
// what the pool does not have. 102: the IPAMClaim is for something else. 11: nobody can tell now,
// and this node does not have it; there is no such IPAMClaim.
func (k *Keeper) Bind(ctx context.Context, specs []core.Spec) error {
	for i := range specs {
		s := &specs[i]
		if len(s.Claims) == 0 {
			continue
		}
		if err := k.obtain(ctx, s); err != nil {
			k.Free(specs[:i])
			return err
		}
	}
	return nil
}

func (k *Keeper) bind(ctx context.Context, h lease.Holder, claims []core.Claim) ([]core.Claim, error) {
	before, err := k.book.Take(h, claims, time.Now())
	if err != nil {
		return nil, err
	}
	out := append([]core.Claim{}, claims...)
	store := k.store()
	if store == nil {
		return out, nil
	}
	ctx, stop := context.WithTimeout(ctx, bindLimit)
	defer stop()
	err = k.bindAll(ctx, store, h, out)
	if err == nil {
		return out, nil
	}
	if silent(err) && had(before, h) {
		k.Log.Warn("leases not written: the API server does not answer, and this node had them", "container", h.Key.Container, "err", err)
		for i := range out {
			out[i].Epoch = max(out[i].Epoch, before[i].Claim.Epoch)
		}
		k.Audit()
		return out, nil
	}
	k.queue.Add(k.book.Undo(h, claims, before)...)
	return nil, core.WithCode(core.CodeTryAgain, "leases of interface "+h.Key.IfName, err)
}

// bindAll binds claims at once, each for itself. The Node is read beside the leases, once
// for all.
func (k *Keeper) bindAll(ctx context.Context, store Store, h lease.Holder, claims []core.Claim) error {
	may := sync.OnceValue(func() error {
		n, err := store.NodeNow(ctx, k.Node)
		if err != nil {
			return err
		}
		return lease.Own(k.Node, k.BootID, n)
	})
	errs := make([]error, len(claims))
	var wg sync.WaitGroup
	wg.Go(func() { _ = may() }) // each claim hears what it says
	for i := range claims {
		wg.Go(func() {
			c := &claims[i]
			epoch, err := store.Bind(ctx, h, *c, k.ours(lease.Name(*c)), may)
			if errs[i] = err; err == nil {
				c.Epoch = epoch
				k.confirm(h, *c)
			}
		})
	}
	wg.Wait()
	return refusal(errs)
}

// refusal is the first of errs that somebody said, else the first that nobody did.
func refusal(errs []error) (out error) {
	for _, err := range errs {
		if err != nil && (out == nil || silent(out) && !silent(err)) {
			out = err
		}
	}
	return out
}

// silent tells that nobody has answered.
func silent(err error) bool {
	return errors.Is(err, core.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// had tells that this node is the holder of all since before, for the same pod by name, in
// this boot (spec/sriov.md, Lease rules, 8): what it may have given back already, whether or
// not it heard an answer, others may have by now.
func had(before []lease.Entry, h lease.Holder) bool {
	for _, e := range before {
		if e.Leaving || e.Claim.Epoch == 0 || e.Holder.BootID != h.BootID || e.Holder.Pod.String() != h.Pod.String() {
			return false
		}
	}
	return len(before) > 0
}

// ours tells of a lease's holder that it is the entry's sandbox, or one before it.
func (k *Keeper) ours(name string) func(lease.Holder) bool {
	return func(h lease.Holder) bool {
		e, ok := k.book.Get(name)
		return ok && e.Ours(h)
	}
}

// Free gives back what specs claim, whose interfaces are gone. It waits for nobody: what
// cannot be told now is told later, also by the agent's next process.
func (k *Keeper) Free(specs []core.Spec) {
	for _, s := range specs {
		k.queue.Add(k.book.Free(k.holder(s), s.Claims)...)
	}
}

// Run tells the API server what is to be given back, and compares its leases with the
// book, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { retry.Loop(ctx, k.audits, k.look) })
	if k.Seen != nil {
		wg.Go(func() { k.Seen.Run(ctx) })
	}
	k.queue.Run(ctx, workers, func(ctx context.Context, name string) error {
		err := k.settle(ctx, name)
		if err != nil && ctx.Err() == nil {
			k.Log.Warn("lease not given back yet; tried again", "lease", name, "err", err)
		}
		k.save(err == nil)
		return err
	})
}

// settle gives back one lease.
func (k *Keeper) settle(ctx context.Context, name string) error {
	e, ok := k.book.Get(name)
	if !ok || !e.Free {
		return nil
	}
	store := k.store()
	switch {
	case store == nil && e.Claim.Epoch == 0: // of which no cluster was told
		k.book.Drop(e)
		return nil
	case store == nil:
		return fmt.Errorf("no API server is named yet: %w", core.ErrUnavailable)
	}
	if e.Conflict != "" {
		k.save(false) // once nobody has it, only this file tells whose conflict it is
	}
	err := store.Release(ctx, name, func(h lease.Holder) bool {
		leaves := k.book.Leave(name, h)
		if leaves {
			k.save(true) // an earlier file says otherwise
		}
		return leaves
	}, e.Conflict)
	if err == nil {
		err = k.unless(ctx, store, name, e)
	}
	if err != nil {
		return err
	}
	if err := k.left(ctx, store, e.Holder.Pod, e.Claim); err != nil {
		return err
	}
	k.book.Drop(e)
	k.peace(name)
	return nil
}

// save writes down what is to be given back, what the wire keeps from pods, and what they were
// told that another has too. Where the API
// server answers and there is no file, there is nothing to write: the next process finds the
// rest among the leases of this node.
func (k *Keeper) save(answered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if answered && !k.saved {
		return
	}
	var open []lease.Entry
	for _, e := range k.book.All() {
		if e.Free {
			open = append(open, e)
		}
	}
	for name := range k.conflicts {
		if e, ok := k.book.Get(name); ok && !e.Free {
			e.Contested = true
			open = append(open, e)
		}
	}
	for name, e := range k.answered {
		if _, busy := k.book.Get(name); !busy {
			open = append(open, e)
		}
	}
	var err error
	if len(open) == 0 {
		err = recordfile.Remove(k.File)
	} else {
		err = recordfile.Save(k.File, open)
	}
	if k.saved = len(open) > 0; err != nil {
		k.Log.Warn("leases that are to be given back are not written down: an agent that starts now finds them later", "err", err)
	}
}
