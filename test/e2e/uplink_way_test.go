package e2e

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// TestUplinkIsTheChosenInterface: an agent whose --iface fits the NIC by an expression starts
// while a provider network has it, and gives it back; one whose --iface fits nothing does so
// too, tells of it, and takes the MTU of what comes.
func TestUplinkIsTheChosenInterface(t *testing.T) {
	t.Parallel()
	b := newUplinkBed(t)
	b.declare()
	b.on("br-net1")
	anew := func(iface string) {
		t.Helper()
		b.a.Kill()
		_ = b.a.Wait()
		b.a = b.n.Agent("--iface", iface)
		b.a.WaitReady()
	}
	mtu := func(want string) {
		t.Helper()
		eventually(t, func() string {
			if said := b.n.Fairlead("status", "-o", "json"); !strings.Contains(strings.ReplaceAll(said, " ", ""), `"mtu":`+want+",") {
				return said
			}
			return ""
		})
	}
	anew("^eth.*$")
	mtu("1400")
	b.withdraw()
	b.on(testbed.OutsideIf)

	b.declare()
	b.on("br-net1")
	anew("^late[0-9]$")
	log, err := os.ReadFile(filepath.Join(b.n.Dir, "log", "agent-3"))
	require.NoError(t, err)
	require.Contains(t, string(log), "underlay interface not found yet")
	b.n.Run("ip", "link", "add", "late0", "mtu", "1300", "type", "veth", "peer", "name", "late-far")
	b.n.Run("ip", "addr", "add", "192.0.2.9/24", "dev", "late0")
	mtu("1200")
	b.withdraw()
	b.on(testbed.OutsideIf)
	b.answers("given back by an agent that did not find its interface")
	b.n.Run("ip", "link", "del", "late0")
}

// TestUplinkIsTheWayToTheAPIServer: the one NIC by which a node reaches the API server is given
// to a provider network and back; what the agent follows goes on over the same connection, also
// of an agent that starts while the bridge has the NIC.
func TestUplinkIsTheWayToTheAPIServer(t *testing.T) {
	t.Parallel()
	n := startClusterNode(t, kube.Shared(t))
	n.link.Cut()
	b := &uplinkBed{t: t, n: n.Node, world: n.Outside()}
	user := "agent-of-" + n.name
	as := n.c.User(user, "system:masters")
	at, err := url.Parse(as.Host)
	require.NoError(t, err)
	listener, err := relay.Listen(b.world.NetnsPath(), "tcp4", net.JoinHostPort(testbed.WorldIP4, at.Port()))
	require.NoError(t, err)
	over := relay.New(listener, func(net.Conn) (net.Conn, error) { return net.Dial("tcp4", at.Host) })
	t.Cleanup(over.Close)
	as.ServerName, as.Host = at.Hostname(), "https://"+net.JoinHostPort(testbed.WorldIP4, at.Port())
	n.args = []string{"--kubeconfig", n.c.Kubeconfig(as), "--node-name", n.name}
	b.start(n.Agent, n.args...)
	b.a.WaitReady()
	t.Cleanup(func() { n.c.Kubectl("delete", "provider-network", "net1", "--ignore-not-found") })

	const key = "net1.provider-network.kubernetes.io/"
	ready := func(want string) {
		t.Helper()
		eventually(t, func() string {
			o, err := n.c.Client().CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
			if err != nil || o.Labels[key+"ready"] != want {
				return "the Node is not told: " + strings.Join([]string{o.Labels[key+"ready"], o.Annotations[key+"err_mesg"]}, " ")
			}
			return ""
		})
	}
	watches := func(since kube.Mark) []kube.Request {
		return n.c.Requests(kube.Filter{User: user, Verbs: []string{"watch"}, Resource: "provider-networks", Since: since})
	}
	eventually(t, func() string {
		if len(watches(0)) == 0 {
			return "the agent follows no provider networks"
		}
		return ""
	})
	since := n.c.Mark()
	n.c.Apply(object("kubeovn.io/v1", "ProviderNetwork", "net1", nil, map[string]any{"defaultInterface": testbed.OutsideIf}) + "\n")
	b.on("br-net1")
	ready("true")
	n.c.Kubectl("annotate", "node", n.name, key+"exclude=true")
	b.on(testbed.OutsideIf)
	ready("")
	n.c.Kubectl("annotate", "node", n.name, key+"exclude-")
	b.on("br-net1")
	ready("true")
	require.Empty(t, watches(since), "of the agent that has followed since its start")

	b.a.Kill()
	_ = b.a.Wait()
	n.c.Kubectl("delete", "provider-network", "net1")
	b.answers("without an agent")
	b.a = n.Agent(n.args...)
	b.on(testbed.OutsideIf)
	ready("")
}
