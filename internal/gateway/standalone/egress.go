package standalone

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// lastMetric is that of the route that counts when there is no way to the gateway: pods'
// packets go nowhere then, and not by the node's own default route.
const lastMetric = 1<<32 - 1024

// ways are the policy routes of a node (sdn.md, section 10). A rule is for all of a
// Subnet's network, not for each pod on the node: no others' packets come by the node,
// and there is none to be late for a pod's first one.
type ways struct {
	rules  []rtnl.Rule
	routes []rtnl.Route
	others []rtnl.Route // which somebody else has in the same tables
}

// waysOf are those that are wanted. In each table what is for pods leads on to the
// tables behind it: Subnets reach each other as they do without it.
func waysOf(w Wanted) (out ways) {
	all := w.pods()
	done := map[[2]any]bool{} // tables by family
	for _, s := range all {
		if s.Egress == nil {
			continue
		}
		for _, gw := range s.Egress.Gateways {
			i := slices.IndexFunc(s.CIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == gw.Is4() })
			if i < 0 {
				continue
			}
			out.rules = append(out.rules, rtnl.RuleFrom(s.CIDRs[i], s.Egress.Priority, s.Egress.Table, rtnl.ProtoPods))
			if table := [2]any{s.Egress.Table, gw.Is4()}; !done[table] {
				done[table] = true
				out.routes = append(out.routes, tableOf(s.Egress.Table, gw, all, w.Join)...)
			}
		}
	}
	back := probeWays(w.Probes)
	out.rules, out.routes = append(out.rules, back.rules...), append(out.routes, back.routes...)
	return out
}

// Of the rule by which the node's own packets to probed ports come back in: early, as
// nobody else's have the mark.
const probePriority = 90

// loopback is the index of lo, in every namespace (the kernel's LOOPBACK_IFINDEX).
const loopback = 1

// probeWays have what goes to the proxy of probes come back in by lo.
func probeWays(probes []rules.Probe) (out ways) {
	for _, everywhere := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		v6 := everywhere.Addr().Is6()
		if !slices.ContainsFunc(probes, func(p rules.Probe) bool { return p.Open && p.To.Addr().Is6() == v6 }) {
			continue
		}
		out.rules = append(out.rules, rtnl.RuleMark(v6, rules.ProbeMark, probePriority, rules.ProbeTable, rtnl.ProtoPods))
		out.routes = append(out.routes, rtnl.Route{
			Dst: everywhere, Table: rules.ProbeTable, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Index: loopback, Protocol: rtnl.ProtoPods,
		})
	}
	return out
}

// probesLack is what the node lacks of these.
func (g *Gateway) probesLack(probes []rules.Probe) error {
	want := probeWays(probes)
	if len(want.rules) == 0 {
		return nil
	}
	has, err := g.waysNow(want)
	if err != nil {
		return err
	}
	var f findings
	for _, r := range less(want.rules, has.rules, sameRule) {
		f.add("rule for mark %#x to table %d is missing", r.Mark(), r.Table)
	}
	for _, r := range less(want.routes, has.routes, sameWay) {
		f.add("route to %s in table %d is missing", r.Dst, r.Table)
	}
	return f.err()
}

// pods are the Subnets whose pods the node leads out.
func (w Wanted) pods() (out []core.Subnet) {
	for _, s := range w.Subnets {
		if Serves(s) {
			out = append(out, s)
		}
	}
	if w.Join != nil {
		out = append(out, w.Join.Subnets...)
	}
	return out
}

// tableOf are the routes of a table that leads to a gateway.
func tableOf(table int, gw netip.Addr, pods []core.Subnet, j *Join) (out []rtnl.Route) {
	everywhere := netip.PrefixFrom(gw, 0).Masked()
	out = append(out,
		rtnl.Route{Dst: everywhere, Table: table, Type: unix.RTN_UNREACHABLE, Priority: lastMetric, Protocol: rtnl.ProtoPods},
		rtnl.Route{Dst: everywhere, Table: table, GW: gw, Protocol: rtnl.ProtoPods})
	var within []netip.Prefix
	for _, s := range pods {
		within = append(within, s.CIDRs...)
	}
	if j != nil {
		within = append(within, j.nodes()...)
	}
	for i, c := range within {
		if within[i] = c.Masked(); c.Addr().Is4() == gw.Is4() && !slices.Contains(within[:i], within[i]) {
			out = append(out, rtnl.Route{Dst: within[i], Table: table, Type: unix.RTN_THROW, Protocol: rtnl.ProtoPods})
		}
	}
	return out
}

// waysIn are those of a node that carry our protocol's number, in the tables to which
// such a rule leads. Routes of a table go before its rule and come after it, so that
// there are none in others.
func waysIn(c *rtnl.Conn, tables []int) (out ways, err error) {
	all, err := c.Rules()
	if err != nil {
		return out, err
	}
	for _, r := range all {
		if r.Protocol == rtnl.ProtoPods {
			out.rules = append(out.rules, r)
			tables = append(tables, r.Table)
		}
	}
	slices.Sort(tables)
	for _, t := range slices.Compact(tables) {
		routes, err := c.TableRoutes(t)
		if err != nil {
			return out, err
		}
		for _, r := range routes {
			if r.Protocol == rtnl.ProtoPods {
				out.routes = append(out.routes, r)
			} else {
				out.others = append(out.others, r)
			}
		}
	}
	return out, nil
}

