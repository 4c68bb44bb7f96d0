package controller

import (
	"context"
	"sync"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

// lanes are two queues of work. IP objects and counts are records of what was done
// and nobody waits for them, so that they have workers of their own, and few: in a
// burst of pods every second write would be one, before the pods behind it.
type lanes struct{ first, records *retry.Queue[object.Key] }

func newLanes() lanes {
	return lanes{first: retry.NewQueue[object.Key](firstPause, mostPause), records: retry.NewQueue[object.Key](firstPause, mostPause)}
}

// Add has keys worked on as soon as may be, and forgets that they failed.
func (l lanes) Add(keys ...object.Key) {
	for _, k := range keys {
		if k.Kind == object.KindIP || k.Kind == kindStatus {
			l.records.Add(k)
		} else {
			l.first.Add(k)
		}
	}
}

// Len is how many keys are ready or worked on.
func (l lanes) Len() int { return l.first.Len() + l.records.Len() }

// Run has workers do keys until ctx ends, and a quarter of that many do records.
func (l lanes) Run(ctx context.Context, workers int, do func(context.Context, object.Key) error) {
	var wg sync.WaitGroup
	wg.Go(func() { l.records.Run(ctx, max(1, workers/4), do) })
	l.first.Run(ctx, workers, do)
	wg.Wait()
}
