package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Spec is all that a driver needs to make, prove and remove one interface (or
// one step of one): what all kinds of steps have, and the part of its own kind.
// It is pure data; the journal keeps it and DEL reads it. Copies of a Spec share
// its part: whoever changes one puts a new part in its place (ChangeNIC,
// ChangeExec), because the journal may be writing the other.
type Spec struct {
	Key        Key    `json:"key"`
	Driver     string `json:"driver"`  // name of the driver (names.go)
	Network    string `json:"network"` // as in Want
	Default    bool   `json:"default,omitempty"`
	Request    string `json:"request,omitempty"` // as in Want
	Pod        Pod    `json:"pod"`
	Netns      Netns  `json:"netns"`
	CNIVersion string `json:"cniVersion,omitempty"` // of the delegate chain that it stands in, but for a delegate's own
	// Claims are what the interface has to itself as long as the Spec is there.
	Claims []Claim `json:"claims,omitempty"`
	// Declared is what was declared of the pod's interface when it was made, or was last tried
	// on it since, by field; of several Specs of an interface the first has it.
	Declared map[string]string `json:"declared,omitempty"`

	// Exactly one of the following is set; Kind tells which.
	NIC          *NICSpec      `json:"nic,omitempty"`
	Lent         *NICSpec      `json:"lent,omitempty"` // of an interface that the runtime's own plugin makes
	Exec         *Exec         `json:"exec,omitempty"`
	DefaultRoute *DefaultRoute `json:"defaultRoute,omitempty"`
	HostPorts    *HostPorts    `json:"hostPorts,omitempty"`
}

// Kind is what a Spec is about.
type Kind uint8

// The kinds of Specs. One without a part is KindNone: no driver takes it.
const (
	KindNone         Kind = iota
	KindNIC               // an interface of our own
	KindLent              // addresses of ours on an interface that the runtime's own plugin makes
	KindDelegate          // a call of a foreign plugin
	KindDefaultRoute      // who of the pod's networks has the default route
	KindHostPorts         // ports of the node that lead to the pod
)

// Kind tells which part the Spec has.
func (s *Spec) Kind() Kind {
	switch {
	case s.NIC != nil:
		return KindNIC
	case s.Exec != nil:
		return KindDelegate
	case s.DefaultRoute != nil:
		return KindDefaultRoute
	case s.HostPorts != nil:
		return KindHostPorts
	case s.Lent != nil:
		return KindLent
	}
	return KindNone
}

// Claim is an address or a MAC that one interface has to itself in a domain of layer 2,
// on all nodes that reach it.
type Claim struct {
	Domain string `json:"domain"`
	// Wire is what Domain is without its VLAN, "" where it does not follow the interface's.
	Wire string     `json:"wire,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"` // or MAC
	MAC  MAC        `json:"mac,omitempty"`
	// Declared is the object that declares it, "" where it was chosen.
	Declared string `json:"declared,omitempty"`
	// Forever: it stays the pod's when nobody declares it any more.
	Forever bool `json:"forever,omitempty"`
	// Epoch is that of the API server's lease, which grows with each holder; 0 where no API
	// server has one.
	Epoch int64 `json:"epoch,omitempty"`
	// Pool is where Addr is from, which is chosen when it is claimed; nil where it was given.
	// Once it is chosen nobody needs to know.
	Pool *Pool `json:"-"`
}

// Pool is addresses of which an interface gets one that is free.
type Pool struct {
	Label   string      // in messages: "range 10.0.0.0/24"
	Ranges  []AddrRange // in the order in which they are given
	Bits    int         // prefix length of what is given
	Gateway netip.Addr  // that goes with it, the zero value for none
	// For is the object whose status says which, and is told which where it says nothing yet.
	// nil: nobody says.
	For *IPAMClaim
}

// Has tells that an address is of the pool.
func (p *Pool) Has(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r AddrRange) bool { return r.Contains(a) })
}

// IPAMClaim is what an element of a pod's networks annotation refers to: an object of that
// kind of k8s.cni.cncf.io that keeps an interface's addresses from one pod to the next.
type IPAMClaim struct {
	Namespace, Name string
	Networks        []string // names by which it may mean the network
	Field           string   // of the annotation, for messages
}

const claimKind = "IPAMClaim "

// String is the claim as Claim.Declared has it.
func (c IPAMClaim) String() string { return claimKind + c.Namespace + "/" + c.Name }

// ParseIPAMClaim reads namespace and name of what String wrote; false: it is of another kind.
func ParseIPAMClaim(declared string) (c IPAMClaim, ok bool) {
	rest, ok := strings.CutPrefix(declared, claimKind)
	if ok {
		c.Namespace, c.Name, ok = strings.Cut(rest, "/")
	}
	return c, ok
}

