package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

const (
	// loginRetry is the pause after a configuration that cannot be used.
	loginRetry = 2 * time.Second
	// loginAudit is how often the kubeconfig is compared with what is in use:
	// tokens inside it are rotated by writing it anew. Token and certificate
	// files are client-go's to follow.
	loginAudit = 10 * time.Second
)

// Config says which API server a Source reads, as whom, and for which node.
type Config struct {
	// Kubeconfig is a file; "" means that this process runs in a pod of the
	// cluster, with its service account.
	Kubeconfig string
	Node       string
	UserAgent  string
	// Bootstrap is a kubeconfig whose credentials are only good for requesting
	// a certificate of this node's own, which is kept in CertDir and renewed;
	// Kubeconfig is not used then.
	Bootstrap    string
	CertDir      string
	CertDuration time.Duration // asked for; the signer decides
	// Requested hears of each request's end, for metrics: the HTTP status, 0
	// where there was no answer. nil: nobody wants to know.
	Requested func(method string, status int)
	Log       *slog.Logger
}

// Run follows the API server until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.certs != nil {
		wg.Go(func() { s.certs.run(ctx, s.connect) })
	}
	for ctx.Err() == nil {
		login, err := s.login()
		var c *clients
		if err == nil {
			c, err = newClients(login.config)
		}
		if err != nil {
			s.health.note(err)
			pause(ctx, loginRetry)
			continue
		}
		s.session(ctx, c, login)
	}
}

// pause sleeps; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// session follows all kinds with one set of clients, until the login is
// another or ctx ends.
func (s *Source) session(ctx context.Context, c *clients, l login) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.clients.Store(c)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { follow(ctx, s.pods, c.podsOf(s.Node), &metav1.PartialObjectMetadata{}, s.health) })
	wg.Go(func() { follow(ctx, s.nads, c.listWatch(nadResource), &object{}, s.health) })
	wg.Go(func() { follow(ctx, s.pools.subnets, c.listWatch(subnetResource), &object{}, s.health) })
	wg.Go(func() { follow(ctx, s.pools.vlans, c.listWatch(vlanResource), &object{}, s.health) })
	wg.Go(func() { s.dra.run(ctx, c, s.Node, s.health) })
	for pause(ctx, loginAudit) {
		if l.changed() {
			s.Log.Info("credentials changed; connecting anew", "kubeconfig", l.file)
			stop()
		}
	}
}

// login is how to reach the API server and as whom.
type login struct {
	config *rest.Config
	file   string // kubeconfig, "" in a pod
	sum    [sha256.Size]byte
}

// changed tells that the kubeconfig is another; one that cannot be read now is
// being replaced.
func (l login) changed() bool {
	if l.file == "" {
		return false
	}
	data, err := os.ReadFile(l.file)
	return err == nil && sha256.Sum256(data) != l.sum
}

// login reads the configuration that is in force now.
func (s *Source) login() (login, error) {
	switch {
	case s.certs != nil:
		return s.bootstrap(true)
	case s.Kubeconfig != "":
		return s.read(s.Kubeconfig, nil)
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return login{}, fmt.Errorf("in-cluster configuration: %w", err)
	}
	return login{config: s.dress(cfg)}, nil
}

// bootstrap leads to the bootstrap kubeconfig's server, with its credentials or
// with the node's own certificate.
func (s *Source) bootstrap(identified bool) (login, error) {
	if identified {
		return s.read(s.Bootstrap, s.certs.identity)
	}
	return s.read(s.Bootstrap, nil)
}

// read reads a kubeconfig; as replaces its credentials, nil keeps them.
func (s *Source) read(file string, as func(*rest.Config) (*rest.Config, error)) (login, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return login{}, fmt.Errorf("kubeconfig: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return login{}, fmt.Errorf("kubeconfig %s: %w", file, errors.New("the file is empty"))
	}
	// By path, so that files it names beside itself are found.
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return login{}, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	if as != nil {
		if cfg, err = as(cfg); err != nil {
			return login{}, err
		}
	}
	return login{config: s.dress(cfg), file: file, sum: sha256.Sum256(data)}, nil
}

// dress puts our name, and the ear of metrics, on a configuration.
func (s *Source) dress(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = s.UserAgent
	if cfg.BearerTokenFile != "" {
		// The file is read anew once the server refuses what it said, not only
		// every minute.
		tokens := transport.NewCachedFileTokenSource(cfg.BearerTokenFile)
		cfg.BearerToken, cfg.BearerTokenFile = "", ""
		cfg.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
	}
	if s.Requested != nil {
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counted{rt, s.Requested} })
	}
	return cfg
}

// connect makes clients for a login that is not the source's own: that which
// requests certificates.
func (s *Source) connect(identified bool) (*clients, error) {
	l, err := s.bootstrap(identified)
	if err != nil {
		return nil, err
	}
	return newClients(l.config)
}

// counted tells of each request's end.
type counted struct {
	http.RoundTripper
	done func(method string, status int)
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	c.done(r.Method, status)
	return resp, err
}

// WrappedRoundTripper lets client-go find the connection below, to ping it.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }
