package ovs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// IDs are the external ids of the switch itself (table Open_vSwitch), by which
// ovn-controller is configured. core.ErrUnavailable while the database is away,
// or has no row for them yet.
func (c *Client) IDs() (map[string]string, error) {
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	root, err := v.root()
	if err != nil {
		return nil, err
	}
	return maps.Clone(root.ExternalIDs), nil
}

// SetIDs gives the switch the external ids that want makes of those that it has,
// and leaves all others alone. What is so already costs no transaction; all else is
// one. It tells which keys it wrote.
func (c *Client) SetIDs(ctx context.Context, want func(have map[string]string) map[string]string) (wrote []string, err error) {
	err = c.change(ctx, func(v view, t *session.Txn) error {
		root, err := v.root()
		if err != nil {
			return err
		}
		ids := want(root.ExternalIDs)
		maps.DeleteFunc(ids, func(k, val string) bool { had, ok := root.ExternalIDs[k]; return ok && had == val })
		wrote = slices.Sorted(maps.Keys(ids))
		if len(ids) == 0 {
			return nil
		}
		// To insert a key that is there changes nothing (RFC 7047, 5.1).
		keys := session.Set()
		for _, k := range wrote {
			keys.GoSet = append(keys.GoSet, k)
		}
		t.Mutate(tRoot, root.UUID,
			ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, keys),
			ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, session.Map(ids)))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("external ids of Open vSwitch: %w", err)
	}
	return wrote, nil
}

// root is the database's one row about the switch.
func (v view) root() (*rootRow, error) {
	rows := session.Rows[rootRow](v.View, tRoot)
	if len(rows) == 0 {
		return nil, fmt.Errorf("table %s is empty: %w", tRoot, core.ErrUnavailable)
	}
	return rows[0], nil
}

// idsChanged tells of changed external ids of the switch.
func (c *Client) idsChanged(old, now model.Model) {
	o, was := old.(*rootRow)
	n, is := now.(*rootRow)
	if was && is && c.cfg.OnIDs != nil && !maps.Equal(o.ExternalIDs, n.ExternalIDs) {
		c.cfg.OnIDs()
	}
}