// String is what is claimed, as people write it.
func (c Claim) String() string {
	switch {
	case c.Addr.IsValid():
		return "address " + c.Addr.String()
	case c.Pool != nil:
		return "an address of " + c.Pool.Label
	}
	return "MAC " + c.MAC.String()
}

// Settings are what is set on a NIC on layers 2 and 3, whatever carries it. They
// go as one value from what the pod asks for to what was made.
type Settings struct {
	PodSide
	VLAN int `json:"vlan,omitempty"` // 802.1Q id, 0 = untagged
	Tuning
}

// Tuning are those settings that may change while the NIC is in use.
type Tuning struct {
	QoS    QoS  `json:"qos,omitzero"`
	Mirror bool `json:"mirror,omitempty"`
	// Open switches port security off: the NIC may send from any address.
	Open bool `json:"open,omitempty"`
	// VIPs may be sent from besides the NIC's own addresses.
	VIPs AddrList `json:"vips,omitempty"`
}

// Hardware are settings that only NICs of some carriers have; the driver refuses what
// its own do not.
type Hardware struct {
	VLANQoS   int    // PCP, 0 to 7
	VLANProto string // "802.1q", "802.1ad", "" for the former
	MinMbps   int    // what it can always send, 0 for nothing
	SpoofChk  *bool  // nil: as the carrier has it
	Trust     *bool
	LinkState string   // "auto", "enable", "disable", "" as the carrier has it
	PFs       []string // of which it may be; none: of any
}

// Cannot refuses those that are set, for a carrier that has none of them.
func (h Hardware) Cannot(ifName, carrier string) error {
	if asked := h.Asked(); len(asked) > 0 {
		return Reasoned(CodeValue, ReasonDriverCannot, "interface %s is %s, which has no %s", ifName, carrier, strings.Join(asked, ", "))
	}
	return nil
}

// TagFault says why there is no such tag of a VLAN (id 0: none) with that priority and
// protocol ("" is 802.1q), "" if there is.
func TagFault(id, qos int, proto string) string {
	switch {
	case id < 0 || id > 4094:
		return fmt.Sprintf("vlan id %d is not 0 to 4094", id)
	case qos < 0 || qos > 7:
		return fmt.Sprintf("vlan qos %d is not 0 to 7", qos)
	case qos != 0 && id == 0:
		return fmt.Sprintf("vlan qos %d is a tag's priority: it needs an id", qos)
	case !slices.Contains([]string{"", "802.1q", "802.1ad"}, proto):
		return fmt.Sprintf("vlan proto %q is neither 802.1q nor 802.1ad", proto)
	case proto == "802.1ad" && id == 0:
		return "vlan proto 802.1ad needs an id"
	}
	return ""
}

// MaxMbps bounds rates: 1 Tbit/s.
const MaxMbps = 1_000_000

// RateFault says why there are no such rates in Mbit/s (0: none), "" if there are.
func RateFault(low, high int) string {
	switch {
	case min(low, high) < 0 || max(low, high) > MaxMbps:
		return fmt.Sprintf("rates are 0 to %d Mbit/s", MaxMbps)
	case high != 0 && low > high:
		return fmt.Sprintf("minMbps %d is more than maxMbps %d", low, high)
	}
	return ""
}

// Asked are the names of those that are set, as people declare them.
func (h Hardware) Asked() (out []string) {
	for _, one := range []struct {
		name string
		set  bool
	}{
		{"vlan.qos", h.VLANQoS != 0},
		{"vlan.proto 802.1ad", h.VLANProto == "802.1ad"},
		{"bandwidth.minMbps", h.MinMbps != 0},
		{"sriov.spoofchk", h.SpoofChk != nil},
		{"sriov.trust", h.Trust != nil},
		{"sriov.linkState", h.LinkState != ""},
		{"sriov.pf", len(h.PFs) > 0},
	} {
		if one.set {
			out = append(out, one.name)
		}
	}
	return out
}

// AddrList is addresses with commas between, so that it can be compared.
type AddrList string

// ListAddrs makes an AddrList.
func ListAddrs(addrs []netip.Addr) AddrList {
	var text []string
	for _, a := range addrs {
		text = append(text, a.String())
	}
	return AddrList(strings.Join(text, ","))
}

