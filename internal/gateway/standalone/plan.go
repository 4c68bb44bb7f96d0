package standalone

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs"
)

const (
	keyNode     = "node"
	portPrefix  = 8 // characters of the subnet's name in its port's
	portHash    = 6 // hex digits that follow; with the hyphen 15, Linux' limit
	ownProvider = "ovn"
)

// gate is the gateway of one subnet as it should be.
type gate struct {
	subnet string
	port   ovs.Port
	addrs  []netip.Prefix
	routes []rtnl.Route // over the device, but for the kernel's own; of the join port alone
}

// Serves tells whether a subnet gets a gateway from this package: it is
// declared, it names a gateway address, and its pods are on our bridge. A
// provider without the suffix "ovn" only lends its addresses to other plugins
// (spec/sdn.md, 1.8); its network has a gateway of its own.
func Serves(s core.Subnet) bool {
	own := s.Provider == "" || s.Provider == ownProvider || strings.HasSuffix(s.Provider, "."+ownProvider)
	return own && !s.Implied && len(addresses(s)) > 0
}

// addresses are the gateway addresses with their networks' lengths.
func addresses(s core.Subnet) (list []netip.Prefix) {
	for i, gw := range s.Gateways {
		if i < len(s.CIDRs) && gw.IsValid() {
			list = append(list, netip.PrefixFrom(gw, s.CIDRs[i].Bits()))
		}
	}
	return list
}

// PortName is the network device that holds a subnet's gateway: the start of
// the subnet's name, a hyphen, and a hash of all of it.
func PortName(subnet string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-' // a dot would also split the device's sysctl names
	}, strings.ToLower(subnet))
	sum := sha256.Sum256([]byte("gateway of subnet " + subnet)) // of more than the name, so that it is no one else's hash of it
	return name[:min(len(name), portPrefix)] + "-" + hex.EncodeToString(sum[:])[:portHash]
}

// gate is pure: what depends on this machine happens in Set.
func (g *Gateway) gate(s core.Subnet) gate {
	ids := map[string]string{ovs.KeyGateway: s.Name, ovs.KeyVendor: ovs.Vendor}
	if g.cfg.Node != "" {
		ids[keyNode] = g.cfg.Node
	}
	mtu := s.MTU
	if mtu == 0 {
		mtu = int(g.mtu.Load())
	}
	return gate{
		subnet: s.Name,
		addrs:  addresses(s),
		port: ovs.Port{
			Name: PortName(s.Name), Type: "internal", VLAN: s.VLAN,
			MAC: s.GatewayMAC(), MTU: mtu, ExternalIDs: ids,
		},
	}
}

// has6 tells whether the gateway needs the node to forward IPv6.
func (w gate) has6() bool {
	for _, a := range w.addrs {
		if a.Addr().Is6() {
			return true
		}
	}
	return false
}

// filtered is what the packet filter's rules follow from.
func (w Wanted) filtered() rules.Input {
	in := rules.Input{Services: w.Services, Own: w.Own, Clamp: w.Clamp, Probes: w.Probes}
	for _, s := range w.pods() {
		in.Subnets = append(in.Subnets, w.Join.ruled(s))
	}
	if w.Join != nil {
		in.Join, in.Nodes, in.Others = JoinPort, w.Join.nodes(), w.Join.Nodes
	}
	return in
}

// ruled is what rules are to know of a Subnet. Without OVN all leave by their own node.
func (j *Join) ruled(s core.Subnet) rules.Subnet {
	out := rules.Subnet{Name: s.Name, UID: s.UID, CIDRs: s.CIDRs, NAT: s.NATOutgoing, Rules: s.NATRules}
	if j == nil {
		return out
	}
	out.Centralized = s.Centralized
	for _, a := range j.Aliases {
		if a.Subnet == s.Name && a.Held {
			out.As = append(out.As, a.Addr)
		}
	}
	return out
}
