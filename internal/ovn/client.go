package ovn

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// External ids of NB_Global: who may write, and since when; the revision that the API
// server's database had, and "TIME BEFORE AFTER" when it was last seen to be lower than
// before.
const (
	KeyEpoch    = "fairlead-epoch"
	KeyHolder   = "fairlead-holder"
	KeyRevision = "fairlead-api-revision"
	KeyBack     = "fairlead-api-went-back"
)

// Config says which northbound database a Client works on.
type Config struct {
	// Endpoint is ssl:ADDRESS:6641 or unix:PATH; the members of a cluster have
	// commas between, and the one that leads is used.
	Endpoint string
	// TLS is how ssl: endpoints are reached; it is asked at each connection.
	TLS *tls.Config
	// OnUp is called after each (re)connect when the replica is in sync. It must
	// not block. nil: nobody wants to know.
	OnUp func()
	// OnTouch is called when rows of an owner were changed, removed or taken out
	// of a place, by whomever, this client included but for what it wrote into
	// rows of a Set: applying the owner's Set again puts right what was not meant.
	// lost: a row went that others' rows had a place in, and they come into no new one
	// of its name by themselves. It must not block. nil: nobody wants to know.
	OnTouch func(owner string, lost bool)
	// OnQuestion is called when another client asks whether this one, if it leads, still
	// works: Answer tells. It must not block. nil: it has no answer.
	OnQuestion func()
	// Probe is how often a silent connection is tested and how long an answer
	// may take; 0 = 5 s.
	Probe time.Duration
	Log   *slog.Logger
}

// Client writes one northbound database. All methods may be called at once
// from many goroutines. While the database is away they fail at once with
// core.ErrUnavailable.
type Client struct {
	db    *session.Client
	queue chan *request
	ended chan struct{} // closed when Run returns
	meant writes

	mu     sync.Mutex
	epoch  uint64 // 0: not taken
	holder string
}

// New makes a Client that is not connected; Run connects it.
func New(cfg Config) *Client {
	c := &Client{queue: make(chan *request), ended: make(chan struct{})}
	c.db = session.New(session.Config{
		Endpoint: cfg.Endpoint, TLS: cfg.TLS, Database: database, AskSchema: true, LeaderOnly: true, Replica: replica,
		Events: c.events(cfg.OnTouch, cfg.OnQuestion), OnUp: func() {
			c.meant.clear() // of what was not seen nobody knows whether it came
			if cfg.OnUp != nil {
				cfg.OnUp()
			}
		}, Probe: cfg.Probe, Log: cfg.Log,
	})
	return c
}

// Run connects and reconnects, and carries out what Apply asks, until ctx ends.
// It is called once.
func (c *Client) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { c.write(ctx) })
	c.db.Run(ctx)
	wg.Wait()
	close(c.ended)
}

// Connected is nil while the replica is in sync; else it wraps
// core.ErrUnavailable and tells why.
func (c *Client) Connected() error {
	_, err := c.db.Conn()
	return err
}

// Ping returns when the server has answered a question of now; of a cluster, the
// member that leads.
func (c *Client) Ping(ctx context.Context) error {
	conn, err := c.db.Conn()
	if err != nil {
		return err
	}
	if err := conn.Echo(ctx); err != nil {
		return fmt.Errorf("the northbound database does not answer (%w): %w", err, core.ErrUnavailable)
	}
	return nil
}

// Has tells that the server has a table of ours, and a column in it unless that
// is "". It fails while the database is away.
func (c *Client) Has(table, column string) (bool, error) {
	conn, err := c.db.Conn()
	if err != nil {
		return false, err
	}
	return conn.View.Has(table, column), nil
}

