package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ops/client"
)

// wire is an agent's socket with the protocol of api/cni written out, so that
// the order of the bytes is tested and not a library's idea of it.
type wire struct {
	refuse int    // HTTP status before the body, 0 = none
	mute   bool   // accepts and says nothing
	taken  func() // called with the request read; then no answer comes
	resp   cni.Response

	got  cni.Request
	tail []byte // what came after the answer
}

// start serves one connection and gives a client; end waits for its end.
func (w *wire) start(t *testing.T) (c *client.Client, end func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- w.serve(l) }()
	t.Cleanup(func() { _ = l.Close() })
	return client.New(socket), func() { t.Helper(); require.NoError(t, <-done) }
}

func (w *wire) serve(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	if req.Method != http.MethodPost || req.URL.Path != cni.PathCNI || req.Header.Get("Expect") != "100-continue" {
		return fmt.Errorf("unexpected head: %s %s %v", req.Method, req.URL, req.Header)
	}
	if w.mute {
		_, err := io.Copy(io.Discard, in)
		return err
	}
	if w.refuse != 0 {
		return reply(conn, w.refuse, agent.Error{Code: 5, Msg: "too large"})
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
		return err
	}
	if err := json.NewDecoder(req.Body).Decode(&w.got); err != nil {
		return err
	}
	if w.taken != nil {
		w.taken()
	} else if err := reply(conn, 200, w.resp); err != nil {
		return err
	}
	w.tail, err = io.ReadAll(in)
	return err
}

func reply(conn net.Conn, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s", status, len(b), b)
	return err
}

var call = client.Call{
	Op:     core.Add,
	Target: client.Target{Container: "c1", Netns: "/run/netns/blue", Pod: core.Pod{Namespace: "ns1", Name: "web", UID: "u1"}},
	IfName: "eth0", Path: []string{"/a", "/b"},
}

func TestCallIsDeliveredThenAcknowledged(t *testing.T) {
	w := &wire{resp: cni.Response{Output: []byte(`{"cniVersion":"1.1.0"}`)}}
	c, end := w.start(t)
	var delivered string
	require.NoError(t, c.Do(t.Context(), call, func(b []byte) error { delivered = string(b); return nil }))
	end()
	require.JSONEq(t, `{"cniVersion":"1.1.0"}`, delivered)
	require.Equal(t, []byte{cni.Ack}, w.tail)
	require.Equal(t, cni.Request{
		Command: "ADD", ContainerID: "c1", Netns: "/run/netns/blue", IfName: "eth0", Path: "/a:/b",
		Args:   "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns1;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1",
		Config: client.DefaultConfig(),
	}, w.got)
}

func TestUndeliveredIsNotAcknowledged(t *testing.T) {
	w := &wire{resp: cni.Response{Output: []byte(`{}`)}}
	c, end := w.start(t)
	full := errors.New("disk full")
	require.ErrorIs(t, c.Do(t.Context(), call, func([]byte) error { return full }), full)
	end()
	require.Empty(t, w.tail)
}

func TestFailedCall(t *testing.T) {
	w := &wire{resp: cni.Response{Failed: true, Output: []byte(`{"code":103,"msg":"no address","details":"subnet s is full"}`)}}
	c, end := w.start(t)
	err := c.Do(t.Context(), call, func([]byte) error { t.Error("delivered"); return nil })
	end()
	failed := (*client.CNIError)(nil)
	require.ErrorAs(t, err, &failed)
	require.EqualError(t, err, "no address: subnet s is full")
	require.Equal(t, agent.Hint(103), failed.Hint())
}

func TestUnreadableFailureShowsNoContent(t *testing.T) {
	w := &wire{resp: cni.Response{Failed: true, Output: []byte("panic: s3cret")}}
	c, end := w.start(t)
	err := c.Do(t.Context(), call, nil)
	end()
	require.ErrorContains(t, err, "unreadable")
	require.NotContains(t, err.Error(), "s3cret")
}

func TestRefusedBeforeTheBody(t *testing.T) {
	w := &wire{refuse: http.StatusRequestEntityTooLarge}
	c, end := w.start(t)
	require.EqualError(t, c.Do(t.Context(), call, nil), "too large")
	end()
}

func TestMuteAgent(t *testing.T) {
	w := &wire{mute: true}
	c, end := w.start(t)
	err := c.Do(t.Context(), call, nil)
	end()
	none := (*client.NoAgentError)(nil)
	require.ErrorAs(t, err, &none)
	require.ErrorContains(t, err, "does not answer")

	require.ErrorAs(t, client.New(filepath.Join(t.TempDir(), "none")).Do(t.Context(), call, nil), &none)
}

func TestCancelledCallEndsTheConnection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &wire{taken: cancel}
	c, end := w.start(t)
	require.ErrorIs(t, c.Do(ctx, call, nil), context.Canceled)
	end()
	require.Empty(t, w.tail, "no acknowledgement: the agent rolls back")
}

func TestPluginConfig(t *testing.T) {
	for _, tc := range []struct {
		name, file, conf string
		others           []string
		err              string
	}{
		{"plain", ` {"type":"fairlead","name":"a"} `, `{"type":"fairlead","name":"a"}`, nil, ""},
		{
			"list", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"kube-ovn","provider":"ovn"},{"type":"portmap"}]}`,
			`{"cniVersion":"1.0.0","name":"n","type":"kube-ovn","provider":"ovn"}`, []string{"portmap"}, "",
		},
		{"list without ours", `{"name":"n","plugins":[{"type":"bridge"}]}`, "", nil, `the list "n" has no plugin of type fairlead, kube-ovn or multus`},
		{"not JSON", `{`, "", nil, "read the configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conf, others, err := client.PluginConfig([]byte(tc.file))
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, tc.conf, string(conf))
			require.Equal(t, tc.others, others)
		})
	}
}

func TestContainerOfPath(t *testing.T) {
	require.Equal(t, client.ContainerOf("/run/netns/a"), client.ContainerOf("/run//netns/a"))
	require.NotEqual(t, client.ContainerOf("/run/netns/a"), client.ContainerOf("/run/netns/b"))
	require.Regexp(t, "^[0-9a-f]{64}$", client.ContainerOf("/run/netns/a"))
}

func TestRecorded(t *testing.T) {
	c := serve(t, answer(200, agent.PodList{Items: []agent.Pod{
		{Namespace: "docker", Name: "my-web", Attachments: []agent.Attachment{{Container: "aaaa1111"}, {Container: "aaaa1111", IfName: "net1"}}},
		{Namespace: "ns1", Name: "web", Attachments: []agent.Attachment{{Container: "aaaa2222"}}},
	}}))
	for ref, want := range map[string]string{"aaaa1": "aaaa1111", "my_web": "aaaa1111", "aaaa2222": "aaaa2222"} {
		got, err := c.Recorded(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, want, got.Container)
		require.Empty(t, got.Netns)
	}
	for _, ref := range []string{"aaaa", "bbbb", "web"} {
		_, err := c.Recorded(t.Context(), ref)
		require.ErrorIs(t, err, core.ErrNotFound)
	}
}
