package ovs

import (
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/session"
)

// Tables of the Open_vSwitch schema that are monitored, and only these.
const (
	tRoot      = "Open_vSwitch"
	tBridge    = "Bridge"
	tPort      = "Port"
	tInterface = "Interface"
	tQoS       = "QoS"
	tQueue     = "Queue"
	tMirror    = "Mirror"
)

// The rows hold the columns we use and no more: Interface.statistics alone
// would wake every agent each 5 s for each port. They clone themselves,
// because libovsdb otherwise copies rows through JSON.
type (
	rootRow struct {
		UUID        string            `ovsdb:"_uuid"`
		Bridges     []string          `ovsdb:"bridges"`
		NextCfg     int               `ovsdb:"next_cfg"`
		CurCfg      int               `ovsdb:"cur_cfg"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	bridgeRow struct {
		UUID         string            `ovsdb:"_uuid"`
		Name         string            `ovsdb:"name"`
		Ports        []string          `ovsdb:"ports"`
		Mirrors      []string          `ovsdb:"mirrors"`
		DatapathType string            `ovsdb:"datapath_type"`
		FailMode     *string           `ovsdb:"fail_mode"`
		OtherConfig  map[string]string `ovsdb:"other_config"`
		ExternalIDs  map[string]string `ovsdb:"external_ids"`
	}
	portRow struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Interfaces  []string          `ovsdb:"interfaces"`
		Tag         *int              `ovsdb:"tag"`
		Trunks      []int             `ovsdb:"trunks"`
		VLANMode    *string           `ovsdb:"vlan_mode"`
		QoS         *string           `ovsdb:"qos"`
		OtherConfig map[string]string `ovsdb:"other_config"`
	}
	ifaceRow struct {
		UUID          string            `ovsdb:"_uuid"`
		Name          string            `ovsdb:"name"`
		Type          string            `ovsdb:"type"`
		OFPort        *int              `ovsdb:"ofport"`
		Error         *string           `ovsdb:"error"`
		LinkState     *string           `ovsdb:"link_state"`
		IfIndex       *int              `ovsdb:"ifindex"`
		MAC           *string           `ovsdb:"mac"`
		MTURequest    *int              `ovsdb:"mtu_request"`
		PolicingRate  int               `ovsdb:"ingress_policing_rate"`
		PolicingBurst int               `ovsdb:"ingress_policing_burst"`
		ExternalIDs   map[string]string `ovsdb:"external_ids"`
	}
	qosRow struct {
		UUID        string            `ovsdb:"_uuid"`
		Type        string            `ovsdb:"type"`
		OtherConfig map[string]string `ovsdb:"other_config"`
		Queues      map[int]string    `ovsdb:"queues"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	queueRow struct {
		UUID        string            `ovsdb:"_uuid"`
		OtherConfig map[string]string `ovsdb:"other_config"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	mirrorRow struct {
		UUID          string   `ovsdb:"_uuid"`
		Name          string   `ovsdb:"name"`
		OutputPort    *string  `ovsdb:"output_port"`
		SelectDstPort []string `ovsdb:"select_dst_port"`
		SelectAll     bool     `ovsdb:"select_all"`
	}
)

func (r *rootRow) CloneModel() model.Model {
	c := *r
	c.Bridges, c.ExternalIDs = slices.Clone(r.Bridges), maps.Clone(r.ExternalIDs)
	return &c
}

func (r *bridgeRow) CloneModel() model.Model {
	c := *r
	c.Ports, c.Mirrors = slices.Clone(r.Ports), slices.Clone(r.Mirrors)
	c.FailMode, c.OtherConfig, c.ExternalIDs = clonePtr(r.FailMode), maps.Clone(r.OtherConfig), maps.Clone(r.ExternalIDs)
	return &c
}

func (r *portRow) CloneModel() model.Model {
	c := *r
	c.Interfaces, c.Trunks = slices.Clone(r.Interfaces), slices.Clone(r.Trunks)
	c.Tag, c.VLANMode, c.QoS, c.OtherConfig = clonePtr(r.Tag), clonePtr(r.VLANMode), clonePtr(r.QoS), maps.Clone(r.OtherConfig)
	return &c
}

func (r *ifaceRow) CloneModel() model.Model {
	c := *r
	c.OFPort, c.Error, c.LinkState = clonePtr(r.OFPort), clonePtr(r.Error), clonePtr(r.LinkState)
	c.IfIndex, c.MAC, c.MTURequest = clonePtr(r.IfIndex), clonePtr(r.MAC), clonePtr(r.MTURequest)
	c.ExternalIDs = maps.Clone(r.ExternalIDs)
	return &c
}

func (r *qosRow) CloneModel() model.Model {
	c := *r
	c.OtherConfig, c.ExternalIDs = maps.Clone(r.OtherConfig), maps.Clone(r.ExternalIDs)
	c.Queues = maps.Clone(r.Queues)
	return &c
}

func (r *queueRow) CloneModel() model.Model {
	c := *r
	c.OtherConfig, c.ExternalIDs = maps.Clone(r.OtherConfig), maps.Clone(r.ExternalIDs)
	return &c
}

func (r *mirrorRow) CloneModel() model.Model {
	c := *r
	c.OutputPort, c.SelectDstPort = clonePtr(r.OutputPort), slices.Clone(r.SelectDstPort)
	return &c
}

func (r *rootRow) CloneModelInto(m model.Model)   { cloneInto(r.CloneModel(), m, (*rootRow)(nil)) }
func (r *bridgeRow) CloneModelInto(m model.Model) { cloneInto(r.CloneModel(), m, (*bridgeRow)(nil)) }
func (r *portRow) CloneModelInto(m model.Model)   { cloneInto(r.CloneModel(), m, (*portRow)(nil)) }
func (r *ifaceRow) CloneModelInto(m model.Model)  { cloneInto(r.CloneModel(), m, (*ifaceRow)(nil)) }
func (r *qosRow) CloneModelInto(m model.Model)    { cloneInto(r.CloneModel(), m, (*qosRow)(nil)) }
func (r *queueRow) CloneModelInto(m model.Model)  { cloneInto(r.CloneModel(), m, (*queueRow)(nil)) }
func (r *mirrorRow) CloneModelInto(m model.Model) { cloneInto(r.CloneModel(), m, (*mirrorRow)(nil)) }

func cloneInto[T any](src, dst model.Model, _ *T) {
	*dst.(*T) = *src.(*T) //nolint:forcetypeassert // libovsdb pairs rows of one table
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// value is *p, or the zero value of an unset optional column.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// replica pairs tables and rows, with an index for each external id that is
// looked up while a pod waits.
func replica(ovsdb.DatabaseSchema) (session.Replica, error) {
	m, err := model.NewClientDBModel(tRoot, map[string]model.Model{
		tRoot: &rootRow{}, tBridge: &bridgeRow{}, tPort: &portRow{}, tInterface: &ifaceRow{},
		tQoS: &qosRow{}, tQueue: &queueRow{}, tMirror: &mirrorRow{},
	})
	if err != nil {
		return session.Replica{}, err
	}
	byKey := func(key string) model.ClientIndex {
		return model.ClientIndex{Columns: []model.ColumnKey{{Column: "external_ids", Key: key}}}
	}
	m.SetIndexes(map[string][]model.ClientIndex{
		tInterface: {byKey(KeyIfaceID), byKey(KeyContainer)},
		tQoS:       {byKey(KeyPort)},
		tQueue:     {byKey(KeyPort)},
	})
	return session.Replica{Model: m, Monitor: monitorOptions()}, nil
}

// monitorOptions lists the columns of each table: all of its row but the uuid.
func monitorOptions() []client.MonitorOption {
	var (
		root rootRow
		br   bridgeRow
		port portRow
		ifc  ifaceRow
		qos  qosRow
		q    queueRow
		mir  mirrorRow
	)
	return []client.MonitorOption{
		client.WithTable(&root, &root.Bridges, &root.NextCfg, &root.CurCfg, &root.ExternalIDs),
		client.WithTable(&br, &br.Name, &br.Ports, &br.Mirrors, &br.DatapathType, &br.FailMode, &br.OtherConfig, &br.ExternalIDs),
		client.WithTable(&port, &port.Name, &port.Interfaces, &port.Tag, &port.Trunks, &port.VLANMode, &port.QoS, &port.OtherConfig),
		client.WithTable(&ifc, &ifc.Name, &ifc.Type, &ifc.OFPort, &ifc.Error, &ifc.LinkState, &ifc.IfIndex,
			&ifc.MAC, &ifc.MTURequest, &ifc.PolicingRate, &ifc.PolicingBurst, &ifc.ExternalIDs),
		client.WithTable(&qos, &qos.Type, &qos.OtherConfig, &qos.Queues, &qos.ExternalIDs),
		client.WithTable(&q, &q.OtherConfig, &q.ExternalIDs),
		client.WithTable(&mir, &mir.Name, &mir.OutputPort, &mir.SelectDstPort, &mir.SelectAll),
	}
}
