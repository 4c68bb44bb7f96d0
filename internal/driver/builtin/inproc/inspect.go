package inproc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Inspect proves that the addresses and routes of r are still there: the addresses on
// the link of that index.
func (r Result) Inspect(conn *rtnl.Conn, index int) error {
	return errors.Join(inspectAddrs(conn, index, r.IPs), inspectRoutes(conn, r))
}

func inspectAddrs(conn *rtnl.Conn, index int, ips []IP) error {
	have, err := conn.Addrs(index)
	if err != nil {
		return err
	}
	var errs []error
	for _, ip := range ips {
		if !rtnl.HasAddr(have, ip.Address) {
			errs = append(errs, fmt.Errorf("it has not the address %s", ip.Address))
		}
	}
	return errors.Join(errs...)
}

// inspectRoutes looks in all tables: `sbr` moves routes there. Of a default
// route the gateway is not compared; it may be another network's by now.
func inspectRoutes(conn *rtnl.Conn, prev Result) error {
	if len(prev.Routes) == 0 {
		return nil
	}
	have, err := conn.PolicyRoutes(0)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range prev.Routes {
		there := slices.ContainsFunc(have, func(h rtnl.Route) bool {
			return h.Dst == r.Dst.Masked() && (h.GW == r.GW || !r.GW.IsValid() || r.Dst.Bits() == 0 || len(h.Multipath) > 0)
		})
		if !there {
			errs = append(errs, fmt.Errorf("route %s is missing", r.Dst))
		}
	}
	return errors.Join(errs...)
}
