package egress

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEgressRefuses(t *testing.T) {
	t.Parallel()
	e, err := New(t.TempDir())
	require.NoError(t, err)
	defer e.Close()
	_, err = e.dial("127.0.0.1:1")
	require.ErrorContains(t, err, "refused")
	c, err := net.Dial("unix", e.relay.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:1/", nil)
	require.NoError(t, err)
	require.NoError(t, req.Write(c))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "only CONNECT")
}
