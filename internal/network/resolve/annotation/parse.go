package annotation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// parseAddrs reads "v4", "v6" or "v4,v6".
func parseAddrs(value string) (out []netip.Addr, err error) {
	for _, s := range strings.Split(value, ",") {
		a, err := ParseAddr(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, OnePerFamily(out)
}

var (
	errCIDR     = errors.New("is not a network in CIDR form")
	errCIDRs    = errors.New("names two networks of one family")
	errNeither  = errors.New("is neither true nor false")
	errUnnamely = errors.New("is not a DNS-1123 name")
)

// parseCIDRs reads one network per family.
func parseCIDRs(value string) (out []netip.Prefix, err error) {
	var addrs []netip.Addr
	for _, s := range strings.Split(value, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
			return nil, errCIDR
		}
		out, addrs = append(out, p.Masked()), append(addrs, p.Addr())
	}
	if OnePerFamily(addrs) != nil {
		return nil, errCIDRs
	}
	return out, nil
}

// number reads whole numbers from 0 to most.
func number(most int, unit string) func(string) (int, error) {
	return func(value string) (int, error) {
		v, err := strconv.Atoi(value)
		if err != nil || v < 0 || v > most {
			return 0, fmt.Errorf("is not a whole number of %s from 0 to %d", unit, most)
		}
		return v, nil
	}
}

func parseFlag(value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, errNeither
	}
	return value == "true", nil
}

// ParseOpen reads port_security: true for a port without.
func ParseOpen(value string) (open bool, err error) {
	secure, err := parseFlag(value)
	return err == nil && !secure, err
}

// maxVIPs bounds the flows of one port.
const maxVIPs = 64

// parseVIPs reads addresses, of one family as many as there are.
func parseVIPs(value string) (core.AddrList, error) {
	var out []netip.Addr
	for s := range strings.SplitSeq(value, ",") {
		a, err := ParseAddr(s)
		if err != nil {
			return "", err
		}
		out = append(out, a)
	}
	if len(out) > maxVIPs {
		return "", fmt.Errorf("has %d addresses, the limit is %d", len(out), maxVIPs)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return core.ListAddrs(slices.Compact(out)), nil
}

func oneOf(values ...string) func(string) (string, error) {
	return func(value string) (string, error) {
		if !slices.Contains(values, value) {
			return "", fmt.Errorf("is none of %s", strings.Join(values, ", "))
		}
		return value, nil
	}
}

// parseFamily reads which of a Subnet's two families a NIC has.
func parseFamily(value string) (core.Family, error) {
	text, err := oneOf(v1.FamilyIPv4, v1.FamilyIPv6)(value)
	if err != nil {
		return core.AnyFamily, err
	}
	if text == v1.FamilyIPv4 {
		return core.IPv4, nil
	}
	return core.IPv6, nil
}

func parseName(value string) (string, error) {
	if !IsName(value) {
		return "", errUnnamely
	}
	return value, nil
}

// parseDeclared reads NAMESPACE/NAME@INTERFACE.
func parseDeclared(value string) (string, error) {
	network, ifName, _ := strings.Cut(value, "@")
	ns, name, _ := strings.Cut(network, "/")
	if !IsNamespace(ns) || !IsName(name) || ifName == "" || IfNameFault(ifName) != "" {
		return "", errors.New("is not NAMESPACE/NAME@INTERFACE")
	}
	return value, nil
}

// elementError is about one element of a list.
type elementError struct {
	at  int
	err error
}

func (e *elementError) Error() string { return e.err.Error() }
func (e *elementError) Unwrap() error { return e.err }

// placeOf is what goes behind the key where an error is about an element of its
// value.
func placeOf(err error) string {
	if e := (*elementError)(nil); errors.As(err, &e) {
		return fmt.Sprintf("[%d]", e.at)
	}
	return ""
}

// parseRoutes reads a JSON list of {dst, gw}; without gw a route is on-link.
func parseRoutes(value string) (out []core.Route, err error) {
	var list []struct {
		Dst string `json:"dst"`
		GW  string `json:"gw"`
	}
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.DisallowUnknownFields()
	if err = cniconf.Strict([]byte(value)); err == nil {
		err = d.Decode(&list)
	}
	if err != nil {
		return nil, fmt.Errorf("is not a list of routes: %w", err)
	}
	for i, e := range list {
		r, err := parseRoute(e.Dst, e.GW)
		if err != nil {
			return nil, &elementError{i, err}
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRoute(dst, gw string) (core.Route, error) {
	p, err := netip.ParsePrefix(dst)
	if err != nil || p.Addr().Is4In6() {
		return core.Route{}, fmt.Errorf("dst %q is not a network in CIDR form", dst)
	}
	r := core.Route{Dst: p.Masked()}
	if gw == "" {
		return r, nil
	}
	if r.GW, err = ParseAddr(gw); err != nil {
		return core.Route{}, fmt.Errorf("gw %q %w", gw, err)
	}
	if r.GW.Is4() != p.Addr().Is4() {
		return core.Route{}, fmt.Errorf("gw %q is not of the family of %s", gw, dst)
	}
	return r, nil
}
