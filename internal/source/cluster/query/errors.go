package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrNoCluster says that the kubeconfigs name no cluster.
var ErrNoCluster = errors.New("the kubeconfig names no cluster (no current context)")

// DeniedError says that the server knows the user and refuses (403).
type DeniedError struct {
	Verb      string // of RBAC: list, get
	Resource  string // as RBAC writes it: subnets.kubeovn.io
	Namespace string // "" is all of them
	Cluster   bool   // the kind stands in no namespace
	Err       error  // the server's words
}

func (e *DeniedError) Error() string { return e.missing() + " is missing: " + e.Err.Error() }

// missing names the right.
func (e *DeniedError) missing() string {
	return "the right to " + e.Verb + " " + e.Resource + e.where()
}

func (e *DeniedError) where() string {
	switch {
	case e.Cluster:
		return ""
	case e.Namespace == "":
		return " in all namespaces"
	}
	return " in namespace " + e.Namespace
}

// Unwrap gives the server's error.
func (e *DeniedError) Unwrap() error { return e.Err }

// Hint is the next step.
func (e *DeniedError) Hint() string {
	hint := "ask for a role with `" + e.Verb + "` on `" + e.Resource + "`"
	if !e.Cluster && e.Namespace == "" {
		hint += ", or name a namespace that is yours with -n"
	}
	return hint + "; root on a node needs no rights: --node-local"
}

// LoginError says that the server does not know the user (401).
type LoginError struct {
	Host string
	Err  error
}

func (e *LoginError) Error() string {
	return "the API server " + e.Host + " does not accept the kubeconfig's credentials: " + e.Err.Error()
}

// Unwrap gives the server's error.
func (e *LoginError) Unwrap() error { return e.Err }

// Hint is the next step.
func (e *LoginError) Hint() string {
	return "log in again, or choose another user with --context; root on a node needs none: --node-local"
}

// UnreachableError says that no API server answers.
type UnreachableError struct {
	Host string
	Err  error
}

func (e *UnreachableError) Error() string {
	return "the API server " + e.Host + " does not answer: " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint is the next step.
func (e *UnreachableError) Hint() string {
	return "on a node --node-local asks the agent, which needs no API server; another cluster is chosen with --context or --kubeconfig"
}

// explain says what a failed request means.
func (c *Client) explain(err error, verb string, k Kind, namespace string) error {
	status := apierrors.APIStatus(nil)
	switch {
	case errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError:
		return &UnreachableError{c.host, err}
	case apierrors.IsForbidden(err):
		return &DeniedError{Verb: verb, Resource: k.String(), Namespace: namespace, Cluster: k.cluster, Err: err}
	case apierrors.IsUnauthorized(err):
		return &LoginError{c.host, err}
	case silent(err):
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // its text would repeat the address
		}
		return &UnreachableError{c.host, err}
	}
	return fmt.Errorf("%s %s%s: %w", verb, k, (&DeniedError{Namespace: namespace, Cluster: k.cluster}).where(), err)
}

// silent tells that the network or the server gave no answer, from an answer that
// cannot be used and from credentials that cannot be got.
func silent(err error) bool {
	network := net.Error(nil)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if ue := (*url.Error)(nil); errors.As(err, &ue) {
		err = ue.Err // a net.Error itself, whatever it holds
	}
	return errors.As(err, &network)
}
