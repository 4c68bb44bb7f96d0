// Package lanes orders a controller's work: what pods wait for comes before what is only
// written down of them, and the gateways, for which all pods of Subnets wait, come behind
// neither. It must not know what work there is.
package lanes

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

// Pauses after failures: the first, and the longest but for a quarter.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 30 * time.Second
)

// Of says in which lane a kind of work is.
type Of struct {
	Records map[object.Kind]bool // of what was done, for which nobody waits
	Alone   object.Kind          // which has a worker for itself
}

// Lanes are three queues of work. Records have workers of their own, which let the rest go
// before: in a burst of pods every second write would be one, before the pods behind it.
type Lanes struct {
	of                    Of
	first, records, alone *retry.Queue[object.Key]
}

// New makes empty ones.
func New(of Of) Lanes {
	lane := func() *retry.Queue[object.Key] { return retry.NewQueue[object.Key](firstPause, mostPause) }
	return Lanes{of, lane(), lane(), lane()}
}

// Add has keys worked on as soon as may be, and forgets that they failed.
func (l Lanes) Add(keys ...object.Key) {
	for _, k := range keys {
		switch {
		case l.of.Records[k.Kind]:
			l.records.Add(k)
		case k.Kind == l.of.Alone:
			l.alone.Add(k)
		default:
			l.first.Add(k)
		}
	}
}

// Len is how many keys are ready or worked on.
func (l Lanes) Len() int { return l.first.Len() + l.records.Len() + l.alone.Len() }

// Run has workers do keys until ctx ends, and a quarter of that many do records.
func (l Lanes) Run(ctx context.Context, workers int, do func(context.Context, object.Key) error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		l.records.Run(ctx, max(1, workers/4), func(ctx context.Context, k object.Key) error {
			l.letPass(ctx)
			return do(ctx, k)
		})
	})
	wg.Go(func() { l.alone.Run(ctx, 1, do) })
	l.first.Run(ctx, workers, do)
	wg.Wait()
}

// patience is how long one record waits, since a burst may have no end; pace is how often
// it looks.
const patience, pace = 250 * time.Millisecond, 5 * time.Millisecond

// letPass waits until nothing of the first lane is to do, or for as long as patience lasts.
func (l Lanes) letPass(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for l.first.Len() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
}
