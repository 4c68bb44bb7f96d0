package resolve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

const (
	capPorts = "portMappings"
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
	var list []annotation.PortMapping
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
		p, field, why := m.Parse()
		if why != "" {
			at := fmt.Sprintf("%s[%d].%s", n.place(capPorts), i, field)
			return nil, annotation.Refused(core.CodeValue, at, m.Text(field), "%s", why)
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// NodePorts are the ports of the node that annotations may ask for.
type NodePorts = annotation.NodePorts

// bounded refuses a host port that an annotation may not ask for. What was given
// already is given back whatever the lists say by now.
func (r *resolution) bounded(e *element.Element) error {
	if r.in.Request.Op == core.Del {
		return nil
	}
	for i, m := range e.Ports {
		why := r.in.NodePorts.Fault(m.HostPort)
		if why == "" {
			continue
		}
		cause := &annotation.Error{Key: fmt.Sprintf("%s.%s[%d].hostPort", e.Field, capPorts, i), Value: strconv.Itoa(m.HostPort), Reason: why}
		return &core.Error{
			Code: core.CodeDenied, Msg: cause.Error(), Err: cause,
			Details: "ask for another port, or have the node's administrator change the agent's lists; a hostPort in the pod's spec is not bound by them",
		}
	}
	return nil
}
