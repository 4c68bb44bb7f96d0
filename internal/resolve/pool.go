package resolve

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// statefulSet is the kind of controller whose pods have an ordinal.
const statefulSet = "StatefulSet"

// candidates reads a list of addresses (spec/sdn.md, section 12): elements
// separated by ';', each an address or a pair of both families, or single
// addresses separated by ','. Two addresses of different families with a ','
// between them are one pair, as Kube-OVN reads it.
func (n *notes) candidates(field string) [][]netip.Addr {
	key, value, ok := n.get(field)
	if !ok {
		return nil
	}
	items, pairs := elements(value)
	var out [][]netip.Addr
	for _, item := range items {
		element, err := parsePair(item)
		switch {
		case err != nil && len(items) == 1 && isName(item) && !isAddr(item):
			n.refuse(key, value, "names an IPPool, which is not served: list the addresses")
			return nil
		case err != nil:
			n.refuse(key, value, "has the element %q, which %v", clip(item), err)
			return nil
		}
		out = append(out, element)
	}
	if !pairs && len(out) == 2 && out[0][0].Is4() != out[1][0].Is4() {
		out = [][]netip.Addr{slices.Concat(out[0], out[1])}
	}
	return out
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
		a, err := parseAddr(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, onePerFamily(out)
}

// fromPool gives the NIC its addresses from the pod's list, unless it has fixed
// ones: the element of its ordinal for a pod of a StatefulSet, so that each
// replica keeps its own, else whichever is free when it is attached.
func (r *resolution) fromPool(ann *notes, list [][]netip.Addr, nic *core.NIC) error {
	if len(list) == 0 || len(nic.IPs) > 0 {
		return nil
	}
	key := ann.key(v1.FieldIPPool)
	for _, element := range list {
		if err := checkAddresses(key, element, nic.Subnet); err != nil {
			return err
		}
	}
	at, ok := ordinal(r.pod.Name)
	switch {
	case !ok || r.controller != "" && r.controller != statefulSet:
	case at < len(list):
		nic.IPs = list[at]
		return nil
	case r.controller == statefulSet:
		return refused(core.CodeAddress, key, ann.all[key], "has %d elements, and none for replica %d", len(list), at)
	}
	nic.Pool = list
	return nil
}

// ordinal is the number that a StatefulSet gives a pod in its name. Where the
// source does not tell who controls the pod, a name of that form will do.
func ordinal(name string) (int, bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 {
		return 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	return n, err == nil && n >= 0 && strconv.Itoa(n) == name[i+1:]
}
