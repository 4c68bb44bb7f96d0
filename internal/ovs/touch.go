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
// itself reports of a port, but for another number. now is nil for a row that is gone.
func touched(old, now model.Model) *Touched {
	switch o := old.(type) {
	case *ifaceRow:
		if n, _ := now.(*ifaceRow); n == nil || n.asked() != o.asked() || value(o.OFPort) > 0 && value(n.OFPort) != value(o.OFPort) {
			return &Touched{Port: o.Name, Container: o.ExternalIDs[KeyContainer], Gateway: o.ExternalIDs[KeyGateway]}
		}
	case *portRow:
		if n, _ := now.(*portRow); n != nil && !n.same(o) {
			return &Touched{Port: o.Name}
		}
	}
	if port := retuned(old, now); port != "" {
		return &Touched{Port: port}
	}
	return nil
}

// retuned is the port whose rates were changed in place, "" for none.
func retuned(old, now model.Model) string {
	switch o := old.(type) {
	case *qosRow:
		if n, _ := now.(*qosRow); n != nil && !n.same(o) {
			return o.ExternalIDs[KeyPort]
		}
	case *queueRow:
		if n, _ := now.(*queueRow); n != nil && !maps.Equal(n.OtherConfig, o.OtherConfig) {
			return o.ExternalIDs[KeyPort]
		}
	}
	return ""
}

func (r *qosRow) same(o *qosRow) bool {
	return r.Type == o.Type && maps.Equal(r.OtherConfig, o.OtherConfig) && maps.Equal(r.Queues, o.Queues)
}

func (r *portRow) same(o *portRow) bool {
	return r.asked() == o.asked() && slices.Equal(r.Trunks, o.Trunks)
}

// ifaceAsked and portAsked are what AddPort writes of such rows, in a form that
// can be compared.
type (
	ifaceAsked struct {
		kind, mac        string
		mtu, rate, burst int
	}
	portAsked struct {
		tag       int
		mode, qos string
	}
)

func (r *ifaceRow) asked() ifaceAsked {
	return ifaceAsked{r.Type, value(r.MAC), value(r.MTURequest), r.PolicingRate, r.PolicingBurst}
}

func (r *portRow) asked() portAsked {
	return portAsked{value(r.Tag), value(r.VLANMode), value(r.QoS)}
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
