package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/source/cluster/health"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

const (
	// loginRetry is the pause after credentials that cannot be used.
	loginRetry = 2 * time.Second
	// loginAudit is how often the credentials are compared with those in use, and
	// revisionAudit the database's revision with those before, if the server was not away.
	loginAudit, revisionAudit = 10 * time.Second, time.Minute
)

// Config says which API server a Source reads, as whom, and for which node.
type Config = login.Config

// Run follows the API server until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.Logins.Run(ctx) })
	for ctx.Err() == nil {
		l, err := s.Logins.Current()
		var c *clients
		if err == nil {
			c, err = newClients(l.REST)
		}
		if err != nil {
			s.health.Note(err)
			retry.Sleep(ctx, loginRetry)
			continue
		}
		s.session(ctx, c, l)
	}
}

// session follows all kinds with one set of clients, until the login is
// another or ctx ends.
func (s *Source) session(ctx context.Context, c *clients, l login.Login) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.clients.Store(c)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { follow(ctx, s.pods, c.podsOf(s.Node), &metav1.PartialObjectMetadata{}, s.health) })
	wg.Go(func() { follow(ctx, s.nads, c.listWatch(nadResource), &object{}, s.health) })
	wg.Go(func() { follow(ctx, s.pools.subnets, c.listWatch(subnetResource), &object{}, s.health) })
	wg.Go(func() { follow(ctx, s.pools.vlans, c.listWatch(vlanResource), &object{}, s.health) })
	wg.Go(func() { follow(ctx, s.nodes, c.nodes(), &metav1.PartialObjectMetadata{}, s.health) })
	wg.Go(func() { follow(ctx, s.self, c.chosen(nodeResource, "metadata.name="+s.Node), &object{}, s.health) })
	wg.Go(func() { s.dra.run(ctx, c, s.Node, s.health) })
	falls, compared := s.health.Falls(), time.Now()
	for retry.Sleep(ctx, loginAudit) {
		if l.Changed() {
			s.Log.Info("credentials changed; connecting anew", "kubeconfig", l.File)
			stop()
		}
		now := s.health.Falls()
		if now == falls && time.Since(compared) < revisionAudit {
			continue
		}
		err := s.revisions.Compare(ctx, func(ctx context.Context) (string, error) { return ask(ctx, s, revision) })
		if err == nil {
			falls, compared = now, time.Now()
		} else if errors.As(err, new(*health.BackError)) {
			s.Log.Error("objects are read anew", "err", err)
			stop()
		}
	}
}