// tables are those that rules lead to.
func (w ways) tables() (out []int) {
	for _, r := range w.rules {
		out = append(out, r.Table)
	}
	return out
}

func sameRule(a, b rtnl.Rule) bool {
	return a.Family == b.Family && a.From() == b.From() && a.Mark() == b.Mark() && a.Priority == b.Priority && a.Table == b.Table
}

func sameWay(a, b rtnl.Route) bool {
	return a.Table == b.Table && a.Dst == b.Dst && a.GW == b.GW && max(a.Type, unix.RTN_UNICAST) == max(b.Type, unix.RTN_UNICAST)
}

// metric is the one that the kernel gives a route: IPv6 knows no 0 (IP6_RT_PRIO_USER).
func metric(r rtnl.Route) int {
	if r.Priority == 0 && r.Dst.Addr().Is6() {
		return 1024
	}
	return r.Priority
}

// samePlace tells that a table has room for one of both alone.
func samePlace(a, b rtnl.Route) bool {
	return a.Table == b.Table && a.Dst == b.Dst && metric(a) == metric(b) && a.TOS == b.TOS
}

// taken says whose route stands where a route of ours is to be, "" for nobody's.
func taken(r rtnl.Route, others []rtnl.Route) string {
	i := slices.IndexFunc(others, func(o rtnl.Route) bool { return samePlace(r, o) })
	if i < 0 {
		return ""
	}
	o := others[i]
	text := fmt.Sprintf("table %d has a route of another program to %s", o.Table, o.Dst)
	if o.GW.IsValid() {
		text += fmt.Sprintf(" via %s", o.GW)
	}
	return text + fmt.Sprintf(" (protocol %d), which stays", o.Protocol)
}

// less are those of a list that another one does not have.
func less[T any](list, other []T, same func(a, b T) bool) (out []T) {
	for _, one := range list {
		if !slices.ContainsFunc(other, func(o T) bool { return same(one, o) }) {
			out = append(out, one)
		}
	}
	return out
}

// setWays makes exactly these policy routes of ours.
func (g *Gateway) setWays(want ways) error {
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	has, err := waysIn(c, want.tables())
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range less(want.rules, has.rules, sameRule) {
		errs = append(errs, c.AddRule(r))
	}
	for _, r := range less(want.routes, has.routes, sameWay) {
		err := put(c, r, has)
		if err != nil && r.GW.IsValid() {
			err = fmt.Errorf("pods whose Subnets have externalEgressGateway %s do not leave by this node: %w", r.GW, err)
		}
		errs = append(errs, err)
	}
	for _, r := range less(has.routes, want.routes, sameWay) {
		errs = append(errs, c.DelRoute(r))
	}
	for _, r := range less(has.rules, want.rules, sameRule) {
		errs = append(errs, c.DelRule(r))
	}
	return errors.Join(errs...)
}

// put makes a route, in place of one of ours; somebody else's is left alone, and refused by
// name.
func put(c *rtnl.Conn, r rtnl.Route, has ways) error {
	if whose := taken(r, has.others); whose != "" {
		return errors.New(whose)
	}
	if slices.ContainsFunc(has.routes, func(o rtnl.Route) bool { return samePlace(r, o) }) {
		return c.ReplaceRoute(r)
	}
	return c.NewRoute(r)
}

// nics are the links by which pods leave for gateways of their Subnets.
func (w ways) nics(c *rtnl.Conn) (out []int, err error) {
	if len(w.rules) == 0 {
		return nil, nil
	}
	has, err := waysIn(c, w.tables())
	for _, r := range has.routes {
		if r.GW.IsValid() && r.Index != 0 && !slices.Contains(out, r.Index) {
			out = append(out, r.Index)
		}
	}
	return out, err
}

// lacking is what the node lacks of the policy routes of some Subnets, by their names;
// where that cannot be learnt, why.
func (g *Gateway) lacking(want ways, of []core.Subnet) map[string]error {
	out := map[string]error{}
	of = slices.DeleteFunc(slices.Clone(of), func(s core.Subnet) bool { return s.Egress == nil })
	if len(of) == 0 {
		return out
	}
	has, err := g.waysNow(want)
	for _, s := range of {
		if err != nil {
			out[s.Name] = err
			continue
		}
		var f findings
		for _, r := range less(want.rules, has.rules, sameRule) {
			if slices.Contains(s.CIDRs, r.From()) {
				f.add("rule from %s to table %d is missing", r.From(), r.Table)
			}
		}
		for _, r := range less(want.routes, has.routes, sameWay) {
			if r.Table != s.Egress.Table {
				continue
			}
			f.add("route to %s in table %d is missing%s", r.Dst, r.Table, prefixed(": ", taken(r, has.others)))
		}
		if err := f.err(); err != nil {
			out[s.Name] = err
		}
	}
	return out
}

// prefixed is a text behind another one, if there is one.
func prefixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// waysNow are those that the node has.
func (g *Gateway) waysNow(want ways) (ways, error) {
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return ways{}, err
	}
	defer func() { _ = c.Close() }()
	return waysIn(c, want.tables())
}
