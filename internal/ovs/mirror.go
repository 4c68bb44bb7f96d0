package ovs

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/session"
)

// ensureMirror has the bridge's mirror hear all ports, or only those that are
// selected, as Config says.
func (c *Client) ensureMirror(ctx context.Context) error {
	all := c.cfg.MirrorAll
	if all == nil {
		return nil
	}
	return c.change(ctx, func(v view, t *session.Txn) error {
		b := v.bridge(c.cfg.Bridge)
		if b == nil {
			return c.noBridge()
		}
		m := v.mirror(b)
		switch {
		case m != nil && m.SelectAll != *all:
			t.Update(tMirror, m.UUID, ovsdb.Row{"select_all": *all})
		case m == nil && *all:
			c.insertMirror(v, t, b, ovsdb.Row{"select_all": true})
		}
		return nil
	})
}

// mirror selects a port for the bridge's mirror, which is made on first use
// and stays: somebody may be watching its output. The selection itself is a
// weak reference and goes with the port.
func (c *Client) mirror(v view, t *session.Txn, b *bridgeRow, port ovsdb.UUID) {
	if m := v.mirror(b); m != nil {
		t.Expect(tBridge, b.UUID, "mirrors", session.Refs(b.Mirrors)) // as m was found
		t.Add(tMirror, m.UUID, "select_dst_port", port)
		return
	}
	c.insertMirror(v, t, b, ovsdb.Row{"select_dst_port": session.Set(port)})
}

// insertMirror makes the bridge's mirror, and the port that it sends to.
func (c *Client) insertMirror(v view, t *session.Txn, b *bridgeRow, row ovsdb.Row) {
	t.Expect(tBridge, b.UUID, "mirrors", session.Refs(b.Mirrors)) // there was none
	var out ovsdb.UUID
	if p := v.port(MirrorPort); p != nil {
		out = ovsdb.UUID{GoUUID: p.UUID}
	} else {
		ids := session.Map(map[string]string{KeyVendor: Vendor})
		iface := t.Insert(tInterface, ovsdb.Row{"name": MirrorPort, "type": "internal", "external_ids": ids})
		out = t.Insert(tPort, ovsdb.Row{"name": MirrorPort, "interfaces": session.Set(iface)})
		t.Add(tBridge, b.UUID, "ports", out)
	}
	row["name"], row["output_port"] = MirrorName, out
	t.Add(tBridge, b.UUID, "mirrors", t.Insert(tMirror, row))
}
