package annotation

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

const maxPort = 65535

// Ports are ranges of ports of the node, written "22,30000-32767".
type Ports []PortRange

// PortRange holds its ends too.
type PortRange struct{ First, Last int }

// ParsePorts reads a list of ports and ranges; an empty text is an empty list.
func ParsePorts(text string) (Ports, error) {
	out := Ports{}
	for _, item := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' }) {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err != nil || errTo != nil || from < 1 || to > maxPort || from > to {
			return nil, fmt.Errorf("%q is neither a port from 1 to %d nor a range FIRST-LAST of them", item, maxPort)
		}
		out = append(out, PortRange{from, to})
	}
	return out, nil
}

// String is the text that ParsePorts reads.
func (p Ports) String() string {
	var items []string
	for _, r := range p {
		if r.First == r.Last {
			items = append(items, strconv.Itoa(r.First))
			continue
		}
		items = append(items, fmt.Sprintf("%d-%d", r.First, r.Last))
	}
	return strings.Join(items, ",")
}

// Has tells whether a port is in one of the ranges.
func (p Ports) Has(port int) bool {
	return slices.ContainsFunc(p, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// NodePorts are the ports of the node that annotations may ask for: the allowed
// ones that are not reserved. A pod's own hostPort is not bounded by them: it
// stands in the pod's spec, where Pod Security admission and the scheduler see
// it, and reaches every CNI plugin alike.
type NodePorts struct {
	Allowed  Ports // nil: all
	Reserved Ports
}

// Fault says why a port cannot be asked for, "" if it can.
func (n NodePorts) Fault(port int) string {
	switch {
	case n.Reserved.Has(port):
		return "is reserved on this node (--reserved-host-ports " + n.Reserved.String() + ")"
	case n.Allowed != nil && !n.Allowed.Has(port):
		return "is not among the ports of this node that pods may ask for (--host-ports " + n.Allowed.String() + ")"
	}
	return ""
}

// PortMapping is one port of the node that a pod asks for (CNI conventions, "portMappings").
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// Parse checks one mapping; why is empty when it is good.
func (m *PortMapping) Parse() (p core.PortMapping, field, why string) {
	p.Protocol = strings.ToLower(m.Protocol)
	if p.Protocol == "" {
		p.Protocol = "tcp"
	}
	switch {
	case m.HostPort < 1 || m.HostPort > maxPort:
		return p, "hostPort", "is not a port from 1 to 65535"
	case m.ContainerPort < 1 || m.ContainerPort > maxPort:
		return p, "containerPort", "is not a port from 1 to 65535"
	case !slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol):
		return p, "protocol", "is none of tcp, udp, sctp"
	}
	if m.HostIP != "" {
		a, err := netip.ParseAddr(m.HostIP)
		if err != nil || a.Zone() != "" {
			return p, "hostIP", "is not an IP address"
		}
		p.HostIP = a.Unmap()
	}
	p.HostPort, p.ContainerPort = uint16(m.HostPort), uint16(m.ContainerPort) //nolint:gosec // bounded above
	return p, "", ""
}

// Text is a field's value for messages.
func (m *PortMapping) Text(field string) string {
	return map[string]string{
		"hostPort": fmt.Sprint(m.HostPort), "containerPort": fmt.Sprint(m.ContainerPort),
		"protocol": m.Protocol, "hostIP": m.HostIP,
	}[field]
}
