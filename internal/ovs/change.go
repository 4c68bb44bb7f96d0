package ovs

import (
	"context"
	"fmt"
	"maps"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// EnsureBridge makes the bridge what Config says, and the database's root row
// if `ovs-vsctl init` never ran: datapath type, fail_mode, our
// vendor mark, a MAC that stays. A bridge that is so already costs no transaction.
func (c *Client) EnsureBridge(ctx context.Context) error {
	err := c.change(ctx, func(v view, t *session.Txn) error {
		if b := v.bridge(c.cfg.Bridge); b != nil {
			c.repairBridge(t, b)
			return nil
		}
		c.insertBridge(v, t)
		return nil
	})
	if err == nil {
		err = c.ensureMirror(ctx)
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", c.cfg.Bridge, err)
	}
	return nil
}

func (c *Client) repairBridge(t *session.Txn, b *bridgeRow) {
	row := ovsdb.Row{}
	if c.cfg.Datapath != "" && datapath(b.DatapathType) != datapath(c.cfg.Datapath) {
		row["datapath_type"] = c.cfg.Datapath
	}
	if value(b.FailMode) != c.failMode() {
		row["fail_mode"] = c.failMode()
	}
	if b.ExternalIDs[KeyVendor] != Vendor {
		t.Expect(tBridge, b.UUID, "external_ids", session.Map(b.ExternalIDs))
		row["external_ids"] = session.Map(merged(b.ExternalIDs, map[string]string{KeyVendor: Vendor}))
	}
	if _, has := b.OtherConfig[keyHWAddr]; !has && len(c.cfg.MAC) > 0 {
		t.Expect(tBridge, b.UUID, "other_config", session.Map(b.OtherConfig))
		row["other_config"] = session.Map(merged(b.OtherConfig, c.otherConfig()))
	}
	if len(row) > 0 {
		t.Update(tBridge, b.UUID, row)
	}
}

// failMode is what a bridge without flows does: it forwards as a learning switch,
// or not at all.
func (c *Client) failMode() string {
	if c.cfg.OVN {
		return "secure"
	}
	return "standalone"
}

// keyHWAddr of a bridge's other_config is its own device's MAC.
const keyHWAddr = "hwaddr"

func (c *Client) otherConfig() map[string]string {
	if len(c.cfg.MAC) == 0 {
		return nil
	}
	return map[string]string{keyHWAddr: c.cfg.MAC.String()}
}

// datapath makes the two names of the kernel's datapath one.
func datapath(t string) string {
	if t == "" {
		return "system"
	}
	return t
}

func (c *Client) insertBridge(v view, t *session.Txn) {
	iface := t.Insert(tInterface, ovsdb.Row{"name": c.cfg.Bridge, "type": "internal"})
	port := t.Insert(tPort, ovsdb.Row{"name": c.cfg.Bridge, "interfaces": session.Set(iface)})
	bridge := t.Insert(tBridge, ovsdb.Row{
		"name": c.cfg.Bridge, "ports": session.Set(port), "datapath_type": c.cfg.Datapath,
		"fail_mode": c.failMode(), "external_ids": session.Map(map[string]string{KeyVendor: Vendor}),
		"other_config": session.Map(c.otherConfig()),
	})
	if root := session.Rows[rootRow](v.View, tRoot); len(root) > 0 {
		t.Add(tRoot, root[0].UUID, "bridges", bridge)
	} else {
		t.Insert(tRoot, ovsdb.Row{"bridges": session.Set(bridge)})
	}
}

// AddPort makes the port what p says, in one transaction: Interface, Port,
// QoS, Queue and the mirror's selection together; any other Interface loses
// the same iface-id. A port that is so already costs nothing; one of the same
// owner is changed; another owner's is core.ErrExists. OVS has not acted yet
// when AddPort returns: see WaitPort.
func (c *Client) AddPort(ctx context.Context, p Port) error {
	err := c.change(ctx, func(v view, t *session.Txn) error { return c.buildAdd(v, t, p) })
	if err != nil {
		return fmt.Errorf("add port %s: %w", p.Name, err)
	}
	return nil
}

func (c *Client) buildAdd(v view, t *session.Txn, p Port) error {
	b := v.bridge(c.cfg.Bridge)
	if b == nil {
		return c.noBridge()
	}
	have, found := v.state(p.Name)
	if found && have.Owner() != p.Owner() {
		return fmt.Errorf("%w: it belongs to %s", core.ErrExists, orNobody(have.Owner()))
	}
	t.Expect(tBridge, b.UUID, "name", b.Name)
	before := len(t.Ops)
	c.dropIfaceID(v, t, p)
	if !found {
		c.insertPort(v, t, p, b)
	} else if err := c.changePort(v, t, p, b, have); err != nil {
		return err
	}
	if len(t.Ops) == before {
		t.Ops = nil // nothing but the expectation
	}
	return nil
}

func (c *Client) changePort(v view, t *session.Txn, p Port, b *bridgeRow, have PortState) error {
	switch {
	case have.healthy() && have.satisfies(p, b.Name):
		return nil
	case have.healthy() && have.Bridge == b.Name && have.Type == p.Type:
		return c.updatePort(v, t, p, b, have)
	}
	// OVS failed on it, or it hangs elsewhere: a new row has no old error that
	// a waiter could take for the new outcome.
	c.removePort(v, t, p.Name)
	c.insertPort(v, t, p, b)
	return nil
}

func orNobody(owner string) string {
	if owner == "" {
		return "somebody else (no container_id)"
	}
	return owner
}

// dropIfaceID takes the logical port away from any other Interface, for
// example from the sandbox that the runtime is replacing.
func (c *Client) dropIfaceID(v view, t *session.Txn, p Port) {
	id := p.ExternalIDs[KeyIfaceID]
	if id == "" {
		return
	}
	for _, i := range session.ByID[ifaceRow](v.View, tInterface, KeyIfaceID, id) {
		if i.Name != p.Name {
			t.Drop(tInterface, i.UUID, "external_ids", KeyIfaceID)
		}
	}
}

func (c *Client) insertPort(v view, t *session.Txn, p Port, b *bridgeRow) {
	iface := t.Insert(tInterface, newInterface(p))
	row := ovsdb.Row{"name": p.Name, "interfaces": session.Set(iface)}
	if p.VLAN != 0 {
		row["tag"] = p.VLAN
	}
	c.removeQoS(v, t, p.Name)
	if p.QoS != nil {
		row["qos"] = insertQoS(t, p.Name, p.QoS)
	}
	port := t.Insert(tPort, row)
	t.Add(tBridge, b.UUID, "ports", port)
	if p.Mirror {
		c.mirror(v, t, b, port)
	}
}

func (c *Client) updatePort(v view, t *session.Txn, p Port, b *bridgeRow, have PortState) error {
	port, iface := v.port(p.Name), v.iface(p.Name)
	if port == nil || iface == nil {
		return session.ErrMoved
	}
	t.Expect(tPort, port.UUID, "name", p.Name)
	// It is written whole: what others wrote since is not to be lost.
	t.Expect(tInterface, iface.UUID, "external_ids", session.Map(iface.ExternalIDs))
	t.Update(tInterface, iface.UUID, interfaceRow(p, iface.ExternalIDs))
	row := ovsdb.Row{"tag": session.Optional(p.VLAN), "trunks": session.Set(), "vlan_mode": session.Set()}
	if !have.QoS.satisfies(p.QoS) {
		c.removeQoS(v, t, p.Name)
		row["qos"] = session.Set()
		if p.QoS != nil {
			row["qos"] = insertQoS(t, p.Name, p.QoS)
		}
	}
	t.Update(tPort, port.UUID, row)
	ref := ovsdb.UUID{GoUUID: port.UUID}
	switch {
	case p.Mirror && !have.Mirror:
		c.mirror(v, t, b, ref)
	case !p.Mirror && have.Mirror:
		if m := v.mirror(b); m != nil {
			t.Drop(tMirror, m.UUID, "select_dst_port", ref)
		}
	}
	return nil
}

// newInterface leaves out what a new row has by itself: encoded here and decoded
// by the server, each column costs both.
func newInterface(p Port) ovsdb.Row {
	row := ovsdb.Row{"name": p.Name, "external_ids": session.Map(p.ExternalIDs)}
	if p.Type != "" {
		row["type"] = p.Type
	}
	if p.PolicingRate != 0 {
		row["ingress_policing_rate"] = p.PolicingRate
	}
	if p.PolicingBurst != 0 {
		row["ingress_policing_burst"] = p.PolicingBurst
	}
	if len(p.MAC) != 0 {
		row["mac"] = p.MAC.String()
	}
	if p.MTU != 0 {
		row["mtu_request"] = p.MTU
	}
	return row
}

// interfaceRow holds the columns that an update may change.
func interfaceRow(p Port, haveIDs map[string]string) ovsdb.Row {
	return ovsdb.Row{
		"external_ids":           session.Map(merged(haveIDs, p.ExternalIDs)),
		"ingress_policing_rate":  p.PolicingRate,
		"ingress_policing_burst": p.PolicingBurst,
		"mac":                    macString(p.MAC),
		"mtu_request":            session.Optional(p.MTU),
	}
}

func insertQoS(t *session.Txn, port string, q *QoS) ovsdb.UUID {
	ids := session.Map(merged(q.ExternalIDs, map[string]string{KeyPort: port}))
	row := ovsdb.Row{"type": q.Type, "other_config": session.Map(q.Other), "external_ids": ids}
	if q.QueueOther != nil {
		queue := t.Insert(tQueue, ovsdb.Row{"other_config": session.Map(q.QueueOther), "external_ids": ids})
		row["queues"] = ovsdb.OvsMap{GoMap: map[any]any{0: queue}}
	}
	return t.Insert(tQoS, row)
}

func merged(base, over map[string]string) map[string]string {
	m := maps.Clone(base)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, over)
	return m
}
