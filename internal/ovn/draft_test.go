package ovn

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

func running(t *testing.T, nb *bed.Central) *Client {
	t.Helper()
	c := New(Config{Endpoint: nb.NB(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	require.Eventually(t, func() bool { return c.Connected() == nil }, time.Minute, 5*time.Millisecond)
	return c
}

func requests(t *testing.T, sets ...*Set) (out []*request) {
	t.Helper()
	for _, s := range sets {
		for _, r := range s.rows {
			r.sign(s.Owner)
		}
		out = append(out, &request{ctx: t.Context(), set: s, done: make(chan error, 1)})
	}
	return out
}

// TestFenceInTheDatabase: a transaction that was built while its client led, and
// comes after another took the database, is refused by the server.
func TestFenceInTheDatabase(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	former, now := running(t, nb), running(t, nb)
	_, err := former.Take(t.Context(), "former")
	require.NoError(t, err)
	s := &Set{Owner: "web"}
	s.Put(&LogicalSwitch{Name: "web"})
	conn, err := former.db.Conn()
	require.NoError(t, err)
	d, in, _, err := former.draft(conn.View, requests(t, s))
	require.NoError(t, err)
	require.Len(t, in, 1)

	_, err = now.Take(t.Context(), "now")
	require.NoError(t, err)
	var refused *ovsdb.TimedOut
	require.ErrorAs(t, conn.Commit(t.Context(), d.finish()), &refused)
	require.Zero(t, nb.Count("Logical_Switch"))
	require.ErrorIs(t, former.Apply(t.Context(), s), ErrFenced)
	require.NoError(t, now.Apply(t.Context(), s))
}

// TestTogether: of Sets in one transaction one may need what another brings,
// and one that removes what another begins to use waits for the next.
func TestTogether(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	c := running(t, nb)
	_, err := c.Take(t.Context(), "a")
	require.NoError(t, err)
	web, port, none := &Set{Owner: "web"}, &Set{Owner: "port"}, &Set{Owner: "none"}
	web.Put(&LogicalSwitch{Name: "web"})
	port.Put(&LogicalSwitchPort{Name: "p"}, InSwitch("web"))
	none.Put(&LogicalSwitchPort{Name: "q"}, InSwitch("other"))
	batch := requests(t, port, none, web)
	in, alone, err := c.commit(t.Context(), batch)
	require.NoError(t, err)
	require.Empty(t, alone)
	require.Equal(t, []*request{batch[2], batch[0]}, in)
	require.ErrorAs(t, <-batch[1].done, new(*MissingError))
	require.Contains(t, nb.Nbctl("lsp-list", "web"), "(p)")

	more := &Set{Owner: "more"}
	more.Put(&LogicalSwitchPort{Name: "r"}, InSwitch("web"))
	batch = requests(t, more, &Set{Owner: "web"}, &Set{Owner: "port"})
	in, alone, err = c.commit(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, []*request{batch[1]}, alone)
	require.Len(t, in, 2)
	require.Contains(t, nb.Nbctl("lsp-list", "web"), "(r)")

	// Called as a whole, each is answered.
	more.Put(&LogicalSwitchPort{Name: "s"}, InSwitch("web"))
	batch = requests(t, more, &Set{Owner: "web"})
	c.carryOut(t.Context(), batch)
	require.NoError(t, <-batch[0].done)
	require.NoError(t, <-batch[1].done)
	require.Zero(t, nb.Count("Logical_Switch"))
	require.ErrorAs(t, c.Apply(t.Context(), more), new(*MissingError), "its switch is gone, and its ports with it")
}
