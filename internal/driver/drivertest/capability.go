package drivertest

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
)

// capability is what a driver of C owes beside its own methods.
type capability struct {
	name string
	has  func(driver.Driver) bool
	run  func(*testing.T, *bed)
}

func owes[C any](name string, run func(*testing.T, *bed, C)) capability {
	return capability{
		name: name,
		has:  func(d driver.Driver) bool { _, ok := d.(C); return ok },
		run: func(t *testing.T, b *bed) {
			c, ok := b.Driver.(C)
			require.True(t, ok)
			run(t, b, c)
		},
	}
}

var capabilities = []capability{
	owes("Carrier", carries),
	owes("Starter", starts),
	owes("Prover", proves),
	owes("Insider", tellsOfProcesses),
	owes("Refuser", refuses),
	owes("Killer", kills),
	owes("Delegator", delegates),
	owes("Dependent", depends),
	owes("Sweeper", sweeps),
	owes("Guesser", guesses),
	owes("Finder", finds),
	owes("Recoverer", recovers),
	owes("Restorer", restores),
	owes("Repairer", repairs),
	owes("Changer", changes),
}

// again is the driver as a new process has it.
func again[C any](b *bed) C {
	b.Helper()
	d := b.Driver
	if b.Again != nil {
		d = b.Again()
	}
	c, ok := d.(C)
	require.True(b, ok)
	return c
}

// Carry makes the same of the same, and only adds to the Spec; what it makes can
// be attached.
func carries(t *testing.T, b *bed, d driver.Carrier) {
	s := b.spec(1, b.pod())
	n := core.NIC{Driver: s.Driver, Type: v1.NICVeth, Settings: s.NIC.Settings}
	if port := s.OVS(); port != nil {
		n.Type = port.Type
	}
	carry := func() core.Spec {
		out := s
		out.ChangeNIC().OVS = nil
		require.NoError(t, d.Carry(&out, &n))
		return out
	}
	first := carry()
	require.Equal(t, first, carry())
	common := first
	common.ChangeNIC().OVS = s.NIC.OVS
	require.Equal(t, s, common)
	b.attach(first)
	b.detach(first)
	b.clean()
}

func starts(t *testing.T, b *bed, d driver.Starter) {
	p := b.pod()
	s := b.spec(1, p)
	l, settled, err := d.Start(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.Contains(t, b.links(p), l.IfName)
	require.NoError(t, settled(t.Context()))
	require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, s, l))
	b.detach(s)
	b.clean()
}

// Prove makes nothing, and what it refuses Attach refuses too.
func proves(t *testing.T, b *bed, d driver.Prover) {
	p := b.pod()
	before := b.links(p)
	require.NoError(t, d.Prove(t.Context(), b.spec(1, p)))
	bad := b.bad(p)
	require.Error(t, d.Prove(t.Context(), bad))
	require.Equal(t, before, b.links(p))
	b.clean()
	_, err := b.Driver.Attach(t.Context(), driver.Run{}, bad)
	require.Error(t, err)
}

// Every process is reported before it does anything, and no other one is; one that
// cannot be recorded has done nothing.
func tellsOfProcesses(t *testing.T, b *bed, d driver.Insider) {
	p := b.pod()
	s := b.spec(1, p)
	full := errors.New("the disk is full")
	_, err := b.Driver.Attach(t.Context(), driver.Run{Report: func(context.Context, core.Proc) error { return full }}, s)
	require.ErrorIs(t, err, full)
	require.NotContains(t, b.links(p), s.Key.IfName)
	b.clean()

	var procs []core.Proc
	_, err = b.Driver.Attach(t.Context(), driver.Run{Report: func(_ context.Context, p core.Proc) error {
		procs = append(procs, p)
		return nil
	}}, s)
	require.NoError(t, err)
	require.NotEmpty(t, procs)
	for _, proc := range procs {
		require.Equal(t, d.Inside(s), proc == core.Proc{})
	}
	b.detach(s)
	b.clean()
}

