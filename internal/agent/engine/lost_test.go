package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

var errAway = errors.New("OVSDB is away")

// TestDelWithLostJournal: while the journal is lost and OVSDB cannot be read, a
// DEL of a pod that lives fails, and is finished as soon as OVSDB is there,
// although the port looks like a living pod's.
func TestDelWithLostJournal(t *testing.T) {
	d := &nics{detach: errAway}
	e := newNode(t, d)
	req := add(t)
	require.ErrorIs(t, e.Del(t.Context(), req), errAway)
	rec, ok := e.Journal.Get(req.Key)
	require.True(t, ok)
	require.Equal(t, core.Deleting, rec.Phase)
	require.ErrorIs(t, e.Del(t.Context(), req), errAway, "the runtime repeats it")

	d.detach = nil
	found := d.Guess(req.Key, core.Netns{Path: req.Netns})
	require.NoError(t, e.adopt(t.Context(), []core.Spec{found}))
	e.finish(t.Context())
	require.Empty(t, e.Journal.Records())
}

// TestDelWithLostJournalAndNamespace: where the namespace is gone the DEL
// succeeds, and what is left is removed in the background.
func TestDelWithLostJournalAndNamespace(t *testing.T) {
	d := &nics{detach: errAway}
	e := newNode(t, d)
	req := add(t)
	req.Netns = ""
	require.NoError(t, e.Del(t.Context(), req))
	rec, _ := e.Journal.Get(req.Key)
	require.True(t, rec.Orphan)
	d.detach = nil
	require.NoError(t, e.Del(t.Context(), req))
	require.Empty(t, e.Journal.Records())

	d.detach, d.gone = errAway, true
	require.NoError(t, e.Del(t.Context(), req))
	require.Empty(t, e.Journal.Records(), "nothing is there to be detached")
}

// TestGCOfAdoptedRecords: records whose network's name was lost go with the GC of
// any network of ours, unless the container is listed or lives.
func TestGCOfAdoptedRecords(t *testing.T) {
	e := newNode(t, &nics{})
	living, err := e.identify(netnstest.Path(netnstest.New(t)))
	require.NoError(t, err)
	require.NoError(t, e.Journal.SetWhole(t.Context()))
	for id, ns := range map[string]core.Netns{"dead": {BootID: e.BootID}, "listed": {BootID: e.BootID}, "living": living} {
		s := readBack(id)
		s.Netns = ns
		require.NoError(t, e.Journal.Begin(t.Context(), core.Record{
			Key: s.Key, Phase: core.Added, Netns: ns, Specs: []core.Spec{s}, Links: []core.Link{{}}, Begun: 1,
		}))
	}
	req := core.Request{Conf: core.Conf{Name: "net", Type: "macvlan", HasValid: true, Valid: []core.Key{{Container: "listed", IfName: "eth9"}}}}
	require.NoError(t, e.GC(t.Context(), req))
	require.Len(t, e.Journal.Heads(), 3, "of a network that is not ours")
	req.Conf.Type = "fairlead"
	require.NoError(t, e.GC(t.Context(), req))
	var left []string
	for _, h := range e.Journal.Heads() {
		left = append(left, h.Key.Container)
	}
	require.Equal(t, []string{"listed", "living"}, left)
}

// TestRefusedIntentThatCannotBeUndone: an ADD that the journal refused, on a full
// disk, and that could not be undone, holds its addresses only until it can be.
func TestRefusedIntentThatCannotBeUndone(t *testing.T) {
	for name, settle := range map[string]func(*Engine, core.Request){
		"in the background": func(e *Engine, _ core.Request) { e.finish(t.Context()) },
		"by the retry": func(e *Engine, req core.Request) {
			_, err := e.Add(t.Context(), req)
			require.ErrorIs(t, err, core.ErrUnavailable)
		},
		"by the DEL": func(e *Engine, req core.Request) { require.NoError(t, e.Del(t.Context(), req)) },
	} {
		d := &nics{detach: errAway}
		e, req := newEngine(t, d), add(t)
		require.NoError(t, e.Journal.Close())
		_, err := e.Add(t.Context(), req)
		require.ErrorIs(t, err, core.ErrUnavailable, name)
		require.NotEmpty(t, e.IPAM.Leases(), "a port may still use the addresses")
		_, err = e.Add(t.Context(), req)
		require.ErrorIs(t, err, errAway, "nothing new is begun before")

		d.detach = nil
		settle(e, req)
		require.Empty(t, e.IPAM.Leases(), name)
	}
}
