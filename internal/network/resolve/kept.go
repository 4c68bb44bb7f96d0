package resolve

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

// leaveKept refuses, in a network without Subnet, addresses that the pod asks for and that
// are declared of another there. Declared ones of its own are claimed.
func (r *resolution) leaveKept(ctx context.Context, n *network) error {
	asked := slices.Concat(n.elem.IPs, n.elem.ArgIPs)
	if n.own != nil || len(asked) == 0 || n.declared != nil && n.declared.From[declared.IPs] != "" {
		return nil
	}
	kept := r.keptIn(ctx, n)
	for _, text := range asked {
		q, err := element.ParseIP(text)
		if err != nil {
			continue // the element was refused
		}
		if err := declared.Held(kept, r.pod, q.Addr.Unmap()); err != nil {
			return err
		}
	}
	return nil
}

// keptIn are the declared addresses of a network without Subnet: of its NAD, whatever VLAN goes
// with them, of other NADs that lead to the same domain of layer 2, and of declarations that
// name no network.
func (r *resolution) keptIn(ctx context.Context, n *network) []declared.Kept {
	if r.index == nil || n.nad == "" {
		return nil
	}
	domain, others := n.ownDomain(), map[string]elsewhere{}
	return r.index.In(func(k declared.Kept) bool {
		if k.Network == n.nad {
			return true
		}
		other, known := others[k.Network]
		if !known {
			other = r.elsewhere(ctx, k.Network)
			others[k.Network] = other
		}
		return other.leads(k, n.poolDomain(k.From, domain))
	})
}

// elsewhere is another network than the pod's, as far as its domain follows from it.
type elsewhere struct {
	network *network // nil: its addresses are of a Subnet, or it is not there
	unknown bool     // nobody can say
}

// elsewhere reads the network that a declaration names. What cannot be read may lead anywhere.
func (r *resolution) elsewhere(ctx context.Context, name string) elsewhere {
	namespace, name, isNAD := strings.Cut(name, "/")
	if !isNAD {
		return elsewhere{}
	}
	nad, err := FromMemory{r.src}.NAD(ctx, namespace, name)
	if errors.Is(err, core.ErrNotFound) {
		return elsewhere{}
	}
	n, err := r.ofNAD(element.Element{Namespace: namespace, Name: name}, nad, err)
	if err == nil {
		err = r.readRanges(&n)
	}
	if err != nil {
		return elsewhere{unknown: true}
	}
	if n.own != nil || n.lends() {
		return elsewhere{}
	}
	n.declared = withVLAN(&v1alpha1.VLAN{ID: n.vlan()}) // it is read once
	return elsewhere{network: &n}
}

// leads tells that a kept address of the network is in a domain, or may be.
func (e elsewhere) leads(k declared.Kept, domain string) bool {
	if e.network == nil {
		return e.unknown
	}
	n := *e.network
	if k.VLAN != nil {
		n.declared = withVLAN(k.VLAN)
	}
	return n.poolDomain(k.From, n.ownDomain()) == domain
}

func withVLAN(v *v1alpha1.VLAN) *declared.Settings {
	s := &declared.Settings{}
	s.VLAN = v
	return s
}
