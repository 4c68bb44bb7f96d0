package resolve

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve/annotation"
)

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

// bounded refuses a host port that an annotation may not ask for. What was given
// already is given back whatever the lists say by now.
func (r *resolution) bounded(e *element) error {
	if r.in.Request.Op == core.Del {
		return nil
	}
	allowed := r.in.NodePorts
	for i, m := range e.ports {
		var why string
		switch {
		case allowed.Reserved.Has(m.HostPort):
			why = "is reserved on this node (--reserved-host-ports " + allowed.Reserved.String() + ")"
		case allowed.Allowed != nil && !allowed.Allowed.Has(m.HostPort):
			why = "is not among the ports of this node that pods may ask for (--host-ports " + allowed.Allowed.String() + ")"
		default:
			continue
		}
		cause := &annotation.Error{Key: fmt.Sprintf("%s.%s[%d].hostPort", e.field, capPorts, i), Value: strconv.Itoa(m.HostPort), Reason: why}
		return &core.Error{
			Code: core.CodeDenied, Msg: cause.Error(), Err: cause,
			Details: "ask for another port, or have the node's administrator change the agent's lists; a hostPort in the pod's spec is not bound by them",
		}
	}
	return nil
}