// What was refused can be detached as Refused says, and the Spec itself is not
// changed: others may be reading it.
func refuses(t *testing.T, b *bed, d driver.Refuser) {
	p := b.pod()
	bad, same := b.bad(p), b.bad(p)
	_, err := b.Driver.Attach(t.Context(), driver.Run{}, bad)
	require.Error(t, err)
	refused := d.Refused(bad, err)
	require.Equal(t, same, bad)
	b.detach(refused)
	b.detach(refused)
	b.clean()
}

// A process that is another's by now lives, and one that is gone is no error.
func kills(t *testing.T, _ *bed, d driver.Killer) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	stranger := core.Proc{PGID: cmd.Process.Pid, StartTime: 1}
	require.NoError(t, d.Kill(stranger))
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "of another start time: a stranger")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "killed")
	require.NoError(t, d.Kill(stranger))
}

// GC spares what is attached.
func delegates(t *testing.T, b *bed, d driver.Delegator) {
	s := b.spec(1, b.pod())
	l := b.attach(s)
	require.NoError(t, d.Status(t.Context(), driver.Run{}, *s.Exec))
	require.NoError(t, d.GC(t.Context(), driver.Run{}, *s.Exec, []core.Key{s.Key}))
	require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, s, l))
	b.detach(s)
	require.NoError(t, d.GC(t.Context(), driver.Run{}, *s.Exec, nil))
	b.clean()
}

// Without what it depends on all three say so, and Attach does; it goes on with it.
func depends(t *testing.T, b *bed, d driver.Dependent) {
	require.NotNil(t, b.Away)
	p := b.pod()
	s := b.spec(1, p)
	answers := func() error { return errors.Join(d.Ready(t.Context()), d.Running(t.Context()), d.Connected()) }
	require.NoError(t, answers())
	back := b.Away()
	b.until(func() bool { return d.Connected() != nil })
	require.Error(t, d.Ready(t.Context()))
	require.Error(t, d.Running(t.Context()))
	_, err := b.Driver.Attach(t.Context(), driver.Run{}, s)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.NotContains(t, b.links(p), s.Key.IfName)
	back()
	b.until(func() bool { return answers() == nil })
	b.attach(s)
	b.detach(s)
	b.clean()
}

// Strays are what is not kept, to tell them changes nothing, and to remove them
// harms no other; what was lost comes back, in the time that a switch needs.
func sweeps(t *testing.T, b *bed, _ driver.Sweeper) {
	s, o := b.spec(1, b.pod()), b.spec(2, b.pod())
	l, lost := b.attach(s), b.attach(o)
	d, full := again[driver.Sweeper](b), b.Inventory()
	strays, err := d.Strays(t.Context(), []core.Spec{s, o})
	require.NoError(t, err)
	require.Empty(t, strays)
	strays, err = d.Strays(t.Context(), []core.Spec{s})
	require.NoError(t, err)
	require.NotEmpty(t, strays)
	require.Equal(t, full, b.Inventory())
	for _, stray := range strays {
		require.Equal(t, o.Key, stray.Key)
		require.NoError(t, stray.Remove(t.Context()))
	}
	require.NoError(t, d.Resync(t.Context(), []core.Spec{s}))
	require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, s, l))
	b.until(func() bool { return b.Driver.Check(t.Context(), driver.Run{}, o, lost) != nil })
	if b.Lose != nil {
		b.Lose(s) // each of the two drivers hears of it a little later
		b.until(func() bool { return errors.Is(b.Driver.Check(t.Context(), driver.Run{}, s, l), core.ErrDrift) })
		b.until(func() bool {
			return errors.Join(d.Resync(t.Context(), []core.Spec{s}), b.Driver.Check(t.Context(), driver.Run{}, s, l)) == nil
		})
	}
	b.detach(s)
	b.detach(o)
	b.clean()
}