// Addrs are the addresses; what is none is left out.
func (l AddrList) Addrs() []netip.Addr {
	var out []netip.Addr
	for s := range strings.SplitSeq(string(l), ",") {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// PodSide are those settings that the pod sees, whoever makes its interface.
type PodSide struct {
	MAC    MAC     `json:"mac,omitempty"`    // of what is asked for: nil = any
	MTU    int     `json:"mtu,omitempty"`    // bytes; of what is asked for: 0 = the subnet's, else the node's
	Routes []Route `json:"routes,omitempty"` // of what is made: the default route included
	DNS    DNS     `json:"dns,omitzero"`
}

// NICSpec is what every kind of NIC has, on layers 2 and 3, and the part of what
// carries it: one for each kind of carrier that needs one, of which at most one is
// set. A lent one has none.
type NICSpec struct {
	Subnet   string         `json:"subnet,omitempty"`
	IfaceID  string         `json:"ifaceID,omitempty"`  // as in NIC
	Addrs    []netip.Prefix `json:"addrs,omitempty"`    // address with its subnet's length
	Gateways []netip.Addr   `json:"gateways,omitempty"` // subnet gateways, one per address
	Settings
	// Bandwidth as in NIC; nil in records that do not say.
	Bandwidth *QoS `json:"bandwidth,omitempty"`
	// PlainVLAN is the VLAN where none is declared of the pod; nil: none is.
	PlainVLAN *int `json:"plainVLAN,omitempty"`
	// NoDefault: the default network is to have no default route, whoever else
	// has one.
	NoDefault bool `json:"noDefault,omitempty"`
	Quiet     bool `json:"-"` // as in Lease; what comes from the journal is announced

	OVS *OVSPort `json:"ovs,omitempty"`
}

// OVSPort is the carrier of a NIC that is a port of an Open vSwitch bridge.
type OVSPort struct {
	HostIf string `json:"hostIf"`         // the port and its device on the node
	Type   string `json:"type,omitempty"` // "veth-pair" or "internal-port"
	// Secure: unless the NIC is Open, the switch takes from it only what it sends
	// as itself. What agents before port security made is not, as long as it lives.
	Secure bool `json:"secure,omitempty"`
	// Way is that of a NIC of an underlay Subnet under OVN; records of older agents do not say.
	Way Way `json:"way,omitzero"`
	// Underlay is for a NIC that is made now; nil for one of no underlay Subnet, or where
	// no OVN carries it.
	Underlay *Underlay `json:"-"`
}

// Way is the VLAN of a provider network by which a NIC's packets leave the node, 0 untagged.
type Way struct {
	Network string `json:"network"`
	VLAN    int    `json:"vlan,omitempty"`
}

// Underlay is what stands behind a port of an underlay Subnet.
type Underlay struct {
	Network  string       // the provider network
	Patch    string       // the port of its bridge that leads to the Subnet
	Gateways []netip.Addr // that are to answer before the pod is served
}

// Conflict is that another has an address of a NIC.
type Conflict struct {
	Pod     Pod
	IfName  string
	Addr    netip.Addr
	MAC     MAC    // of the other
	Network string // the provider network
	Bridge  string // its bridge on this node
	Port    string // of the bridge, by which the other is reached; "" where the bridge has forgotten it
}

// DefaultRoute makes the pod's default route go through the Spec's interface.
type DefaultRoute struct {
	// Gateways may be of both families, and several of one; empty: those that
	// the network's plugins tell.
	Gateways []netip.Addr `json:"gateways,omitempty"`
}

// HostPorts are ports of the node that lead to the addresses of the Spec's
// interface.
type HostPorts struct {
	Addrs []netip.Prefix `json:"addrs,omitempty"`
	Ports []PortMapping  `json:"ports"`
}

// OVS is the carrier of a NIC on our switch, nil for any other Spec.
func (s *Spec) OVS() *OVSPort {
	if s.NIC == nil {
		return nil
	}
	return s.NIC.OVS
}

// Given is what the agent gave to the Spec's interface, whoever makes that; nil
// where it gave nothing.
func (s *Spec) Given() *NICSpec {
	if s.NIC != nil {
		return s.NIC
	}
	return s.Lent
}

// Addresses are those that the agent gave to the Spec's interface.
func (s *Spec) Addresses() []netip.Prefix {
	switch {
	case s.Given() != nil:
		return s.Given().Addrs
	case s.HostPorts != nil:
		return s.HostPorts.Addrs
	}
	return nil
}

// ClaimedAddrs are the addresses that the Spec's interface has to itself.
func (s *Spec) ClaimedAddrs() (out []netip.Addr) {
	for _, c := range s.Claims {
		if c.Addr.IsValid() {
			out = append(out, c.Addr)
		}
	}
	return out
}

// ChangeNIC gives the Spec a NIC part of its own, to be changed.
func (s *Spec) ChangeNIC() *NICSpec {
	n := *s.NIC
	s.NIC = &n
	return s.NIC
}

// ChangeExec gives the Spec a delegate part of its own, to be changed.
func (s *Spec) ChangeExec() *Exec {
	call := *s.Exec
	s.Exec = &call
	return s.Exec
}

// OnlyFamily is that of some addresses of which there is one, AnyFamily for several.
func OnlyFamily(ips []netip.Addr) Family {
	if len(ips) == 1 {
		return FamilyOf(ips[0])
	}
	return AnyFamily
}
