package loop

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"

	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/node/kubeletapi"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Kubelet says how an API server reaches the node: for kubectl logs, exec,
// attach, cp and port-forward.
type Kubelet struct {
	// Address is ADDRESS:PORT; "" is nowhere, and without an API server it is not
	// used.
	Address string
	// CertFile and KeyFile are the serving certificate, "" is one of the node's
	// own; ClientCA are the authorities of clients' certificates, "" is none.
	CertFile, KeyFile, ClientCA string

	port int32
}

func (k *Kubelet) complete() error {
	if (k.CertFile == "") != (k.KeyFile == "") {
		return hint.Usagef("--tls-cert-file and --tls-private-key-file go together")
	}
	if k.Address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(k.Address)
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--kubelet-address: %w", err)}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return hint.Usagef("--kubelet-address %q has no port that an API server could be told", k.Address)
	}
	k.port = int32(n)
	return nil
}

// serveKubelet serves an API server until ctx ends; without an address it does
// nothing.
func (o *Config) serveKubelet(ctx context.Context, to *login.Login, h http.Handler, log *slog.Logger) error {
	k := o.Kubelet
	if k.Address == "" {
		return nil
	}
	s, err := kubeletapi.New(kubeletapi.Config{
		Address: k.Address, Node: o.Name, Names: append(o.addresses(), o.Name), CertFile: k.CertFile, KeyFile: k.KeyFile,
		ClientCA: k.ClientCA, Server: to.REST, Log: log,
	})
	if err != nil {
		return fmt.Errorf("--kubelet-address %s: %w", k.Address, err)
	}
	if err := s.Run(ctx, h); err != nil {
		return fmt.Errorf("--kubelet-address: %w", err)
	}
	return nil
}
