package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/session"
)

// DelPort removes the port, its QoS and Queue rows and its mirror selection in
// one transaction; a port that is gone is success. Whose port it is, the
// caller has checked.
func (c *Client) DelPort(ctx context.Context, name string) error {
	err := c.change(ctx, func(v view, t *session.Txn) error {
		c.removeQoS(v, t, name)
		c.removePort(v, t, name)
		return nil
	})
	if shared := (*ovsdb.ReferentialIntegrityViolation)(nil); errors.As(err, &shared) {
		// Somebody gave our QoS rows to a port of his own; they are his now.
		c.log.Warn("QoS rows are in use elsewhere and stay", "port", name, "err", err)
		err = c.change(ctx, func(v view, t *session.Txn) error {
			c.removePort(v, t, name)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("delete port %s: %w", name, err)
	}
	return nil
}

// removePort takes the port off its bridge and deletes its rows. The database
// would collect them, but only after it has refused to delete the QoS row that
// they refer to.
func (c *Client) removePort(v view, t *session.Txn, name string) {
	p := v.port(name)
	if p == nil {
		return
	}
	if b := v.bridgeOf(p.UUID); b != nil {
		t.Drop(tBridge, b.UUID, "ports", ovsdb.UUID{GoUUID: p.UUID})
	}
	t.Remove(tPort, p.UUID)
	for _, uuid := range p.Interfaces {
		t.Remove(tInterface, uuid)
	}
}

// removeQoS deletes the rows that carry the port's name: roots, which stay
// also when nobody refers to them. A QoS row without the name is the port's if
// its queue has it.
func (c *Client) removeQoS(v view, t *session.Txn, port string) {
	queues := map[string]bool{}
	for _, q := range session.ByID[queueRow](v.View, tQueue, KeyPort, port) {
		queues[q.UUID] = true
		t.Remove(tQueue, q.UUID)
	}
	gone := map[string]bool{}
	for _, q := range session.ByID[qosRow](v.View, tQoS, KeyPort, port) {
		gone[q.UUID] = true
		t.Remove(tQoS, q.UUID)
	}
	if p := v.port(port); p != nil && p.QoS != nil && !gone[*p.QoS] {
		if q := session.ByUUID[qosRow](v.View, tQoS, *p.QoS); q != nil && queues[q.Queues[0]] {
			t.Remove(tQoS, q.UUID)
		}
	}
}
