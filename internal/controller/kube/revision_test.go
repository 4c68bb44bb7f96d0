package kube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/cluster/health"
	"github.com/fairlead/fairlead/internal/testbed"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestAPIWentBack: a controller under which the API server's database is replaced by an
// old snapshot ends, since its watches go on from where they stood and tell nothing; the
// next one tells people, once, by what the first one recorded.
func TestAPIWentBack(t *testing.T) {
	t.Parallel()
	c, db := kubebed.Start(t, kubebed.Options{NoCRDs: true}), bed.NewNB(t, testbed.Bare(t))
	c.RegisterNode("n1")
	client := ovn.New(ovn.Config{Endpoint: db.NB(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { client.Run(ctx) })
	require.Eventually(t, func() bool { return client.Connected() == nil }, patience, tick)
	take := func(who string) {
		_, err := client.Take(t.Context(), who)
		require.NoError(t, err)
	}
	take("one")
	guard := func() (objects *kube.Cluster, alarms chan *health.BackError, ended chan error, end func()) {
		objects, err := kube.New(c.Admin(), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(ctx)
		alarms, ended = make(chan *health.BackError, 10), make(chan error, 1)
		wg.Go(func() { objects.Run(ctx) })
		wg.Go(func() { ended <- objects.Guard(ctx, client, func(b *health.BackError) { alarms <- b }) })
		return objects, alarms, ended, cancel
	}
	note := func(key string) string {
		return strings.Trim(db.Nbctl("--if-exists", "get", "nb_global", ".", "external_ids:"+key), "\"\n")
	}

	first, alarms, ended, end := guard()
	require.Eventually(t, func() bool { return note(ovn.KeyRevision) != "" }, patience, tick)
	rollBack := c.Snapshot()
	change := func(n int) {
		_, err := c.Client().CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"test/n":"%d"}}}`, n), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	for i := range 20 {
		change(i)
	}
	require.Eventually(t, func() bool {
		n, ok := first.World().Nodes.Get("", "n1")
		return ok && n.Annotations["test/n"] == "19"
	}, patience, tick)
	rollBack()
	var back *health.BackError
	select {
	case err := <-ended:
		require.True(t, errors.As(err, &back), "%v", err)
	case <-time.After(patience):
		require.FailNow(t, "it goes on")
	}
	n, _ := first.World().Nodes.Get("", "n1")
	require.Equal(t, "19", n.Annotations["test/n"], "the watches told of it: the test proves nothing")
	require.Empty(t, alarms)
	require.Empty(t, note(ovn.KeyBack))
	require.Equal(t, fmt.Sprint(back.Was), note(ovn.KeyRevision))
	end()

	settle := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return first.Settle(ctx, client)
	}
	require.ErrorIs(t, settle(), context.DeadlineExceeded, "agents have not said yet what they hold")

	take("two")
	for i, want := range []int{1, 0} {
		was := note(ovn.KeyRevision)
		change(i)
		_, alarms, ended, end = guard()
		require.Eventually(t, func() bool { return note(ovn.KeyRevision) != was }, patience, tick)
		require.Eventually(t, func() bool { return len(alarms) == want }, patience, tick, "start %d", i)
		require.Contains(t, note(ovn.KeyBack), fmt.Sprintf(" %d ", back.Was))
		end()
		require.NoError(t, <-ended)
		require.NoError(t, settle())
	}
}
