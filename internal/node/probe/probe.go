// Package probe looks at containers that run, again and again, and says which
// have started, which may be talked to and which are to be restarted. It must
// not know what follows from that. It remembers nothing beyond its own life: a
// new one looks again.
package probe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is what a probe decides.
type Kind string

// The kinds of probes.
const (
	Startup   Kind = "startup"   // whether the others begin
	Readiness Kind = "readiness" // whether the container may be talked to
	Liveness  Kind = "liveness"  // whether it is restarted
)

// Instance is one instance of a container that runs.
type Instance struct {
	Pod     *v1.Pod
	IP      string // the pod's
	Spec    *v1.Container
	ID      string
	Started time.Time
}

// Health is what probes say of an instance.
type Health struct {
	Started bool
	Ready   bool
	// Failed is why the instance is to be restarted; "" when it is not.
	Failed string
	Grace  *int64 // seconds that it then has to end; nil is the pod's
	// Why is what the probe said last that keeps it from being started or ready.
	Why string
}

// Checker makes one look. The error says that nothing was learnt.
type Checker interface {
	Check(ctx context.Context, i Instance, p *v1.Probe) (ok bool, said string, err error)
}

// Config says how to look, and who is told.
type Config struct {
	Checker Checker
	// Changed hears that Health has changed of a container of a pod. It must not
	// block.
	Changed func(uid types.UID)
	// Failed, if not nil, hears of each look that did not pass. It must not block.
	Failed func(i Instance, kind Kind, said string)
	Log    *slog.Logger
}

// Prober is safe for concurrent use.
type Prober struct {
	conf Config
	runs sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]map[string]*looker // by the instance's id
}

// New looks at nothing yet.
func New(c Config) *Prober {
	return &Prober{conf: c, pods: map[types.UID]map[string]*looker{}}
}

// Set says which instances of a pod run, none when it has ended: these are
// looked at, and no others. It may be called again at any time; an instance
// that is known goes on. What ctx carries is the looks', its end is not.
func (p *Prober) Set(ctx context.Context, uid types.UID, running []Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[string]*looker{}
	for _, i := range running {
		if !probed(i.Spec) {
			continue
		}
		l := p.pods[uid][i.ID]
		if l == nil {
			l = p.begin(ctx, i)
		}
		now[i.ID] = l
	}
	for id, l := range p.pods[uid] {
		if now[id] == nil {
			l.stop()
		}
	}
	if p.pods[uid] = now; len(now) == 0 {
		delete(p.pods, uid)
	}
}

func probed(c *v1.Container) bool {
	return c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil
}

// begin starts looking at an instance. p.mu is held.
func (p *Prober) begin(ctx context.Context, i Instance) *looker {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &looker{prober: p, instance: i, stop: cancel, health: initial(i.Spec)}
	p.runs.Go(func() { l.run(ctx) })
	return l
}

// initial is what holds before the first look: a container with a startup or
// readiness probe has to pass it, one with a liveness probe alone is well.
func initial(c *v1.Container) Health {
	return Health{Started: c.StartupProbe == nil, Ready: c.StartupProbe == nil && c.ReadinessProbe == nil}
}

// Health is what is known of an instance of a container.
func (p *Prober) Health(uid types.UID, c *v1.Container, id string) Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.pods[uid][id]; l != nil {
		return l.health
	}
	return initial(c)
}

// Close ends all looks.
func (p *Prober) Close() {
	p.mu.Lock()
	for _, pod := range p.pods {
		for _, l := range pod {
			l.stop()
		}
	}
	p.pods = map[types.UID]map[string]*looker{}
	p.mu.Unlock()
	p.runs.Wait()
}
