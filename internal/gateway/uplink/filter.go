package uplink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Values of rp_filter (the kernel's ip-sysctl.rst, RFC 3704). Of a link's own and that of all
// the greater one counts.
const (
	filterStrict = "1"
	filterLoose  = "2"
)

// loosen has the kernel take what comes by the bridge's device while the way to the sender is
// by the NIC: a datapath has the NIC's frames from the moment that it is a port, and the
// routes follow later. What the link is set to is recorded first, for tighten.
func (m *mover) loosen(ctx context.Context, u *core.Uplink, p Plan) error {
	if len(p.Ways)+len(p.Drop) == 0 {
		return nil
	}
	own, strict, err := m.filter(u.Bridge)
	if err != nil || !strict {
		return err
	}
	had, err := recorded(*u)
	if err != nil {
		return err
	}
	if had.Filter == "" {
		had.Filter = own
		if u.Had, err = json.Marshal(had); err != nil {
			return fmt.Errorf("record of %s: %w", u.NIC, err)
		}
		if err := m.cfg.Journal.Move(ctx, *u); err != nil {
			return err
		}
	}
	return m.setFilter(u.Bridge, filterLoose)
}

// tighten undoes loosen; the record of what it undid goes when that of the move is written.
func (m *mover) tighten(u core.Uplink) error {
	had, err := recorded(u)
	if err != nil || had.Filter == "" {
		return err
	}
	return m.setFilter(u.Bridge, had.Filter)
}

// linger has a bridge's device that goes take what comes by it to the last, and is what it
// loses before: all but its IPv4 addresses, in their place the ways that the kernel makes of
// them. A link that has none takes nothing where rp_filter is on, be it loose
// (fib_validate_source of the kernel's).
func (m *mover) linger(from Inventory) ([]Step, error) {
	_, strict, err := m.filter(from.Name)
	if err == nil && strict {
		err = m.setFilter(from.Name, filterLoose)
	}
	if err != nil {
		return nil, err
	}
	steps := slices.DeleteFunc(from.drop(), Step.four)
	routes, err := m.c.AllRoutes(from.Self)
	for _, r := range routes {
		if r.Dst.Addr().Is4() && r.Table != unix.RT_TABLE_LOCAL && from.derived(r) {
			steps = append(steps, Step{Verb: "drop", Route: &r})
		}
	}
	return steps, err
}

// four tells a step about an IPv4 address.
func (s Step) four() bool { return s.Addr != nil && s.Addr.Prefix.Addr().Is4() }

// bare takes the addresses that lingered off a device that is there although its bridge is
// gone, as while ovs-vswitchd is away.
func (m *mover) bare(u core.Uplink) error {
	l, err := m.c.LinkByName(u.Bridge)
	if errors.Is(err, core.ErrNotFound) || err == nil && !made(l) {
		return nil
	}
	if err != nil {
		return err
	}
	addrs, err := m.c.Addrs(l.Index)
	for _, a := range addrs {
		if a.Prefix.Addr().Is4() {
			err = errors.Join(err, m.c.TakeAddr(a))
		}
	}
	if errors.Is(err, core.ErrNotFound) { // it went meanwhile
		return nil
	}
	return err
}

func filterOf(link string) string { return path.Join("net/ipv4/conf", link, "rp_filter") }

// filter is a link's own rp_filter, and whether the kernel drops what comes by the link and
// would be answered by another one.
func (m *mover) filter(link string) (own string, strict bool, err error) {
	var all string
	err = m.cfg.Host.Do(func() (err error) {
		if own, err = sysfs.ReadSysctl(filterOf(link)); err != nil {
			return err
		}
		all, err = sysfs.ReadSysctl(filterOf("all"))
		return err
	})
	if err != nil {
		return "", false, fmt.Errorf("rp_filter of %s: %w", link, err)
	}
	return own, max(own, all) == filterStrict, nil
}

func (m *mover) setFilter(link, value string) error {
	err := m.cfg.Host.Do(func() error { return sysfs.WriteSysctl(filterOf(link), value) })
	if err != nil {
		return fmt.Errorf("set rp_filter of %s to %s: %w", link, value, err)
	}
	fail.Here("uplink.filter")
	return nil
}
