package annotation

import (
	"net/netip"
	"slices"
	"strings"
)

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
	if len(items) == 0 {
		n.refuse(key, value, "names no address")
		return nil
	}
	var out [][]netip.Addr
	for _, item := range items {
		element, err := parsePair(item)
		switch {
		case err != nil && len(items) == 1 && IsName(item) && !isAddr(item):
			n.refuse(key, value, "names an IPPool, which is not served: write its addresses here, as 10.0.0.5,10.0.0.6")
			return nil
		case err != nil:
			n.refuse(key, value, "has the element %q, which %v", Clip(item), err)
			return nil
		}
		out = append(out, element)
	}
	if again, ok := repeated(out); ok {
		n.refuse(key, value, "names %s twice", again)
		return nil
	}
	if !pairs && len(out) == 2 && out[0][0].Is4() != out[1][0].Is4() {
		out = [][]netip.Addr{slices.Concat(out[0], out[1])}
	}
	return out
}

// repeated finds an address that is named twice.
func repeated(list [][]netip.Addr) (netip.Addr, bool) {
	seen := map[netip.Addr]bool{}
	for _, a := range slices.Concat(list...) {
		if seen[a] {
			return a, true
		}
		seen[a] = true
	}
	return netip.Addr{}, false
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
