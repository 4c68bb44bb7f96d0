// Package dummy is a driver of NICs that lead nowhere: a veth pair whose end on the
// node is in no switch. Tests prove with it what a kind of NIC needs beside its
// folder, and that the agent serves one which needs no Open vSwitch. It is an
// example to start another driver from: it knows one Spec at a time and keeps
// nothing in memory.
package dummy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// group marks the links that we make; whose one is, its alias says.
const group uint32 = 0x0FA1D0DD

// Driver makes them on the node whose namespace host is, nil for the process's own.
type Driver struct{ host *netns.Handle }

var (
	_ driver.Carrier   = Driver{}
	_ driver.Finder    = Driver{}
	_ driver.Sweeper   = Driver{}
	_ driver.Guesser   = Driver{}
	_ driver.Recoverer = Driver{}
)

// New makes the driver.
func New(host *netns.Handle) Driver { return Driver{host} }

// Carry implements driver.Carrier. All that the driver needs follows from the key:
// its NICs have no part of a carrier.
func (Driver) Carry(s *core.Spec, n *core.NIC) error {
	if err := n.Hardware.Cannot(s.Key.IfName, "a dummy"); err != nil {
		return err
	}
	if n.VLAN != 0 || n.Tuning != (core.Tuning{}) || n.Type != v1.NICVeth {
		return core.Errorf(core.CodeValue, "a dummy NIC has no VLAN, no rates, no mirror and no other type than %s", v1.NICVeth)
	}
	return nil
}

// Attach makes the pair with its far end already in the pod: a crash can leave only
// a link of the node, whose name follows from the key.
func (d Driver) Attach(ctx context.Context, _ driver.Run, s core.Spec) (core.Link, error) {
	l, err := d.attach(ctx, s)
	if err != nil {
		return core.Link{}, fmt.Errorf("attach %s: %w", s.Key, err)
	}
	return l, nil
}

func (d Driver) attach(ctx context.Context, s core.Spec) (core.Link, error) {
	pod, err := netns.Verify(s.Netns)
	if err != nil {
		return core.Link{}, err
	}
	defer func() { _ = pod.Close() }()
	if s.Kind() != core.KindNIC {
		return core.Link{}, core.Errorf(core.CodeConfig, "the spec is of no NIC")
	}
	var near rtnl.Link
	err = d.onNode(func(c *rtnl.Conn) (err error) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		near, err = c.EnsureVeth(rtnl.Veth{
			Name: hostIf(s.Key), Group: group, MTU: s.NIC.MTU, Peer: pod, PeerName: s.Key.IfName, PeerMAC: s.NIC.MAC,
		})
		fail.Here("dummy.veth")
		if err == nil {
			err = c.Apply(near.Index, rtnl.Change{Alias: s.Key.String(), Up: true})
		}
		return err
	})
	if err != nil {
		return core.Link{}, err
	}
	out := core.Link{HostIf: near.Name, IfName: s.Key.IfName, Addrs: s.NIC.Addrs, Gateways: s.NIC.Gateways, PodSide: s.NIC.PodSide}
	err = in(pod, func(c *rtnl.Conn) error {
		far, err := c.LinkByIndex(near.PeerIndex)
		out.MAC, out.MTU = far.MAC, far.MTU
		return errors.Join(err, configure(c, far.Index, s.NIC))
	})
	fail.Here("dummy.pod")
	return out, err
}

// configure makes the pod's end what the NIC says.
func configure(c *rtnl.Conn, index int, n *core.NICSpec) error {
	for _, p := range n.Addrs {
		if err := c.AddAddr(index, p, true); err != nil {
			return err
		}
	}
	if err := c.SetUp(index); err != nil {
		return err
	}
	for _, r := range n.Routes {
		if err := c.ReplaceRoute(rtnl.Route{Dst: r.Dst.Masked(), GW: r.GW, Index: index, OnLink: r.GW.IsValid()}); err != nil {
			return err
		}
	}
	return nil
}

