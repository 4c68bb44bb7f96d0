package session

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// ErrMoved tells that two looks at the replica did not fit together. A build
// function returns it to be called again.
var ErrMoved = errors.New("the database changed meanwhile")

// Change builds a transaction from the replica and runs it. When the database
// has moved on in between (a name taken, a row gone, an expectation that does
// not hold) the replica has it by the time of the answer, so building again
// sees it; after five times Change gives up. A build that adds no operation
// costs no transaction.
func (c *Client) Change(ctx context.Context, build func(View, *Txn) error) error {
	const tries = 5
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err // nobody waits for it: it is not begun
		}
		s, err := c.Conn()
		if err != nil {
			return err
		}
		var t Txn
		err = build(s.View, &t)
		if err == nil {
			err = s.Commit(ctx, &t)
		}
		if err == nil || n == tries || !Stale(err) {
			return err
		}
	}
}

// Stale tells that a transaction failed because the replica from which it was
// built is not what the database has.
func Stale(err error) bool {
	var taken *ovsdb.ConstraintViolation
	var gone *ovsdb.TimedOut
	return errors.Is(err, ErrMoved) || errors.As(err, &taken) || errors.As(err, &gone)
}
