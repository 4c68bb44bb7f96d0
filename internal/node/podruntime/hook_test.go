package podruntime

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestHTTPHook: the pod's own address and the port that a name stands for;
// any answer will do.
func TestHTTPHook(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String() + " " + r.Header.Get("X-Why")
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
	server.Close()
	require.Error(t, r.hook(t.Context(), withPort(h, c), "", []string{host}))
}
