package ovn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

const (
	maxBatch = 64               // Sets in one transaction
	maxTries = 5                // until the replica and the database fit together
	answers  = 10 * time.Second // for a transaction's answer
)

// request is one call of Apply.
type request struct {
	ctx  context.Context // the call's own: what nobody waits for is not begun
	set  *Set
	done chan error
	err  error // why it is not in the transaction yet
}

// Apply makes the rows of the Set's owner what the Set says. Calls that come at
// once share one transaction, and each gets its own error: MissingError,
// TakenError or UnsupportedError for what is wrong with the Set, ErrFenced when
// another client leads, core.ErrUnavailable when the database is away or went
// away before its answer. After an error nothing of the Set was changed, but
// for the last, where that is unknown: applying it again is safe. A Set that is
// so already costs no transaction.
//
// A row that is removed takes with it what has no other place, whoever owns
// that: a switch its ports.
func (c *Client) Apply(ctx context.Context, set *Set) error {
	for _, r := range set.rows {
		r.sign(set.Owner)
	}
	req := &request{ctx: ctx, set: set, done: make(chan error, 1)}
	select {
	case c.queue <- req:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
		return errEnded()
	}
	// Not ctx: the Set is in use until the answer, which has a limit of its own.
	if err := <-req.done; err != nil {
		return fmt.Errorf("northbound rows of %s: %w", set.Owner, err)
	}
	return nil
}

// write carries out requests, many at a time, until ctx ends.
func (c *Client) write(ctx context.Context) {
	var later []*request // Sets whose owner has another one before them
	for {
		if len(later) == 0 {
			select {
			case <-ctx.Done():
				return
			case r := <-c.queue:
				later = append(later, r)
			}
		}
		var batch []*request
		batch, later = c.gather(later)
		c.carryOut(ctx, batch)
	}
}

// gather takes what waits, at most one Set of an owner and in the order of
// their coming.
func (c *Client) gather(waiting []*request) (batch, later []*request) {
	owners := map[string]bool{}
	take := func(r *request) {
		if owners[r.set.Owner] || len(batch) == maxBatch {
			later = append(later, r)
			return
		}
		owners[r.set.Owner] = true
		batch = append(batch, r)
	}
	for _, r := range waiting {
		take(r)
	}
	for len(batch)+len(later) < maxBatch {
		select {
		case r := <-c.queue:
			take(r)
		default:
			return batch, later
		}
	}
	return batch, later
}

// carryOut answers every request of a batch. Those that cannot be in one
// transaction with the others get one of their own.
func (c *Client) carryOut(ctx context.Context, batch []*request) {
	for _, r := range c.try(ctx, batch) {
		c.try(ctx, []*request{r})
	}
}

// try answers the requests of a batch but for those that it returns, which are
// to be tried one by one.
func (c *Client) try(ctx context.Context, batch []*request) (alone []*request) {
	for n := 1; ; n++ {
		in, tangled, err := c.commit(ctx, batch)
		batch, alone = in, append(alone, tangled...)
		switch {
		case err == nil, errors.Is(err, ErrFenced), errors.Is(err, core.ErrUnavailable):
		case session.Stale(err) && n < maxTries:
			continue // the fence is looked at again, too
		case len(batch) > 1:
			return append(alone, batch...) // one of them: the others must not suffer
		}
		for _, r := range batch {
			r.done <- err
		}
		return alone
	}
}

// commit makes one transaction for a batch and gives the requests that are in
// it, whose answer is err, and those that must be tried alone.
func (c *Client) commit(ctx context.Context, batch []*request) (in, tangled []*request, err error) {
	conn, err := c.db.Conn()
	if err != nil {
		return batch, nil, err
	}
	d, in, tangled, err := c.draft(conn.View, batch)
	if err != nil || len(in) == 0 {
		return in, tangled, err
	}
	ctx, cancel := context.WithTimeout(ctx, answers) // making it may have taken long
	defer cancel()
	c.meant.put(d.meant) // before the replica can have it
	if err = conn.Commit(ctx, d.finish()); err != nil {
		c.meant.drop(d.meant)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: no answer: %w", core.ErrUnavailable, err)
	}
	return in, tangled, err
}

// draft builds the transaction for a batch, behind the fence, and gives the
// requests that are in it. It answers those that have no part in it.
func (c *Client) draft(v session.View, batch []*request) (d *draft, in, tangled []*request, err error) {
	g, err := c.fence(v)
	if err != nil {
		return nil, batch, nil, err
	}
	d = newDraft(v)
	d.t.ExpectIDs(tGlobal, g.UUID, g.Name, stamp(epochOf(g), g.ExternalIDs[KeyHolder]))
	waiting := batch
	for more := true; more; { // a Set may bring what one before it lacked
		more = false
		var missing []*request
		for _, r := range waiting {
			switch added, err := d.join(r); {
			case added:
				in, more = append(in, r), true
			case errors.As(err, new(*MissingError)):
				r.err = err
				missing = append(missing, r)
			case errors.Is(err, errTangled):
				tangled = append(tangled, r)
			default:
				r.done <- err
			}
		}
		waiting = missing
	}
	for _, r := range waiting {
		r.done <- r.err
	}
	return d, in, tangled, nil
}

// join adds a request's Set; false for nothing to add.
func (d *draft) join(r *request) (added bool, err error) {
	if err := r.ctx.Err(); err != nil {
		return false, err
	}
	before := d.size()
	err = d.add(r.set)
	return d.size() > before, err
}
