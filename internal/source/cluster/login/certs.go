package login

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

// A node's own identity: RBAC is bound to the group, admission policies compare
// the name with the node that a request is about.
const (
	certUser   = "system:fairlead:" // + node
	certGroup  = "system:fairlead"
	certSigner = "kubernetes.io/kube-apiserver-client"
	certFile   = "fairlead-client.pem" // certificate and key
)

const (
	// A certificate is renewed after this part of its life, and a random tenth
	// later at most, so that a cluster's nodes do not come all at once.
	renewAfter, renewSpread = 0.55, 0.1
	// backdated is how much earlier than it is issued a certificate begins: both
	// signers allow peers' clocks so much, and it is no part of its life.
	backdated = 5 * time.Minute
	// issueLimit is how long a request waits for somebody to approve it before
	// a new one is made: the server forgets pending ones after a day.
	issueLimit = 15 * time.Minute
	// Pauses between two failed requests.
	firstRequestPause, longestRequestPause = time.Second, time.Minute
)

// errNotIssued is why a node without a certificate reads nothing.
var errNotIssued = errors.New("the node's client certificate is not issued yet")

// certificates keeps this node's own client certificate: it requests one with
// the bootstrap credentials, later ones with the one before, and stores it where
// client-go reads it anew for each connection.
type certificates struct {
	node     string
	dir      string
	duration time.Duration
	log      *slog.Logger
}

func (c *certificates) file() string { return filepath.Join(c.dir, certFile) }

// identity replaces the credentials of a configuration by the certificate.
func (c *certificates) identity(cfg *rest.Config) (*rest.Config, error) {
	if _, err := c.load(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotIssued, err)
	}
	out := rest.AnonymousClientConfig(cfg)
	out.CertFile, out.KeyFile = c.file(), c.file()
	return out, nil
}

// load reads the certificate; one that is over or another node's is an error.
func (c *certificates) load() (*x509.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.file(), c.file())
	if err != nil {
		return nil, err
	}
	leaf := pair.Leaf
	switch {
	case leaf.Subject.CommonName != certUser+c.node:
		return nil, fmt.Errorf("%s belongs to %q, not to %q", c.file(), leaf.Subject.CommonName, certUser+c.node)
	case time.Now().After(leaf.NotAfter):
		return nil, fmt.Errorf("%s expired at %s", c.file(), leaf.NotAfter.Format(time.RFC3339))
	}
	return leaf, nil
}

// run keeps the certificate young until ctx ends. bootstrap leads to the server
// with the certificate, or with the credentials that are only good for asking.
func (c *certificates) run(ctx context.Context, bootstrap func(identified bool) (Login, error)) {
	wait, term := firstRequestPause, &retry.Term{}
	for ctx.Err() == nil {
		leaf, err := c.load()
		if err == nil && !retry.Sleep(ctx, Renewing(term, leaf)) {
			return
		}
		identified := err == nil && time.Now().Before(leaf.NotAfter)
		if err := c.renew(ctx, bootstrap, identified); err != nil {
			if ctx.Err() == nil {
				c.log.Error("client certificate not issued: it is asked for again", "user", certUser+c.node, "err", err)
			}
			retry.Sleep(ctx, wait)
			wait = min(2*wait, longestRequestPause)
			continue
		}
		wait = firstRequestPause
	}
}

// Renewal is when a certificate is to be replaced: before two thirds of its life.
func Renewal(leaf *x509.Certificate) time.Time {
	from := issued(leaf)
	life := leaf.NotAfter.Sub(from)
	return from.Add(time.Duration(float64(life) * (renewAfter + renewSpread*mrand.Float64())))
}

// issued is when a certificate was, by the clock of its signer.
func issued(leaf *x509.Certificate) time.Time {
	if end := leaf.NotBefore.Add(backdated); end.Before(leaf.NotAfter) {
		return end
	}
	return leaf.NotBefore
}

// Renewing is in which time a certificate is to be replaced, also where the clock was set back
// since the Term was first asked for it.
func Renewing(t *retry.Term, leaf *x509.Certificate) time.Duration {
	due := Renewal(leaf)
	return t.Left(leaf.SerialNumber.String(), due, due.Sub(issued(leaf)))
}

// renew gets one certificate.
func (c *certificates) renew(ctx context.Context, bootstrap func(bool) (Login, error), identified bool) error {
	ctx, stop := context.WithTimeout(ctx, issueLimit)
	defer stop()
	l, err := bootstrap(identified)
	if err != nil {
		return err
	}
	ask := Ask{Name: certUser + c.node, Group: certGroup, Signer: certSigner, Duration: c.duration}
	got, err := Request(ctx, l, ask, func(name string) {
		c.log.Info("client certificate requested", "request", name, "user", ask.Name)
	})
	if err == nil {
		err = c.store(got)
	}
	if err != nil {
		return err
	}
	c.log.Info("client certificate issued", "file", c.file())
	return nil
}

// store writes certificate and key at once: a reader sees the old pair or the new
// one.
func (c *certificates) store(got Issued) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	text := append(append(bytes.TrimSpace(got.Cert), '\n'), got.Key...)
	if err := hostfile.Write(c.file(), text, 0o600); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	return nil
}
