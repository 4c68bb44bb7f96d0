// Package login knows how a node's agent reaches the Kubernetes API and as
// whom: by a kubeconfig, by the pod that it runs in, or by a client certificate
// of the node's own, which it requests and renews. Credentials may change at any
// time. It knows nothing of what is read or written with them.
package login

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Config says which API server is meant, as whom, and for which node.
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
	// Shell is how those who read events and conditions call `fairlead`.
	Shell hint.Shell
	Log   *slog.Logger
}

// Logins gives out what is in force.
type Logins struct {
	Config
	certs *certificates // nil without a certificate of the node's own
}

// New reads nothing yet.
func New(c Config) *Logins {
	l := &Logins{Config: c}
	if c.Bootstrap != "" {
		l.certs = &certificates{node: c.Node, dir: c.CertDir, duration: c.CertDuration, log: c.Log}
	}
	return l
}

// Run keeps the node's certificate, if it is to have one, until ctx ends.
func (l *Logins) Run(ctx context.Context) {
	if l.certs != nil {
		l.certs.run(ctx, l.bootstrap)
	}
}

// Login is how to reach the API server and as whom. Token files and certificate
// files that it names are followed by client-go.
type Login struct {
	REST *rest.Config
	File string // the kubeconfig, "" in a pod
	sum  [sha256.Size]byte
}

// Changed tells that the kubeconfig is another one by now. One that cannot be
// read is being replaced.
func (l Login) Changed() bool {
	if l.File == "" {
		return false
	}
	data, err := hostfile.Read(l.File, hostfile.Limit)
	return err == nil && sha256.Sum256(data) != l.sum
}

// Current reads what is in force now.
func (l *Logins) Current() (Login, error) {
	switch {
	case l.certs != nil:
		return l.bootstrap(true)
	case l.Kubeconfig != "":
		return l.read(l.Kubeconfig, nil)
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return Login{}, fmt.Errorf("in-cluster configuration: %w", err)
	}
	return Login{REST: l.dress(cfg)}, nil
}

// bootstrap leads to the bootstrap kubeconfig's server, with its credentials or
// with the node's own certificate.
func (l *Logins) bootstrap(identified bool) (Login, error) {
	if identified {
		return l.read(l.Bootstrap, l.certs.identity)
	}
	return l.read(l.Bootstrap, nil)
}

// read reads a kubeconfig; as replaces its credentials, nil keeps them.
func (l *Logins) read(file string, as func(*rest.Config) (*rest.Config, error)) (Login, error) {
	data, err := hostfile.Read(file, hostfile.Limit)
	if err != nil {
		return Login{}, fmt.Errorf("kubeconfig: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return Login{}, fmt.Errorf("kubeconfig %s: %w", file, errors.New("the file is empty"))
	}
	// By path, so that files it names beside itself are found.
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return Login{}, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	if as != nil {
		if cfg, err = as(cfg); err != nil {
			return Login{}, err
		}
	}
	return Login{REST: l.dress(cfg), File: file, sum: sha256.Sum256(data)}, nil
}

// dress puts our name, and the ear of metrics, on a configuration.
func (l *Logins) dress(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = l.UserAgent
	cfg.WarningHandler = rest.NoWarnings{}
	if cfg.BearerTokenFile != "" {
		// The file is read anew once the server refuses what it said, not only
		// every minute.
		tokens := transport.NewCachedFileTokenSource(cfg.BearerTokenFile)
		cfg.BearerToken, cfg.BearerTokenFile = "", ""
		cfg.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
	}
	if l.Requested != nil {
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counted{rt, l.Requested} })
	}
	return cfg
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
