package ovs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// view reads the replica of one connection. All lookups go through an index;
// only what looks at every port by its contract (ports) walks a table.
type view struct{ session.View }

func (v view) bridge(name string) *bridgeRow {
	return session.ByName(v.View, tBridge, &bridgeRow{Name: name})
}

func (v view) port(name string) *portRow { return session.ByName(v.View, tPort, &portRow{Name: name}) }
func (v view) iface(name string) *ifaceRow {
	return session.ByName(v.View, tInterface, &ifaceRow{Name: name})
}

// bridgeOf is the bridge that holds a port. The database has few bridges, and
// comparing 36 bytes per port costs less than one lookup elsewhere.
func (v view) bridgeOf(portUUID string) *bridgeRow {
	for _, b := range session.Rows[bridgeRow](v.View, tBridge) {
		if slices.Contains(b.Ports, portUUID) {
			return b
		}
	}
	return nil
}

// mirror is the bridge's mirror MirrorName, nil if there is none.
func (v view) mirror(b *bridgeRow) *mirrorRow {
	for _, uuid := range b.Mirrors {
		if m := session.ByUUID[mirrorRow](v.View, tMirror, uuid); m != nil && m.Name == MirrorName {
			return m
		}
	}
	return nil
}

// state puts together what the database says of a port of one interface.
func (v view) state(name string) (PortState, bool) {
	p, i := v.port(name), v.iface(name)
	if p == nil || i == nil {
		return PortState{}, false
	}
	s := PortState{
		Port: Port{
			Name: name, Type: i.Type, VLAN: value(p.Tag), ExternalIDs: i.ExternalIDs,
			PolicingRate: i.PolicingRate, PolicingBurst: i.PolicingBurst,
			QoS: v.qos(p.QoS), MTU: value(i.MTURequest),
		},
		Trunks: p.Trunks, VLANMode: value(p.VLANMode), OFPort: value(i.OFPort),
		Error: value(i.Error), LinkState: value(i.LinkState), IfIndex: value(i.IfIndex),
	}
	_ = s.MAC.UnmarshalText([]byte(value(i.MAC))) // a malformed request of somebody else reads as none
	if b := v.bridgeOf(p.UUID); b != nil {
		s.Bridge = b.Name
		if m := v.mirror(b); m != nil {
			s.Mirror = slices.Contains(m.SelectDstPort, p.UUID)
		}
	}
	return s, true
}

func (v view) qos(uuid *string) *QoS {
	if uuid == nil {
		return nil
	}
	r := session.ByUUID[qosRow](v.View, tQoS, *uuid)
	if r == nil {
		return nil
	}
	q := &QoS{Type: r.Type, Other: r.OtherConfig, ExternalIDs: r.ExternalIDs}
	if queue := session.ByUUID[queueRow](v.View, tQueue, r.Queues[0]); queue != nil {
		q.QueueOther = queue.OtherConfig
		if q.QueueOther == nil {
			q.QueueOther = map[string]string{}
		}
	}
	return q
}

// ports are the states of all ports whose Interface has that external id; val
// "" is any value.
func (v view) ports(key, val string) []PortState {
	var found []*ifaceRow
	if val != "" {
		found = session.ByID[ifaceRow](v.View, tInterface, key, val)
	} else {
		found = session.Rows[ifaceRow](v.View, tInterface)
	}
	var out []PortState
	for _, i := range found {
		if _, ok := i.ExternalIDs[key]; !ok {
			continue
		}
		if s, ok := v.state(i.Name); ok {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b PortState) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// satisfies tells that the port found is the one wanted; more external ids
// than wanted are other people's business (OVN writes ovn-installed).
func (s PortState) satisfies(p Port, bridge string) bool {
	return s.Bridge == bridge && len(s.Trunks) == 0 && s.VLANMode == "" &&
		s.Type == p.Type && s.VLAN == p.VLAN && s.Mirror == p.Mirror &&
		s.PolicingRate == p.PolicingRate && s.PolicingBurst == p.PolicingBurst &&
		s.MAC.String() == p.MAC.String() && s.MTU == p.MTU &&
		includes(s.ExternalIDs, p.ExternalIDs) && s.QoS.satisfies(p.QoS)
}

func (q *QoS) satisfies(want *QoS) bool {
	if q == nil || want == nil {
		return q == want
	}
	return q.Type == want.Type && maps.Equal(q.Other, want.Other) &&
		(q.QueueOther == nil) == (want.QueueOther == nil) && maps.Equal(q.QueueOther, want.QueueOther) &&
		includes(q.ExternalIDs, want.ExternalIDs)
}

// healthy tells that OVS has taken the port, or has not looked at it yet.
func (s PortState) healthy() bool { return s.Error == "" && s.OFPort >= 0 }

func includes(have, want map[string]string) bool {
	for k, v := range want {
		if h, ok := have[k]; !ok || h != v {
			return false
		}
	}
	return true
}

func macString(m core.MAC) any {
	if len(m) == 0 {
		return session.Set()
	}
	return m.String()
}
