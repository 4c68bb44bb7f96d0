package probe

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// script answers looks of each kind one after the other; the last answer stays.
// 'y' and 'n' are results, '?' is none.
type script struct {
	mu     sync.Mutex
	answer map[Kind]string
	asked  map[Kind][]time.Duration // since the start
	began  time.Time
}

func (s *script) Check(_ context.Context, i Instance, p *v1.Probe) (bool, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := Startup
	switch p {
	case i.Spec.ReadinessProbe:
		kind = Readiness
	case i.Spec.LivenessProbe:
		kind = Liveness
	}
	s.asked[kind] = append(s.asked[kind], time.Since(s.began))
	now := s.answer[kind]
	if len(now) > 1 {
		s.answer[kind] = now[1:]
	}
	if now[0] == '?' {
		return false, "", errors.New("nobody there")
	}
	return now[0] == 'y', "ill", nil
}

func times(n int32, after int32) *v1.Probe {
	return &v1.Probe{PeriodSeconds: 10, InitialDelaySeconds: after, FailureThreshold: n, SuccessThreshold: 1, TimeoutSeconds: 1}
}

// bench runs a prober over one instance that has just started.
func bench(t *testing.T, c *v1.Container, answers map[Kind]string) (*Prober, *script, Instance) {
	t.Helper()
	s := &script{answer: answers, asked: map[Kind][]time.Duration{}, began: time.Now()}
	p := New(Config{Checker: s, Changed: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
	pod := &v1.Pod{}
	pod.UID = "uid"
	return p, s, Instance{Pod: pod, Spec: c, ID: "id", Started: time.Now()}
}

const s = time.Second

func TestThresholds(t *testing.T) {
	grace := int64(7)
	hurried := times(2, 0)
	hurried.TerminationGracePeriodSeconds = &grace
	twice := times(2, 0)
	twice.SuccessThreshold = 2
	for name, c := range map[string]struct {
		spec    v1.Container
		answers map[Kind]string
		after   time.Duration
		want    Health
	}{
		"not looked at yet":             {v1.Container{ReadinessProbe: times(1, 30)}, map[Kind]string{Readiness: "y"}, 29 * s, Health{Started: true}},
		"after the initial delay":       {v1.Container{ReadinessProbe: times(1, 30)}, map[Kind]string{Readiness: "y"}, 31 * s, Health{Started: true, Ready: true}},
		"alive until known better":      {v1.Container{LivenessProbe: times(3, 0)}, map[Kind]string{Liveness: "n"}, 19 * s, Health{Started: true, Ready: true}},
		"dead the third time":           {v1.Container{LivenessProbe: times(3, 0)}, map[Kind]string{Liveness: "n"}, 21 * s, Health{Started: true, Ready: true, Failed: "liveness probe failed: ill"}},
		"with a grace of its own":       {v1.Container{LivenessProbe: hurried}, map[Kind]string{Liveness: "n"}, 11 * s, Health{Started: true, Ready: true, Failed: "liveness probe failed: ill", Grace: &grace}},
		"never three in a row":          {v1.Container{LivenessProbe: times(3, 0)}, map[Kind]string{Liveness: "nnynnynny"}, 95 * s, Health{Started: true, Ready: true}},
		"nothing learnt does not count": {v1.Container{LivenessProbe: times(2, 0)}, map[Kind]string{Liveness: "n?n"}, 15 * s, Health{Started: true, Ready: true}},
		"and does not interrupt":        {v1.Container{LivenessProbe: times(2, 0)}, map[Kind]string{Liveness: "n?n"}, 25 * s, Health{Started: true, Ready: true, Failed: "liveness probe failed: ill"}},
		"not ready and why":             {v1.Container{ReadinessProbe: times(3, 0)}, map[Kind]string{Readiness: "n"}, 1 * s, Health{Started: true, Why: "readiness probe: ill"}},
		"cannot be asked":               {v1.Container{ReadinessProbe: times(3, 0)}, map[Kind]string{Readiness: "?"}, 1 * s, Health{Started: true, Why: "readiness probe: nobody there"}},
		"ready the second time":         {v1.Container{ReadinessProbe: twice}, map[Kind]string{Readiness: "nyy"}, 21 * s, Health{Started: true, Ready: true}},
		"not the first":                 {v1.Container{ReadinessProbe: twice}, map[Kind]string{Readiness: "nyny"}, 35 * s, Health{Started: true, Why: "readiness probe: ill"}},
		"ready stays a while":           {v1.Container{ReadinessProbe: times(3, 0)}, map[Kind]string{Readiness: "ynn"}, 15 * s, Health{Started: true, Ready: true}},
		"and goes":                      {v1.Container{ReadinessProbe: times(3, 0)}, map[Kind]string{Readiness: "ynnn"}, 35 * s, Health{Started: true, Why: "readiness probe: ill"}},
		"starting":                      {v1.Container{StartupProbe: times(3, 0)}, map[Kind]string{Startup: "n"}, 1 * s, Health{Why: "startup probe: ill"}},
		"started":                       {v1.Container{StartupProbe: times(3, 0)}, map[Kind]string{Startup: "ny"}, 11 * s, Health{Started: true, Ready: true}},
		"did not start":                 {v1.Container{StartupProbe: times(3, 0)}, map[Kind]string{Startup: "n"}, 21 * s, Health{Failed: "startup probe failed: ill", Why: "startup probe: ill"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _, i := bench(t, &c.spec, c.answers)
				p.Set(t.Context(), "uid", []Instance{i})
				time.Sleep(c.after)
				synctest.Wait()
				require.Equal(t, c.want, p.Health("uid", &c.spec, "id"))
				p.Close()
			})
		})
	}
}

