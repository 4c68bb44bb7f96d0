// Package upkeep keeps what stands outside of running pods as their records say:
// it puts right what somebody else changed, and has rates, mirrors and port security follow the
// pods' annotations. It makes and removes nothing; the engine does.
package upkeep

import (
	"context"
	"log/slog"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// workers is how many containers are looked at at once.
const workers = 8

// Config is what a Keeper works on.
type Config struct {
	Journal *journal.Journal
	Source  resolve.Source
	// Declared tells what is declared of pods by their names; nil: nothing is.
	Declared resolve.Declarer
	// PFOf as in resolve.Input; Declared needs it.
	PFOf func(device string) (string, error)
	// Promises knows what virtual functions are promised; nil: nobody does.
	Promises Promises
	Drivers  driver.Set
	Leases   Leases // required where interfaces claim something
	BootID   string
	// TryLock takes a container's turn, false while an operation has it.
	TryLock func(container string) (unlock func(), ok bool)
	Notices core.Notices // nil: nobody wants to know
	Log     *slog.Logger
}

// Promises keeps the rates, Mbit/s, that attachments are promised within what their cards may
// promise. Of attachments that are promised none it does nothing.
type Promises interface {
	// Promise has an attachment be promised another rate, again and again. A reason
	// (core.ReasonOf): it cannot be; other errors: not now.
	Promise(key core.Key, mbps int) error
	// Promised has it be promised what it was: nothing came of a Promise.
	Promised(key core.Key, mbps int) error
}

// Keeper does both. Its methods may be called at the same time.
type Keeper struct {
	Config
	untuned sync.Map // core.Key -> string: why what it has is not as asked for
}

// New makes a Keeper.
func New(c Config) *Keeper { return &Keeper{Config: c} }

// Repairs says what Repair looks at.
type Repairs struct {
	// May tells whether an interface may be looked at now.
	May func(rec core.Record, s core.Spec) bool
	// Told hears of each interface that was not as it should be; err is why it is
	// not put right.
	Told func(rec core.Record, s core.Spec, found, err error)
	// Fine hears of the others.
	Fine func(rec core.Record, s core.Spec)
}

// Repair puts right what was changed, outside of the pods, of what the journal
// says is attached: in these containers, in all for nil. It returns those that
// have an operation under way, whose affair what they have now is, and those that ctx
// left no time for: they are to be looked at again. The functions of how are called
// from several goroutines.
func (k *Keeper) Repair(ctx context.Context, containers []string, how Repairs) (busy []string) {
	if containers == nil {
		seen := map[string]bool{}
		for _, h := range k.Journal.Heads() {
			if h.Phase == core.Added && !seen[h.Key.Container] {
				seen[h.Key.Container] = true
				containers = append(containers, h.Key.Container)
			}
		}
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, workers)
	)
	for _, id := range containers {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if k.repairContainer(ctx, id, how) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			busy = append(busy, id)
		})
	}
	wg.Wait()
	return busy
}

// repairContainer is false for a container that is busy, or not looked at whole.
func (k *Keeper) repairContainer(ctx context.Context, id string, how Repairs) bool {
	unlock, ok := k.TryLock(id)
	if !ok {
		return false
	}
	defer unlock()
	for _, rec := range k.Journal.Container(id) {
		if rec.Phase != core.Added || rec.Orphan || rec.Netns.BootID != k.BootID {
			continue
		}
		for _, s := range rec.Specs {
			d, ok := k.Drivers[s.Driver].(driver.Repairer)
			if ctx.Err() != nil {
				return false
			}
			if !ok || !how.May(rec, s) {
				continue
			}
			if found, err := d.Repair(ctx, driver.Run{}, s); found != nil || err != nil {
				how.Told(rec, s, found, err)
			} else {
				how.Fine(rec, s)
			}
		}
	}
	return true
}
