package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// gone proves that an engine and its node have left nothing.
func gone(t *testing.T, e *engine) {
	t.Helper()
	require.NoError(t, e.close())
	for _, dir := range e.cgroups.Paths {
		require.NoDirExists(t, dir)
	}
	require.NoDirExists(t, filepath.Join("/sys/fs/cgroup/unified", e.cgroups.Name))
	require.NoDirExists(t, e.node.dir)
	unmounted(t, e.node)
}

// One pod of each kind goes through a contest; another one is there still when
// the engine ends.
func runThrough(t *testing.T, b *bench, c contest) []line {
	t.Helper()
	c.pods, c.load = 1, "test"
	lines, err := b.sandboxContest(c)
	require.NoError(t, err)
	left := pick(c.sides[0], 1)
	c.sides[0].Node().renew(left)
	_, err = batch(c.sides[0], "ADD", left, 1)
	require.NoError(t, err)
	return lines
}

func TestSandboxesOfContainerd(t *testing.T) {
	b := scratch(t)
	n, err := b.newNode(0)
	require.NoError(t, err)
	n.name(4)
	e, err := b.containerd(n, b.tool(""), portmapList, plainList)
	require.NoError(t, err)
	defer gone(t, e)
	of := func(s sandboxes) *sandboxes {
		s.engine, s.ids, s.counted = e, &sync.Map{}, n.client("")
		return &s
	}
	ports, plain := of(sandboxes{ports: true}), of(sandboxes{handler: plainHandler})
	lines := runThrough(t, b, contest{sides: []side{ports, plain, of(sandboxes{host: true})}, floor: 1,
		metrics: append(against(1, []metric{networkPart("", bound{})}), wholeSandbox("", 2, 1)...)})
	require.Len(t, lines, 3)
	for _, l := range lines {
		require.Positive(t, l.got)
	}

	out, err := n.output("iptables-save", "-t", "nat")
	require.NoError(t, err)
	require.Contains(t, out, "--dport 20009", "the standing pod's first port")
	status, err := e.ListPodSandbox(context.Background(), &cri.ListPodSandboxRequest{})
	require.NoError(t, err)
	require.Len(t, status.GetItems(), 1)

	w := &worker{}
	n.renew(n.pods[:1])
	require.NoError(t, plain.Call(w, "ADD", n.pods[0]))
	require.Len(t, w.part, 1)
	require.Positive(t, w.part[0])
	require.Positive(t, w.aside)
}

func TestSandboxesOfDocker(t *testing.T) {
	b := scratch(t)
	n, err := b.newNode(0)
	require.NoError(t, err)
	n.name(4)
	f := &fairlead{plugin: plugin{node: n, path: b.bin("fairlead-cni")}}
	plugins, err := f.plugins()
	require.NoError(t, err)
	e, err := b.docker(n, b.tool(""), plainList)
	require.NoError(t, err)
	defer gone(t, e)
	empty, err := b.emptied(e, plugins)
	require.NoError(t, err)
	ids := &sync.Map{}
	lines := runThrough(t, b, contest{sides: []side{&sandboxes{engine: e, ids: ids}, &sandboxes{engine: empty, ids: ids}},
		metrics: wholeSandbox("", 1, 1)})
	require.Len(t, lines, 2)
	require.Positive(t, lines[0].got)
	require.NoError(t, empty.conn.Close())
}

// What containerd does not count is an error, never a figure.
func TestNetworkTimeIsThatOfTheMetrics(t *testing.T) {
	text := "# TYPE\n"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	s := &sandboxes{counted: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}}}}
	none, err := s.networkTime(&worker{})
	require.NoError(t, err)
	require.Zero(t, none)
	text = `containerd_cri_network_plugin_operations_duration_seconds_seconds_sum{operation_type="tear_down_pod"} 7
containerd_cri_network_plugin_operations_duration_seconds_seconds_sum{operation_type="set_up_pod"} 0.0125
`
	some, err := s.networkTime(&worker{})
	require.NoError(t, err)
	require.Equal(t, 12500*time.Microsecond, some)
}

func TestMemoryOfThisProcess(t *testing.T) {
	m, err := memoryOf(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, m.rss, m.own)
	require.Positive(t, m.own)
	require.Equal(t, "2.0 MB (anonymous 1.0)", middle([]memory{{1, 0.5}, {2, 1}, {9, 7}}))
	_, err = memoryOf(1 << 30)
	require.Error(t, err)
}
