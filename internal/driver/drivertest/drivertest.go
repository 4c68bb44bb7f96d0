// Package drivertest is the one suite that every driver passes: attach, prove,
// detach, in good order and in bad, in real network namespaces, and each capability
// that the driver has (driver/capability.go). What a driver
// needs around it, and what it may leave behind where, its own test tells the
// suite; the suite knows no implementation.
package drivertest

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Machine is where a driver works: a node of the test's own.
type Machine struct {
	Driver driver.Driver
	// Spec describes interface number n (from 1; different numbers never
	// conflict) of a pod in the namespace ns.
	Spec func(n int, ns core.Netns) core.Spec
	// Inventory lists all that the driver may leave outside of pods: links,
	// ports, files. It first waits for what the driver does in the background.
	Inventory func() []string

	// What some capabilities need; nil where the driver has none of these.

	// Again is the driver as a new process has it; nil for one that keeps nothing in
	// memory.
	Again func() driver.Driver
	// Bad makes of a Spec one that Attach refuses, and Prove.
	Bad func(core.Spec) core.Spec
	// Away takes away what a Dependent needs, until the function is called.
	Away func() (back func())
	// Lose removes what Attach made outside of the pod, behind the driver's back.
	Lose func(core.Spec)
}

// Factory makes a Machine that ends with the test.
type Factory func(t *testing.T) *Machine

const patient = 20 * time.Second

// Run runs the suite; each case has a Machine of its own.
func Run(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bed)
	}{
		{"attach and detach", attachDetach},
		{"attach again", attachAgain},
		{"attach after detach", attachAfterDetach},
		{"detach what was never attached", detachNothing},
		{"one pod's end is not another's", twoPods},
		{"two interfaces of one pod", twoInterfaces},
		{"namespace gone", namespaceGone},
		{"path reused by another pod", pathReused},
		{"another boot", anotherBoot},
		{"context cancelled", cancelled},
		{"attach where there is no namespace", noNamespace},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newBed(t, f)) })
	}
	for _, c := range held(f(t).Driver) {
		t.Run(c.name, func(t *testing.T) { c.run(t, newBed(t, f)) })
	}
}

func newBed(t *testing.T, f Factory) *bed {
	b := &bed{T: t, Machine: f(t)}
	b.before = b.Inventory()
	return b
}

// bed is a Machine in use.
type bed struct {
	*testing.T
	*Machine
	before []string
}

// pod is a network namespace that a path leads to.
type pod struct {
	ns   *netns.Handle
	path string
}

func (b *bed) pod() pod {
	ns := netnstest.New(b)
	return pod{ns, netnstest.Bind(b, ns)}
}

func (b *bed) spec(n int, p pod) core.Spec {
	id, err := netns.Identify(p.path)
	require.NoError(b, err)
	return b.Spec(n, id)
}

func (b *bed) attach(s core.Spec) core.Link {
	b.Helper()
	l, err := b.Driver.Attach(b.Context(), driver.Run{}, s)
	require.NoError(b, err)
	require.Equal(b, s.Key.IfName, l.IfName)
	require.NoError(b, b.Driver.Check(b.Context(), driver.Run{}, s, l), "what was just made")
	return l
}

func (b *bed) detach(s core.Spec) {
	b.Helper()
	require.NoError(b, b.Driver.Detach(b.Context(), driver.Run{}, s))
}

// clean proves that nothing is left on the machine.
func (b *bed) clean() {
	b.Helper()
	var now []string
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// The kernel takes a namespace apart in its own time.
		if now = b.Inventory(); slices.Equal(b.before, now) {
			return
		}
	}
	b.Fatalf("inventory changed (-before +after):\n%s", cmp.Diff(b.before, now))
}

// links are the names of a pod's links.
func (b *bed) links(p pod) (names []string) {
	b.Helper()
	c, err := rtnl.Open(p.ns)
	require.NoError(b, err)
	defer func() { _ = c.Close() }()
	all, err := c.Links()
	require.NoError(b, err)
	for _, l := range all {
		names = append(names, l.Name)
	}
	return names
}

// addrs are the global addresses of a pod's link.
func (b *bed) addrs(p pod, name string) (list []netip.Prefix) {
	b.Helper()
	c, err := rtnl.Open(p.ns)
	require.NoError(b, err)
	defer func() { _ = c.Close() }()
	l, err := c.LinkByName(name)
	require.NoError(b, err)
	all, err := c.Addrs(l.Index)
	require.NoError(b, err)
	for _, a := range all {
		if a.Scope == 0 {
			list = append(list, a.Prefix)
		}
	}
	return list
}

