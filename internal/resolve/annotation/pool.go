package annotation

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

var errIPPool = errors.New("names an IPPool, which is not served: write its addresses here, as 10.0.0.5,10.0.0.6")

// candidates reads a list of addresses (spec/sdn.md, section 12): elements
// separated by ';', each an address or a pair of both families, or single
// addresses separated by ','. Two addresses of different families with a ','
// between them are one pair, as Kube-OVN reads it.
func (n *Notes) candidates(field string) [][]netip.Addr {
	key, value, ok := n.get(field)
	if !ok {
		return nil
	}
	items, pairs := elements(value)
	var out [][]netip.Addr
	for _, item := range items {
		element, err := parsePair(item)
		if err != nil && len(items) == 1 && IsName(item) && !isAddr(item) {
			err = errIPPool
		}
		if err != nil {
			n.refuse(key, value, "has the element %q, which %v", Clip(item), err)
			return nil
		}
		out = append(out, element)
	}
	if why := listFault(out); why != "" {
		n.refuse(key, value, "%s", why)
		return nil
	}
	if !pairs && len(out) == 2 && out[0][0].Is4() != out[1][0].Is4() {
		out = [][]netip.Addr{slices.Concat(out[0], out[1])}
	}
	return out
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

// parsePair reads one address per family.
func parsePair(text string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range strings.Split(text, ",") {
		a, err := ParseAddr(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, OnePerFamily(out)
}
