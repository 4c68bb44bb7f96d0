package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
)

// Conn is one connection with its own libovsdb client and replica. The
// library's own reconnect is not used: it blocks callers for as long as the
// server is away and reuses the old cache.
type Conn struct {
	// View is the replica. It stays as it was when the connection has ended.
	View View

	db      client.Client
	ctx     context.Context // ends with the connection; its cause says why
	cancel  context.CancelCauseFunc
	lost    chan struct{}   // closed when libovsdb sees the end
	deposed <-chan struct{} // closed when the server leads no longer; nil: this one does not tell
	beside  *Conn           // tells that; nil: no matter
}

// Done is closed when the connection ends; Cause says why then.
func (s *Conn) Done() <-chan struct{} { return s.ctx.Done() }

// Cause is why the connection ended, nil while it lasts.
func (s *Conn) Cause() error { return context.Cause(s.ctx) }

// connect opens a connection to the first endpoint that will do and fills its
// replica. Each is bounded by the probe time also when the server accepts and
// never answers, and by fillLimit when it has answered and sends its rows.
func (c *Client) connect(ctx context.Context) (*Conn, error) {
	var errs []error
	for e := range strings.SplitSeq(c.cfg.Endpoint, ",") {
		s, err := c.connectTo(ctx, e)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (c *Client) connectTo(ctx context.Context, endpoint string) (*Conn, error) {
	var beside *Conn
	var err error
	if c.cfg.LeaderOnly {
		if beside, err = c.leads(ctx, endpoint); err != nil {
			return nil, err
		}
	}
	s, err := c.follow(ctx, endpoint, beside)
	if err != nil {
		beside.close(err)
		return nil, err
	}
	return s, nil
}

// follow opens the connection that the Client is for.
func (c *Client) follow(ctx context.Context, endpoint string, beside *Conn) (*Conn, error) {
	schema, err := c.schema(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	replica, err := c.cfg.Replica(schema)
	if err != nil {
		return nil, err
	}
	return c.dial(ctx, endpoint, beside, replica, c.cfg.Events)
}

func (c *Client) dial(ctx context.Context, endpoint string, beside *Conn, replica Replica, events cache.EventHandler) (*Conn, error) {
	db, err := client.NewOVSDBClient(replica.Model, client.WithEndpoint(endpoint), client.WithTLSConfig(c.cfg.TLS))
	if err != nil {
		return nil, err
	}
	s := &Conn{db: db, lost: make(chan struct{}), beside: beside}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	// The library tells a loss only to who is listening at that moment.
	go func() {
		defer close(s.lost)
		select {
		case <-db.DisconnectNotify():
		case <-s.ctx.Done():
		}
	}()
	if err := c.fill(s, replica.Monitor, events); err != nil {
		s.close(err)
		return nil, err
	}
	return s, nil
}

// schema asks the server for its schema, where Config wants it.
func (c *Client) schema(ctx context.Context, endpoint string) (none ovsdb.DatabaseSchema, err error) {
	if !c.cfg.AskSchema {
		return none, nil
	}
	bare, err := model.NewClientDBModel(c.cfg.Database, nil)
	if err != nil {
		return none, err
	}
	db, err := client.NewOVSDBClient(bare, client.WithEndpoint(endpoint), client.WithTLSConfig(c.cfg.TLS))
	if err != nil {
		return none, err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Probe)
	defer cancel()
	if err := db.Connect(ctx); err != nil {
		return none, err
	}
	return db.Schema(), nil
}

func (c *Client) fill(s *Conn, monitor []client.MonitorOption, events cache.EventHandler) error {
	ctx, cancel := context.WithTimeout(s.ctx, c.cfg.Probe)
	defer cancel()
	if err := s.db.Connect(ctx); err != nil {
		return err
	}
	s.View = View{s.db.Cache()}
	if s.View.tables == nil {
		return errors.New("the server hung up at once")
	}
	if events != nil {
		s.View.tables.AddEventHandler(events)
	}
	mon := s.db.NewMonitor(monitor...)
	// Not monitor_cond_since: libovsdb drops errors of its updates, and a
	// cache that missed one would stay wrong; with update2 it reconnects.
	mon.Method = ovsdb.ConditionalMonitorRPC
	return c.rows(s, mon)
}

// rows waits for what is in the database, as long as it takes; of a member that hangs, or
// leads no longer, no longer than that takes to notice.
func (c *Client) rows(s *Conn, mon *client.Monitor) error {
	limit := fillLimit
	if s.beside == nil && c.cfg.LeaderOnly {
		limit = c.cfg.Probe // a row that tells who leads
	}
	timed, stop := context.WithTimeout(s.ctx, limit)
	defer stop()
	ctx, give := context.WithCancelCause(timed)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer give(nil)
	if s.beside != nil {
		wg.Go(func() { give(s.beside.watch(ctx, c.cfg.Probe)) })
	}
	if _, err := s.db.Monitor(ctx, mon); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// serve returns when the connection ends, with the reason; it probes a
// connection that may be silent for ever.
func (s *Conn) serve(ctx context.Context, probe time.Duration) error {
	err := s.watch(ctx, probe)
	s.close(fmt.Errorf("%w: %w", core.ErrUnavailable, err))
	s.beside.close(err)
	return err
}

// close ends the connection; nil is none.
func (s *Conn) close(why error) {
	if s == nil {
		return
	}
	s.cancel(why) // calls in flight return, which Close waits for
	s.db.Close()
	<-s.lost
}

func (s *Conn) watch(ctx context.Context, probe time.Duration) error {
	tick := time.NewTicker(probe)
	defer tick.Stop()
	var blind <-chan struct{} // closed when nobody tells any more whether the server leads
	deposed := s.deposed
	if s.beside != nil {
		blind, deposed = s.beside.lost, s.beside.deposed
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.lost:
			return errors.New("the server closed the connection")
		case <-blind:
			return errors.New("the server closed the connection that tells who leads")
		case <-deposed:
			return errNotLeader
		case <-tick.C:
			if err := s.echo(ctx, probe); err != nil {
				return fmt.Errorf("no answer to a probe: %w", err)
			}
		}
	}
}

func (s *Conn) echo(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.Echo(ctx)
}

// Echo returns when the server has answered.
func (s *Conn) Echo(ctx context.Context) error { return s.db.Echo(ctx) }

// Commit runs one transaction; an empty one is nothing. It fails with
// core.ErrUnavailable when the connection ends before the answer: whether the
// server has carried it out is unknown then. The replica has its changes when
// Commit returns.
func (s *Conn) Commit(ctx context.Context, t *Txn) error {
	if len(t.Ops) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	res, err := s.db.Transact(ctx, t.Ops...)
	switch {
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case err != nil: // the answer did not come
		return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	if opErrs, err := ovsdb.CheckOperationResults(res, t.Ops); err != nil {
		joined := []error{err}
		for _, e := range opErrs {
			joined = append(joined, e)
		}
		return errors.Join(joined...)
	}
	return nil
}
