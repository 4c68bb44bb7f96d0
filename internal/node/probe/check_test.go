package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// at splits a listener's address.
func at(t *testing.T, addr net.Addr) (host string, port int32) {
	t.Helper()
	host, text, err := net.SplitHostPort(addr.String())
	require.NoError(t, err)
	n, err := strconv.ParseInt(text, 10, 32)
	require.NoError(t, err)
	return host, int32(n)
}

func check(t *testing.T, i Instance, h v1.ProbeHandler) (ok bool, said string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Checks{}.Check(ctx, i, &v1.Probe{ProbeHandler: h})
}

func TestHTTP(t *testing.T) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/code/", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/code/"))
		w.WriteHeader(code)
		fmt.Fprint(w, "words of "+r.URL.Path)
	})
	mux.HandleFunc("/saw", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "name.example" || r.Header.Get("X-Key") != "v" || r.Header.Get("Accept") != "*/*" ||
			!strings.HasPrefix(r.Header.Get("User-Agent"), "kube-probe/") || r.URL.RawQuery != "a=b" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, r.Host, r.Header, r.URL)
		}
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/code/500", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		_, port, _ := net.SplitHostPort(elsewhere.Listener.Addr().String())
		http.Redirect(w, r, "http://localhost:"+port+"/", http.StatusFound)
	})
	server, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer server.Close()
	defer secure.Close()
	host, port := at(t, server.Listener.Addr())
	_, tlsPort := at(t, secure.Listener.Addr())
	spec := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port}}}
	number := intstr.FromInt32(port)
	saw := []v1.HTTPHeader{{Name: "host", Value: "name.example"}, {Name: "x-key", Value: "v"}}
	for name, c := range map[string]struct {
		get  v1.HTTPGetAction
		ok   bool
		said string
	}{
		"well":              {v1.HTTPGetAction{Path: "/code/200", Port: number}, true, ""},
		"still well":        {v1.HTTPGetAction{Path: "code/399", Port: number}, true, ""},
		"ill":               {v1.HTTPGetAction{Path: "/code/503", Port: number}, false, "/code/503: 503 Service Unavailable: words of /code/503"},
		"a named port":      {v1.HTTPGetAction{Path: "/code/204", Port: intstr.FromString("web")}, true, ""},
		"a number in words": {v1.HTTPGetAction{Path: "/code/204", Port: intstr.FromString(strconv.Itoa(int(port)))}, true, ""},
		"headers":           {v1.HTTPGetAction{Path: "/saw?a=b", Port: number, HTTPHeaders: saw}, true, ""},
		"TLS, by nobody":    {v1.HTTPGetAction{Path: "/code/200", Port: intstr.FromInt32(tlsPort), Scheme: v1.URISchemeHTTPS}, true, ""},
		"redirected here":   {v1.HTTPGetAction{Path: "/here", Port: number}, false, "500"},
		"redirected away":   {v1.HTTPGetAction{Path: "/away", Port: number}, true, ""},
		"another host":      {v1.HTTPGetAction{Path: "/code/200", Port: number, Host: "localhost"}, true, ""},
		"nobody there":      {v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(1)}, false, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			ok, said, err := check(t, Instance{IP: host, Spec: spec}, v1.ProbeHandler{HTTPGet: &c.get})
			require.NoError(t, err)
			require.Equal(t, c.ok, ok, said)
			require.Contains(t, said, c.said)
		})
	}
	_, _, err := check(t, Instance{IP: host, Spec: spec}, v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("none")}})
	require.EqualError(t, err, `container c has no port named "none"`)
}

func TestTimeout(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer server.Close()
	defer close(end)
	host, port := at(t, server.Listener.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ok, said, err := Checks{}.Check(ctx, Instance{IP: host, Spec: &v1.Container{}}, &v1.Probe{ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Path: "/slow", Port: intstr.FromInt32(port)},
	}})
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, said, "/slow: no answer in time")
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host, port := at(t, l.Addr())
	tcp := v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}
	ok, _, err := check(t, Instance{IP: host, Spec: &v1.Container{}}, tcp)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, l.Close())
	ok, said, err := check(t, Instance{IP: host, Spec: &v1.Container{}}, tcp)
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, said, "connection refused")
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, state := grpc.NewServer(), health.NewServer()
	healthv1.RegisterHealthServer(server, state)
	state.SetServingStatus("down", healthv1.HealthCheckResponse_NOT_SERVING)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	host, port := at(t, l.Addr())
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	other := grpc.NewServer()
	go func() { _ = other.Serve(bare) }()
	defer other.Stop()
	_, barePort := at(t, bare.Addr())
	for name, c := range map[string]struct {
		port    int32
		service *string
		ok      bool
		said    string
	}{
		"the server":   {port, nil, true, ""},
		"a service":    {port, new("down"), false, `service "down" is NOT_SERVING`},
		"none such":    {port, new("x"), false, "unknown service"},
		"no health":    {barePort, nil, false, "does not implement grpc.health.v1.Health"},
		"nobody there": {1, nil, false, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			ok, said, err := check(t, Instance{IP: host, Spec: &v1.Container{}}, v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: c.port, Service: c.service}})
			require.NoError(t, err)
			require.Equal(t, c.ok, ok, said)
			require.Contains(t, said, c.said)
		})
	}
}

// execer answers as a runtime does.
type execer struct {
	exit    int32
	err     error
	command []string
}

func (e *execer) Exec(_ context.Context, _ string, command []string, _ time.Duration) (string, int32, error) {
	e.command = command
	return "words", e.exit, e.err
}

func TestExec(t *testing.T) {
	spec := &v1.Container{Env: []v1.EnvVar{{Name: "DIR", Value: "/data"}}}
	p := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e", "$(DIR)/x"}}}}
	away := errors.New("the runtime is away")
	for name, c := range map[string]struct {
		answers execer
		ok      bool
		said    string
		err     error
	}{
		"well":           {execer{}, true, "", nil},
		"ill":            {execer{exit: 3}, false, "test -e /data/x: exit status 3: words", nil},
		"too late":       {execer{err: fmt.Errorf("x: %w", context.DeadlineExceeded)}, false, "test -e /data/x: not done within 1s", nil},
		"nothing learnt": {execer{err: away}, false, "", away},
	} {
		t.Run(name, func(t *testing.T) {
			ok, said, err := Checks{Exec: &c.answers}.Check(t.Context(), Instance{Spec: spec}, p)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.said, said)
			require.Equal(t, []string{"test", "-e", "/data/x"}, c.answers.command)
		})
	}
}
