// Package standin leads pods away from a gateway that died together with the controller
// that leads. A controller that does not lead asks that one in the northbound database
// whether it works, as soon as a gateway's node misses answers; where no answer comes until
// the node is silent it changes the routes that lead there, and nothing else. The package
// must not know how nodes are asked, nor how routes are chosen.
package standin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Database is the northbound one; ovn.Client documents the methods.
type Database interface {
	Routes(owner string) (map[string]ovn.Policy, error)
	Ports() ([]ovn.Port, error)
	Ask(ctx context.Context, name string) (ovn.Question, error)
	Stands(q ovn.Question) error
	StandIn(ctx context.Context, q ovn.Question, owner string, was, now map[string]ovn.Policy) error
}

// Config is what a Keeper is made of.
type Config struct {
	From object.Readers
	DB   Database
	ID   string // this controller's name
	// Leads tells that this controller leads and looks at gateways itself.
	Leads func() bool
	// Silent tells of a node that it answers no more, and Suspect that it does not, or may
	// soon do so no more.
	Silent, Suspect func(node string) bool
	// Done hears of each time that routes were changed.
	Done func()
	Log  *slog.Logger
}

// A leader has so long to answer before it counts as gone: no longer than from the first
// suspicion of a node to its silence. One that answered is asked again after a pause
// that doubles, as long as routes lead to a node that is silent from here.
const (
	answer     = 400 * time.Millisecond
	firstPause = 500 * time.Millisecond
	mostPause  = 16 * time.Second
)

// Keeper stands in. It has one goroutine, that of Run.
type Keeper struct {
	Config
	news chan struct{}

	question ovn.Question
	asked    time.Time     // when the question was seen first; zero for none
	next     time.Time     // no question before
	pause    time.Duration // after the next answer
	fault    string
	done     map[string]bool // nodes from which routes were led away, until they answer again
}

// New makes a Keeper that does nothing yet.
func New(c Config) *Keeper {
	return &Keeper{Config: c, news: make(chan struct{}, 1), pause: firstPause, done: map[string]bool{}}
}

// Poke has it look: a node is suspect, or silent. It does not block.
func (k *Keeper) Poke() {
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// Run stands in until ctx ends, when it is poked and while there is a reason.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		var later <-chan time.Time
		if wait := k.look(ctx); wait > 0 {
			later = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.news:
		case <-later:
		}
	}
}

// look does what is due, and gives the time after which there is more, 0 for never.
func (k *Keeper) look(ctx context.Context) time.Duration {
	maps.DeleteFunc(k.done, func(node string, _ bool) bool { return !k.Silent(node) })
	routes, err := k.DB.Routes(gateway.Owner)
	suspects := k.suspects(routes)
	switch {
	case k.Leads() || err == nil && len(suspects) == 0:
		k.asked, k.next, k.pause = time.Time{}, time.Time{}, firstPause
		return 0
	case err == nil && k.asked.IsZero():
		return k.ask(ctx)
	case err == nil:
		err = k.DB.Stands(k.question)
	}
	if wait := answer - time.Since(k.asked); err == nil && wait > 0 {
		return wait
	}
	if err == nil {
		err = k.act(ctx, routes, slices.DeleteFunc(suspects, func(node string) bool { return !k.Silent(node) }))
	}
	return k.ended(ctx, err)
}

// ended gives the pause after an attempt with this outcome.
func (k *Keeper) ended(ctx context.Context, err error) time.Duration {
	switch {
	case errors.Is(err, ovn.ErrAnswered):
		return k.answered()
	case err == nil:
		k.fault = ""
	default:
		k.failed(ctx, err)
	}
	return firstPause
}

// suspects are the nodes to which routes lead that may answer no more.
func (k *Keeper) suspects(routes map[string]ovn.Policy) []string {
	return slices.DeleteFunc(gateway.Used(routes), func(node string) bool { return !k.Suspect(node) || k.done[node] })
}

// failed tells once why this controller cannot stand in.
func (k *Keeper) failed(ctx context.Context, err error) {
	if err.Error() != k.fault && ctx.Err() == nil {
		k.fault = err.Error()
		k.Log.Warn("gateways cannot be looked at in place of the controller that leads; it is tried again", "err", err)
	}
}

// ask asks, unless the leader has answered just now.
func (k *Keeper) ask(ctx context.Context) time.Duration {
	if wait := time.Until(k.next); wait > 0 {
		return wait
	}
	q, err := k.DB.Ask(ctx, k.ID)
	if err != nil {
		k.failed(ctx, err)
		return firstPause
	}
	k.question, k.asked = q, time.Now()
	return answer
}

// answered leaves gateways to the leader, for a while.
func (k *Keeper) answered() time.Duration {
	k.Log.Info("a gateway's node misses answers; the controller that leads works, and looks at gateways itself")
	wait := k.pause
	k.asked, k.next, k.pause = time.Time{}, time.Now().Add(wait), min(2*k.pause, mostPause)
	return wait
}

// act leads pods away from dead nodes, once until they answer again. The question stands
// still where there is nothing to do.
func (k *Keeper) act(ctx context.Context, was map[string]ovn.Policy, dead []string) error {
	if len(dead) == 0 {
		return nil
	}
	ports, err := k.DB.Ports()
	if err != nil {
		return err
	}
	at := func(port string) []netip.Addr {
		i, found := slices.BinarySearchFunc(ports, port, func(p ovn.Port, name string) int { return cmp.Compare(p.Name, name) })
		if !found {
			return nil
		}
		return ports[i].IPs
	}
	now := gateway.Reroute(k.From, was, dead, at, k.Silent)
	if len(now) == 0 {
		return nil
	}
	if err := k.DB.StandIn(ctx, k.question, gateway.Owner, was, now); err != nil {
		return err
	}
	k.asked = time.Time{}
	for _, node := range dead {
		k.done[node] = true
	}
	k.Log.Warn("gateways' nodes do not answer, nor does the controller that leads: others take over", "nodes", dead, "routes", len(now))
	k.Done()
	return nil
}
