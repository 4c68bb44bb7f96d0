package controller

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

// lanes are three queues of work. IP objects, counts and annotations of namespaces are
// records of what was done and nobody waits for them, so that they have workers of their own, which let
// the rest go before: in a burst of pods every second write would be one, before the pods behind it. The
// gateways have one worker, since all pods of Subnets wait for another one, and behind no burst.
type lanes struct{ first, records, exits *retry.Queue[object.Key] }

func newLanes() lanes {
	lane := func() *retry.Queue[object.Key] { return retry.NewQueue[object.Key](firstPause, mostPause) }
	return lanes{lane(), lane(), lane()}
}

// Add has keys worked on as soon as may be, and forgets that they failed.
func (l lanes) Add(keys ...object.Key) {
	for _, k := range keys {
		switch k.Kind {
		case object.KindIP, kindStatus, kindSpace:
			l.records.Add(k)
		case kindExits:
			l.exits.Add(k)
		default:
			l.first.Add(k)
		}
	}
}

// Len is how many keys are ready or worked on.
func (l lanes) Len() int { return l.first.Len() + l.records.Len() + l.exits.Len() }

// Run has workers do keys until ctx ends, and a quarter of that many do records.
func (l lanes) Run(ctx context.Context, workers int, do func(context.Context, object.Key) error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		l.records.Run(ctx, max(1, workers/4), func(ctx context.Context, k object.Key) error {
			l.letPass(ctx)
			return do(ctx, k)
		})
	})
	wg.Go(func() { l.exits.Run(ctx, 1, do) })
	l.first.Run(ctx, workers, do)
	wg.Wait()
}

// patience is how long one record waits, since a burst may have no end; pace is how often
// it looks.
const patience, pace = 250 * time.Millisecond, 5 * time.Millisecond

// letPass waits until nothing of the first lane is to do, or for as long as patience lasts.
func (l lanes) letPass(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for l.first.Len() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
}
