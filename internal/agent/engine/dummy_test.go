package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest/dummy"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// absent is a driver of ports whose switch does not answer.
type absent struct{ *nics }

func (absent) err() error                                                    { return fmt.Errorf("OVSDB: %w", core.ErrUnavailable) }
func (a absent) Ready(context.Context) error                                 { return a.err() }
func (a absent) Running(context.Context) error                               { return a.err() }
func (a absent) Connected() error                                            { return a.err() }
func (a absent) Resync(context.Context, []core.Spec) error                   { return a.err() }
func (a absent) Strays(context.Context, []core.Spec) ([]driver.Stray, error) { return nil, a.err() }
func (a absent) Detach(context.Context, driver.Run, core.Spec) error         { return a.err() }

// node has dummy NICs beside a switch that is away.
type node struct {
	*Engine
	host *netns.Handle
}

func newDummyNode(t *testing.T, e *Engine) node {
	n := node{e, netnstest.New(t)}
	n.Drivers = driver.Set{core.DriverOVS: absent{&nics{}}, core.DriverDummy: dummy.New(n.host)}
	return n
}

// links are those of the node that its drivers made.
func (n node) links(t *testing.T) []string {
	var out []string
	for _, name := range inside.Links(t, n.host) {
		if name != "lo" {
			out = append(out, name)
		}
	}
	return out
}

// dummyAdd is an ADD for a network whose type names the driver.
func dummyAdd(t *testing.T) (core.Request, *netns.Handle) {
	t.Helper()
	req, pod := add(t), netnstest.New(t)
	req.Pod, req.Netns = core.Pod{}, netnstest.Path(pod)
	raw := json.RawMessage(`{"type":"fairlead-dummy"}`)
	req.Conf.Delegates = []core.Chain{{Name: "dummies", CNIVersion: "1.0.0", Plugins: []core.Plugin{{Type: "fairlead-dummy", Raw: raw}}}}
	return req, pod
}

// TestNICWithoutSwitch: while the switch is away a NIC that needs none has all that
// a NIC has, and the others are told to wait.
func TestNICWithoutSwitch(t *testing.T) {
	n := newDummyNode(t, newEngine(t, &nics{}))
	req, pod := dummyAdd(t)
	_, err := n.Add(t.Context(), add(t))
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))

	require.NoError(t, n.Status(t.Context(), req))
	require.ErrorIs(t, n.Status(t.Context(), core.Request{}), core.ErrUnavailable)
	answer, err := n.Add(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, core.DriverDummy, answer.Record.Specs[0].Driver)
	require.Contains(t, inside.Links(t, pod), "eth0")
	require.Len(t, n.links(t), 1)
	require.NoError(t, n.Check(t.Context(), core.Request{Key: req.Key}))
	inside.Sh(t, pod, "ip addr flush dev eth0")
	require.ErrorIs(t, n.Check(t.Context(), core.Request{Key: req.Key}), core.ErrDrift)

	require.NoError(t, n.Del(t.Context(), req))
	require.Empty(t, n.links(t))
	require.Empty(t, n.Journal.Records())
	require.Empty(t, n.IPAM.Leases())
}

// TestSweepWithoutSwitch: strays of a driver that works go while another is away,
// and it is told that this one's were not looked at.
func TestSweepWithoutSwitch(t *testing.T) {
	n := newDummyNode(t, newEngine(t, &nics{}))
	req, _ := dummyAdd(t)
	_, err := n.Add(t.Context(), req)
	require.NoError(t, err)
	id, err := n.identify(req.Netns)
	require.NoError(t, err)
	lost := core.Key{Container: "lost", IfName: "eth1"}
	d := n.Drivers[core.DriverDummy]
	_, err = d.Attach(t.Context(), driver.Run{}, d.(driver.Guesser).Guess(lost, id))
	require.NoError(t, err)
	require.Len(t, n.links(t), 2)

	told, err := n.Preview(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, told.Unswept, core.ErrUnavailable)
	require.Len(t, told.Strays, 1)
	require.Equal(t, lost, told.Strays[0].Key)
	require.Len(t, n.links(t), 2, "to tell removes nothing")
	require.NoError(t, n.Sweep(t.Context()))
	require.Len(t, n.links(t), 1)
	require.NoError(t, n.Check(t.Context(), core.Request{Key: req.Key}))
}

// TestRecoverWithoutSwitch: an ADD that a crash cut off is rolled back although the
// switch is away, unless it needs that.
func TestRecoverWithoutSwitch(t *testing.T) {
	n := newDummyNode(t, newEngine(t, &nics{}))
	req, _ := dummyAdd(t)
	id, err := n.identify(req.Netns)
	require.NoError(t, err)
	guess := n.Drivers.Guess(req.Key, id)
	require.Len(t, guess, 2, "one of each driver that may have made it")
	for _, s := range guess {
		s.Key.Container = s.Driver
		require.NoError(t, n.Journal.Begin(t.Context(), core.Record{Key: s.Key, Netns: id, Phase: core.Adding, Specs: []core.Spec{s}, Begun: 1}))
		if s.Driver == core.DriverDummy {
			_, err := n.Drivers[s.Driver].Attach(t.Context(), driver.Run{}, s)
			require.NoError(t, err)
		}
	}
	require.False(t, n.Recover(t.Context(), n.Journal.Records()), "the switch was not swept")
	require.Empty(t, n.links(t))
	require.Len(t, n.Journal.Records(), 1)
	require.Equal(t, core.DriverOVS, n.Journal.Records()[0].Specs[0].Driver)
}

// TestLostJournalOfNICWithoutSwitch: a DEL of a container that the journal has lost
// removes the interface that the driver guesses; a journal is whole once every
// driver has told what it has attached.
func TestLostJournalOfNICWithoutSwitch(t *testing.T) {
	n := newDummyNode(t, newNode(t, &nics{}))
	req, _ := dummyAdd(t)
	id, err := n.identify(req.Netns)
	require.NoError(t, err)
	d := n.Drivers[core.DriverDummy].(dummy.Driver)
	for _, key := range []core.Key{req.Key, {Container: "dead", IfName: "eth0"}} {
		s := d.Guess(key, id)
		s.Key.IfName = "if" + key.Container
		if key == req.Key {
			s.Key = key
		}
		_, err := d.Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err)
	}
	n.Drivers[core.DriverOVS] = absent{&nics{gone: true}}
	require.NoError(t, n.Del(t.Context(), req))
	require.Len(t, n.links(t), 1)
	_, err = n.Add(t.Context(), req)
	require.ErrorIs(t, err, core.ErrUnavailable, "nobody knows yet which addresses are in use")

	require.NoError(t, n.Adopt(t.Context()))
	require.True(t, n.Journal.Whole())
	n.finish(t.Context())
	require.Empty(t, n.links(t), "its namespace cannot be told from its link")
	_, err = n.Add(t.Context(), req)
	require.NoError(t, err)
}
