package client_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ops/client"
)

// serve answers the operator's API on a unix socket until the test ends.
func serve(t *testing.T, h http.Handler) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return client.New(socket)
}

// answer writes v, or an Error with its status.
func answer(status int, v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
}

func TestViews(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pods", func(w http.ResponseWriter, r *http.Request) {
		answer(200, agent.PodList{Items: []agent.Pod{{Namespace: r.URL.Query().Get("namespace"), Name: "web"}}})(w, r)
	})
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(200, agent.Pod{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")})(w, r)
	})
	mux.HandleFunc("GET /v1/nets", answer(200, agent.NetList{Items: []agent.Net{{Name: "default/net1"}}}))
	mux.HandleFunc("GET /v1/subnets", answer(200, agent.SubnetList{Items: []agent.Subnet{{Name: "ovn-default"}}}))
	mux.HandleFunc("GET /v1/ips", answer(200, agent.IPList{Items: []agent.IP{{Subnet: "ovn-default"}}}))
	mux.HandleFunc("GET /v1/ips/{addr}", func(w http.ResponseWriter, r *http.Request) {
		answer(200, agent.Who{Address: netip.MustParseAddr(r.PathValue("addr"))})(w, r)
	})
	mux.HandleFunc("GET /v1/status", answer(200, agent.Status{Version: "v1", Ready: true}))
	mux.HandleFunc("POST /v1/gc", answer(200, agent.GCResult{Kept: 3}))
	mux.HandleFunc("GET /v1/gc", answer(200, agent.GCResult{DryRun: true}))
	mux.HandleFunc("POST /v1/check/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(200, agent.CheckResult{Pod: r.PathValue("name"), OK: true})(w, r)
	})
	c, ctx := serve(t, mux), t.Context()

	pods, err := c.Pods(ctx, "ns 1&x")
	require.NoError(t, err)
	require.Equal(t, "ns 1&x", pods.Items[0].Namespace)
	pod, err := c.Pod(ctx, core.Pod{Namespace: "a b", Name: "x?y"})
	require.NoError(t, err)
	require.Equal(t, agent.Pod{Namespace: "a b", Name: "x?y"}, pod)
	nets, err := c.Nets(ctx)
	require.NoError(t, err)
	require.Len(t, nets.Items, 1)
	subnets, err := c.Subnets(ctx)
	require.NoError(t, err)
	require.Len(t, subnets.Items, 1)
	ips, err := c.IPs(ctx, "")
	require.NoError(t, err)
	require.Len(t, ips.Items, 1)
	who, err := c.Who(ctx, "fd00::5")
	require.NoError(t, err)
	require.Equal(t, "fd00::5", who.Address.String())
	status, err := c.Status(ctx)
	require.NoError(t, err)
	require.True(t, status.Ready)
	gc, err := c.GC(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, gc.Kept)
	would, err := c.GCPreview(ctx)
	require.NoError(t, err)
	require.True(t, would.DryRun)
	check, err := c.Check(ctx, core.Pod{Namespace: "a", Name: "b"})
	require.NoError(t, err)
	require.Equal(t, "b", check.Pod)
	raw, err := c.Raw(ctx, agent.PathStatus)
	require.NoError(t, err)
	require.JSONEq(t, `"v1"`, string(mustField(t, raw, "version")))
}

func mustField(t *testing.T, raw []byte, name string) json.RawMessage {
	t.Helper()
	m := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(raw, &m))
	return m[name]
}

func TestErrorsOfTheAgent(t *testing.T) {
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
		hint    string
		is      error
	}{
		{"its own hint", answer(404, agent.Error{Code: 3, Msg: "no pod a/b", Details: "no record", Hint: "look"}), "no pod a/b: no record", "look", core.ErrNotFound},
		{"the code's hint", answer(503, agent.Error{Code: 11, Msg: "OVSDB is away"}), "OVSDB is away", agent.Hint(11), core.ErrUnavailable},
		{"no error object", answer(500, "oops"), "the agent answered /v1/status with 500 Internal Server Error", "the agent may be of another version: compare with `fairlead version`", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := serve(t, tc.handler).Status(t.Context())
			api := (*client.APIError)(nil)
			require.ErrorAs(t, err, &api)
			require.EqualError(t, err, tc.want)
			require.Equal(t, tc.hint, api.Hint())
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
		})
	}
}

func TestAnswerThatIsNoJSON(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	_, err := c.Status(t.Context())
	require.ErrorContains(t, err, "read the agent's answer to /v1/status")
}

func TestNoAgent(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())

	for socket, want := range map[string]string{
		filepath.Join(dir, "none.sock"): "no agent: the socket " + dir + "/none.sock does not exist",
		dead:                            "no agent: nobody listens on " + dead,
	} {
		_, err := client.New(socket).Status(t.Context())
		none := (*client.NoAgentError)(nil)
		require.ErrorAs(t, err, &none)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.Contains(t, none.Hint(), "systemctl start fairlead")
	}
	require.Contains(t, (&client.NoAgentError{Socket: "/s", Err: os.ErrPermission}).Hint(), "sudo")
}
