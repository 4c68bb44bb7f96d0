// Package exec is the driver for foreign CNI plugins: one Spec is one call of
// one plugin, a chain is several Specs. It knows the CNI calling convention and
// how to run a program safely; which plugins a pod gets, in what order and with
// which prevResult, is decided above it.
//
// Plugins that everybody uses need no process: where the agent has a
// driver.Plugin of the type and the file in the directories is upstream's own,
// or none is there, the call is carried out inside the agent (inside.go).
//
// A plugin's process is recorded before it can do anything: it is started with
// an open pipe as standard input, its process group goes to the Run's Report,
// and only then is the configuration written. A plugin whose agent died before
// sees the end of an empty input and fails.
//
// Sources: CNI spec 1.1; spec/multinet.md rules 4, 6 and 9;
// spec/reliability.md "Security".
package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Driver runs foreign plugins. It remembers nothing of attachments: everything
// is in the Spec.
type Driver struct {
	plugins     map[string]driver.Plugin
	origins     origins
	acceptances acceptances
	programs    programs
	proofs      proofs
}

// New makes the driver. plugins are those that can be carried out without a
// process, by their type; IPAM plugins are among them.
func New(plugins map[string]driver.Plugin) *Driver { return &Driver{plugins: plugins} }

var (
	_ driver.Prover    = (*Driver)(nil)
	_ driver.Insider   = (*Driver)(nil)
	_ driver.Refuser   = (*Driver)(nil)
	_ driver.Killer    = (*Driver)(nil)
	_ driver.Delegator = (*Driver)(nil)
	_ driver.Lister    = (*Driver)(nil)
)

// Attach calls ADD. The first plugin of a chain that finds its interface there
// already is called with DEL before: what an earlier, broken attempt left must
// not make the retry fail.
func (d *Driver) Attach(ctx context.Context, r driver.Run, s core.Spec) (core.Link, error) {
	if s.Exec == nil {
		return core.Link{}, core.Errorf(core.CodeConfig, "attach %s: the spec names no plugin", s.Key)
	}
	ns, err := netns.Verify(s.Netns)
	if err != nil {
		return core.Link{}, fmt.Errorf("attach %s: %w", s.Key, err)
	}
	defer func() { _ = ns.Close() }()
	pod := &look{ns: ns}
	defer pod.close()
	mtu, warning := 0, ""
	add := invocation{
		run: r, exec: *s.Exec, command: core.Add, key: s.Key, netns: s.Netns, prev: s.Exec.Prev,
		prepare: func() (err error) { warning, err = provide(s.Exec.DevInfo); return err },
		saw:     func(seen int) { mtu = seen },
		alone:   s.ClaimedAddrs(),
	}
	out, err := d.add(ctx, pod, s, add)
	if err != nil {
		return core.Link{}, fmt.Errorf("attach %s: %w", s.Key, err)
	}
	l, err := cniconf.PluginLink(out, s.Exec.CNIVersion, s.Key.IfName, mtu)
	if err != nil {
		return core.Link{}, fmt.Errorf("attach %s: plugin %q: %w", s.Key, s.Exec.Type, err)
	}
	return observe(pod, s, describe(s.Exec.DevInfo, l, warning), mtu)
}

// add carries out v. A program is not trusted to tell what is there already: we
// look before. A Plugin tells, so that the look is spared where nothing is.
func (d *Driver) add(ctx context.Context, pod *look, s core.Spec, v invocation) ([]byte, error) {
	w, err := d.way(v)
	if err != nil {
		return nil, err
	}
	first := len(v.prev) == 0
	if first && w.plugin == nil {
		if err := d.clear(ctx, v.run, pod, s); err != nil {
			return nil, fmt.Errorf("clear a former attempt: %w", err)
		}
	}
	out, err := d.carryOut(ctx, v, w)
	if first && w.plugin != nil && errors.Is(err, core.ErrExists) {
		if err := d.clear(ctx, v.run, pod, s); err != nil {
			return nil, fmt.Errorf("clear a former attempt: %w", err)
		}
		return d.carryOut(ctx, v, w)
	}
	return out, err
}

// look is a socket in the pod for who needs one.
type look struct {
	ns   *netns.Handle
	conn *rtnl.Conn
}

