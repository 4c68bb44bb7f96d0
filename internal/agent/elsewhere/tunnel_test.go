package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/kernel/icmp"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestTunnel: over real links and a real API server: a node is cut off when nobody
// answers through a tunnel who is there and well, and not by another that is down, or
// without a network of its own.
func TestTunnel(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	here, there := netnstest.New(t), netnstest.New(t)
	run := func(in *netns.Handle, line string) {
		t.Helper()
		netnstest.Do(t, in, func() error {
			f := strings.Fields(line)
			out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
			require.NoError(t, err, "%s: %s", line, out)
			return nil
		})
	}
	// The far ends of both nodes are one namespace, with an address for each.
	for _, dev := range []string{"ovn0", "eth0"} {
		run(here, fmt.Sprintf("ip link add %s type veth peer name %s netns %s", dev, dev, netnstest.Path(there)))
	}
	near := func(dev, ip string) { run(here, "ip addr add "+ip+" dev "+dev); run(here, "ip link set "+dev+" up") }
	near("ovn0", "100.64.0.2/16")
	near("eth0", "192.0.2.2/24")
	far := func(verb, dev, ip string) { run(there, "ip addr "+verb+" "+ip+" dev "+dev) }
	for i := 3; i <= 4; i++ {
		far("add", "ovn0", fmt.Sprintf("100.64.0.%d/32", i))
		far("add", "eth0", fmt.Sprintf("192.0.2.%d/32", i))
	}
	for dev, net := range map[string]string{"ovn0": "100.64.0.0/16", "eth0": "192.0.2.0/24"} {
		run(there, "ip link set "+dev+" up")
		run(there, "ip route add "+net+" dev "+dev)
	}

	ns := c.Namespace()
	a, b := ns+"-a", ns+"-b"
	says := func(name, ready, status, reason string) {
		t.Helper()
		_, err := c.Client().CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, fmt.Appendf(nil,
			`{"status":{"conditions":[{"type":"Ready","status":%q},{"type":"NetworkUnavailable","status":%q,"reason":%q}]}}`, ready, status, reason), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	for _, name := range []string{a, b} {
		c.RegisterNode(name)
		says(name, "True", "False", ReasonReachable)
	}
	from := login.New(login.Config{Kubeconfig: c.AdminKubeconfig(), Node: ns, UserAgent: "fairlead/test"}).Current
	addr := netip.MustParseAddr
	peers := []share.Peer{{Name: a, Join: addr("100.64.0.3"), Below: addr("192.0.2.3")}, {Name: b, Join: addr("100.64.0.4"), Below: addr("192.0.2.4")}}
	probe := NewTunnel(from)
	probe.Grace = 500 * time.Millisecond
	probe.Echo = func(ctx context.Context, device string, to netip.Addr) error {
		return here.Do(func() error { return icmp.Echo(ctx, device, to, 500*time.Millisecond) })
	}
	// look looks until it finds what is wanted: who is there and does not answer, "" for
	// nothing amiss.
	look := func(want string, peers ...share.Peer) {
		t.Helper()
		require.Eventually(t, func() bool {
			err := probe.Look(t.Context(), peers)
			return want == "" && err == nil || want != "" && errors.Is(err, ErrTunnel) && strings.Contains(err.Error(), "(there and well: "+want+")")
		}, time.Minute, 20*time.Millisecond)
	}
	// well is look for longer than Grace.
	well := func(peers ...share.Peer) {
		t.Helper()
		look("", peers...)
		for end := time.Now().Add(2 * probe.Grace); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			require.NoError(t, probe.Look(t.Context(), peers))
		}
	}
	well()
	well(peers...)
	far("del", "ovn0", "100.64.0.3/32")
	well(peers...)
	far("del", "ovn0", "100.64.0.4/32")
	look(a+", "+b, peers...)
	says(a, "True", "True", ReasonTunnel) // as this one does
	look(a, peers[0])
	says(a, "True", "True", ReasonUnreachable) // it has no network of its own
	well(peers[0])
	says(a, "True", "False", ReasonReachable)
	look(a, peers[0])
	far("del", "eth0", "192.0.2.3/32") // it is down, and nobody has noticed
	well(peers[0])
	look(b, peers...)
	far("add", "ovn0", "100.64.0.4/32")
	run(there, "ip route replace 100.64.0.0/16 dev ovn0") // it went with the last address
	well(peers...)
}

// TestWhoIsWell: another node's silence counts where kubelet and our agent there say that
// all is well.
func TestWhoIsWell(t *testing.T) {
	for _, c := range []struct {
		ready, status, reason string
		want                  bool
	}{
		{"True", "False", ReasonReachable, true},
		{"True", "True", ReasonTunnel, true},
		{"True", "True", ReasonUnreachable, false},
		{"True", "False", "RouteCreated", false}, // a cloud's controller, not ours
		{"Unknown", "False", ReasonReachable, false},
		{"False", "True", ReasonTunnel, false},
	} {
		node := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"NetworkUnavailable","status":%q,"reason":%q},{"type":"Ready","status":%q}]}}`, c.status, c.reason, c.ready)
		require.Equal(t, c.want, isWell(node), "%+v", c)
	}
	require.False(t, isWell([]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)), "no agent of ours")
}
