package drivertest

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// MakeNIC makes the interface that a Spec names, as the steps before do, for a
// driver that makes none itself; and gives it addresses, unless ctx is over.
func MakeNIC(ctx context.Context, s core.Spec, addrs ...netip.Prefix) error {
	return insidePod(s, func(ns *netns.Handle, c *rtnl.Conn) error {
		l, err := c.EnsureVeth(rtnl.Veth{Name: s.Key.IfName, MTU: 1500, Peer: ns, PeerName: "p" + s.Key.IfName})
		if err != nil || ctx.Err() != nil {
			return err
		}
		errs := []error{c.SetUp(l.Index), c.SetUp(l.PeerIndex)}
		for _, a := range addrs {
			errs = append(errs, c.AddAddr(l.Index, a, true))
		}
		return errors.Join(errs...)
	})
}

// FindNIC is nil where that interface is there.
func FindNIC(s core.Spec) error {
	return insidePod(s, func(_ *netns.Handle, c *rtnl.Conn) error {
		_, err := c.LinkByName(s.Key.IfName)
		return err
	})
}

// RemoveNIC removes it, if it and its namespace are there.
func RemoveNIC(s core.Spec) error {
	err := insidePod(s, func(_ *netns.Handle, c *rtnl.Conn) error {
		l, err := c.LinkByName(s.Key.IfName)
		if err == nil {
			err = c.DelLink(l.Index)
		}
		return err
	})
	if errors.Is(err, core.ErrNetnsGone) || errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

func insidePod(s core.Spec, fn func(*netns.Handle, *rtnl.Conn) error) error {
	ns, err := netns.Verify(s.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	c, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return fn(ns, c)
}
