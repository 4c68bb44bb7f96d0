package ovn_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// exits are policy routes by a gateway.
func exits(via string) *ovn.Set {
	s := &ovn.Set{Owner: "exits"}
	s.Put(&ovn.LogicalRouter{Name: "r"})
	for _, match := range []string{"ip4.src == 10.0.0.0/24", "ip4.src == 10.0.1.0/24"} {
		s.PutKeyed(match, &ovn.Policy{Priority: 1, Match: match, Action: "reroute", Nexthops: []string{via}, ExternalIDs: map[string]string{"gateway": via}}, ovn.PolicyOf("r"))
	}
	return s
}

// led gives those routes, of which one leads elsewhere.
func led(t *testing.T, c *ovn.Client, via string) (was, now map[string]ovn.Policy) {
	t.Helper()
	was, err := c.Routes("exits")
	require.NoError(t, err)
	p := was["ip4.src == 10.0.0.0/24"]
	p.Nexthops, p.ExternalIDs = []string{via}, map[string]string{"gateway": via}
	for k, v := range was["ip4.src == 10.0.0.0/24"].ExternalIDs {
		if k != "gateway" {
			p.ExternalIDs[k] = v
		}
	}
	return was, map[string]ovn.Policy{"ip4.src == 10.0.0.0/24": p}
}

// TestStandIn: for a leader that does not answer another client changes the routes that it
// means to and no more; one that answers, at whatever moment, keeps them as they are, and
// so does a new leader. What was written the leader finds.
func TestStandIn(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	var asked, touched atomic.Int32
	first := run(t, ovn.Config{Endpoint: nb.NB(), OnQuestion: func() { asked.Add(1) }, OnTouch: func(owner string, _ bool) {
		if owner == "exits" {
			touched.Add(1)
		}
	}})
	other := connect(t, nb.NB())
	_, err := other.Ask(t.Context(), "b")
	require.Error(t, err, "nobody leads yet")
	_, err = first.Take(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, first.Apply(t.Context(), exits("192.0.2.1")))
	require.Eventually(t, func() bool { r, err := other.Routes("exits"); return err == nil && len(r) == 2 }, patient, 5*time.Millisecond)
	before := transactions(t, nb)
	require.NoError(t, first.Answer(t.Context()))
	require.Equal(t, before, transactions(t, nb), "there was no question")

	// It answers.
	q, err := other.Ask(t.Context(), "b")
	require.NoError(t, err)
	require.NoError(t, other.Stands(q))
	same, err := connect(t, nb.NB()).Ask(t.Context(), "c")
	require.NoError(t, err)
	require.Equal(t, q, same, "one question at a time")
	require.Eventually(t, func() bool { return asked.Load() > 0 }, patient, 5*time.Millisecond)
	require.ErrorIs(t, other.Answer(t.Context()), ovn.ErrFenced, "who does not lead has no answer")
	require.NoError(t, first.Answer(t.Context()))
	was, now := led(t, other, "192.0.2.2")
	require.ErrorIs(t, other.StandIn(t.Context(), q, "exits", was, now), ovn.ErrAnswered)

	// It does not.
	q, err = other.Ask(t.Context(), "b")
	require.NoError(t, err)
	touched.Store(0)
	require.NoError(t, other.StandIn(t.Context(), q, "exits", was, now))
	require.ErrorIs(t, other.StandIn(t.Context(), q, "exits", now, was), ovn.ErrAnswered, "a question is good for one change")
	routes, err := other.Routes("exits")
	require.NoError(t, err)
	require.Equal(t, []string{"192.0.2.2"}, routes["ip4.src == 10.0.0.0/24"].Nexthops)
	require.Equal(t, []string{"192.0.2.1"}, routes["ip4.src == 10.0.1.0/24"].Nexthops)
	require.Eventually(t, func() bool { return touched.Load() > 0 }, patient, 5*time.Millisecond, "the leader hears of it")
	before = transactions(t, nb)
	require.NoError(t, first.Answer(t.Context()))
	require.Equal(t, before, transactions(t, nb))

	// A route that is not as it was seen stays, and a new leader wins.
	q, err = other.Ask(t.Context(), "b")
	require.NoError(t, err)
	require.Error(t, other.StandIn(t.Context(), q, "exits", was, now))
	require.NoError(t, other.Stands(q))
	_, err = first.Take(t.Context(), "a")
	require.NoError(t, err)
	was, now = led(t, other, "192.0.2.3")
	require.ErrorIs(t, other.StandIn(t.Context(), q, "exits", was, now), ovn.ErrAnswered)
	require.NoError(t, first.Apply(t.Context(), exits("192.0.2.1")))
	require.NoError(t, first.Answer(t.Context()))
}

// TestStandInOrAnswer: of a leader that answers and a client that stands in at one moment
// exactly one succeeds, and if it is the leader nothing is changed.
func TestStandInOrAnswer(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	first, other := leader(t, nb.NB(), "a"), connect(t, nb.NB())
	for i := range 20 {
		require.NoError(t, first.Apply(t.Context(), exits("192.0.2.1")))
		require.Eventually(t, func() bool {
			r, err := other.Routes("exits")
			return err == nil && len(r) == 2 && r["ip4.src == 10.0.0.0/24"].Nexthops[0] == "192.0.2.1"
		}, patient, time.Millisecond)
		was, now := led(t, other, "192.0.2.2")
		q, err := other.Ask(t.Context(), "b")
		require.NoError(t, err)
		require.Eventually(t, func() bool { return first.Stands(q) == nil }, patient, time.Millisecond)
		answered := make(chan error, 1)
		go func(ctx context.Context) { answered <- first.Answer(ctx) }(t.Context())
		err = other.StandIn(t.Context(), q, "exits", was, now)
		require.NoError(t, <-answered)
		want := "192.0.2.2"
		if err != nil {
			require.ErrorIs(t, err, ovn.ErrAnswered)
			want = "192.0.2.1"
		}
		require.Contains(t, nb.Nbctl("--bare", "--columns=nexthops", "find", "Logical_Router_Policy", `match="ip4.src == 10.0.0.0/24"`), want, "round %d", i)
	}
}
