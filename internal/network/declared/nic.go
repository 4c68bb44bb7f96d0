package declared

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// Tell brings what is declared into a NIC of ours that is in its Subnet: all but its
// addresses and MAC, of which others have a word too. asked are the rates that
// annotations ask for.
//
// AnnotationConflict (105): other rates. AddressOutsideSubnet (103): another gateway than
// the Subnet's.
func (s *Settings) Tell(nic *core.NIC, asked core.QoS) error {
	nic.Hardware = s.Hardware()
	nic.VLAN, nic.PlainVLAN = s.tag(nic.VLAN)
	var err error
	if nic.QoS, err = s.rates(nic.QoS, asked); err != nil {
		return err
	}
	for _, text := range s.Gateways {
		gw, err := netip.ParseAddr(text)
		if err != nil {
			return core.Errorf(core.CodeValue, "%s: gateway %q: %w", s.From[Gateway], text, err)
		}
		if !slices.Contains(nic.Subnet.Gateways, gw) {
			return core.Reasoned(core.CodeAddress, core.ReasonAddressOutsideSubnet, "%s declares gateway %s of interface %s, and subnet %s has %v",
				s.From[Gateway], gw, s.Name, nic.Subnet.Name, nic.Subnet.Gateways)
		}
	}
	return nil
}

// Hardware are the settings that only NICs of some carriers have.
func (s *Settings) Hardware() (h core.Hardware) {
	if v := s.VLAN; v != nil {
		h.VLANQoS, h.VLANProto = v.QoS, v.Proto
	}
	if b := s.Bandwidth; b != nil {
		h.MinMbps = value(b.MinMbps)
	}
	if vf := s.SRIOV; vf != nil {
		h.SpoofChk, h.Trust, h.LinkState, h.PFs = vf.SpoofChk, vf.Trust, vf.LinkState, vf.PF
	}
	return h
}

// tag is the VLAN of a NIC that has the VLAN plain where none is declared, and that one
// where one is.
func (s *Settings) tag(plain int) (vlan int, was *int) {
	if s.VLAN == nil {
		return plain, nil
	}
	return s.VLAN.ID, &plain
}

// rates are those of a NIC that has q where none are declared, of which annotations ask
// for those of asked.
func (s *Settings) rates(q, asked core.QoS) (core.QoS, error) {
	b := s.Bandwidth
	if b == nil || b.MaxMbps == nil {
		return q, nil
	}
	want := core.QoS{IngressMbps: *b.MaxMbps, EgressMbps: *b.MaxMbps}
	if asked.Rated() && (asked.IngressMbps != want.IngressMbps || asked.EgressMbps != want.EgressMbps) {
		return q, s.Contradicts(MaxMbps, fmt.Sprint(*b.MaxMbps), "an annotation", fmt.Sprintf("ingress %d and egress %d Mbit/s", asked.IngressMbps, asked.EgressMbps))
	}
	return q.WithRates(want), nil
}

// Retell is Tell for a NIC that is in use: n, which has what annotations ask for now,
// gets the VLAN and the rates that are declared now, of nobody where s is nil. asked are the
// rates that annotations ask for.
func (s *Settings) Retell(n *core.NICSpec, asked core.QoS) (err error) {
	if n.PlainVLAN != nil {
		n.VLAN, n.PlainVLAN = *n.PlainVLAN, nil
	}
	if s == nil {
		return nil
	}
	n.VLAN, n.PlainVLAN = s.tag(n.VLAN)
	n.QoS, err = s.rates(n.QoS, asked)
	return err
}
