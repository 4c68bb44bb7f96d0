package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Check asks the plugin, where its version knows CHECK and the network allows
// it, and looks for itself whether interface, addresses and routes of the
// result are there: plugins miss much (spec/reliability.md). What must be
// there is the final result of the chain, which the engine keeps in Exec.Prev;
// a later plugin may have changed what this one made, and a `default-route`
// of another network may have taken the default route.
func (d *Driver) Check(ctx context.Context, r driver.Run, s core.Spec, l core.Link) error {
	if s.Exec == nil {
		return core.Errorf(core.CodeConfig, "check %s: the spec names no plugin", s.Key)
	}
	ns, err := netns.Verify(s.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	final := s.Exec.Prev
	if len(final) == 0 {
		final = l.CNIResult
	}
	return errors.Join(d.look(ns, s, final, l.MTU), d.askPlugin(ctx, r, s, final))
}

// look is inspect, but of an interface that is no network device.
func (d *Driver) look(ns *netns.Handle, s core.Spec, final json.RawMessage, mtu int) error {
	found := inspect(ns, s.Key.IfName, final, mtu)
	if !errors.Is(found, errMissing) {
		return found
	}
	p, ok := d.inside(s.Exec.Type, s.Exec.Path, s.Exec.Conf, false).(driver.PluginBare)
	if !ok {
		return found
	}
	bare, err := p.Bare(driver.PluginCall{Conf: s.Exec.Conf, Key: s.Key, Netns: s.Netns, Args: s.Exec.Args})
	if bare {
		return nil
	}
	return errors.Join(found, err)
}

// errMissing is the drift of an interface that is not in the pod.
var errMissing = core.Difference("interface is missing")

func (d *Driver) askPlugin(ctx context.Context, r driver.Run, s core.Spec, final json.RawMessage) error {
	if s.Exec.NoCheck || !cniconf.HasCheck(s.Exec.CNIVersion) {
		return nil
	}
	_, err := d.call(ctx, invocation{run: r, exec: *s.Exec, command: core.Check, key: s.Key, netns: s.Netns, prev: final})
	if errors.Is(err, errPlugin) {
		return core.Difference(err.Error())
	}
	return err
}

// inspect compares the namespace with the result, and with the MTU that was seen
// after ADD (0 where it was not): results before CNI 1.1 have none.
func inspect(ns *netns.Handle, ifName string, result json.RawMessage, mtu int) error {
	want, err := cniconf.LinkFromResult(result, ifName)
	if errors.Is(err, core.ErrNotFound) {
		return nil // it made no interface of this name
	}
	if err != nil {
		return err
	}
	c, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	want.MTU = mtu
	have, err := c.LinkByName(ifName)
	if errors.Is(err, core.ErrNotFound) {
		return errMissing
	}
	if err != nil {
		return err
	}
	return errors.Join(inspectLink(have, want), inspectAddrs(c, have, want), inspectRoutes(c, have, want))
}

func inspectLink(have rtnl.Link, want core.Link) error {
	var errs []error
	if len(want.MAC) > 0 && !bytes.Equal(have.MAC, want.MAC) {
		errs = append(errs, core.Differ("MAC is %s, was %s", have.MAC, want.MAC))
	}
	if want.MTU != 0 && have.MTU != want.MTU {
		errs = append(errs, core.Differ("MTU is %d, was %d", have.MTU, want.MTU))
	}
	if len(want.Addrs) > 0 && !have.Up {
		errs = append(errs, core.Differ("interface is down"))
	}
	return errors.Join(errs...)
}

func inspectAddrs(c *rtnl.Conn, link rtnl.Link, want core.Link) error {
	have, err := c.Addrs(link.Index)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range want.Addrs {
		if !rtnl.HasAddr(have, p) {
			errs = append(errs, core.Differ("address %s is missing", p))
		}
	}
	return errors.Join(errs...)
}

func inspectRoutes(c *rtnl.Conn, link rtnl.Link, want core.Link) error {
	if len(want.Routes) == 0 {
		return nil
	}
	have, err := c.PolicyRoutes(0) // `sbr` moves them out of table main
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range want.Routes {
		if !slices.ContainsFunc(have, func(h rtnl.Route) bool { return h.Dst == r.Dst && h.Leads(link.Index, r.GW) }) {
			errs = append(errs, core.Differ("route %s %s is missing", r.Dst, via(r.GW)))
		}
	}
	return errors.Join(errs...)
}

func via(gw netip.Addr) string {
	if !gw.IsValid() {
		return "on-link"
	}
	return "via " + gw.String()
}
