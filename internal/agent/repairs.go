package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/upkeep"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
)

// What is put right again and again is somebody else's wish, and two programs
// that undo each other's work would go on for ever: the first times nothing is
// waited for, then longer and longer.
const (
	atOnce     = 5                // times in a row
	calm       = 30 * time.Second // of which none is longer after the one before
	firstPause = time.Second
	lastPause  = 64 * time.Second

	auditEvery = 2 * time.Minute // for what no event tells of
	toldMost   = 16              // repairs that STATUS lists
	remembered = 4096            // things that were repaired
)

// Parts of the node, as metrics call them.
const (
	partGateway = "gateway"
	partPort    = "port"
)

// repairs knows what somebody else changed and what was done about it.
type repairs struct {
	log     *slog.Logger
	counted func(part string, err error)

	mu sync.Mutex
	of map[string]*repair // by what it is
}

type repair struct {
	agent.Repair
	part   string
	streak int
	// When and Next as a clock has them that nobody sets.
	at, next time.Time
}

func newRepairs(log *slog.Logger, counted func(string, error)) *repairs {
	return &repairs{log: log, counted: counted, of: map[string]*repair{}}
}

// wait is how long what must not be put right yet.
func (r *repairs) wait(what string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.of[what]; known != nil {
		return max(0, known.next.Sub(now))
	}
	return 0
}

// done notes that what was not as it should be, and whether it is now.
func (r *repairs) done(part, what string, found, err error) {
	said := strings.ReplaceAll(cmp.Or(text(found), text(err)), "\n", "; ")
	r.counted(part, err)
	now := time.Now()
	r.mu.Lock()
	known := r.of[what]
	if known == nil {
		known = &repair{part: part}
		r.forgetOne()
		r.of[what] = known
	}
	if known.streak++; now.Sub(known.at) > calm+pause(known.streak-1) {
		known.streak = 1
	}
	known.at, known.next = now, time.Time{}
	known.Repair = agent.Repair{What: what, Found: said, When: now.UTC(), Times: known.Times + 1, Error: text(err)}
	if p := pause(known.streak); p > 0 {
		known.next = now.Add(p)
		known.Next = known.next.UTC()
	}
	next := known.Next
	r.mu.Unlock()
	switch {
	case err != nil:
		r.log.Error("somebody else changed it, and it is not put right", "what", what, "found", said, "err", err)
	case !next.IsZero():
		r.log.Warn("somebody else goes on changing it; put right", "what", what, "found", said, "not_before", next)
	default:
		r.log.Warn("somebody else changed it; put right", "what", what, "found", said)
	}
}

// forgetOne makes room; the caller has the lock.
func (r *repairs) forgetOne() {
	if len(r.of) < remembered {
		return
	}
	oldest := ""
	for what, known := range r.of {
		if oldest == "" || known.at.Before(r.of[oldest].at) {
			oldest = what
		}
	}
	delete(r.of, oldest)
}

// pause is how long is waited after so many repairs in a row.
func pause(streak int) time.Duration {
	if streak <= atOnce {
		return 0
	}
	return min(firstPause<<min(streak-atOnce-1, 10), lastPause)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// list are the last repairs, the newest first, of a part; "" is any.
func (r *repairs) list(part string) []agent.Repair {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []agent.Repair
	for _, known := range r.of {
		if part == "" || part == known.part {
			out = append(out, known.Repair)
		}
	}
	slices.SortFunc(out, func(a, b agent.Repair) int { return cmp.Or(b.When.Compare(a.When), cmp.Compare(a.What, b.What)) })
	return out[:min(len(out), toldMost)]
}

// unrepaired are those of a part that could not be put right; "" is any.
func (r *repairs) unrepaired(part string) (out []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, known := range r.of {
		if known.Error != "" && (part == "" || part == known.part) {
			out = append(out, fmt.Errorf("%s: %s", what, known.Error))
		}
	}
	return out
}

// settled notes that what is as it should be.
func (r *repairs) settled(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.of[what]; known != nil {
		known.Error = ""
	}
}

// settledAll notes that a whole part is as it should be.
func (r *repairs) settledAll(part string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.of {
		if known.part == part {
			known.Error = ""
		}
	}
}

// keep forgets what of a part could not be put right and is not there any more.
func (r *repairs) keep(part string, there map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(what string, known *repair) bool { return known.part == part && known.Error != "" && !there[what] })
}

