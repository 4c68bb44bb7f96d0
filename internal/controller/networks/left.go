package networks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// A Subnet that is declared no more has its rows while somebody has an address of it. No other
// of its Vpc may give that address meanwhile.

// leave notes Subnets that were in force, also under an earlier leader, and are not any more,
// and forgets those of which nobody has had an address since, or which are again. The caller
// holds mu.
func (n *Networks) leave(now map[string]*logical.Subnet) {
	for name := range n.left {
		if n.leases.Empty(name) || now[name] != nil {
			delete(n.left, name)
		}
	}
	for name, s := range n.force {
		if now[name] == nil {
			n.left[name] = s.Subnet
		}
	}
	for name, was := range n.earlier() {
		if now[name] == nil {
			n.left[name] = was
		}
	}
}

// undeclared are the Subnets of which somebody may have an address and that no object declares,
// or one that declares them otherwise and is not in force, by name.
func (n *Networks) undeclared() (out []core.Subnet) {
	all := maps.Clone(n.left)
	maps.Copy(all, n.earlier())
	for name, s := range n.force {
		if !n.declares(name) {
			all[name] = s.Subnet
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, was := n.left[name]; (was || !n.declares(name)) && !n.leases.Empty(name) {
			out = append(out, all[name])
		}
	}
	return out
}

// abandoned tells whose address a Subnet would give that is of a Subnet of its Vpc which is
// declared no more, or of the built-in one, which ends with one that overlaps it.
func (n *Networks) abandoned(d *declare.Subnet) []declare.Fault {
	for _, of := range n.before {
		for _, c := range d.CIDRs {
			apart := len(of.CIDRs) > 0 && !slices.ContainsFunc(of.CIDRs, c.Overlaps)
			if of.Name == d.Name || of.Vpc != d.Vpc || apart || n.runs(d.Name, c) {
				continue
			}
			if ip, by := n.holder(of.Name, c.Contains); ip.IsValid() {
				n.held[of.Name] = true
				return []declare.Fault{{Path: "spec.cidrBlock", Reason: fmt.Sprintf("%s holds %s, which %s has of Subnet %s: it is in force when that is given back", c, ip, by, of.Name)}}
			}
		}
	}
	return nil
}

// earlier are the Subnets that an earlier leader left, once the leases are known.
func (n *Networks) earlier() map[string]core.Subnet {
	out := map[string]core.Subnet{}
	for name, was := range n.rows {
		if n.whole {
			was.Vpc = cmp.Or(was.Vpc, v1.DefaultVpc)
			out[name] = was
		}
	}
	return out
}

// declares tells that an object declares a Subnet, or that it is the nodes' own: what overlaps
// it is refused for that.
func (n *Networks) declares(name string) bool {
	o, there := n.from.Subnets.Get("", name)
	return name == n.join.Name || there && !v1.Shown(o.Annotations, o.Spec)
}
