// Package action does what hooks and probes ask for: it runs a command in a
// container, asks over HTTP or gRPC, connects. It knows neither pods nor what
// follows from an answer.
package action

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// agent is how we name ourselves: servers know kubelet's probes by it.
const agent = "kube-probe/1.36 (fairlead)"

// maxBody bounds what is read of an answer, in bytes (kubelet's limit).
const maxBody = 10 << 10

// Port is a port's number, which may be the name of one of the container's.
func Port(p intstr.IntOrString, c *v1.Container) (int32, error) {
	n := int64(p.IntVal)
	if p.Type == intstr.String {
		for _, has := range c.Ports {
			if has.Name == p.StrVal {
				return has.ContainerPort, nil
			}
		}
		var err error
		if n, err = strconv.ParseInt(p.StrVal, 10, 32); err != nil {
			return 0, fmt.Errorf("container %s has no port named %q", c.Name, p.StrVal)
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %d is not between 1 and 65535", n)
	}
	return int32(n), nil
}

// Answer is that of an HTTP server.
type Answer struct {
	Code   int
	Status string
	Body   string // the beginning
	URL    string // that was asked
}

// Get asks over HTTP at a port. host is the pod's address, unless the action
// names one. Certificates are not looked at: nobody knows a pod's name.
func Get(ctx context.Context, h *v1.HTTPGetAction, host string, port int32) (Answer, error) {
	if h.Host != "" {
		host = h.Host
	}
	if host == "" {
		return Answer{}, errors.New("the pod has no address")
	}
	where := address(h, host, port)
	out := Answer{URL: where.String()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), http.NoBody)
	if err != nil {
		return out, err
	}
	req.Header = headers(h)
	req.Host = req.Header.Get("Host")
	transport := &http.Transport{
		DialContext:       (&net.Dialer{Control: linger}).DialContext,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as kubelet's
		DisableKeepAlives: true, DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, CheckRedirect: stay(where.Hostname())}).Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	// What could be read is enough to say what was answered.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	out.Code, out.Status, out.Body = resp.StatusCode, resp.Status, strings.ToValidUTF8(string(body), "?")
	return out, nil
}

func address(h *v1.HTTPGetAction, host string, port int32) *url.URL {
	u, err := url.Parse(h.Path)
	if err != nil {
		u = &url.URL{Path: h.Path}
	}
	u.Scheme = strings.ToLower(string(h.Scheme))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	return u
}

func headers(h *v1.HTTPGetAction) http.Header {
	out := http.Header{}
	for _, k := range h.HTTPHeaders {
		out.Add(textproto.CanonicalMIMEHeaderKey(k.Name), k.Value)
	}
	for name, value := range map[string]string{"User-Agent": agent, "Accept": "*/*"} {
		if _, set := out[name]; !set {
			out.Set(name, value)
		}
	}
	return out
}

// stay follows redirections on one host alone: another may be anybody's.
func stay(host string) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, before []*http.Request) error {
		if next.URL.Hostname() != host {
			return http.ErrUseLastResponse
		}
		if len(before) >= 10 {
			return errors.New("stopped after 10 redirections")
		}
		return nil
	}
}

// linger keeps the sockets of many probes from waiting for a minute each.
func linger(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
	})
	return errors.Join(err, failed)
}

// Connect opens a TCP connection and closes it.
func Connect(ctx context.Context, host string, port int32) error {
	c, err := (&net.Dialer{Control: linger}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	_ = c.Close() // it was open: that is all that was asked
	return nil
}

// Healthy asks a server for its health (grpc.health.v1); the error says why it
// is not.
func Healthy(ctx context.Context, host string, port int32, service string) error {
	c, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(host, strconv.Itoa(int(port))),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(agent), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := health.NewHealthClient(c).Check(ctx, &health.HealthCheckRequest{Service: service}, grpc.WaitForReady(false))
	if status.Code(err) == codes.Unimplemented {
		return errors.New("the server does not implement grpc.health.v1.Health")
	}
	if err != nil {
		return err
	}
	if s := answer.GetStatus(); s != health.HealthCheckResponse_SERVING {
		return fmt.Errorf("service %q is %s", service, s)
	}
	return nil
}

// Execer runs a command in a container that runs, for at most a time; 0 is for
// as long as it takes. The error says that there is no exit code to speak of;
// it is context.DeadlineExceeded when the time was over.
type Execer interface {
	Exec(ctx context.Context, container string, command []string, most time.Duration) (output string, exit int32, err error)
}
