package session_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
	"github.com/fairlead/fairlead/internal/ovs/session"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

const patient = 20 * time.Second

type queue struct {
	UUID        string            `ovsdb:"_uuid"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// queues follows one table of the vswitch schema, if the schema has it.
func queues(s ovsdb.DatabaseSchema) (session.Replica, error) {
	if s.Name != "" && s.Table("Queue") == nil {
		return session.Replica{}, fmt.Errorf("schema %s %s has no table Queue", s.Name, s.Version)
	}
	m, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{"Queue": &queue{}})
	return session.Replica{Model: m, Monitor: []client.MonitorOption{client.WithTable(&queue{})}}, err
}

func run(t *testing.T, cfg session.Config) *session.Client {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	c := session.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

func connected(t *testing.T, c *session.Client) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := c.Conn(); return err == nil }, patient, 5*time.Millisecond)
}

// TestChange: what was built twice because somebody was faster is done once.
func TestChange(t *testing.T) {
	sw := ovstest.NewServer(t)
	var schema ovsdb.DatabaseSchema
	c := run(t, session.Config{
		Endpoint: "unix:" + filepath.Join(t.TempDir(), "none.sock") + "," + sw.Endpoint(),
		Database: "Open_vSwitch", AskSchema: true, LeaderOnly: true, // without a cluster it leads
		Replica: func(s ovsdb.DatabaseSchema) (session.Replica, error) {
			schema = s
			return queues(s)
		},
	})
	connected(t, c)
	require.NotNil(t, schema.Table("Bridge"), "the schema is the server's")

	require.NoError(t, c.Change(t.Context(), func(_ session.View, txn *session.Txn) error {
		txn.Insert("Queue", ovsdb.Row{"external_ids": session.Map(map[string]string{"n": "1"})})
		return nil
	}))
	uuid := sw.Get("Queue", sw.Vsctl("--bare", "--columns=_uuid", "list", "Queue"), "_uuid")
	builds := 0
	require.NoError(t, c.Change(t.Context(), func(v session.View, txn *session.Txn) error {
		builds++
		q := session.ByUUID[queue](v, "Queue", uuid)
		if builds == 1 {
			sw.Vsctl("set", "Queue", uuid, "external_ids:other=true")
		}
		txn.Expect("Queue", uuid, "external_ids", session.Map(q.ExternalIDs))
		ids := map[string]string{"n": "2"}
		if other, ok := session.Rows[queue](v, "Queue")[0].ExternalIDs["other"]; ok {
			ids["other"] = other
		}
		txn.Update("Queue", uuid, ovsdb.Row{"external_ids": session.Map(ids)})
		return nil
	}))
	require.Greater(t, builds, 1)
	require.Equal(t, "2", sw.Get("Queue", uuid, "external_ids:n"))
	require.Equal(t, "true", sw.Get("Queue", uuid, "external_ids:other"))
}

// TestUps: a connection is counted before OnUp and before it can be had, and
// one that ended says why.
func TestUps(t *testing.T) {
	sw := ovstest.NewServer(t)
	var c *session.Client
	seen := make(chan uint64, 16)
	c = session.New(session.Config{
		Endpoint: sw.Endpoint(), Replica: queues, Log: slog.New(slog.DiscardHandler),
		OnUp: func() { seen <- c.Ups() },
	})
	_, err := c.Conn()
	require.ErrorIs(t, err, core.ErrUnavailable)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })

	require.Equal(t, uint64(1), <-seen)
	conn, err := c.Conn()
	require.NoError(t, err)
	require.NoError(t, conn.Cause())
	sw.KillServer()
	<-conn.Done()
	require.ErrorIs(t, conn.Cause(), core.ErrUnavailable)
	<-c.Absent()
	var txn session.Txn
	txn.Insert("Queue", ovsdb.Row{})
	require.ErrorIs(t, conn.Commit(t.Context(), &txn), core.ErrUnavailable)
	sw.StartServer()
	require.Equal(t, uint64(2), <-seen)
}

// asked is a connection to a server of which something is done before rows are asked for.
type asked struct {
	net.Conn
	before func()
}

func (a *asked) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"monitor_cond"`)) {
		a.before()
	}
	return a.Conn.Write(p)
}

// before is an endpoint of a server, of which something is done before rows are asked for.
func before(t *testing.T, sw *ovstest.Switch, do func()) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	r := relay.New(l, func(net.Conn) (net.Conn, error) {
		conn, err := net.Dial("unix", sw.Socket)
		return &asked{conn, do}, err
	})
	t.Cleanup(r.Close)
	return "unix:" + path
}

// TestManyRows: a database whose rows take longer than a probe may is followed nevertheless.
func TestManyRows(t *testing.T) {
	const probe = 500 * time.Millisecond
	c := run(t, session.Config{
		Endpoint: before(t, ovstest.NewServer(t), func() { time.Sleep(3 * probe) }), Replica: queues, Probe: probe,
	})
	connected(t, c)
}

// TestHangsAtItsRows: a member that hangs when it is asked who leads, or for its rows, keeps
// nobody from the next one.
func TestHangsAtItsRows(t *testing.T) {
	for at := int32(1); at <= 2; at++ {
		first, next := ovstest.NewServer(t), ovstest.NewServer(t)
		var times atomic.Int32
		c := run(t, session.Config{
			Endpoint: before(t, first, func() {
				if times.Add(1) == at {
					first.Signal(syscall.SIGSTOP)
				}
			}) + "," + next.Endpoint(),
			Database: "Open_vSwitch", LeaderOnly: true, Replica: queues, Probe: 200 * time.Millisecond,
		})
		t.Cleanup(func() { first.Signal(syscall.SIGCONT) })
		connected(t, c)
		require.Equal(t, at, times.Load())
	}
}