func attachDetach(t *testing.T, b *bed) {
	p := b.pod()
	s := b.spec(1, p)
	l := b.attach(s)
	require.Contains(t, b.links(p), l.IfName)
	require.ElementsMatch(t, l.Addrs, b.addrs(p, l.IfName), "the answer is the truth")
	for range 3 {
		require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, s, l), "looking changes nothing")
	}
	b.detach(s)
	require.NotContains(t, b.links(p), l.IfName, "the name is free at once")
	require.Error(t, b.Driver.Check(t.Context(), driver.Run{}, s, l), "it is gone")
	b.detach(s)
	b.clean()
	b.detach(s)
	b.clean()
}

func attachAgain(t *testing.T, b *bed) {
	p := b.pod()
	s := b.spec(1, p)
	first := b.attach(s)
	there := b.Inventory()
	require.Empty(t, cmp.Diff(first, b.attach(s), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })))
	require.Equal(t, there, b.Inventory(), "nothing doubled")
	b.detach(s)
	b.clean()
}

func attachAfterDetach(_ *testing.T, b *bed) {
	p := b.pod()
	s := b.spec(1, p)
	for range 3 { // no pause: the retry of a runtime comes at once
		b.attach(s)
		b.detach(s)
	}
	b.attach(s)
	b.detach(s)
	b.clean()
}

func detachNothing(_ *testing.T, b *bed) {
	b.detach(b.spec(1, b.pod()))
	b.clean()
}

func twoPods(t *testing.T, b *bed) {
	p, q := b.pod(), b.pod()
	s, o := b.spec(1, p), b.spec(2, q)
	ls, lo := b.attach(s), b.attach(o)
	b.detach(s)
	require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, o, lo), "the neighbour")
	require.NotContains(t, b.links(p), ls.IfName)
	require.Contains(t, b.links(q), lo.IfName)
	b.detach(o)
	b.clean()
}

func twoInterfaces(t *testing.T, b *bed) {
	p := b.pod()
	s, o := b.spec(1, p), b.spec(2, p)
	o.Key.Container, o.Key.IfName = s.Key.Container, "net1"
	b.attach(s)
	l := b.attach(o)
	b.detach(s)
	require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, o, l))
	b.detach(o)
	b.clean()
}

func namespaceGone(t *testing.T, b *bed) {
	p := b.pod()
	s := b.spec(1, p)
	l := b.attach(s)
	netnstest.Unbind(t, p.path)
	require.NoError(t, p.ns.Close())
	require.ErrorIs(t, b.Driver.Check(t.Context(), driver.Run{}, s, l), core.ErrNetnsGone)
	b.detach(s)
	b.detach(s)
	b.clean()
}

// A late DEL of an old container must not touch the pod that has its path now.
func pathReused(t *testing.T, b *bed) {
	p := b.pod()
	old := b.spec(1, p)
	b.attach(old)
	netnstest.Unbind(t, p.path)
	q := pod{netnstest.New(t), p.path}
	netnstest.Rebind(t, q.ns, q.path)
	fresh := b.spec(2, q)
	l := b.attach(fresh)
	_, err := b.Driver.Attach(t.Context(), driver.Run{}, old)
	require.ErrorIs(t, err, core.ErrNetnsGone)
	b.detach(old)
	require.NoError(t, b.Driver.Check(t.Context(), driver.Run{}, fresh, l), "the new pod is untouched")
	b.detach(fresh)
	require.NoError(t, p.ns.Close())
	b.clean()
}

func anotherBoot(t *testing.T, b *bed) {
	p := b.pod()
	s := b.spec(1, p)
	l := b.attach(s)
	old := s
	old.Netns.BootID = "00000000-0000-0000-0000-000000000000"
	_, err := b.Driver.Attach(t.Context(), driver.Run{}, old)
	require.ErrorIs(t, err, core.ErrNetnsGone)
	require.ErrorIs(t, b.Driver.Check(t.Context(), driver.Run{}, old, l), core.ErrNetnsGone)
	b.detach(s)
	b.clean()
}

func cancelled(t *testing.T, b *bed) {
	p := b.pod()
	s := b.spec(1, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Driver.Attach(ctx, driver.Run{}, s)
	require.ErrorIs(t, err, context.Canceled)
	b.detach(s)
	b.clean()
	require.NotContains(t, b.links(p), s.Key.IfName)
	b.attach(s)
	b.detach(s)
	b.clean()
}

func noNamespace(t *testing.T, b *bed) {
	p := b.pod()
	s := b.spec(1, p)
	netnstest.Unbind(t, p.path)
	_, err := b.Driver.Attach(t.Context(), driver.Run{}, s)
	require.ErrorIs(t, err, core.ErrNetnsGone)
	b.detach(s)
	b.clean()
}
