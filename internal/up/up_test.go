package up_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/up"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// idle is a part that is ready at once and notes its start and end.
func idle(name string, note chan<- string) up.Part {
	return up.Part{
		Name: name,
		Run: func(ctx context.Context) error {
			note <- name + " begins"
			<-ctx.Done()
			note <- name + " ends"
			return nil
		},
		Ready: func(context.Context) error { return nil },
	}
}

// TestOrder: each part upon those before it; the end is the reverse.
func TestOrder(t *testing.T) {
	t.Parallel()
	note := make(chan string, 10)
	ctx, stop := context.WithCancel(t.Context())
	g := up.Group{Parts: []up.Part{idle("a", note), idle("b", note)}, Log: quiet(), Ready: func() {
		note <- "ready"
		stop()
	}}
	require.NoError(t, g.Run(ctx))
	close(note)
	var all []string
	for n := range note {
		all = append(all, n)
	}
	require.Equal(t, []string{"a begins", "b begins", "ready", "b ends", "a ends"}, all)
}

// TestPartThatDoesNotStart ends what was started.
func TestPartThatDoesNotStart(t *testing.T) {
	t.Parallel()
	note := make(chan string, 10)
	bad := up.Part{Name: "bad", Run: func(context.Context) error { return errors.New("no such thing") }, Ready: func(context.Context) error { return errors.New("not yet") }}
	g := up.Group{Parts: []up.Part{idle("a", note), bad, idle("c", note)}, Log: quiet()}
	require.EqualError(t, g.Run(t.Context()), "bad: no such thing")
	require.Equal(t, "a begins", <-note)
	require.Equal(t, "a ends", <-note)
	require.Empty(t, note)
}

// TestPartThatFailsLater is started again; the others do not notice.
func TestPartThatFailsLater(t *testing.T) {
	t.Parallel()
	note := make(chan string, 10)
	ctx, stop := context.WithCancel(t.Context())
	fail, starts := make(chan error), atomic.Int32{}
	frail := up.Part{
		Name: "frail", Ready: func(context.Context) error { return nil },
		Run: func(ctx context.Context) error {
			if starts.Add(1) == 2 {
				stop()
			}
			select {
			case err := <-fail:
				return err
			case <-ctx.Done():
				return nil
			}
		},
	}
	g := up.Group{Parts: []up.Part{idle("a", note), frail}, Log: quiet(), Ready: func() {
		go func() { fail <- errors.New("broken") }()
	}}
	require.NoError(t, g.Run(ctx))
	require.Equal(t, int32(2), starts.Load())
	require.Equal(t, "a begins", <-note)
	require.Equal(t, "a ends", <-note)
	require.Empty(t, note)
}

// TestRecord: what is up is known until it is forgotten; what a killed writer
// left goes.
func TestRecord(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	none, err := up.Load(state)
	require.NoError(t, err)
	require.Nil(t, none)
	half := filepath.Join(state, ".up.json.123.tmp")
	require.NoError(t, os.WriteFile(half, nil, 0o600))
	r := up.Record{Dir: "/pods", Runtime: up.Docker, Flags: map[string][]string{"cni-bin-dir": {"/a", "/b"}}, Wrote: []string{"/x"}}
	require.NoError(t, r.Save(state))
	require.NoFileExists(t, half)
	got, err := up.Load(state)
	require.NoError(t, err)
	require.Equal(t, &r, got)
	require.NoError(t, up.Forget(state))
	require.NoError(t, up.Forget(state))
	require.NoError(t, os.WriteFile(filepath.Join(state, "up.json"), []byte("{"), 0o600))
	_, err = up.Load(state)
	require.ErrorContains(t, err, "up.json")
}

// TestLock: one process at a time, and the other's number.
func TestLock(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "made")
	l, err := up.TakeLock(state, 0)
	require.NoError(t, err)
	_, err = up.TakeLock(state, 0)
	running := (*up.RunningError)(nil)
	require.ErrorAs(t, err, &running)
	require.Equal(t, os.Getpid(), running.PID)
	l.Release()
	l, err = up.Stop(t.Context(), state)
	require.NoError(t, err)
	l.Release()
}

// TestNoRuntime says of both why.
func TestNoRuntime(t *testing.T) {
	t.Parallel()
	_, err := up.Query(t.Context(), "unix://"+filepath.Join(t.TempDir(), "none.sock"))
	require.ErrorContains(t, err, "does not answer as a CRI runtime")
}

// pods of which one is up, one waits, one has ended and one is not known.
func TestTable(t *testing.T) {
	t.Parallel()
	pod := func(name string, phase v1.PodPhase, ready bool, waits string) v1.Pod {
		p := v1.Pod{}
		p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
		p.Status.Phase = phase
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Message: "container c: " + waits}}
		if ready {
			p.Status.Conditions[0].Status = v1.ConditionTrue
			p.Status.PodIPs = []v1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}
			p.Status.PodIP = "10.0.0.2"
		}
		if waits != "" {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: waits}}}}
		}
		return p
	}
	look := up.Looker{
		Declared: func() ([]*v1.Pod, []string, error) {
			late := &v1.Pod{}
			late.Namespace, late.Name, late.UID = "default", "late", "late"
			return []*v1.Pod{late}, []string{"a.yaml:3: bad"}, nil
		},
		Pods: func(context.Context) ([]v1.Pod, error) {
			return []v1.Pod{pod("up", v1.PodRunning, true, ""), pod("pull", v1.PodPending, false, "ErrImagePull"), pod("done", v1.PodSucceeded, false, "")}, nil
		},
		Networks: func(context.Context) (agent.PodList, error) { return agent.PodList{}, nil },
	}
	s, err := look.Look(t.Context())
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, s.Print(&out))
	require.Equal(t, `NAME           STATE          IP                 NETWORKS
default/done   Completed      -                  -
default/late   Pending        -                  -
default/pull   ErrImagePull   -                  -
default/up     Running        10.0.0.2,fd00::2   -
`, out.String())
	missing := s.Missing()
	require.Len(t, missing, 2)
	require.Equal(t, "container c: ErrImagePull", missing[1].Why)
	require.Equal(t, []string{"a.yaml:3: bad"}, s.Problems)
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	s, err = look.Wait(ctx)
	require.NoError(t, err, "what was seen last is the answer")
	require.Len(t, s.Rows, 4)
}
