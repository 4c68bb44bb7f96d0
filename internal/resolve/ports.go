package resolve

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve/annotation"
)

const (
	capPorts = "portMappings"
	maxPort  = 65535
	// maxPorts bounds the host ports of one interface: each is compared with all
	// others of the node, and stands in the record.
	maxPorts = 1024
)

// opensPorts tells that our own entry declares host ports, and that no plugin
// behind it does: two would translate every connection twice.
func (n *network) opensPorts() bool {
	return n.own != nil && n.own.Capabilities[capPorts] &&
		!n.anyPlugin(func(p core.Plugin) bool { return p.Capabilities[capPorts] })
}

// hostPorts are the ports of the node that our own NIC is asked to open. As for
// the plugin portmap, a mapping without a host port asks for nothing.
func (n *network) hostPorts(rc map[string]json.RawMessage) ([]core.PortMapping, error) {
	raw := rc[capPorts]
	if len(raw) == 0 || !n.opensPorts() {
		return nil, nil
	}
	var list []portMapping
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, annotation.Refused(core.CodeValue, n.place(capPorts), string(raw), "is not a list of {hostPort, containerPort, protocol, hostIP}")
	}
	if len(list) > maxPorts {
		return nil, annotation.Refused(core.CodeValue, n.place(capPorts), fmt.Sprintf("[%d mappings]", len(list)), "has more than %d", maxPorts)
	}
	var out []core.PortMapping
	for i, m := range list {
		if m.HostPort == 0 {
			continue
		}
		p, field, why := m.parse()
		if why != "" {
			at := fmt.Sprintf("%s[%d].%s", n.place(capPorts), i, field)
			return nil, annotation.Refused(core.CodeValue, at, m.text(field), "%s", why)
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// parse checks one mapping; why is empty when it is good.
func (m *portMapping) parse() (p core.PortMapping, field, why string) {
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

// text is a field's value for messages.
func (m *portMapping) text(field string) string {
	return map[string]string{
		"hostPort": fmt.Sprint(m.HostPort), "containerPort": fmt.Sprint(m.ContainerPort),
		"protocol": m.Protocol, "hostIP": m.HostIP,
	}[field]
}
