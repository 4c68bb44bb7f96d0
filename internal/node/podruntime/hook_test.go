package podruntime

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestHTTPHook: the pod's own address and the port that a name stands for;
// any answer will do.
func TestHTTPHook(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String() + " " + r.Header.Get("X-Why") + r.Header.Get("Authorization")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	require.NoError(t, err)
	c := &v1.Container{Ports: []v1.ContainerPort{{Name: "admin", ContainerPort: int32(number)}}}
	h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "/bye?now", Port: intstr.FromString("admin"), HTTPHeaders: []v1.HTTPHeader{{Name: "X-Why", Value: "ends"}},
	}}
	r := New(Config{})
	require.NoError(t, r.hook(t.Context(), withPort(h, c), "", []string{host}))
	require.Equal(t, "/bye?now ends", asked)
	require.ErrorContains(t, r.hook(t.Context(), withPort(h, c), "", nil), "no address")
	secure := httptest.NewTLSServer(server.Config.Handler)
	defer secure.Close()
	for where, plain := range map[*httptest.Server]bool{secure: false, server: true} { // one speaks TLS, the other does not
		_, port, err := net.SplitHostPort(where.Listener.Addr().String())
		require.NoError(t, err)
		asked = ""
		tls := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Path: "/bye", Port: intstr.FromString(port), Scheme: v1.URISchemeHTTPS,
			HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "x"}, {Name: "X-Why", Value: "ends"}},
		}}
		require.NoError(t, r.hook(t.Context(), withPort(tls, c), "", []string{host}))
		require.Equal(t, map[bool]string{false: "/bye endsx", true: "/bye ends"}[plain], asked)
	}
	server.Close()
	require.Error(t, r.hook(t.Context(), withPort(h, c), "", []string{host}))
}

// TestSleepHook ends with its time, or with the pod's.
func TestSleepHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{})
		began := time.Now()
		h := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 7}}
		require.NoError(t, r.hook(t.Context(), h, "", nil))
		require.Equal(t, 7*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.ErrorIs(t, r.hook(ctx, h, "", nil), context.DeadlineExceeded)
		require.Equal(t, 9*time.Second, time.Since(began))
		require.ErrorContains(t, r.hook(t.Context(), &v1.LifecycleHandler{}, "", nil), "nothing that can be done")
	})
}
