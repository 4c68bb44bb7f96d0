package ovn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/session"
)

// A client that does not lead asks here whether the one that leads still works, and that
// one takes the question away. It is an address set without addresses, of which ovn-northd
// makes nothing: a change of NB_Global has it compute everything anew.
const (
	questionRow = "fairlead_question"
	// KeyQuestion is the question in its external ids, while it has no answer.
	KeyQuestion = "fairlead-question"
)

// ErrAnswered tells that a question stands no more: the leader answered, another leads, or
// somebody acted on it. Nothing was changed.
var ErrAnswered = errors.New("the question in the northbound database stands no more")

// Question is one to whoever led when it was asked.
type Question struct {
	text, holder string
	epoch        uint64
}

// Ask asks whoever leads, by a client's name, or gives the question that stands already.
// It fails as Apply does, but for the fence, and where nobody ever led.
func (c *Client) Ask(ctx context.Context, name string) (q Question, err error) {
	text := name + " " + rand.Text()
	err = c.db.Change(ctx, func(v session.View, t *session.Txn) error {
		g := global(v)
		if g == nil || epochOf(g) == 0 {
			return errors.New("nobody leads yet")
		}
		q = Question{text: text, epoch: epochOf(g), holder: g.ExternalIDs[KeyHolder]}
		row := questionOf(v)
		switch {
		case row == nil:
			t.Insert(TableAddressSet, ovsdb.Row{"name": questionRow, "external_ids": session.Map(map[string]string{KeyQuestion: text})})
		case ids(row)[KeyQuestion] != "":
			q.text = ids(row)[KeyQuestion]
		default:
			t.Expect(TableAddressSet, uuidOf(row), "external_ids", session.Map(ids(row)))
			t.Mutate(TableAddressSet, uuidOf(row), ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, session.Map(map[string]string{KeyQuestion: text})))
		}
		return nil
	})
	if err != nil {
		return Question{}, fmt.Errorf("question in the northbound database: %w", err)
	}
	return q, nil
}

// Answer takes the question away that stands, if this client leads; without one it costs
// no transaction. It fails as Apply does.
func (c *Client) Answer(ctx context.Context) error {
	err := c.db.Change(ctx, func(v session.View, t *session.Txn) error {
		row := questionOf(v)
		if row == nil || ids(row)[KeyQuestion] == "" {
			return nil
		}
		g, err := c.fence(v)
		if err != nil {
			return err
		}
		t.ExpectIDs(tGlobal, g.UUID, g.Name, stamp(epochOf(g), g.ExternalIDs[KeyHolder]))
		take(t, row)
		return nil
	})
	if err != nil {
		return fmt.Errorf("answer in the northbound database: %w", err)
	}
	return nil
}

// Stands is nil while a question has no answer and who led then leads; else it is
// ErrAnswered, or wraps core.ErrUnavailable.
func (c *Client) Stands(q Question) error {
	conn, err := c.db.Conn()
	if err != nil {
		return err
	}
	_, _, err = q.stands(conn.View)
	return err
}

func (q Question) stands(v session.View) (*nbGlobal, model.Model, error) {
	g, row := global(v), questionOf(v)
	if g == nil || row == nil || epochOf(g) != q.epoch || g.ExternalIDs[KeyHolder] != q.holder || ids(row)[KeyQuestion] != q.text {
		return nil, nil, ErrAnswered
	}
	return g, row, nil
}

// Routes are an owner's policy routes by their keys. It fails with core.ErrUnavailable
// while the database is away.
func (c *Client) Routes(owner string) (map[string]Policy, error) {
	conn, err := c.db.Conn()
	if err != nil {
		return nil, err
	}
	out := map[string]Policy{}
	for _, row := range routesOf(conn.View, owner) {
		m, _ := marked(row)
		out[m.key] = Policy{Match: text(row, "match"), Action: text(row, "action"), Nexthops: strs(row, "nexthops"), ExternalIDs: ids(row)}
	}
	return out, nil
}

func routesOf(v session.View, owner string) []model.Model {
	return v.ByID("Logical_Router_Policy", KeyOwner, owner)
}

// StandIn gives policy routes of an owner other next hops and external ids, by their keys,
// for a leader that left a question without an answer, and takes the question away. Unless
// the question stands, in the database, it fails with ErrAnswered: a leader that answers at
// this moment wins. A route is changed only while it is as in was. Else it fails as Apply
// does, but for the fence.
func (c *Client) StandIn(ctx context.Context, q Question, owner string, was, now map[string]Policy) error {
	err := c.db.Change(ctx, func(v session.View, t *session.Txn) error {
		g, row, err := q.stands(v)
		if err != nil {
			return err
		}
		t.ExpectIDs(tGlobal, g.UUID, g.Name, stamp(q.epoch, q.holder))
		take(t, row)
		left := len(now)
		for _, r := range routesOf(v, owner) {
			m, _ := marked(r)
			to, changes := now[m.key]
			if !changes {
				continue
			}
			left--
			t.Expect("Logical_Router_Policy", uuidOf(r), "external_ids", session.Map(was[m.key].ExternalIDs))
			t.Expect("Logical_Router_Policy", uuidOf(r), "nexthops", hops(was[m.key]))
			t.Update("Logical_Router_Policy", uuidOf(r), ovsdb.Row{"nexthops": hops(to), "external_ids": session.Map(to.ExternalIDs)})
		}
		if left != 0 {
			return session.ErrMoved
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("policy routes of %s: %w", owner, err)
	}
	return nil
}

func hops(p Policy) ovsdb.OvsSet { return session.Set(without(p.Nexthops, nil)...) }

// questionOf is the question's row, nil for none.
func questionOf(v session.View) model.Model {
	for _, row := range v.ByName(TableAddressSet, questionRow) {
		return row
	}
	return nil
}

// take takes a question away, and fails the transaction if it is not the one in row.
func take(t *session.Txn, row model.Model) {
	is := map[string]string{KeyQuestion: ids(row)[KeyQuestion]}
	t.ExpectIDs(TableAddressSet, uuidOf(row), questionRow, is)
	t.Mutate(TableAddressSet, uuidOf(row), ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, session.Map(is)))
}

// heed tells of a row that is a question.
func heed(table string, now model.Model, asked func()) {
	if asked != nil && table == TableAddressSet && text(now, "name") == questionRow && ids(now)[KeyQuestion] != "" {
		asked()
	}
}
