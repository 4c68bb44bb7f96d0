package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/ovs"
)

// Detach removes the port and puts both ends of the pair aside as tombstones:
// down, renamed, in GroupTombstone. The names are free when it returns; the
// links themselves go in batches (Run), because each deletion waits for an RCU
// grace period of 10-20 ms. It needs the Spec and nothing else; what is gone,
// or belongs to somebody else by now, it leaves alone.
func (d *Driver) Detach(ctx context.Context, r driver.Run, spec core.Spec) error {
	s, err := nicOf(spec)
	if err != nil {
		return fmt.Errorf("detach %s: %w", spec.Key, err)
	}
	defer d.locks.Hold(s.HostIf)()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("detach %s: %w", s.Key, err)
	}
	// Also when it fails: what is left is nobody's, and Resync and Sweep may have it.
	defer d.setDetached(s.HostIf)
	c, err := d.host.Get()
	if err != nil {
		return fmt.Errorf("detach %s: %w", s.Key, err)
	}
	defer d.host.Put(c)
	near, err := c.LinkByName(s.HostIf)
	own := err == nil && (ownLink(near, s.Key) || near.Group == GroupLive && d.portOf(s))
	if errors.Is(err, core.ErrNotFound) {
		err = nil
	}
	// A database that is away must not keep the pod's addresses on the wire.
	err = errors.Join(err, d.removePort(ctx, r.Time, s, own))
	d.insecure(ctx, s)
	switch {
	case s.Type == InternalPort:
		err = errors.Join(err, buryDevice(s))
	case own:
		err = errors.Join(err, d.removePair(r.Time, c, s, near))
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", s.Key, err)
	}
	return nil
}

// Left implements driver.Finder. What cannot be looked at counts as there.
func (d *Driver) Left(spec core.Spec) bool {
	s, err := nicOf(spec)
	if err != nil {
		return false // it never had one
	}
	if s.Type == InternalPort {
		return leftInPod(s)
	}
	c, err := d.host.Get()
	if err != nil {
		return true
	}
	defer d.host.Put(c)
	near, err := c.LinkByName(s.HostIf)
	if err != nil {
		return !errors.Is(err, core.ErrNotFound)
	}
	return ownLink(near, s.Key)
}

// leftInPod is Left of an internal port, whose only device is the pod's.
func leftInPod(s nic) (left bool) {
	err := inPod(s.Netns, func(c *rtnl.Conn) error {
		l, err := c.LinkByName(s.Key.IfName)
		left = err == nil && ownDevice(l, s)
		return err
	})
	return left || err != nil && !errors.Is(err, core.ErrNotFound)
}

// portOf tells that the port of the Spec's name is its container's, which
// proves the link's owner where its alias was changed.
func (d *Driver) portOf(s nic) bool {
	st, ok := d.cfg.OVS.PortByName(s.HostIf)
	return ok && st.ExternalIDs[ovs.KeyContainer] == s.Key.Container
}

// removePort commits the port's end. A port without any mark is ours if its
// device is.
func (d *Driver) removePort(ctx context.Context, t driver.Timer, s nic, ownDevice bool) (err error) {
	done := t.Step("ovs.del.txn")
	defer func() { done(err) }()
	if err := d.cfg.OVS.Connected(); err != nil {
		return err
	}
	st, ok := d.cfg.OVS.PortByName(s.HostIf)
	if ok && !ownPort(st, s) && (st.Owner() != "" || !ownDevice) {
		return nil
	}
	err = d.cfg.OVS.DelPort(ctx, s.HostIf)
	fail.Here("ovs.del.txn")
	return err
}

func (d *Driver) removePair(t driver.Timer, c *rtnl.Conn, s nic, near rtnl.Link) (err error) {
	done := t.Step("ovs.del.link")
	defer func() { done(err) }()
	err = tombstone.Bury(c, near.Index)
	fail.Here("ovs.del.link")
	err = errors.Join(err, buryFar(s.Netns, near))
	fail.Here("ovs.del.pod")
	d.cfg.Reaper.Wake()
	return err
}

// buryFar puts the pod's end aside, if the namespace is still the Spec's, so
// that its name can be used again at once.
func buryFar(n core.Netns, near rtnl.Link) error {
	return inPod(n, func(c *rtnl.Conn) error {
		far, err := c.LinkByIndex(near.PeerIndex)
		if errors.Is(err, core.ErrNotFound) {
			return nil
		}
		if err != nil || !paired(near, far) {
			return err
		}
		return tombstone.Bury(c, far.Index)
	})
}

// buryDevice frees the name of an internal port in the pod at once; OVS deletes
// the device itself in its own time.
func buryDevice(s nic) error {
	return inPod(s.Netns, func(c *rtnl.Conn) error {
		for _, name := range []string{s.Key.IfName, s.HostIf} {
			l, err := c.LinkByName(name)
			if err == nil && ownDevice(l, s) {
				err = tombstone.Bury(c, l.Index)
			}
			if err != nil && !errors.Is(err, core.ErrNotFound) {
				return err
			}
		}
		return nil
	})
}

// inPod gives fn the namespace that n describes; one that is gone, or that is
// another by now, has nothing left to remove.
func inPod(n core.Netns, fn func(*rtnl.Conn) error) error {
	pod, err := netns.Verify(n)
	if errors.Is(err, core.ErrNetnsGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	c, err := rtnl.Open(pod)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return fn(c)
}

// paired tells that far is the other end of near: each names the other's index.
func paired(near, far rtnl.Link) bool {
	return far.Kind == "veth" && far.Index == near.PeerIndex && far.PeerIndex == near.Index
}

// clearTombstone deletes the tombstone whose pod end still has our name: a
// Detach died between its two ends. It tells whether there was one.
func (a attachment) clearTombstone(host *rtnl.Conn) bool {
	c, err := rtnl.Open(a.pod)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	far, err := c.LinkByName(a.spec.Key.IfName)
	if err != nil || far.Kind != "veth" {
		return false
	}
	near, err := host.LinkByIndex(far.PeerIndex)
	if err != nil || near.Group != GroupTombstone || !paired(near, far) {
		return false
	}
	return host.DelLink(near.Index) == nil
}

// Run deletes tombstones until ctx ends; first those of an earlier process.
func (d *Driver) Run(ctx context.Context) {
	defer d.host.Close()
	d.cfg.Reaper.Run(ctx)
}

// Tombstones is the number of host links that wait for the reaper; 0 when they
// cannot be listed.
func (d *Driver) Tombstones() int {
	n, err := d.count(GroupTombstone)
	if err != nil {
		return 0
	}
	return n
}

func (d *Driver) count(group uint32) (n int, err error) {
	links, err := d.links(group)
	return len(links), err
}

// links are the host's links of a group.
func (d *Driver) links(group uint32) ([]rtnl.Link, error) {
	c, err := d.host.Get()
	if err != nil {
		return nil, err
	}
	defer d.host.Put(c)
	all, err := c.Links()
	if err != nil {
		return nil, err
	}
	var out []rtnl.Link
	for _, l := range all {
		if l.Group == group {
			out = append(out, l)
		}
	}
	return out, nil
}