func (l *look) link(name string) (_ rtnl.Link, err error) {
	if l.conn == nil {
		if l.conn, err = rtnl.Open(l.ns); err != nil {
			return rtnl.Link{}, err
		}
	}
	return l.conn.LinkByName(name)
}

func (l *look) close() {
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// clear undoes an earlier attempt when its interface is there.
func (d *Driver) clear(ctx context.Context, r driver.Run, pod *look, s core.Spec) error {
	_, err := pod.link(s.Key.IfName)
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.del(ctx, r, s, s.Netns)
}

// observe adds what the result does not say: before 0.3.0 it has no MAC, before
// 1.1 no MTU. And it corrects the MTU, because `tuning`, which sets it, hands on
// what the plugin before it said (containernetworking/plugins v1.9.1). mtu is
// what a Plugin saw, 0 where we have to look.
func observe(pod *look, s core.Spec, l core.Link, mtu int) (core.Link, error) {
	if mtu == 0 || len(l.MAC) == 0 {
		there, err := pod.link(l.IfName)
		if errors.Is(err, core.ErrNotFound) {
			return l, nil
		}
		if err != nil {
			return core.Link{}, err
		}
		if len(l.MAC) == 0 {
			l.MAC = there.MAC
		}
		mtu = there.MTU
	}
	if l.MTU == mtu {
		return l, nil
	}
	l.MTU = mtu
	if !cniconf.HasGC(s.Exec.CNIVersion) { // the versions with an MTU are those with GC
		return l, nil
	}
	var err error
	l.CNIResult, err = cniconf.WithMTU(l.CNIResult, l.IfName, l.MTU)
	return l, err
}

// Detach calls DEL with what ADD got. Where the namespace is gone, or its path
// names another one by now, the plugin gets none: it frees what it holds
// outside and cannot touch a pod that is not its own. A DEL that fails as the
// ADD did, or on the configuration where the ADD failed too, is done.
func (d *Driver) Detach(ctx context.Context, r driver.Run, s core.Spec) error {
	if s.Exec == nil {
		return core.Errorf(core.CodeConfig, "detach %s: the spec names no plugin", s.Key)
	}
	var there core.Netns
	ns, err := netns.Verify(s.Netns)
	switch {
	case errors.Is(err, core.ErrNetnsGone): // nowhere
	case err != nil:
		return fmt.Errorf("detach %s: %w", s.Key, err)
	default:
		defer func() { _ = ns.Close() }()
		if there, err = placeOf(s, ns); err != nil {
			return fmt.Errorf("detach %s: %w", s.Key, err)
		}
	}
	err = d.del(ctx, r, s, there)
	if err == nil {
		err = withdraw(s.Exec.DevInfo)
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", s.Key, err)
	}
	return nil
}

// placeOf is the namespace that DEL of s gets. Of a chain that begins with an
// interface of our own that has gone already (the engine waits for no plugin):
// tuning keeps its file where it finds no interface, and gets a stand-in.
func placeOf(s core.Spec, ns *netns.Handle) (core.Netns, error) {
	if s.Exec.Type != "tuning" {
		return s.Netns, nil
	}
	pod := &look{ns: ns}
	defer pod.close()
	_, err := pod.link(s.Key.IfName)
	if errors.Is(err, core.ErrNotFound) {
		return core.Netns{}, nil
	}
	return s.Netns, err
}

// insideOnly tells plugins that make nothing outside of the pod's namespace:
// with it all is gone that they made. sbr is one, and its DEL fails without a
// namespace, of which it locks the file (containernetworking/plugins v1.9.1); the
// record of every pod that outlives its namespace would stay for ever.
func insideOnly(plugin string) bool { return plugin == "sbr" }

func (d *Driver) del(ctx context.Context, r driver.Run, s core.Spec, ns core.Netns) error {
	c := invocation{run: r, exec: *s.Exec, command: core.Del, key: s.Key, netns: ns}
	if cniconf.HasCheck(s.Exec.CNIVersion) {
		c.prev = s.Exec.Prev
	}
	var err error
	if ns.Path == "" {
		err = d.delWithoutNetns(ctx, c)
	} else {
		_, err = d.call(ctx, c)
	}
	if nothingMade(s.Exec.Failed, err) {
		err = nil
	}
	return errors.Join(err, d.tidy(ctx, c))
}
