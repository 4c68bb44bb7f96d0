package resolve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// claims are the declared addresses and the MAC of a network's interface, which it is to
// have to itself in its domain of layer 2, and those that are chosen from its ranges. Those
// of a Subnet are a controller's to give, where there is one.
func (r *resolution) claims(ctx context.Context, n *network, steps []core.Step) ([]core.Claim, error) {
	if err := r.leaveKept(ctx, n); err != nil {
		return nil, err
	}
	out, err := r.chosen(ctx, n)
	s := n.declared
	if err != nil || s == nil || s.From[declared.IPs] == "" && s.From[declared.MAC] == "" {
		return out, err
	}
	in, given, err := r.domainOf(n, steps)
	if given || err != nil {
		return nil, err
	}
	forever := s.Retain == v1alpha1.RetainForever
	for _, text := range s.IPs {
		q, err := element.ParseIP(text)
		if err != nil {
			return nil, core.Errorf(core.CodeValue, "%s: address %q: %w", s.From[declared.IPs], annotation.Clip(text), err)
		}
		c := n.pooled(q.Addr.Unmap(), in)
		c.Addr, c.Declared, c.Forever = q.Addr.Unmap(), s.From[declared.IPs], forever
		out = append(out, c)
	}
	if s.From[declared.MAC] != "" {
		mac, err := annotation.ParseMAC(s.MAC)
		if err != nil {
			return nil, core.Reasoned(core.CodeValue, core.ReasonInvalidMAC, "%s: mac %q: %w", s.From[declared.MAC], annotation.Clip(s.MAC), err)
		}
		in.MAC, in.Declared, in.Forever = mac, s.From[declared.MAC], forever
		out = append(out, in)
	}
	return out, nil
}

// retainFault refuses to keep what a Subnet's book gives for longer than it is declared.
func (n *network) retainFault() error {
	s := n.declared
	if s == nil || !s.Outlasts() {
		return nil
	}
	return core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "%s: retain %s: the addresses of network %s are of a Subnet, which keeps them while they are declared",
		s.From[declared.Retain], s.Retain, n.label)
}

// SharedWires are NetworkAttachmentDefinitions that lead by one device and VLAN to one
// layer 2 and do not name it the same: what is leased in one is not known in the other.
func SharedWires(nads []NAD) (out []Problem) {
	first := map[string]*network{} // by device and VLAN
	for _, nad := range nads {
		c, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
		if err != nil || len(c.Plugins) == 0 {
			continue // told as a problem of its own
		}
		n := onWire(nad, c)
		var conf struct {
			Master string `json:"master"`
		}
		if json.Unmarshal(c.Plugins[0].Raw, &conf) != nil || conf.Master == "" {
			continue
		}
		wire := fmt.Sprintf("%s vlan %d", conf.Master, n.vlan())
		other, there := first[wire]
		if !there {
			first[wire] = n
			continue
		}
		if other.wireDomain() != n.wireDomain() {
			out = append(out, Problem{File: "NetworkAttachmentDefinition " + n.label, Reason: fmt.Sprintf(
				"it leads to %s as NetworkAttachmentDefinition %s does, and they name no common domain of layer 2: an address may be leased in both; set annotation %s of both to one name",
				conf.Master, other.label, v1alpha1.AnnL2Domain)})
		}
	}
	return out
}

// onWire is the network of a NAD as far as its domain follows from it.
func onWire(nad NAD, c core.Chain) *network {
	n := &network{label: nad.Namespace + "/" + nad.Name, chain: c, domain: nad.Annotations[v1alpha1.AnnL2Domain]}
	if ipamType(c.Plugins[0]) == whereabouts.Type {
		keys, _ := cniconf.Keys(c.Plugins[0].Raw)     // it was read as a chain
		n.ranges, _ = whereabouts.Parse(keys["ipam"]) // what cannot be read is told to its pods
	}
	return n
}

// wireDomain is where the addresses are leased that are not of a Subnet.
func (n *network) wireDomain() string {
	if n.ranges == nil || len(n.ranges.Ranges) == 0 {
		return n.ownDomain()
	}
	return n.poolDomain(n.ranges.Ranges[0].CIDR.Addr(), n.ownDomain())
}

// domainOf is a claim of nothing yet in the domain of layer 2 that a network's interface is in;
// given: a controller gives its addresses.
func (r *resolution) domainOf(n *network, steps []core.Step) (in core.Claim, given bool, err error) {
	for _, step := range steps {
		nic := step.NIC
		if nic == nil {
			nic = step.Lent
		}
		if nic != nil {
			of := nic.Subnet
			of.VLAN = nic.VLAN
			in.Domain = lease.OfSubnet(of)
			if step.NIC != nil { // a plugin's interface may be in another VLAN than its Subnet
				in.Wire = of.Underlay
			}
			return in, r.in.OVN && (step.NIC != nil || !r.in.Alone), n.retainFault()
		}
	}
	return core.Claim{Domain: n.ownDomain(), Wire: n.wire()}, false, n.domainFault()
}

// ownDomain is the domain that a network without Subnet leads to: what its NAD says, else
// its own name, and the VLAN.
func (n *network) ownDomain() string { return lease.Domain(n.wire(), n.vlan()) }

// wire is ownDomain without the VLAN.
func (n *network) wire() string {
	return cmp.Or(n.domain, strings.ReplaceAll(n.label, "/", "."))
}

func (n *network) domainFault() error {
	if name := n.ownDomain(); !lease.Nameable(name) {
		return core.Errorf(core.CodeConfig, "network %s: its domain of layer 2 would be %q, which cannot be a name: give it one by annotation %s",
			n.label, annotation.Clip(name), v1alpha1.AnnL2Domain)
	}
	return nil
}

// vlan is the tag of the interface's packets, as far as declaration or configuration say it.
func (n *network) vlan() int {
	if n.declared != nil && n.declared.VLAN != nil {
		return n.declared.VLAN.ID
	}
	if len(n.chain.Plugins) == 0 {
		return 0
	}
	return ConfVLAN(n.chain.Plugins[0].Raw)
}

// ConfVLAN is the VLAN of which a plugin's configuration has a key, 0 for none.
func ConfVLAN(raw json.RawMessage) int {
	var conf struct {
		VLAN   int `json:"vlan"`
		VLANID int `json:"vlanId"`
	}
	if json.Unmarshal(raw, &conf) != nil {
		return 0 // a form that the plugin itself will refuse
	}
	return max(conf.VLAN, conf.VLANID)
}
