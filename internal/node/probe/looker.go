package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/lib/retry"
)

// looker looks at one instance.
type looker struct {
	prober   *Prober
	instance Instance
	stop     context.CancelFunc

	health Health // Prober.mu
}

// run lets the startup probe pass before the others begin.
func (l *looker) run(ctx context.Context) {
	defer l.stop()
	c := l.instance.Spec
	if c.StartupProbe != nil && !l.follow(ctx, Startup, c.StartupProbe) {
		return
	}
	var both sync.WaitGroup
	if c.ReadinessProbe != nil {
		both.Go(func() { l.follow(ctx, Readiness, c.ReadinessProbe) })
	}
	if c.LivenessProbe != nil {
		both.Go(func() { l.follow(ctx, Liveness, c.LivenessProbe) })
	}
	both.Wait()
}

// follow looks each period. It returns true once a startup probe has passed,
// and false when the instance is to be restarted or ctx has ended.
func (l *looker) follow(ctx context.Context, kind Kind, p *v1.Probe) bool {
	if !retry.Sleep(ctx, time.Until(l.instance.Started.Add(seconds(p.InitialDelaySeconds, 0)))) {
		return false
	}
	period := time.NewTicker(seconds(p.PeriodSeconds, 10))
	defer period.Stop()
	t := tally{success: max(1, p.SuccessThreshold), failure: max(1, orThree(p.FailureThreshold))}
	for {
		ok, said, err := l.look(ctx, p)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			l.missed(kind, said) // nothing was learnt: neither good nor bad counts
		default:
			if !ok {
				l.missed(kind, said)
			}
			if t.add(ok) && l.reached(kind, p, ok, said) {
				return ok
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-period.C:
		}
	}
}

// look makes one look, which ends in time.
func (l *looker) look(ctx context.Context, p *v1.Probe) (ok bool, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1)+slack(p))
	defer cancel()
	ok, said, err = l.prober.conf.Checker.Check(ctx, l.instance, p)
	if err != nil {
		said = err.Error()
	}
	return ok, said, err
}

// slack lets the runtime end a command itself when its time is over.
func slack(p *v1.Probe) time.Duration {
	if p.Exec != nil {
		return 5 * time.Second
	}
	return 0
}

// tally counts equal results in a row.
type tally struct {
	success, failure int32
	last             bool
	run              int32
}

// add tells that a threshold is reached.
func (t *tally) add(ok bool) bool {
	if t.run == 0 || t.last != ok {
		t.last, t.run = ok, 0
	}
	t.run++
	return ok && t.run >= t.success || !ok && t.run >= t.failure
}

// missed tells of a look that did not pass.
func (l *looker) missed(kind Kind, said string) {
	l.note(kind, said)
	if tell := l.prober.conf.Failed; tell != nil {
		tell(l.instance, kind, said)
	}
}

// note keeps what a probe said while it holds something up.
func (l *looker) note(kind Kind, said string) {
	l.change(func(h *Health) {
		if kind == Startup && !h.Started || kind == Readiness && !h.Ready {
			h.Why = fmt.Sprintf("%s probe: %s", kind, said)
		}
	})
}

// reached takes a result in and tells that there is nothing more to look for.
func (l *looker) reached(kind Kind, p *v1.Probe, ok bool, said string) bool {
	turned := l.change(func(h *Health) {
		switch {
		case kind == Readiness:
			h.Ready = ok
		case !ok:
			h.Failed, h.Grace = fmt.Sprintf("%s probe failed: %s", kind, said), p.TerminationGracePeriodSeconds
		case kind == Startup:
			h.Started, h.Ready = true, l.instance.Spec.ReadinessProbe == nil
		}
		if ok && kind != Liveness {
			h.Why = ""
		} else if kind == Readiness {
			h.Why = fmt.Sprintf("%s probe: %s", kind, said)
		}
	})
	if turned {
		l.log(kind, ok, said)
	}
	return kind == Startup || kind == Liveness && !ok
}

func (l *looker) log(kind Kind, ok bool, said string) {
	log := l.prober.conf.Log.With("namespace", l.instance.Pod.Namespace, "pod", l.instance.Pod.Name, "container", l.instance.Spec.Name, "probe", string(kind))
	if ok {
		log.Info("probe passed")
	} else {
		log.Warn("probe failed", "why", said)
	}
}

// change tells whoever listens when it makes a difference.
func (l *looker) change(do func(*Health)) bool {
	l.prober.mu.Lock()
	was := l.health
	do(&l.health)
	now := l.health
	l.prober.mu.Unlock()
	first := was.Why == "" && now.Why != ""
	was.Why, now.Why = "", "" // another word for the same is for who asks
	if was != now || first {
		l.prober.conf.Changed(l.instance.Pod.UID)
	}
	return was != now
}

// seconds reads a field of the API; what is not set has its default.
func seconds(n, otherwise int32) time.Duration {
	if n <= 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

func orThree(n int32) int32 {
	if n <= 0 {
		return 3
	}
	return n
}
