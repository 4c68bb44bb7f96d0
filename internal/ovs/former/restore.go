package former

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/rows"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// Lists of "NETWORK:VALUE,..." among the external ids of a switch (ovn-controller(8)).
const (
	Mappings    = "ovn-bridge-mappings"
	ChassisMACs = "ovn-chassis-mac-mappings"
)

// Entries are the values of such a list by network.
func (s Switch) Entries(key string) map[string]string {
	out := map[string]string{}
	for one := range strings.SplitSeq(s.IDs[key], ",") {
		if network, value, ok := strings.Cut(strings.TrimSpace(one), ":"); ok {
			out[network] = value
		}
	}
	return out
}

// Mark adds external ids to the Interfaces of ports, by port, and marks their QoS rows as
// ovs.Client does, which finds them by that. A port that is gone is left out; what is so
// already costs no transaction.
func Mark(ctx context.Context, db *rows.DB, ids map[string]map[string]string) (changed bool, err error) {
	f, err := find(ctx, db)
	if err != nil {
		return false, err
	}
	var t session.Txn
	for name, want := range ids {
		have, there := f.Port(name)
		if !there {
			continue
		}
		at := f.ports[name]
		cell{tInterface, at.iface, "external_ids", have.IDs}.put(&t, want, nil)
		if have.QoS != nil && have.QoS.IDs[ovs.KeyPort] == "" {
			at.mark(&t, name)
		}
	}
	return len(t.Ops) > 0, commit(ctx, db, t)
}

// mark says of the rows of a port's QoS whose they are.
func (r refs) mark(t *session.Txn, port string) {
	owner := session.Map(map[string]string{ovs.KeyPort: port})
	t.Mutate(tQoS, r.qos, ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, owner))
	for _, queue := range r.queues {
		t.Mutate(tQueue, queue, ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, owner))
	}
}

// cell is a map column of one row, as it is.
type cell struct {
	table, uuid, column string
	have                map[string]string
}

// put changes some of its entries: those of want, and those that go. Others stay, also such
// as come meanwhile.
func (c cell) put(t *session.Txn, want map[string]string, gone []string) {
	keys, set := session.Set(), map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, has := c.have[k]; !has || v != want[k] {
			keys.GoSet, set[k] = append(keys.GoSet, k), want[k]
		}
	}
	for _, k := range gone {
		if _, has := c.have[k]; has {
			keys.GoSet = append(keys.GoSet, k)
		}
	}
	if len(keys.GoSet) == 0 {
		return
	}
	t.Mutate(c.table, c.uuid,
		ovsdb.NewMutation(c.column, ovsdb.MutateOperationDelete, keys),
		ovsdb.NewMutation(c.column, ovsdb.MutateOperationInsert, session.Map(set)))
}

func commit(ctx context.Context, db *rows.DB, t session.Txn) error {
	if len(t.Ops) == 0 {
		return nil
	}
	return db.Change(ctx, t.Ops...)
}

// Strip says what marks go from ports of containers that were not kept: the external IDs of
// the Interfaces of those that Of picks. Others of containers stay as they are.
type Strip struct {
	IDs []string
	Of  func(port string) bool
}

// Restore puts back what was kept of rows that are still there, in one transaction. Entries
// of Mappings and ChassisMACs come back for networks whose bridge is there; those of others
// stay. What ovn-controller writes is its own. It tells whether there was anything to do.
func (s Switch) Restore(ctx context.Context, db *rows.DB, strip Strip) (changed bool, err error) {
	now, err := find(ctx, db)
	if err != nil {
		return false, err
	}
	var t session.Txn
	s.restoreRoot(&t, now)
	for _, b := range now.Bridges {
		if was, kept := s.Bridge(b.Name); kept {
			was.restore(&t, now.bridges[b.Name], b)
		} else {
			cell{tBridge, now.bridges[b.Name], "external_ids", b.IDs}.put(&t, nil, []string{ovs.KeyUplink})
		}
	}
	for _, p := range now.Ports {
		was, kept := s.Port(p.Name)
		switch marked := p.IDs[ovs.KeyContainer] != ""; {
		case marked && !strip.Of(p.Name):
		case kept && was.Type == p.Type:
			was.restore(&t, now.ports[p.Name], p)
		case marked:
			cell{tInterface, now.ports[p.Name].iface, "external_ids", p.IDs}.put(&t, nil, strip.IDs)
		}
	}
	return len(t.Ops) > 0, commit(ctx, db, t)
}

// restoreRoot is the part about the switch itself: what was there has the value that it
// had, and what an agent has added goes.
func (s Switch) restoreRoot(t *session.Txn, now found) {
	if now.root == "" || len(s.IDs) == 0 { // nothing was kept
		return
	}
	want := maps.Clone(s.IDs)
	for _, key := range []string{Mappings, ChassisMACs} {
		delete(want, key)
		if list := s.listFor(key, now); list != "" {
			want[key] = list
		}
	}
	var gone []string
	for key := range now.IDs {
		added := strings.HasPrefix(key, "fairlead-") || strings.HasPrefix(key, "ovn-") && key != Mappings && key != ChassisMACs
		if _, had := s.IDs[key]; !had && added {
			gone = append(gone, key)
		}
	}
	cell{tRoot, now.root, "external_ids", now.IDs}.put(t, want, gone)
}

