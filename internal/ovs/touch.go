package ovs

import (
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// Touched is a port that was removed or changed. One of the two owners is
// known, or neither.
type Touched struct {
	Port      string
	Container string // KeyContainer of its Interface
	Gateway   string // KeyGateway of its Interface
}

// touched tells what news from the database are about: nil for what Open vSwitch
// itself reports of a port. now is nil for a row that is gone.
func touched(old, now model.Model) *Touched {
	switch o := old.(type) {
	case *ifaceRow:
		n, _ := now.(*ifaceRow)
		if n == nil || n.Type != o.Type || value(n.MAC) != value(o.MAC) || value(n.MTURequest) != value(o.MTURequest) ||
			n.PolicingRate != o.PolicingRate || n.PolicingBurst != o.PolicingBurst {
			return &Touched{Port: o.Name, Container: o.ExternalIDs[KeyContainer], Gateway: o.ExternalIDs[KeyGateway]}
		}
	case *portRow:
		n, _ := now.(*portRow)
		if n != nil && (value(n.Tag) != value(o.Tag) || value(n.VLANMode) != value(o.VLANMode) || value(n.QoS) != value(o.QoS) ||
			!slices.Equal(n.Trunks, o.Trunks)) {
			return &Touched{Port: o.Name}
		}
	case *qosRow:
		n, _ := now.(*qosRow)
		if n != nil && (n.Type != o.Type || !maps.Equal(n.OtherConfig, o.OtherConfig) || !maps.Equal(n.Queues, o.Queues)) {
			return &Touched{Port: o.ExternalIDs[KeyPort]}
		}
	case *queueRow:
		n, _ := now.(*queueRow)
		if n != nil && !maps.Equal(n.OtherConfig, o.OtherConfig) {
			return &Touched{Port: o.ExternalIDs[KeyPort]}
		}
	}
	return nil
}

// touch tells what happened to a port, with the owner that it still has.
func (c *Client) touch(old, now model.Model) {
	t := touched(old, now)
	if t == nil || t.Port == "" || c.cfg.OnTouch == nil {
		return
	}
	if t.Container == "" && t.Gateway == "" {
		st, _ := c.PortByName(t.Port)
		t.Container, t.Gateway = st.ExternalIDs[KeyContainer], st.ExternalIDs[KeyGateway]
	}
	c.cfg.OnTouch(*t)
}

// Holds tells that the database has the port as p says, and that Open vSwitch
// has not refused it.
func (c *Client) Holds(p Port) bool {
	st, ok := c.PortByName(p.Name)
	return ok && st.healthy() && st.satisfies(p, c.cfg.Bridge)
}
