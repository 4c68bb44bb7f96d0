// Package ports is what keepers of ports of the default Vpc's router that lead out of the
// cluster have in common: each looks, in one goroutine, when its ConfigMap, an object or a
// row has changed, while this controller leads; and its gateway nodes have an order. It must
// not know where a port leads.
package ports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Pauses after failures: the first, and the longest but for a quarter.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 20 * time.Second
)

// Loop has a keeper look, one time of leading after another. It is safe for concurrent use.
type Loop struct {
	owner string // of the rows
	name  string // of the ConfigMap
	maps  object.Maps

	mu    sync.Mutex
	queue *retry.Queue[string] // nil while this controller does not lead
}

// NewLoop makes one for the keeper of an owner's rows, which follow from a ConfigMap of this
// name.
func NewLoop(owner, name string, maps object.Maps) *Loop {
	return &Loop{owner: owner, name: name, maps: maps}
}

// Untaken tells an error of the fence, which is no fault to tell of: a look that came before
// this controller took its epoch, which it does beside, or after another one did, which ends
// the time of leading.
func Untaken(err error) bool { return errors.Is(err, ovn.ErrFenced) }

// Poke has the keeper look: the database was away, or something changed.
func (l *Loop) Poke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil {
		l.queue.Add(l.owner)
	}
}

// Touched has it look if its rows are not what was written (ovn.Config.OnTouch).
func (l *Loop) Touched(owner string) {
	if owner == l.owner {
		l.Poke()
	}
}

// Lead has look called with the ConfigMaps until ctx ends: when all objects are known, when
// one changes that concerns it, when it is poked, and after each error of its own. It is for
// who leads.
func (l *Loop) Lead(ctx context.Context, w object.World, concerns func(object.Key) bool, look func(context.Context, map[string]object.Map) error) error {
	queue := retry.NewQueue[string](firstPause, mostPause)
	l.use(queue)
	defer l.use(nil)
	maps := l.maps(ctx, l.Poke)
	err := w.Follow(ctx, func(of object.Key) {
		if concerns(of) {
			l.Poke()
		}
	})
	if err != nil {
		return fmt.Errorf("read the objects: %w", err)
	}
	l.Poke()
	queue.Run(ctx, 1, func(ctx context.Context, _ string) error {
		now, known := maps()
		if !known { // of none nobody tells when that is known
			return fmt.Errorf("ConfigMap %s is not known yet: %w", l.name, core.ErrUnavailable)
		}
		return look(ctx, now)
	})
	return nil
}

func (l *Loop) use(queue *retry.Queue[string]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = queue
}

// Gateways are those nodes that may be gateways now, chassis that is says to be ones: first
// those that are named, in this order, then others by name.
func Gateways(nodes []object.Node, named []string, is func(node string, labels map[string]string) bool) (out []object.Node) {
	for _, n := range nodes {
		if is(n.Name, n.Labels) && n.Annotations[v1.AnnChassis] != "" {
			out = append(out, n)
		}
	}
	rank := func(n object.Node) int {
		if i := slices.Index(named, n.Name); i >= 0 {
			return i
		}
		return len(named)
	}
	slices.SortFunc(out, func(a, b object.Node) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}