// TestStartupHoldsTheOthers: they begin when it has passed, their initial delay
// counts from the container's start, and it is not asked again.
func TestStartupHoldsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &v1.Container{StartupProbe: times(9, 0), LivenessProbe: times(1, 5), ReadinessProbe: times(1, 40)}
		p, script, i := bench(t, c, map[Kind]string{Startup: "nny", Liveness: "y", Readiness: "y"})
		p.Set(t.Context(), "uid", []Instance{i})
		time.Sleep(65 * s)
		p.Close()
		require.Equal(t, []time.Duration{0, 10 * s, 20 * s}, script.asked[Startup])
		require.Equal(t, []time.Duration{20 * s, 30 * s, 40 * s, 50 * s, 60 * s}, script.asked[Liveness])
		require.Equal(t, []time.Duration{40 * s, 50 * s, 60 * s}, script.asked[Readiness])
	})
}

// TestInstances: one that is known goes on; one that is gone is forgotten; the
// next begins anew.
func TestInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &v1.Container{ReadinessProbe: times(1, 0)}
		p, script, i := bench(t, c, map[Kind]string{Readiness: "y"})
		changed := 0
		p.conf.Changed = func(uid types.UID) { changed++; require.Equal(t, types.UID("uid"), uid) }
		for range 3 {
			p.Set(t.Context(), "uid", []Instance{i})
			time.Sleep(s)
		}
		require.Len(t, script.asked[Readiness], 1)
		require.Equal(t, 1, changed)
		next := i
		next.ID, next.Started = "next", time.Now()
		p.Set(t.Context(), "uid", []Instance{next})
		require.False(t, p.Health("uid", c, "next").Ready)
		require.False(t, p.Health("uid", c, "id").Ready)
		time.Sleep(s)
		require.True(t, p.Health("uid", c, "next").Ready)
		p.Set(t.Context(), "uid", nil)
		require.Empty(t, p.pods)
		synctest.Wait()
		asked := len(script.asked[Readiness])
		time.Sleep(time.Minute)
		require.Len(t, script.asked[Readiness], asked)
		p.Close()
	})
}

// TestFailedIsFinal: one that is to be restarted is not looked at any more,
// however long its end takes.
func TestFailedIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &v1.Container{LivenessProbe: times(1, 0)}
		p, script, i := bench(t, c, map[Kind]string{Liveness: "ny"})
		p.Set(t.Context(), "uid", []Instance{i})
		time.Sleep(time.Minute)
		require.NotEmpty(t, p.Health("uid", c, "id").Failed)
		require.Len(t, script.asked[Liveness], 1)
		p.Close()
	})
}
