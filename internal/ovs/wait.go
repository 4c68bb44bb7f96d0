package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// rootKey is the waiters' key for the root row; no device can be called so.
const rootKey = "/"

// What ovn-controller writes to an Interface: that its logical port's flows are all
// there, and when it made them after it had claimed the port (milliseconds).
const (
	keyInstalled = "ovn-installed"
	keySince     = "ovn-installed-ts"
)

// WaitPort waits until OVS forwards for the port, with OVN until its logical
// port's flows are there too, and gives its OpenFlow number. What OVS says against the device comes back as an error with its
// own words; core.ErrNotFound when the port was removed meanwhile. Without a
// deadline in ctx it waits 30 s.
func (c *Client) WaitPort(ctx context.Context, name string) (ofport int, err error) {
	flowless := false
	err = c.await(ctx, name, func(v view) (done bool, err error) {
		ofport, done, err = stateOf(v.iface(name), name)
		if done && err == nil && c.cfg.OVN {
			done = v.iface(name).ExternalIDs[keyInstalled] == "true"
			flowless = !done
		}
		return done, err
	})
	if flowless && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: ovn-controller has not made its flows: does it run, does it reach the southbound database, and is the logical port there?", core.ErrUnavailable)
	}
	if err != nil {
		return 0, fmt.Errorf("wait for port %s: %w", name, err)
	}
	return ofport, nil
}

// WaitPatch waits until a port is there that somebody else makes, and forwards. Without a
// deadline in ctx it waits 30 s; its errors are those of WaitPort but core.ErrNotFound.
func (c *Client) WaitPatch(ctx context.Context, name string) error {
	err := c.await(ctx, name, func(v view) (done bool, err error) {
		i := v.iface(name)
		if i == nil {
			return false, nil
		}
		_, done, err = stateOf(i, name)
		return done, err
	})
	if err != nil {
		return fmt.Errorf("wait for port %s: %w", name, err)
	}
	return nil
}

// Installed tells that ovn-controller has made all flows of a port.
func (c *Client) Installed(name string) bool {
	st, ok := c.PortByName(name)
	return ok && st.ExternalIDs[keyInstalled] == "true"
}

// Claim tells each claim of a port by ovn-controller from the one before, "" while
// the port has no flows.
func (c *Client) Claim(name string) string {
	v, err := c.view()
	if err != nil {
		return ""
	}
	return v.claim(name)
}

// WaitClaim waits until Claim is no longer last. It fails with core.ErrUnavailable when the
// connection or the time ends.
func (c *Client) WaitClaim(ctx context.Context, name, last string) error {
	return c.await(ctx, name, func(v view) (bool, error) { return v.claim(name) != last, nil })
}

func (v view) claim(name string) string {
	i := v.iface(name)
	if i == nil || i.ExternalIDs[keyInstalled] != "true" {
		return ""
	}
	return cmp.Or(i.ExternalIDs[keySince], "once") // before OVN 22.12
}

// stateOf is the OpenFlow number of a port, whether OVS has decided about it, and
// why it cannot use it.
func stateOf(i *ifaceRow, name string) (ofport int, done bool, err error) {
	switch {
	case i == nil:
		return 0, true, core.ErrNotFound
	case value(i.Error) != "":
		return 0, true, &core.Error{Code: core.CodeIO, Msg: "Open vSwitch cannot use port " + name, Details: *i.Error}
	case value(i.OFPort) < 0:
		return 0, true, &core.Error{Code: core.CodeIO, Msg: "Open vSwitch cannot use port " + name, Details: "it gives no reason (ofport -1), see the log of ovs-vswitchd"}
	}
	return value(i.OFPort), value(i.OFPort) > 0, nil
}

// WaitReady returns nil as soon as Ready is, else what it says when ctx ends.
func (c *Client) WaitReady(ctx context.Context) error {
	changed, cancel := c.subscribe(c.cfg.Bridge)
	defer cancel()
	for {
		err := c.Ready()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		}
	}
}

// Settle returns when ovs-vswitchd has acted on all that was committed before.
// A device whose port was deleted must not be made again under the same name
// before that: OVS would keep its socket on the old device, or restore the old
// one's flags on the new one.
func (c *Client) Settle(ctx context.Context) error {
	err := c.change(ctx, func(v view, t *session.Txn) error {
		root := session.Rows[rootRow](v.View, tRoot)
		if len(root) == 0 {
			return c.noBridge()
		}
		t.Mutate(tRoot, root[0].UUID, ovsdb.NewMutation("next_cfg", ovsdb.MutateOperationAdd, 1))
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	goal := -1
	err = c.await(ctx, rootKey, func(v view) (bool, error) {
		root := session.Rows[rootRow](v.View, tRoot)
		if len(root) == 0 {
			return true, c.noBridge()
		}
		if goal < 0 { // the replica has our change when its answer is here
			goal = root[0].NextCfg
		}
		return root[0].CurCfg >= goal, nil
	})
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return nil
}

// await looks at the replica now and after each change of key until look is
// done. It fails with core.ErrUnavailable when the connection or the time ends.
func (c *Client) await(ctx context.Context, key string, look func(view) (bool, error)) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxWait)
		defer cancel()
	}
	// Subscribed before the first look, so no event falls between.
	changed, cancel := c.subscribe(key)
	defer cancel()
	for {
		s, err := c.db.Conn()
		if err != nil {
			return err
		}
		if done, err := look(view{s.View}); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.Done():
			return s.Cause()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%w: ovs-vswitchd does not react, is it running: %w", core.ErrUnavailable, ctx.Err())
		}
	}
}

// subscribe gives a channel that gets a token after each change of the
// Interface of that name, or of the root row.
func (c *Client) subscribe(key string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiters[key] == nil {
		c.waiters[key] = map[chan struct{}]bool{}
	}
	c.waiters[key][ch] = true
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiters[key], ch)
		if len(c.waiters[key]) == 0 {
			delete(c.waiters, key)
		}
	}
}

func (c *Client) wake(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.waiters[key] {
		select {
		case ch <- struct{}{}:
		default: // it has a token already
		}
	}
}

// interfaceChanged wakes those who wait for the port, and asks for a reset
// when the bridge's own device is another one than before: OVS has made all
// internal ports anew.
func (c *Client) interfaceChanged(i *ifaceRow) {
	c.wake(i.Name)
	n := value(i.IfIndex)
	if i.Name == MirrorPort && c.cfg.OnMirror != nil && c.another(n) {
		c.cfg.OnMirror()
	}
	if i.Name != c.cfg.Bridge || n == 0 {
		return
	}
	c.mu.Lock()
	anew := c.ifindex != 0 && c.ifindex != n
	c.ifindex = n
	c.mu.Unlock()
	if anew {
		c.wantReset()
	}
}

// another tells that MirrorPort has a device, which is not the one that it had.
func (c *Client) another(ifindex int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.output
	c.output = ifindex
	return ifindex != 0 && ifindex != was
}
