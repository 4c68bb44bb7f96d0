package uplink

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Shown is a transfer as people are told of it.
type Shown struct {
	core.Uplink
	Now   string   // the NIC's name now
	Gone  bool     // the node has no such NIC
	Moved []string // what the NIC had, or the bridge's device has by now
}

// Show tells of all transfers. It waits for none.
func (t *Transfers) Show() (out []Shown, err error) {
	c, err := rtnl.Open(t.cfg.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	var errs []error
	for _, u := range t.All() {
		one := Shown{Uplink: u}
		nic, err := find(c, u)
		one.Now, one.Gone = nic.Name, errors.Is(err, core.ErrNotFound)
		if err != nil && !one.Gone {
			errs = append(errs, err)
		}
		had, err := recorded(u)
		errs = append(errs, err)
		one.Moved = had.texts()
		out = append(out, one)
	}
	return out, errors.Join(errs...)
}

// recorded is what a transfer's NIC had, and the bridge's device has now.
func recorded(u core.Uplink) (had Inventory, err error) {
	if err := json.Unmarshal(u.Had, &had); err != nil {
		return had, fmt.Errorf("record of %s: %w", u.NIC, err)
	}
	return had, nil
}

// texts are the parts of an inventory, addresses each and the rest by number.
func (inv Inventory) texts() (out []string) {
	for _, a := range inv.Addrs {
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			out = append(out, "address "+a.Prefix.String())
		}
	}
	for _, r := range inv.Routes {
		if r.Dst.Bits() == 0 && r.GW.IsValid() {
			out = append(out, "default route via "+r.GW.String())
		}
	}
	for _, n := range []struct {
		many int
		what string
	}{{len(inv.Routes), "routes"}, {len(inv.Rules), "rules"}, {len(inv.Neighbours), "neighbours"}} {
		if n.many > 0 {
			out = append(out, fmt.Sprintf("%d %s", n.many, n.what))
		}
	}
	return out
}
