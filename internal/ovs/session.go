package ovs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
)

// session is one connection with its own libovsdb client and replica. The
// library's own reconnect is not used: it blocks callers for as long as the
// server is away and reuses the old cache.
type session struct {
	db     client.Client
	view   view
	ctx    context.Context // ends with the connection; its cause says why
	cancel context.CancelCauseFunc
	lost   chan struct{} // closed when libovsdb sees the end
}

// connect opens a session and fills its replica. It is bounded by the probe
// time also when the server accepts and never answers.
func (c *Client) connect(ctx context.Context) (*session, error) {
	m, err := databaseModel()
	if err != nil {
		return nil, err
	}
	db, err := client.NewOVSDBClient(m, client.WithEndpoint(c.cfg.Endpoint))
	if err != nil {
		return nil, err
	}
	s := &session{db: db, lost: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	// The library tells a loss only to who is listening at that moment.
	go func() {
		defer close(s.lost)
		select {
		case <-db.DisconnectNotify():
		case <-s.ctx.Done():
		}
	}()
	if err := c.fill(s); err != nil {
		s.cancel(err)
		db.Close()
		return nil, err
	}
	return s, nil
}

func (c *Client) fill(s *session) error {
	ctx, cancel := context.WithTimeout(s.ctx, c.cfg.Probe)
	defer cancel()
	if err := s.db.Connect(ctx); err != nil {
		return err
	}
	s.view = view{s.db.Cache()}
	if s.view.tables == nil {
		return errors.New("the server hung up at once")
	}
	s.view.tables.AddEventHandler(c.events())
	mon := s.db.NewMonitor(monitorOptions()...)
	// Not monitor_cond_since: libovsdb drops errors of its updates, and a
	// cache that missed one would stay wrong; with update2 it reconnects.
	mon.Method = ovsdb.ConditionalMonitorRPC
	_, err := s.db.Monitor(ctx, mon)
	return err
}

// serve returns when the connection ends, with the reason; it probes a
// connection that may be silent for ever.
func (s *session) serve(ctx context.Context, probe time.Duration) error {
	err := s.watch(ctx, probe)
	s.cancel(fmt.Errorf("%w: %w", core.ErrUnavailable, err)) // calls in flight return, which Close waits for
	s.db.Close()
	<-s.lost
	return err
}

func (s *session) watch(ctx context.Context, probe time.Duration) error {
	tick := time.NewTicker(probe)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.lost:
			return errors.New("the server closed the connection")
		case <-tick.C:
			if err := s.echo(ctx, probe); err != nil {
				return fmt.Errorf("no answer to a probe: %w", err)
			}
		}
	}
}

func (s *session) echo(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.db.Echo(ctx)
}

// transact runs one transaction. It fails with core.ErrUnavailable when the
// connection ends before the answer.
func (s *session) transact(ctx context.Context, t *txn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	res, err := s.db.Transact(ctx, t.ops...)
	switch {
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case err != nil: // the answer did not come
		return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	if opErrs, err := ovsdb.CheckOperationResults(res, t.ops); err != nil {
		joined := []error{err}
		for _, e := range opErrs {
			joined = append(joined, e)
		}
		return errors.Join(joined...)
	}
	return nil
}

// change builds a transaction from the replica and runs it. When the database
// has moved on in between (a name taken, a row gone) the replica has it by the
// time of the answer, so building again sees it.
func (c *Client) change(ctx context.Context, build func(view, *txn) error) error {
	const tries = 5
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err // nobody waits for it: it is not begun
		}
		s, err := c.session()
		if err != nil {
			return err
		}
		var t txn
		err = build(s.view, &t)
		if err == nil && len(t.ops) > 0 {
			err = s.transact(ctx, &t)
		}
		if err == nil || n == tries || !stale(err) {
			return err
		}
	}
}

// errMoved: two looks at the replica did not fit together.
var errMoved = errors.New("the database changed meanwhile")

func stale(err error) bool {
	var taken *ovsdb.ConstraintViolation
	var gone *ovsdb.TimedOut
	return errors.Is(err, errMoved) || errors.As(err, &taken) || errors.As(err, &gone)
}

// remade tells that OVS has made the device of an internal port again: it was
// restarted, and what others did to the device (its place in a pod, addresses)
// is lost. The bridge's own device alone does not tell: OVS may find it again.
func remade(old, now model.Model) bool {
	o, was := old.(*ifaceRow)
	n, is := now.(*ifaceRow)
	return was && is && n.Type == "internal" && value(o.OFPort) > 0 &&
		value(n.IfIndex) != 0 && value(n.IfIndex) != value(o.IfIndex)
}

// events keeps waiters and resets informed. The handlers run on libovsdb's
// event goroutine and must be quick.
func (c *Client) events() cache.EventHandler {
	changed := func(m model.Model) {
		switch r := m.(type) {
		case *ifaceRow:
			c.interfaceChanged(r)
		case *bridgeRow:
			c.wake(r.Name)
		case *rootRow:
			c.wake(rootKey)
		}
	}
	return &cache.EventHandlerFuncs{
		AddFunc: func(_ string, m model.Model) { changed(m) },
		UpdateFunc: func(_ string, old, m model.Model) {
			changed(m)
			c.touch(old, m)
			if remade(old, m) {
				c.wantReset()
			}
		},
		DeleteFunc: func(_ string, m model.Model) {
			changed(m)
			c.touch(m, nil)
			if b, ok := m.(*bridgeRow); ok && b.Name == c.cfg.Bridge {
				c.wantReset()
			}
		},
	}
}