// A guess is enough to detach, and harms nobody where nothing is there.
func guesses(_ *testing.T, b *bed, d driver.Guesser) {
	p := b.pod()
	s, o := b.spec(1, p), b.spec(2, b.pod())
	b.detach(d.Guess(s.Key, s.Netns))
	b.attach(s)
	l := b.attach(o)
	b.detach(d.Guess(s.Key, s.Netns))
	b.until(func() bool { return !slices.Contains(b.links(p), s.Key.IfName) })
	require.NoError(b, b.Driver.Check(b.Context(), driver.Run{}, o, l))
	b.detach(o)
	b.clean()
}

func finds(t *testing.T, b *bed, d driver.Finder) {
	s := b.spec(1, b.pod())
	require.False(t, d.Left(s))
	b.attach(s)
	require.True(t, d.Left(s))
	require.True(t, again[driver.Finder](b).Left(s))
	b.detach(s)
	require.False(t, d.Left(s))
	b.clean()
}

// What is read back is what was attached, and enough to detach it.
func recovers(t *testing.T, b *bed, _ driver.Recoverer) {
	s := b.spec(1, b.pod())
	none, err := again[driver.Recoverer](b).Recover()
	require.NoError(t, err)
	require.Empty(t, none)
	b.attach(s)
	d := again[driver.Recoverer](b)
	found, err := d.Recover()
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, s.Key, found[0].Key)
	require.Equal(t, s.Driver, found[0].Driver)
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, found[0]))
	b.detach(s)
	b.clean()
}

// A new process makes the whole of exactly the Specs that it is told.
func restores(t *testing.T, b *bed, _ driver.Restorer) {
	s, o := b.spec(1, b.pod()), b.spec(2, b.pod())
	l, other := b.attach(s), b.attach(o)
	d := again[driver.Restorer](b)
	for range 2 {
		require.NoError(t, d.Restore(t.Context(), []core.Spec{s}))
		require.NoError(t, d.Check(t.Context(), driver.Run{}, s, l))
		require.Error(t, d.Check(t.Context(), driver.Run{}, o, other))
	}
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, o))
	b.clean()
}

// What was lost outside of the pod is told and put right; otherwise nothing is done.
func repairs(t *testing.T, b *bed, d driver.Repairer) {
	require.NotNil(t, b.Lose)
	s := b.spec(1, b.pod())
	l := b.attach(s)
	there := b.Inventory()
	found, err := d.Repair(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.NoError(t, found)
	require.Equal(t, there, b.Inventory())
	b.Lose(s)
	b.until(func() bool { // the driver hears of the loss a little later
		found, err = d.Repair(t.Context(), driver.Run{}, s)
		return found != nil || err != nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, found, core.ErrDrift)
	b.until(func() bool { return b.Driver.Check(t.Context(), driver.Run{}, s, l) == nil })
	b.detach(s)
	b.clean()
}

// bad is a Spec that Attach refuses.
func (b *bed) bad(p pod) core.Spec {
	b.Helper()
	require.NotNil(b, b.Bad)
	s := b.spec(1, p)
	return b.Bad(s)
}

// until waits for something that happens in the background.
func (b *bed) until(ok func() bool) {
	b.Helper()
	require.Eventually(b, ok, patient, 5*time.Millisecond)
}

// held are the capabilities that a driver has.
func held(d driver.Driver) []capability {
	return slices.DeleteFunc(slices.Clone(capabilities), func(c capability) bool { return !c.has(d) })
}

// changes: a change to what there is already succeeds, or is refused with a reason; what was
// made is as it was.
func changes(t *testing.T, b *bed, d driver.Changer) {
	s := b.spec(1, b.pod())
	l := b.attach(s)
	next := s
	x := next.ChangeExec()
	x.Former = x.Conf
	for range 2 {
		if err := d.Change(t.Context(), driver.Run{}, next); err != nil {
			require.NotEmpty(t, core.ReasonOf(err), "%v", err)
		}
		require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, s, l))
	}
	b.detach(s)
	require.Error(t, d.Change(t.Context(), driver.Run{}, next), "nothing is there to be changed")
	b.clean()
}
