// Package kubeletapi is the HTTPS server by which an API server reaches a node:
// its certificate, who asks (a client certificate, or a token that the API server
// knows), and whether they may (the API server is asked, as kubelet asks it). It
// knows the paths of requests as rights, and must not know pods: what is served
// is a handler of others.
package kubeletapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Bounds of connections that nobody uses.
const (
	headerLimit = 10 * time.Second
	idleLimit   = 2 * time.Minute
)

// Config says where a server listens, and whom it believes.
type Config struct {
	Address string // to listen on, host:port
	Node    string // its name
	// Names are what a certificate of the server's own is for: addresses, names.
	Names []string
	// CertFile and KeyFile are the server's certificate, PEM; both "" is one that
	// it makes and signs itself. They are read again when they change.
	CertFile, KeyFile string
	// ClientCA is a file of the authorities of clients' certificates, PEM, read
	// again when it changes; "" is that none are believed.
	ClientCA string
	// Server is the API server that is asked about tokens and rights.
	Server *rest.Config
	Log    *slog.Logger
}

// Server is made by New and lives in Run.
type Server struct {
	conf  Config
	certs *serving
	guard *guard
}

// New reads the files, and makes the certificate if there is none. It neither
// listens nor asks anybody.
func New(c Config) (*Server, error) {
	s := &Server{conf: c, certs: &serving{conf: c}}
	if _, err := s.certs.get(nil); err != nil {
		return nil, err
	}
	review, err := newReviewer(c.Server)
	if err != nil {
		return nil, err
	}
	s.guard = &guard{node: c.Node, review: review, log: c.Log}
	if c.ClientCA != "" {
		s.guard.clients = &authorities{file: c.ClientCA}
		if _, err := s.guard.clients.pool(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run serves h to those who may, until ctx ends.
func (s *Server) Run(ctx context.Context, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.conf.Address)
	if err != nil {
		return fmt.Errorf("serve the API server: %w", err)
	}
	server := &http.Server{
		Handler: s.guard.before(h), ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit,
		BaseContext: func(net.Listener) context.Context { return ctx },
		// Handshakes that fail are others' mistakes, and anybody can make them.
		ErrorLog: slog.NewLogLogger(s.conf.Log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.certs.get,
			// What a client shows is judged with its request, by the authorities of
			// then; one that shows a bad certificate is told so in HTTP.
			ClientAuth: tls.RequestClientCert,
			// Streams take connections over, which HTTP/2 does not let them.
			NextProtos: []string{"http/1.1"},
		},
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API server at %s: %w", l.Addr(), err)
	}
	return nil
}
