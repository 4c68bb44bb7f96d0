// Package openflow keeps flows in the first table of a bridge over the management
// socket that ovs-vswitchd opens for each (ovs-vswitchd(8); OpenFlow 1.4). A cookie
// says whose flows they are, and those of one cookie are changed as one. It must not
// know what flows are for.
package openflow

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Flow is what the first table does with the packets that it matches. Flows can be
// compared.
type Flow struct {
	Priority uint16
	Match    Match
	// Forward: as a learning switch does (action NORMAL). Otherwise the packets end
	// here.
	Forward bool
}

// Match is a conjunction of fields, in the form that the protocol has for it, so
// that equal ones are equal.
type Match string

// field is a number of OFPXMC_OPENFLOW_BASIC (OpenFlow 1.4, 7.2.3.7).
type field uint8

const (
	fieldInPort     field = 0
	fieldEthSrc     field = 4
	fieldEthType    field = 5
	fieldIPProto    field = 10
	fieldIPv4Src    field = 11
	fieldIPv4Dst    field = 12
	fieldUDPSrc     field = 15
	fieldUDPDst     field = 16
	fieldARPSender  field = 22 // its protocol address
	fieldARPMAC     field = 24 // of the sender
	fieldIPv6Src    field = 26
	fieldICMPv6Type field = 29
	fieldNDTarget   field = 31
	fieldNDSource   field = 32 // link-layer address option of a solicitation
	fieldNDOwner    field = 33 // link-layer address option of an advertisement
)

// Numbers of protocols that a Match names.
const (
	EthIPv4 uint16 = 0x0800
	EthARP  uint16 = 0x0806
	EthIPv6 uint16 = 0x86dd

	protoUDP    = 17
	protoICMPv6 = 58

	// Solicitation and Advertisement are types of neighbour discovery (RFC 4861).
	Solicitation  uint8 = 135
	Advertisement uint8 = 136
	// ListenerReport and ListenerReport2 tell routers which groups a host is in (RFC
	// 2710, RFC 3810).
	ListenerReport  uint8 = 131
	ListenerReport2 uint8 = 143
)

// basicClass is OFPXMC_OPENFLOW_BASIC.
const basicClass uint16 = 0x8000

// tlv is one field with its value.
type tlv []byte

func fieldOf(f field, value []byte) tlv {
	t := binary.BigEndian.AppendUint16(nil, basicClass)
	return append(append(t, byte(f)<<1, byte(len(value))), value...)
}

// matchOf sorts fields by number, so that what a field requires comes before it, once
// however often it is required.
func matchOf(fields ...tlv) Match {
	slices.SortFunc(fields, slices.Compare)
	return Match(slices.Concat(slices.CompactFunc(fields, slices.Equal)...))
}

// with is the Match with more fields.
func (m Match) with(fields ...tlv) Match { return matchOf(append(m.fields(), fields...)...) }

// fields takes a Match apart.
func (m Match) fields() []tlv {
	var out []tlv
	for b := []byte(m); len(b) >= tlvHeader; {
		n := min(tlvHeader+int(b[tlvHeader-1]), len(b))
		out, b = append(out, b[:n:n]), b[n:]
	}
	return out
}

// tlvHeader is the length of what precedes a field's value, in bytes.
const tlvHeader = 4

// From matches what comes in by a port, by its OpenFlow number.
func From(port int) Match {
	return matchOf(fieldOf(fieldInPort, binary.BigEndian.AppendUint32(nil, uint32(port)))) //nolint:gosec // an ofport is positive and fits 16 bits
}

// MAC asks besides for a source of the frame.
func (m Match) MAC(mac net.HardwareAddr) Match { return m.with(fieldOf(fieldEthSrc, mac)) }

// Type asks besides for an EtherType.
func (m Match) Type(eth uint16) Match {
	return m.with(fieldOf(fieldEthType, binary.BigEndian.AppendUint16(nil, eth)))
}

// Source asks besides for an IP packet with this source, of its family.
func (m Match) Source(ip netip.Addr) Match {
	if ip.Is4() {
		return m.Type(EthIPv4).with(fieldOf(fieldIPv4Src, ip.AsSlice()))
	}
	return m.Type(EthIPv6).with(fieldOf(fieldIPv6Src, ip.AsSlice()))
}

// ARP asks besides for ARP whose sender says that it has both addresses.
func (m Match) ARP(mac net.HardwareAddr, ip netip.Addr) Match {
	return m.Type(EthARP).with(fieldOf(fieldARPMAC, mac), fieldOf(fieldARPSender, ip.AsSlice()))
}

// DHCPv4 asks besides for what a client without address sends to servers.
func (m Match) DHCPv4() Match {
	return m.Source(netip.IPv4Unspecified()).with(
		fieldOf(fieldIPProto, []byte{protoUDP}),
		fieldOf(fieldIPv4Dst, []byte{255, 255, 255, 255}),
		fieldOf(fieldUDPSrc, binary.BigEndian.AppendUint16(nil, 68)),
		fieldOf(fieldUDPDst, binary.BigEndian.AppendUint16(nil, 67)))
}

// ICMPv6 asks besides for a type of ICMPv6.
func (m Match) ICMPv6(kind uint8) Match {
	return m.Type(EthIPv6).with(fieldOf(fieldIPProto, []byte{protoICMPv6}), fieldOf(fieldICMPv6Type, []byte{kind}))
}

// Soliciting asks besides for a neighbour solicitation whose option says that the
// sender has this MAC; nil: there is no such option.
func (m Match) Soliciting(mac net.HardwareAddr) Match {
	return m.ICMPv6(Solicitation).with(fieldOf(fieldNDSource, orZero(mac)))
}

// Advertising asks besides for a neighbour advertisement whose option says that this
// MAC has the target; nil: there is no such option.
func (m Match) Advertising(mac net.HardwareAddr) Match {
	return m.ICMPv6(Advertisement).with(fieldOf(fieldNDOwner, orZero(mac)))
}

// Target asks besides for the target of neighbour discovery.
func (m Match) Target(ip netip.Addr) Match { return m.with(fieldOf(fieldNDTarget, ip.AsSlice())) }

func orZero(mac net.HardwareAddr) net.HardwareAddr {
	if mac == nil {
		return make(net.HardwareAddr, 6)
	}
	return mac
}
