package annotation

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
)

var errIPPool = errors.New("names an IPPool, which only a controller serves: write its addresses here, as 10.0.0.5,10.0.0.6")

// IPPool is the IPPool that the annotations name for the NIC, and the key that names
// it; "" for none.
func (n *Notes) IPPool() (key, name string) {
	key, value, ok := n.get(v1.FieldIPPool)
	if !ok || !IsPool(value) {
		return "", ""
	}
	return key, value
}

// IsPool tells that a value of ip_pool is the name of an IPPool, and no list.
func IsPool(value string) bool {
	items, _ := elements(value)
	return len(items) == 1 && IsName(items[0]) && !isAddr(items[0])
}

// readPool takes a list of addresses in. An IPPool's name a controller reads.
func readPool(n *Notes, a *Requested, key, value string) {
	if !n.Controlled || !IsPool(value) {
		into(parseCandidates, func(a *Requested) *[][]netip.Addr { return &a.Pool })(n, a, key, value)
	}
}

// parseCandidates reads a list of addresses (spec/sdn.md, section 12): elements
// separated by ';', each an address or a pair of both families, or single
// addresses separated by ','. Two addresses of different families with a ','
// between them are one pair, as Kube-OVN reads it.
func parseCandidates(value string) (out [][]netip.Addr, err error) {
	items, pairs := elements(value)
	for _, item := range items {
		element, err := parseAddrs(item)
		if err != nil && IsPool(value) {
			err = errIPPool
		}
		if err != nil {
			return nil, fmt.Errorf("has the element %q, which %w", Clip(item), err)
		}
		out = append(out, element)
	}
	if why := listFault(out); why != "" {
		return nil, errors.New(why)
	}
	if !pairs && len(out) == 2 && out[0][0].Is4() != out[1][0].Is4() {
		out = [][]netip.Addr{slices.Concat(out[0], out[1])}
	}
	return out, nil
}

// listFault says why a list was not meant so: it is empty, or has an address
// twice.
func listFault(list [][]netip.Addr) string {
	seen := map[netip.Addr]bool{}
	for _, a := range slices.Concat(list...) {
		if seen[a] {
			return "names " + a.String() + " twice"
		}
		seen[a] = true
	}
	if len(list) == 0 {
		return "names no address"
	}
	return ""
}

// elements splits a list; pairs tells that each element may be a pair.
func elements(value string) (items []string, pairs bool) {
	sep := ','
	if pairs = strings.Contains(value, ";"); pairs {
		sep = ';'
	}
	return strings.FieldsFunc(value, func(c rune) bool { return c == sep || c == ' ' }), pairs
}

func isAddr(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}