// Take makes this client the one that may write: it raises the epoch in the
// database and writes holder, a name for people, beside it. The transactions of
// whoever had it before fail from then on. It gives the new epoch.
func (c *Client) Take(ctx context.Context, holder string) (epoch uint64, err error) {
	err = c.db.Change(ctx, func(v session.View, t *session.Txn) error {
		g := global(v)
		if g == nil {
			epoch = 1
			t.Insert(tGlobal, ovsdb.Row{"external_ids": session.Map(stamp(epoch, holder))})
			return nil
		}
		epoch = epochOf(g) + 1
		now := maps.Clone(g.ExternalIDs)
		if now == nil {
			now = map[string]string{}
		}
		maps.Copy(now, stamp(epoch, holder))
		t.Expect(tGlobal, g.UUID, "external_ids", session.Map(g.ExternalIDs))
		t.Update(tGlobal, g.UUID, ovsdb.Row{"external_ids": session.Map(now)})
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("take the northbound database: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch, c.holder = epoch, holder
	return epoch, nil
}

// Holder is the name of who took the database last, "" for nobody.
func (c *Client) Holder() (string, error) {
	conn, err := c.db.Conn()
	if err != nil {
		return "", err
	}
	if g := global(conn.View); g != nil {
		return g.ExternalIDs[KeyHolder], nil
	}
	return "", nil
}

// Leads is nil while the database says that this client may write; else it
// wraps ErrFenced or core.ErrUnavailable.
func (c *Client) Leads() error {
	conn, err := c.db.Conn()
	if err != nil {
		return err
	}
	_, err = c.fence(conn.View)
	return err
}

// Complete says that all rows are there which this client's leader knows of: it raises
// the number of the last change (nb_cfg), which ovn-northd hands on with what it makes
// of them. It fails as Apply does.
func (c *Client) Complete(ctx context.Context) error {
	err := c.db.Change(ctx, func(v session.View, t *session.Txn) error {
		g, err := c.fence(v)
		if err != nil {
			return err
		}
		t.ExpectIDs(tGlobal, g.UUID, g.Name, stamp(epochOf(g), g.ExternalIDs[KeyHolder]))
		t.Mutate(tGlobal, g.UUID, ovsdb.NewMutation("nb_cfg", ovsdb.MutateOperationAdd, 1))
		return nil
	})
	if err != nil {
		return fmt.Errorf("number of the last change in the northbound database: %w", err)
	}
	return nil
}

// Reached notes which revision the API server's database has, and the time where it was
// a higher one before, which it gives. It fails as Apply does.
func (c *Client) Reached(ctx context.Context, revision uint64) (was uint64, err error) {
	err = c.db.Change(ctx, func(v session.View, t *session.Txn) error {
		g, err := c.fence(v)
		if err != nil {
			return err
		}
		was = revisionOf(g)
		now := maps.Clone(g.ExternalIDs)
		now[KeyRevision] = strconv.FormatUint(revision, 10)
		if was > revision {
			now[KeyBack] = fmt.Sprintf("%s %d %d", time.Now().UTC().Format(time.RFC3339), was, revision)
		}
		t.Expect(tGlobal, g.UUID, "external_ids", session.Map(g.ExternalIDs))
		t.Update(tGlobal, g.UUID, ovsdb.Row{"external_ids": session.Map(now)})
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("revision in the northbound database: %w", err)
	}
	return was, nil
}

// Revision is what Reached noted last, be it another client's, 0 for nothing.
func (c *Client) Revision() (uint64, error) {
	conn, err := c.db.Conn()
	if err != nil {
		return 0, err
	}
	if g := global(conn.View); g != nil {
		return revisionOf(g), nil
	}
	return 0, nil
}

func revisionOf(g *nbGlobal) uint64 {
	n, _ := strconv.ParseUint(g.ExternalIDs[KeyRevision], 10, 64) // 0 where there is none
	return n
}

// fence is the root row with our epoch in it.
func (c *Client) fence(v session.View) (*nbGlobal, error) {
	c.mu.Lock()
	epoch, holder := c.epoch, c.holder
	c.mu.Unlock()
	g := global(v)
	switch {
	case epoch == 0:
		return nil, fmt.Errorf("%w: this one has not taken it", ErrFenced)
	case g == nil:
		return nil, fmt.Errorf("%w: it has none", ErrFenced)
	case epochOf(g) != epoch || g.ExternalIDs[KeyHolder] != holder:
		return nil, fmt.Errorf("%w: epoch %d of %s, ours is %d", ErrFenced, epochOf(g), g.ExternalIDs[KeyHolder], epoch)
	}
	return g, nil
}

// global is the root row, nil for none.
func global(v session.View) *nbGlobal {
	for _, g := range session.Rows[nbGlobal](v, tGlobal) {
		return g
	}
	return nil
}

// epochOf is 0 for a root row without one.
func epochOf(g *nbGlobal) uint64 {
	n, err := strconv.ParseUint(g.ExternalIDs[KeyEpoch], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func stamp(epoch uint64, holder string) map[string]string {
	return map[string]string{KeyEpoch: strconv.FormatUint(epoch, 10), KeyHolder: holder}
}

// errEnded tells that nobody carries anything out any more.
func errEnded() error { return fmt.Errorf("northbound client ended: %w", core.ErrUnavailable) }