// portRepairs puts pods' ports right when somebody else touched them.
type portRepairs struct {
	*Daemon
	wake chan struct{}

	mu      sync.Mutex
	touched map[string]bool      // containers
	due     map[string]time.Time // when those are touched that later named
}

func newPortRepairs(d *Daemon) *portRepairs {
	return &portRepairs{Daemon: d, wake: make(chan struct{}, 1), touched: map[string]bool{}, due: map[string]time.Time{}}
}

// every is the container that stands for all.
const every = ""

// touch has a container's ports looked at; it does not block.
func (p *portRepairs) touch(container string) {
	p.mu.Lock()
	p.touched[container] = true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *portRepairs) take() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.touched
	p.touched = map[string]bool{}
	return out
}

// busyPause is how long a container with an operation under way is left alone.
const busyPause = 200 * time.Millisecond

// later has it looked at after a while, unless it is by then: what cannot be put right
// for long, and is found so by each audit, is not looked at more and more often.
func (p *portRepairs) later(container string, wait time.Duration) {
	due := time.Now().Add(wait)
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.due[container]; known && !at.After(due) {
		return
	}
	p.due[container] = due
	time.AfterFunc(wait, func() {
		p.mu.Lock()
		if p.due[container].Equal(due) {
			delete(p.due, container)
		}
		p.mu.Unlock()
		p.touch(container)
	})
}

// run works until ctx ends.
func (p *portRepairs) run(ctx context.Context) {
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-audit.C:
			p.repair(ctx, nil)
		case <-p.wake:
			touched := p.take()
			if touched[every] {
				p.repair(ctx, nil)
				continue
			}
			p.repair(ctx, slices.Sorted(maps.Keys(touched)))
		}
	}
}

func portOf(rec core.Record, s core.Spec) string {
	port := s.Key.IfName
	if carrier := s.OVS(); carrier != nil {
		port = carrier.HostIf
	}
	return fmt.Sprintf("port %s of pod %s", port, rec.Pod)
}

func (p *portRepairs) repair(ctx context.Context, containers []string) {
	ctx, stop := context.WithTimeout(ctx, gatewayLimit)
	defer stop()
	p.forgetGone()
	if p.ovs.Connected() != nil {
		return // all is looked at when it comes back
	}
	busy := p.upkeep.Repair(ctx, containers, upkeep.Repairs{
		May: func(rec core.Record, s core.Spec) bool {
			if p.fence.Down(s.Key) != nil {
				return false
			}
			wait := p.repairs.wait(portOf(rec, s), time.Now())
			if wait > 0 {
				p.later(rec.Key.Container, wait)
			}
			return wait == 0
		},
		Told: func(rec core.Record, s core.Spec, found, err error) {
			if err != nil && (ctx.Err() != nil || errors.Is(err, core.ErrUnavailable)) { // it was slow; or all is looked at when it comes back
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					p.repairs.log.Warn("took too long to put right; tried again later", "what", portOf(rec, s), "found", text(found), "err", err, "after", lastRetry)
				}
				p.later(rec.Key.Container, lastRetry)
				return
			}
			p.repairs.done(partPort, portOf(rec, s), found, err)
			if err != nil {
				p.later(rec.Key.Container, max(firstPause, p.repairs.wait(portOf(rec, s), time.Now())))
			}
		},
		Fine: func(rec core.Record, s core.Spec) { p.repairs.settled(portOf(rec, s)) },
	})
	for _, id := range busy {
		p.later(id, busyPause)
	}
}

// forgetGone forgets ports that could not be put right and went with their pods.
func (p *portRepairs) forgetGone() {
	if len(p.repairs.unrepaired(partPort)) == 0 {
		return
	}
	there := map[string]bool{}
	for _, rec := range p.journal.Records() {
		if rec.Phase != core.Added || rec.Orphan {
			continue
		}
		for _, s := range rec.Specs {
			there[portOf(rec, s)] = true
		}
	}
	p.repairs.keep(partPort, there)
}

// onTouch hears of ports that somebody touched, which may be the agent itself.
func (d *Daemon) onTouch(t ovs.Touched) {
	switch {
	case t.Container != "":
		d.portRepairs.touch(t.Container)
	case t.Gateway != "":
		d.onLoss()
	default:
		d.uplinks.Poke()
	}
}
