package declare

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/internal/core"
)

// ConfigMaps of Kube-OVN that say how the default Vpc leaves the cluster beside its nodes,
// and how clusters are joined (sdn.md, section 10).
const (
	ConfigNamespace    = "kube-system"
	ConfigExternal     = "ovn-external-gw-config"
	ConfigInterconnect = "ovn-ic-config"
)

// LabelExternal of a Node, with value "true", makes it a gateway of the default Vpc.
const LabelExternal = "ovn.kubernetes.io/external-gw"

// ExternalNetwork is the provider network of the external gateway: its bridge is
// br-external.
const ExternalNetwork = "external"

// External is the external gateway of the default Vpc.
type External struct {
	NIC      string   // of each gateway node, which goes to br-external
	Nodes    []string // gateway nodes, the first one first
	MAC      core.MAC // of the router's port outside; nil for any
	Networks []netip.Prefix
	Gateways []netip.Addr // routers outside, one for each family
}

// keys of ConfigExternal.
const (
	keyEnable  = "enable-external-gw"
	keyType    = "type"
	keyNodes   = "external-gw-nodes"
	keyNIC     = "external-gw-nic"
	keyGateway = "external-gw-addr"
	keyIP      = "nic-ip"
	keyMAC     = "nic-mac"
)

// ReadExternal reads ConfigExternal; nil where none is enabled. With a fault it is not to
// be used.
func ReadExternal(data map[string]string) (*External, []Fault) {
	r := externalReader{data: data}
	switch on := data[keyEnable]; on {
	case "", "false":
		return nil, nil
	case "true":
	default:
		r.refuse(keyEnable, "%q is neither true nor false", on)
	}
	if t := data[keyType]; t != "" && t != "centralized" {
		r.refuse(keyType, "%q is not carried out; centralized is", t)
	}
	r.nodes()
	r.networks()
	r.gateways()
	r.mac()
	return &r.out, r.faults
}

// IsGateway tells that a node with such labels is one of the gateway nodes.
func (e External) IsGateway(node string, labels map[string]string) bool {
	return slices.Contains(e.Nodes, node) || labels[LabelExternal] == "true"
}

type externalReader struct {
	data   map[string]string
	out    External
	faults []Fault
}

func (r *externalReader) refuse(key, format string, args ...any) {
	r.faults = append(r.faults, Fault{"data." + key, fmt.Sprintf(format, args...)})
}

// nodes reads which are gateways, and their NIC.
func (r *externalReader) nodes() {
	if r.out.NIC = strings.TrimSpace(r.data[keyNIC]); r.out.NIC == "" || len(r.out.NIC) > 15 || strings.ContainsAny(r.out.NIC, "/ ") {
		r.refuse(keyNIC, "%q is not a network device's name", r.out.NIC)
	}
	for _, node := range split(r.data[keyNodes]) {
		if len(validation.IsDNS1123Subdomain(node)) > 0 {
			r.refuse(keyNodes, "%q is not a node's name", node)
		} else if !slices.Contains(r.out.Nodes, node) {
			r.out.Nodes = append(r.out.Nodes, node)
		}
	}
}

// networks reads the addresses of the router's port.
func (r *externalReader) networks() {
	for _, text := range split(r.data[keyIP]) {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil || p.Addr().Is4In6() || p.Addr() == p.Masked().Addr():
			r.refuse(keyIP, "%q is not an address with the length of its network", text)
		case slices.ContainsFunc(r.out.Networks, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }):
			r.refuse(keyIP, "%s is a second one of its family", p)
		default:
			r.out.Networks = append(r.out.Networks, p)
		}
	}
	if len(r.out.Networks) == 0 {
		r.refuse(keyIP, "is missing: the router's address outside")
	}
}

// gateways reads the routers outside.
func (r *externalReader) gateways() {
	for _, text := range split(r.data[keyGateway]) {
		host, _, _ := strings.Cut(text, "/") // which the reference writes with its network's length
		ip, err := netip.ParseAddr(host)
		within := slices.ContainsFunc(r.out.Networks, func(p netip.Prefix) bool { return p.Contains(ip) && p.Addr() != ip })
		switch {
		case err != nil:
			r.refuse(keyGateway, "%q is not an address", text)
		case !within:
			r.refuse(keyGateway, "%s is in no network of %s %q, or the router's own", ip, keyIP, r.data[keyIP])
		case slices.ContainsFunc(r.out.Gateways, func(o netip.Addr) bool { return o.Is4() == ip.Is4() }):
			r.refuse(keyGateway, "%s is a second one of its family", ip)
		default:
			r.out.Gateways = append(r.out.Gateways, ip)
		}
	}
	if len(r.out.Gateways) == 0 {
		r.refuse(keyGateway, "is missing: the router outside")
	}
}

// mac reads that of the router's port.
func (r *externalReader) mac() {
	text := r.data[keyMAC]
	if text == "" {
		return
	}
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		r.refuse(keyMAC, "%q is not a station's MAC", text)
	}
	r.out.MAC = core.MAC(mac)
}

// split are the words between commas, without empty ones.
func split(text string) (out []string) {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}
