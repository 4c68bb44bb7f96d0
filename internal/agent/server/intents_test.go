package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/agent/engine"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/source/local"
)

// refusing is a driver that counts the DELs which it refuses.
type refusing struct{ tried atomic.Int64 }

func (r *refusing) Attach(context.Context, driver.Run, core.Spec) (core.Link, error) {
	return core.Link{}, nil
}
func (r *refusing) Check(context.Context, driver.Run, core.Spec, core.Link) error { return nil }
func (r *refusing) Detach(context.Context, driver.Run, core.Spec) error {
	r.tried.Add(1)
	return errors.New("not today")
}
func (r *refusing) StepDone(string, time.Duration)               {}
func (r *refusing) OpDone(core.Op, string, time.Duration, error) {}

// withIntents is a server whose one attachment cannot be removed, and the folder
// in which plugins leave DELs.
func withIntents(t *testing.T, r *refusing, ns string) (s *Server, dir string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	objects, err := local.Open("", log)
	require.NoError(t, err)
	boot, err := netns.BootID()
	require.NoError(t, err)
	h, err := netns.Open(ns)
	require.NoError(t, err)
	cookie, err := h.Cookie()
	require.NoError(t, err)
	require.NoError(t, h.Close())
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	require.NoError(t, j.SetWhole(t.Context()))
	key := core.Key{Container: "c1", IfName: "eth0"}
	require.NoError(t, j.Begin(t.Context(), core.Record{
		Key: key, Netns: core.Netns{Path: ns, Cookie: cookie, BootID: boot}, Phase: core.Added, Begun: 1,
		Specs: []core.Spec{{Key: key, Driver: "ovs", NIC: &core.NICSpec{OVS: &core.OVSPort{HostIf: "c1_h"}}}},
	}))
	e := engine.New(engine.Config{
		Journal: j, IPAM: ipam.New(), Source: objects, Drivers: driver.Set{"ovs": r}, BootID: boot, Observer: r, Log: log,
	})
	dir = t.TempDir()
	s = New(Config{Engine: e, Sockets: []string{filepath.Join(dir, "agent.sock")}, View: View{Journal: j}, Metrics: http.NotFoundHandler(), Log: log})
	dir = filepath.Join(dir, cni.IntentsDir)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return s, dir
}

// leaveDEL writes what a plugin leaves that finds no agent.
func leaveDEL(t *testing.T, path, container, ns string) {
	t.Helper()
	in, err := json.Marshal(cni.Request{
		Command: "DEL", ContainerID: container, IfName: "eth0", Netns: ns, Config: []byte(`{"cniVersion":"1.0.0","name":"n","type":"fairlead"}`),
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, in, 0o600))
}

// TestOneWaitForAllIntents: however many former containers of a namespace have a
// DEL under way, an ADD waits as long as for one; by a clock of the test's own.
func TestOneWaitForAllIntents(t *testing.T) {
	ns := netnstest.Path(netnstest.New(t))
	synctest.Test(t, func(t *testing.T) {
		s, dir := withIntents(t, &refusing{}, ns)
		const sandbox = "/run/netns/sandbox"
		busy := func(id string, d time.Duration) {
			leaveDEL(t, filepath.Join(dir, id), id, sandbox)
			unlock, err := s.left.turns.Lock(t.Context(), id)
			require.NoError(t, err)
			time.AfterFunc(d, unlock)
		}
		busy("former1", awaitLimit-time.Second)
		busy("former2", time.Hour)
		begun := time.Now()
		_, err := s.add(t.Context(), core.Request{Key: core.Key{Container: "new", IfName: "eth0"}, Netns: sandbox})
		require.ErrorContains(t, err, "container former2: ")
		require.Equal(t, awaitLimit, time.Since(begun))
		s.handlers.Wait()
		time.Sleep(time.Hour)
	})
}

// TestIntentRestsLongerAndLonger: a DEL that goes on failing is tried more and
// more rarely, by a clock of the test's own, and at once when there is another.
func TestIntentRestsLongerAndLonger(t *testing.T) {
	ns := netnstest.Path(netnstest.New(t))
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{}
		s, dir := withIntents(t, r, ns)
		leave := func(name string) { leaveDEL(t, filepath.Join(dir, name), "c1", ns) }
		ctx, stop := context.WithCancel(t.Context())
		tries := func(d time.Duration) int64 {
			before := r.tried.Load()
			time.Sleep(d)
			synctest.Wait()
			return r.tried.Load() - before
		}
		leave("one")
		s.drain(ctx)
		synctest.Wait()
		once := r.tried.Load() // in one attempt
		require.Positive(t, once)
		require.GreaterOrEqual(t, tries(time.Minute), 2*once)
		tries(time.Hour)
		each := tries(time.Hour)
		require.Positive(t, each, "it is never given up")
		require.LessOrEqual(t, each, int64(time.Hour/longestRetry)*once, "an hour has no more of the longest pauses")
		before := r.tried.Load()
		s.drain(ctx)
		synctest.Wait()
		require.Equal(t, before, r.tried.Load(), "a look is no news")
		leave("two")
		s.drain(ctx)
		synctest.Wait()
		require.Greater(t, r.tried.Load(), before, "another DEL is: at once")
		require.Positive(t, tries(time.Minute), "and from the shortest pause again")
		stop()
		s.handlers.Wait()
	})
}
