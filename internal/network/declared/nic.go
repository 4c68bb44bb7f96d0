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
	if v := s.VLAN; v != nil {
		nic.VLAN, nic.Hardware.VLANQoS, nic.Hardware.VLANProto = v.ID, v.QoS, v.Proto
	}
	if vf := s.SRIOV; vf != nil {
		nic.Hardware.SpoofChk, nic.Hardware.Trust, nic.Hardware.LinkState, nic.Hardware.PFs = vf.SpoofChk, vf.Trust, vf.LinkState, vf.PF
	}
	if err := s.tellRates(nic, asked); err != nil {
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

func (s *Settings) tellRates(nic *core.NIC, asked core.QoS) error {
	b := s.Bandwidth
	if b == nil {
		return nil
	}
	nic.Hardware.MinMbps = value(b.MinMbps)
	if b.MaxMbps == nil {
		return nil
	}
	want := core.QoS{IngressMbps: *b.MaxMbps, EgressMbps: *b.MaxMbps}
	if asked.Rated() && (asked.IngressMbps != want.IngressMbps || asked.EgressMbps != want.EgressMbps) {
		return s.Contradicts(MaxMbps, fmt.Sprint(*b.MaxMbps), "an annotation", fmt.Sprintf("ingress %d and egress %d Mbit/s", asked.IngressMbps, asked.EgressMbps))
	}
	nic.QoS = nic.QoS.WithRates(want)
	return nil
}