// Check proves both ends, and the addresses in the pod.
func (d Driver) Check(ctx context.Context, _ driver.Run, s core.Spec, _ core.Link) error {
	pod, err := netns.Verify(s.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	if !d.Left(s) {
		return core.Difference("link is missing on the node")
	}
	return errors.Join(ctx.Err(), in(pod, func(c *rtnl.Conn) error {
		far, err := c.LinkByName(s.Key.IfName)
		if errors.Is(err, core.ErrNotFound) {
			return core.Difference("link is missing in the pod")
		}
		if err != nil {
			return err
		}
		have, err := c.Addrs(far.Index)
		errs := []error{err}
		for _, want := range s.NIC.Addrs {
			if !rtnl.HasAddr(have, want) {
				errs = append(errs, core.Differ("address %s is missing", want))
			}
		}
		return errors.Join(errs...)
	}))
}

// Detach deletes the pair by its end on the node, whatever became of the pod.
func (d Driver) Detach(_ context.Context, _ driver.Run, s core.Spec) error {
	err := d.onNode(func(c *rtnl.Conn) error {
		near, err := c.LinkByName(hostIf(s.Key))
		if errors.Is(err, core.ErrNotFound) || err == nil && !ours(near, s.Key) {
			return nil
		}
		if err != nil {
			return err
		}
		return c.DelLink(near.Index)
	})
	fail.Here("dummy.gone")
	if err != nil {
		return fmt.Errorf("detach %s: %w", s.Key, err)
	}
	return nil
}

// Left implements driver.Finder. What cannot be looked at counts as there.
func (d Driver) Left(s core.Spec) bool {
	left := true
	_ = d.onNode(func(c *rtnl.Conn) error {
		near, err := c.LinkByName(hostIf(s.Key))
		left = err == nil && ours(near, s.Key) || err != nil && !errors.Is(err, core.ErrNotFound)
		return nil
	})
	return left
}

// Guess implements driver.Guesser.
func (Driver) Guess(key core.Key, ns core.Netns) core.Spec {
	return core.Spec{Key: key, Driver: core.DriverDummy, Netns: ns, NIC: &core.NICSpec{}}
}

// Resync implements driver.Sweeper: a pair lives as long as its pod does.
func (Driver) Resync(context.Context, []core.Spec) error { return nil }

// Strays implements driver.Sweeper.
func (d Driver) Strays(_ context.Context, keep []core.Spec) ([]driver.Stray, error) {
	kept := map[string]bool{}
	for _, s := range keep {
		kept[hostIf(s.Key)] = true
	}
	var out []driver.Stray
	links, err := d.links()
	for _, l := range links {
		if key, _ := core.ParseKey(l.Alias); !kept[l.Name] {
			out = append(out, driver.Stray{Kind: driver.StrayLink, Name: l.Name, Key: key, Remove: func(context.Context) error {
				return d.onNode(func(c *rtnl.Conn) error { return c.DelLink(l.Index) })
			}})
		}
	}
	return out, err
}

// Recover implements driver.Recoverer. The links tell whose they are, and nothing of
// addresses or namespaces: that is enough to detach them.
func (d Driver) Recover() ([]core.Spec, error) {
	var out []core.Spec
	links, err := d.links()
	for _, l := range links {
		if key, ok := core.ParseKey(l.Alias); ok {
			out = append(out, d.Guess(key, core.Netns{}))
		}
	}
	return out, err
}

// links are those of the node that carry our mark.
func (d Driver) links() (out []rtnl.Link, err error) {
	err = d.onNode(func(c *rtnl.Conn) error {
		all, err := c.Links()
		for _, l := range all {
			if l.Group == group {
				out = append(out, l)
			}
		}
		return err
	})
	return out, err
}

func (d Driver) onNode(fn func(*rtnl.Conn) error) error { return in(d.host, fn) }

// in gives fn a namespace.
func in(ns *netns.Handle, fn func(*rtnl.Conn) error) error {
	c, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return fn(c)
}

// ours tells that a link of the node is the attachment's. One without alias is of an
// Attach that died before it was set.
func ours(l rtnl.Link, k core.Key) bool {
	return l.Group == group && (l.Alias == k.String() || l.Alias == "")
}

// hostIf is the name of the pair's end on the node.
func hostIf(k core.Key) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "dm" + hex.EncodeToString(sum[:6])
}
