package vfpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// SlotID is kubelet's name of the nth place on a NUMA node: n0-3, or n-3 where the machine
// does not tell the node.
func SlotID(numa, n int) string {
	if numa < 0 {
		return fmt.Sprintf("n-%d", n)
	}
	return fmt.Sprintf("n%d-%d", numa, n)
}

// Place is a slot of a resource.
type Place struct {
	ID   string
	NUMA int // -1: not known
}

// Places are as many slots on each NUMA node as the resource has functions there.
func (r Resource) Places() []Place {
	var out []Place
	count := map[int]int{}
	for _, f := range r.Functions {
		out = append(out, Place{SlotID(f.NUMA, count[f.NUMA]), f.NUMA})
		count[f.NUMA]++
	}
	return out
}

// Wish is what an interface asks of the function that it is to get.
type Wish struct {
	Place   Place
	PFs     []string // of which it may be; none: any
	MinMbps int
}

// Choose picks one of the free functions: of the slot's NUMA node before others, of the PF
// that has most of them, the lowest one. left is how much each PF, by its name, can still
// promise, Mbit/s; of one that is not there it is not bounded.
//
// 104: NoVFMatches, MinRateOversubscribed.
func (r Resource) Choose(free []Function, w Wish, left map[string]int) (Function, error) {
	fit := slices.DeleteFunc(slices.Clone(free), func(f Function) bool { return len(w.PFs) > 0 && !slices.Contains(w.PFs, f.PF) })
	if len(fit) == 0 {
		of := ""
		if len(w.PFs) > 0 {
			of = " of " + strings.Join(w.PFs, ", ")
		}
		return Function{}, core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches,
			"resource %s has no free virtual function%s: %d of its %d are free, `fairlead get vfs` tells who has the others", r.Name, of, len(free), len(r.Functions))
	}
	full := func(f Function) bool {
		most, bounded := left[f.PF]
		return w.MinMbps > 0 && bounded && most < w.MinMbps
	}
	if fit = slices.DeleteFunc(fit, full); len(fit) == 0 {
		return Function{}, core.Reasoned(core.CodeDevice, core.ReasonMinRate,
			"%d Mbit/s cannot be promised: of resource %s no physical function has so much left (%s)", w.MinMbps, r.Name, rest(left))
	}
	count := map[string]int{}
	for _, f := range fit {
		count[f.PF]++
	}
	far := func(f Function) int { return map[bool]int{false: 1}[f.NUMA == w.Place.NUMA] }
	return slices.MinFunc(fit, func(a, b Function) int {
		return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(count[b.PF], count[a.PF]), cmp.Compare(a.PF, b.PF), cmp.Compare(a.Index, b.Index))
	}), nil
}

func rest(left map[string]int) string {
	var out []string
	for pf, mbps := range left {
		out = append(out, fmt.Sprintf("%s: %d", pf, mbps))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Prefer picks what kubelet should give of what it can: what must be among them, then of
// the NUMA node, and of the PF, of which there are enough. where gives the node and the PF
// of an id.
func Prefer(available, must []string, size int, where func(id string) (numa int, pf string)) []string {
	out := slices.Clone(must)
	rest := slices.DeleteFunc(slices.Clone(available), func(id string) bool { return slices.Contains(must, id) })
	type group struct {
		numa int
		pf   string
	}
	of := func(id string) group { n, pf := where(id); return group{n, pf} }
	nodes, groups := map[int]int{}, map[group]int{}
	for _, id := range rest {
		nodes[of(id).numa]++
		groups[of(id)]++
	}
	enough := func(have int) int { return map[bool]int{false: 1}[have >= size-len(must)] }
	slices.SortStableFunc(rest, func(a, b string) int {
		x, y := of(a), of(b)
		return cmp.Or(cmp.Compare(enough(nodes[x.numa]), enough(nodes[y.numa])), cmp.Compare(x.numa, y.numa),
			cmp.Compare(enough(groups[x]), enough(groups[y])), cmp.Compare(x.pf, y.pf), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return append(out, rest[:min(len(rest), max(0, size-len(out)))]...)
}
