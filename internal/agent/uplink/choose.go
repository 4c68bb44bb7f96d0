// Package uplink has the node's NICs be where ProviderNetworks want them: it follows what
// is declared, chooses the NIC that each network has on this node, gives and takes it
// (package gateway/uplink does that), and tells the Node what became of it. It must not
// know how a NIC moves.
package uplink

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Ends of keys on a Node, behind the network's name (sdn.md, sections 3 and 7).
const (
	suffix       = ".provider-network.kubernetes.io/"
	keyReady     = "ready"
	keyInterface = "interface"
	keyMTU       = "mtu"
	keyVLANs     = "vlan_interfaces"
	keyExclude   = "exclude"
	keyError     = "err_mesg"
)

// choice is what a network has on this node.
type choice struct {
	network   string
	nic       string // "" where the node is left out
	exchanged bool
	trunks    []int
	above     []string // VLAN links that must be there
	makes     bool     // the NIC, where it is a VLAN link that is not there
	err       error    // why it can be given nothing; what it has stays, if it has a NIC
}

// choose is what each network has on the node, whose pods use some VLANs.
func choose(node string, u declare.Underlay, used []core.Way) (out []choice) {
	for _, p := range u.Networks {
		c := choice{network: p.Name, exchanged: p.Spec.ExchangeLinkName, trunks: carried(p.Name, u, used), above: p.Spec.VlanInterfaces, makes: p.Spec.AutoCreateVlan}
		leftOut, err := excluded(node, p, u)
		switch {
		case err != nil:
			c.nic, c.err = interfaceOf(node, p, u), err
		case !leftOut:
			if c.nic = interfaceOf(node, p, u); c.nic == "" {
				c.err = fmt.Errorf("no interface is named for node %s (spec.defaultInterface, spec.customInterfaces)", node)
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b choice) int { return cmp.Compare(a.network, b.network) })
	return out
}

// carried are the VLANs of a network that its NIC carries, in order: those that are declared,
// and those that pods have.
func carried(network string, u declare.Underlay, used []core.Way) []int {
	ids := u.Trunks(network)
	for _, w := range used {
		if w.Network == network {
			ids = append(ids, w.VLAN)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// excluded tells that a network leaves the node out.
func excluded(node string, p v1.ProviderNetwork, u declare.Underlay) (bool, error) {
	if u.Notes[p.Name+suffix+keyExclude] == "true" || slices.Contains(p.Spec.ExcludeNodes, node) {
		return true, nil
	}
	if p.Spec.NodeSelector == nil {
		return false, nil
	}
	s, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if err != nil {
		return false, fmt.Errorf("spec.nodeSelector: %w", err)
	}
	// What the node itself was told of the network must not decide about it.
	own := labels.Set{}
	for k, v := range u.Labels {
		if !strings.HasPrefix(k, p.Name+suffix) {
			own[k] = v
		}
	}
	return !s.Matches(own), nil
}

// interfaceOf is the NIC: what the Node's annotation says, then the network for the node,
// then for all.
func interfaceOf(node string, p v1.ProviderNetwork, u declare.Underlay) string {
	if nic := u.Notes[p.Name+suffix+keyInterface]; nic != "" {
		return nic
	}
	for _, c := range p.Spec.CustomInterfaces {
		if slices.Contains(c.Nodes, node) {
			return c.Interface
		}
	}
	return p.Spec.DefaultInterface
}

// contested is why a network that has no NIC yet cannot have the VLAN link that would be made
// for it: its VLAN is pods' of the network that has the link below.
func contested(c choice, list []choice) error {
	below, id, err := uplink.VLANName(c.nic)
	if !c.makes || err != nil {
		return nil //nolint:nilerr // a NIC that is there may have any name
	}
	for _, o := range list {
		if o.nic == below && slices.Contains(o.trunks, id) {
			return fmt.Errorf("VLAN %d of %s is pods' of provider network %s: %s is not made", id, below, o.network, c.nic)
		}
	}
	return nil
}