// listFor is one of the lists with the entries that were kept of networks whose bridge is
// there.
func (s Switch) listFor(key string, now found) string {
	list, had := now.IDs[key], s.Entries(key)
	for network, bridge := range s.Entries(Mappings) {
		if _, there := now.Bridge(bridge); there && had[network] != "" {
			list = withEntry(list, network, had[network])
		}
	}
	return list
}

// withEntry is the list with a network's value, in its place.
func withEntry(list, network, value string) string {
	var out []string
	found := false
	for one := range strings.SplitSeq(list, ",") {
		if name, _, _ := strings.Cut(one, ":"); name == network {
			one, found = network+":"+value, true
		}
		if one != "" {
			out = append(out, one)
		}
	}
	if !found {
		out = append(out, network+":"+value)
	}
	return strings.Join(out, ",")
}

// restore puts a bridge's row back. Its MAC (hwaddr) is only changed where it was another.
func (b Bridge) restore(t *session.Txn, uuid string, now Bridge) {
	cell{tBridge, uuid, "external_ids", now.IDs}.put(t, b.IDs, lacking(now.IDs, b.IDs))
	cell{tBridge, uuid, "other_config", now.Other}.put(t, b.Other, lacking(now.Other, b.Other))
	if now.FailMode != b.FailMode {
		t.Update(tBridge, uuid, ovsdb.Row{"fail_mode": optional(b.FailMode)})
	}
}

// lacking are keys that were not there. ovn-controller's are its own.
func lacking(now, was map[string]string) (out []string) {
	for key := range now {
		if _, had := was[key]; !had && !strings.HasPrefix(key, "ovn-") {
			out = append(out, key)
		}
	}
	return out
}

func optional(s string) any {
	if s == "" {
		return session.Set()
	}
	return s
}

// restore puts a port's rows back.
func (p Port) restore(t *session.Txn, at refs, now Port) {
	want := maps.Clone(p.IDs)
	maps.DeleteFunc(want, func(k, _ string) bool { return strings.HasPrefix(k, "ovn-") })
	cell{tInterface, at.iface, "external_ids", now.IDs}.put(t, want, lacking(now.IDs, p.IDs))
	if now.Rate != p.Rate || now.Burst != p.Burst {
		t.Update(tInterface, at.iface, ovsdb.Row{"ingress_policing_rate": p.Rate, "ingress_policing_burst": p.Burst})
	}
	if !slices.Equal(now.Tag, p.Tag) || !slices.Equal(now.Trunks, p.Trunks) || now.Mode != p.Mode {
		t.Update(tPort, at.port, ovsdb.Row{"tag": set(p.Tag), "trunks": set(p.Trunks), "vlan_mode": optional(p.Mode)})
	}
	if _, had := p.Other[ovs.KeyTransient]; !had {
		cell{tPort, at.port, "other_config", now.Other}.put(t, nil, []string{ovs.KeyTransient})
	}
	p.QoS.restore(t, at, now.QoS)
}

// restore gives a port its QoS; nil: none.
func (q *QoS) restore(t *session.Txn, at refs, now *QoS) {
	if q.same(now) {
		if q != nil && q.IDs[ovs.KeyPort] == "" {
			for uuid, name := range at.shaping() {
				t.Mutate(name, uuid, ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, session.Set(ovs.KeyPort)))
			}
		}
		return
	}
	t.Update(tPort, at.port, ovsdb.Row{"qos": q.insert(t)})
	for _, queue := range at.queues {
		t.Remove(tQueue, queue)
	}
	if at.qos != "" {
		t.Remove(tQoS, at.qos)
	}
}

// shaping are the rows of a port's QoS, with their tables.
func (r refs) shaping() map[string]string {
	out := map[string]string{r.qos: tQoS}
	for _, queue := range r.queues {
		out[queue] = tQueue
	}
	return out
}

func set(list []int) ovsdb.OvsSet {
	out := session.Set()
	for _, n := range list {
		out.GoSet = append(out.GoSet, n)
	}
	return out
}

// same tells that a QoS is as another one, whoever is said to have it.
func (q *QoS) same(o *QoS) bool {
	if q == nil || o == nil {
		return q == o
	}
	return q.Type == o.Type && maps.Equal(q.Other, o.Other) && maps.EqualFunc(q.Queues, o.Queues, func(a, b Queue) bool { return maps.Equal(a.Other, b.Other) })
}

// insert makes a QoS anew; no QoS is the empty set.
func (q *QoS) insert(t *session.Txn) any {
	if q == nil {
		return session.Set()
	}
	refs := map[any]any{}
	for n, queue := range q.Queues {
		refs[n] = t.Insert(tQueue, ovsdb.Row{"other_config": session.Map(queue.Other), "external_ids": session.Map(queue.IDs)})
	}
	return t.Insert(tQoS, ovsdb.Row{
		"type": q.Type, "other_config": session.Map(q.Other), "external_ids": session.Map(q.IDs), "queues": ovsdb.OvsMap{GoMap: refs},
	})
}

// Kind says of a port what it is, in words for people.
func (p Port) Kind() string {
	if p.Members > 1 {
		return fmt.Sprintf("a bond of %d interfaces", p.Members)
	}
	return "of type " + cmp.Or(p.Type, "system")
}
