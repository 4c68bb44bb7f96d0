package session

import (
	"context"
	"errors"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// serverRow is what a server says of one of its databases (ovsdb-server(5),
// the _Server schema).
type serverRow struct {
	UUID   string `ovsdb:"_uuid"`
	Name   string `ovsdb:"name"`
	Model  string `ovsdb:"model"` // standalone, clustered, relay
	Leader bool   `ovsdb:"leader"`
}

var errNotLeader = errors.New("the server does not lead its cluster")

// leads proves that the server leads, by a connection that tells when it does no
// longer. The library has such a watch too, which waits for ever where a server
// hangs.
func (c *Client) leads(ctx context.Context, endpoint string) (*Conn, error) {
	m, err := model.NewClientDBModel("_Server", map[string]model.Model{"Database": &serverRow{}})
	if err != nil {
		return nil, err
	}
	deposed := make(chan struct{})
	var once sync.Once
	look := func(now model.Model) {
		if r, ok := now.(*serverRow); ok && r.Name == c.cfg.Database && !r.Leader {
			once.Do(func() { close(deposed) })
		}
	}
	s, err := c.dial(ctx, endpoint, nil, Replica{Model: m, Monitor: []client.MonitorOption{client.WithTable(&serverRow{})}},
		&cache.EventHandlerFuncs{UpdateFunc: func(_ string, _, now model.Model) { look(now) }})
	if err != nil {
		return nil, err
	}
	s.deposed = deposed
	for _, r := range Rows[serverRow](s.View, "Database") {
		if r.Name == c.cfg.Database && r.Leader {
			return s, nil
		}
	}
	s.close(errNotLeader)
	return nil, errNotLeader
}
