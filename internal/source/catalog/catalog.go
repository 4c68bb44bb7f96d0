// Package catalog tells networks and pools of addresses as the operator sees
// them, from the objects that declare them. Agent and command line say the same
// of an object because both say it from here. It is pure, and knows neither
// where objects are stored nor who has which address.
package catalog

import (
	"encoding/json"
	"strconv"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// NAD is a NetworkAttachmentDefinition and where it stands.
type NAD struct {
	Namespace string
	Name      string
	Config    string // spec.config; "" leaves it to a file of the nodes
	Source    string // as in agent.Net
}

// Default is our own default network.
func Default(subnets []core.Subnet) agent.Net {
	out := agent.Net{Name: agent.DefaultNet, Default: true, Plugins: []string{"fairlead"}, Source: "built-in"}
	for _, s := range subnets {
		if s.Default {
			out.Subnet = s.Name
		}
	}
	return out
}

// Net is the network of a NAD: not its content, only what kind it is and whether
// it can be used. known tells that subnets are all there are; without, nothing
// is said of them.
func Net(nad NAD, subnets []core.Subnet, known bool) agent.Net {
	n := agent.Net{Name: nad.Namespace + "/" + nad.Name, Plugins: []string{}, Source: nad.Source}
	if nad.Config == "" {
		return n
	}
	chain, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
	if err != nil {
		n.Problem = err.Error()
	}
	n.CNIVersion = chain.CNIVersion
	for _, p := range chain.Plugins {
		n.Plugins = append(n.Plugins, p.Type)
		if p.Own() && known {
			n.Subnet, n.Problem = subnetOf(subnets, p, nad.Name+"."+nad.Namespace+".ovn")
		}
	}
	return n
}

// subnetOf is the first subnet of the provider of our own plugin in a NAD, or
// why it has none.
func subnetOf(subnets []core.Subnet, p core.Plugin, provider string) (name, problem string) {
	var conf struct {
		Provider string `json:"provider"`
	}
	if json.Unmarshal(p.Raw, &conf) == nil && conf.Provider != "" {
		provider = conf.Provider
	}
	for _, s := range subnets {
		if s.Provider == provider || provider == v1.DefaultProvider && s.Default {
			return s.Name, ""
		}
	}
	return "", "no Subnet has provider " + strconv.Quote(provider)
}

// Subnet is a pool without its use.
func Subnet(s core.Subnet) agent.Subnet {
	out := agent.Subnet{
		Name: s.Name, Provider: s.Provider, CIDRs: s.CIDRs, Gateways: s.Gateways, VLAN: s.VLAN, MTU: s.MTU,
		NATOutgoing: s.NATOutgoing, Default: s.Default, Implied: s.Implied, Usage: []agent.Usage{},
	}
	for _, x := range s.Exclude {
		text := x.From.String()
		if x.To != x.From {
			text += ".." + x.To.String()
		}
		out.Exclude = append(out.Exclude, text)
	}
	return out
}
