// Package outranked tells what annotations of a pod ask for otherwise than is declared of its
// interfaces. It is pure, and refuses nothing: who resolves the pod does.
package outranked

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

// Losses collects what is asked for otherwise than is declared.
type Losses struct {
	All []declared.Lost

	s      *declared.Settings
	fields map[string]string // of s, as texts
}

// Over are the losses to what counts of an interface, so far none.
func Over(s *declared.Settings) *Losses { return &Losses{s: s, fields: s.Fields()} }

// add is for a value of a field that a place asks for, "" where it does not.
func (l *Losses) add(field, value, place string) {
	if l.s.From[field] != "" && value != "" && value != l.fields[field] {
		l.All = append(l.All, declared.Lost{Field: field, Value: value, Source: "annotation " + place})
	}
}

// argued are the fields that keys of cni-args ask for.
var argued = [][2]string{
	{"vlan", declared.VLAN}, {"min_tx_rate", declared.MinMbps}, {"max_tx_rate", declared.MaxMbps}, {"spoofchk", declared.SpoofChk},
	{"trust", declared.Trust}, {"link_state", declared.LinkState}, {"pf", declared.PF},
}

// Element adds what an element of the networks annotation asks for.
func (l *Losses) Element(e *element.Element) {
	if key, asked := e.OtherIPs(l.s.IPs); key != "" {
		l.add(declared.IPs, fmt.Sprint(asked), key)
	}
	if e.IPAMClaim != "" && !slices.Equal(l.s.IPs, []string{ByClaim(e)}) {
		l.add(declared.IPs, ByClaim(e), e.Field+".ipam-claim-reference")
	}
	key, mac := e.OtherMAC(l.s.MAC)
	l.add(declared.MAC, mac, key)
	if b := e.Bandwidth; b != nil {
		l.Rate(b.IngressRate, e.Field+".bandwidth.ingressRate")
		l.Rate(b.EgressRate, e.Field+".bandwidth.egressRate")
	}
	for _, a := range argued {
		if raw, ok := e.CNIArgs[a[0]]; ok {
			l.add(a[1], switched(strings.Trim(string(raw), `"`)), e.Field+".cni-args."+a[0])
		}
	}
}

// ByClaim are an element's addresses that an IPAMClaim of the pod's namespace tells.
func ByClaim(e *element.Element) string { return "those of IPAMClaim " + e.IPAMClaim }

// Rate adds one in bit/s, 0 for none.
func (l *Losses) Rate(bits uint64, place string) {
	const mbit = 1_000_000
	text := strconv.FormatUint(bits/mbit, 10)
	if bits%mbit != 0 {
		text = fmt.Sprintf("%d bit/s", bits)
	}
	if bits > 0 {
		l.add(declared.MaxMbps, text, place)
	}
}

// switched is a value as fields have it, whose switches are true and false.
func switched(value string) string {
	switch value {
	case "on":
		return "true"
	case "off":
		return "false"
	}
	return value
}

// Notes adds what annotations of a NIC of ours ask for.
func (l *Losses) Notes(ann *annotation.Notes, a annotation.Requested) {
	l.add(declared.Network, a.Subnet, ann.Key(v1.FieldSubnet))
	if len(a.IPs) > 0 && !slices.Equal(sorted(a.IPs), l.addresses()) {
		l.add(declared.IPs, fmt.Sprint(a.IPs), ann.Key(v1.FieldIP))
	}
	if len(a.Pool) > 0 {
		l.add(declared.IPs, "one of "+ann.All[ann.Key(v1.FieldIPPool)], ann.Key(v1.FieldIPPool))
	}
	if a.MAC != nil && !element.SameMAC(a.MAC.String(), l.s.MAC) {
		l.add(declared.MAC, a.MAC.String(), ann.Key(v1.FieldMAC))
	}
	if a.HasVLAN && (l.s.VLAN == nil || l.s.VLAN.ID != a.VLAN) {
		l.add(declared.VLAN, strconv.Itoa(a.VLAN), ann.Key(v1.FieldVLAN))
	}
	if a.QoS.IngressMbps > 0 {
		l.add(declared.MaxMbps, strconv.Itoa(a.QoS.IngressMbps), ann.Key(v1.FieldIngressRate))
	}
	if a.QoS.EgressMbps > 0 {
		l.add(declared.MaxMbps, strconv.Itoa(a.QoS.EgressMbps), ann.Key(v1.FieldEgressRate))
	}
}

// addresses are those that are declared, without prefix lengths, in order.
func (l *Losses) addresses() (out []netip.Addr) {
	for _, text := range l.s.IPs {
		if q, err := element.ParseIP(text); err == nil {
			out = append(out, q.Addr)
		}
	}
	return sorted(out)
}

func sorted(v []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(v), netip.Addr.Compare)
}
