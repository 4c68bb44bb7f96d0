package nodeagent

import (
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// reservedPorts are those that a node's own services usually have: sshd, DNS, DHCP, rpcbind, NTP, BGP; etcd, API server, RKE2,
// kubelet and its peers, VXLAN and Geneve, Open vSwitch and OVN, the agent's metrics; and NodePorts. Whoever gets one of them by
// an annotation would take the service's place.
const reservedPorts = "22,53,67-68,111,123,179,2379-2381,4789,6081,6443,6640-6648,8472,9345,10248-10260,10660-10665,30000-32767"

// portFlags are about ports of the node that annotations ask for.
func portFlags(f *pflag.FlagSet, ports *annotation.NodePorts) {
	ports.Allowed = annotation.Ports{{First: 1, Last: 65535}}
	ports.Reserved, _ = annotation.ParsePorts(reservedPorts) // a test reads it
	f.Var((*portsFlag)(&ports.Allowed), "host-ports", "ports of this node that pods may ask for by portMappings in an annotation, as 1024-9999,20000")
	f.Var((*portsFlag)(&ports.Reserved), "reserved-host-ports", "those of them that nobody gets so; \"\" for none. A hostPort in a pod's spec is bound by neither list")
}

// portsFlag is a list of ports on the command line.
type portsFlag annotation.Ports

// String implements pflag.Value.
func (p *portsFlag) String() string { return annotation.Ports(*p).String() }

// Set implements pflag.Value.
func (p *portsFlag) Set(text string) error {
	list, err := annotation.ParsePorts(text)
	*p = portsFlag(list)
	return err
}

// Type implements pflag.Value.
func (p *portsFlag) Type() string { return "PORTS" }
