package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// uplinkBed is a node whose only NIC, which has the node's default routes, is a provider
// network's while that is declared.
type uplinkBed struct {
	t     *testing.T
	n     *testbed.Node
	world *testbed.Outside
	a     *testbed.Agent
}

func newUplinkBed(t *testing.T) *uplinkBed {
	n := testbed.New(t)
	b := &uplinkBed{t: t, n: n, world: n.Outside()}
	b.honest()
	b.a = n.Agent()
	return b
}

// honest has the NIC's frames have their checksums: Open vSwitch takes them from a socket.
func (b *uplinkBed) honest() {
	b.t.Helper()
	b.n.Run("ethtool", "-K", testbed.OutsideIf, "tx", "off")
	b.world.Run("ethtool", "-K", "eth0", "tx", "off")
}

const uplinkObject = "net1.yaml"

func (b *uplinkBed) declare() {
	b.t.Helper()
	b.n.WriteObjects(uplinkObject, object("kubeovn.io/v1", "ProviderNetwork", "net1", nil, map[string]any{"defaultInterface": testbed.OutsideIf}))
}

func (b *uplinkBed) withdraw() {
	b.t.Helper()
	require.NoError(b.t, os.Remove(filepath.Join(b.n.Objects(), uplinkObject)))
}

// on waits until one of the two links has all that the NIC had, and the other nothing.
func (b *uplinkBed) on(link string) {
	b.t.Helper()
	other := map[string]string{testbed.OutsideIf: "br-net1", "br-net1": testbed.OutsideIf}[link]
	eventually(b.t, func() string {
		has, err := b.n.Try("sh", "-c", "ip -o addr show dev "+link+"; ip route show dev "+link+"; ip -6 route show dev "+link)
		rest, _ := b.n.Try("sh", "-c", "ip -o addr show dev "+other+" 2>/dev/null; ip route show dev "+other+" 2>/dev/null")
		bridges := b.n.OVS.Vsctl("list-br")
		gone := link != testbed.OutsideIf || !strings.Contains(bridges, "br-net1")
		for _, want := range []string{testbed.NodeIP4 + "/24", testbed.NodeIP6 + "/64", "default via " + testbed.WorldIP4, "default via " + testbed.WorldIP6} {
			if err != nil || !strings.Contains(has, want) || strings.TrimSpace(rest) != "" || !gone {
				return fmt.Sprintf("%s has %s (%v), %s has %s, bridges %s", link, has, err, other, rest, bridges)
			}
		}
		return ""
	})
}

// answers tells that the node answers the world, in both families, within a second each.
func (b *uplinkBed) answers(when string) {
	b.t.Helper()
	for _, addr := range []string{testbed.NodeIP4, testbed.NodeIP6} {
		_, err := b.world.Try("ping", "-n", "-c", "1", "-w", "1", addr)
		require.NoError(b.t, err, when)
	}
}

// TestUplinkOfTheDefaultRoute: a ProviderNetwork takes the NIC with the node's default
// routes, and gives it back when it goes; the agent may be killed at each point on the way,
// and the node answers; what was begun is finished by the next agent. A reboot between
// changes nothing, nor does the loss of Open vSwitch's database.
func TestUplinkOfTheDefaultRoute(t *testing.T) {
	t.Parallel()
	b := newUplinkBed(t)
	b.on(testbed.OutsideIf)
	b.n.CrashTrace()
	b.declare()
	b.on("br-net1")
	b.answers("transferred")
	said := b.n.Fairlead("describe", "node")
	require.Contains(t, said, "net1 has "+testbed.OutsideIf+" on bridge br-net1\n")
	require.Contains(t, said, "address "+testbed.NodeIP4+"/24")
	there := uplinkPoints(b.n.CrashTrace())
	b.withdraw()
	b.on(testbed.OutsideIf)
	// A look at what is so already passes some of the points on the way there.
	back := slices.DeleteFunc(uplinkPoints(b.n.CrashTrace()), func(p string) bool { return strings.HasPrefix(p, "uplink.") && slices.Contains(there, p) })
	require.Greater(t, len(there), 8, there)
	require.Greater(t, len(back), 5, back)

	for _, way := range []struct {
		points []string
		order  func()
		to     string
		undo   func()
		from   string
	}{{there, b.declare, "br-net1", b.withdraw, testbed.OutsideIf}, {back, b.withdraw, testbed.OutsideIf, b.declare, "br-net1"}} {
		if way.from == "br-net1" {
			way.undo()
			b.on(way.from)
		}
		for _, point := range way.points {
			b.n.Crash(point)
			way.order()
			require.Error(t, b.a.Wait(), "killed at %s", point)
			require.True(t, b.a.Killed(), point)
			b.answers("killed at " + point)
			b.a = b.n.Agent()
			b.on(way.to)
			b.answers("after it was killed at " + point)
			way.undo()
			b.on(way.from)
		}
	}
}

// TestUplinkKilledAtRandom: as at the named points, at any other moment, and a reboot there.
func TestUplinkKilledAtRandom(t *testing.T) {
	t.Parallel()
	b := newUplinkBed(t)
	rounds := 3
	if soak() {
		rounds = 50
	}
	for i := range rounds {
		for _, way := range []struct {
			order func()
			to    string
		}{{b.declare, "br-net1"}, {b.withdraw, testbed.OutsideIf}} {
			way.order()
			time.Sleep(rand.N(300 * time.Millisecond))
			b.a.Kill()
			_ = b.a.Wait()
			b.answers("killed on the way to " + way.to)
			if i%3 == 2 {
				b.n.Reboot()
				b.honest()
				b.answers("rebooted on the way to " + way.to)
			}
			b.a = b.n.Agent()
			b.on(way.to)
			b.answers("on " + way.to)
		}
	}
}

// uplinkPoints are the crash points of a transfer, each once.
func uplinkPoints(trace []string) (out []string) {
	for _, p := range trace {
		ours := strings.HasPrefix(p, "uplink.") || slices.Contains([]string{"journal.take", "journal.taken", "journal.move", "journal.moved", "journal.return", "journal.returned"}, p)
		if ours && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// TestUplinkOutlivesReboots: the kernel has the addresses on the NIC again while the
// switch's database has it on the bridge; the node answers, without an agent too.
func TestUplinkOutlivesReboots(t *testing.T) {
	t.Parallel()
	b := newUplinkBed(t)
	b.declare()
	b.on("br-net1")
	b.reboot()
	b.answers("rebooted, without an agent")
	b.a = b.n.Agent()
	b.on("br-net1")
	b.answers("rebooted")

	// Whoever else manages the NIC wants its address back, and somebody takes off the bridge
	// what the node needs.
	b.n.Run("ip", "addr", "add", testbed.NodeIP4+"/24", "dev", testbed.OutsideIf)
	b.on("br-net1")
	b.n.Run("nft", "delete", "table", "netdev", "fairlead-uplink-"+testbed.OutsideIf)
	b.n.OVS.Vsctl("del-port", "br-net1", testbed.OutsideIf)
	b.n.Run("ip", "link", "set", "br-net1", "down")
	b.on("br-net1")
	eventually(t, func() string {
		if ports := b.n.OVS.Vsctl("list-ports", "br-net1"); ports != testbed.OutsideIf {
			return "br-net1 has ports " + ports
		}
		return ""
	})
	b.answers("put right")
	b.n.OVS.KillVswitchd()
	b.n.OVS.StartVswitchd()
	b.on("br-net1")
	b.answers("ovs-vswitchd was killed")
	b.n.OVS.LoseConfDB()
	b.on("br-net1")
	b.answers("without the switch's database")

	b.reboot()
	b.withdraw()
	b.a = b.n.Agent()
	b.on(testbed.OutsideIf)
	b.answers("given back after a reboot")
	require.NotContains(t, b.n.Run("nft", "list", "tables"), "uplink")

	b.declare()
	b.on("br-net1")
	b.a.Kill()
	_ = b.a.Wait()
	b.withdraw()
	b.n.OVS.LoseConfDB()
	b.a = b.n.Agent()
	b.on(testbed.OutsideIf)
	b.answers("given back though the switch had forgotten it")
}

func (b *uplinkBed) reboot() {
	b.t.Helper()
	b.a.Kill()
	_ = b.a.Wait()
	b.n.Reboot()
	b.honest()
}

// TestUplinkIsRefused: a NIC that does not serve, or that is another's, stays as it is, with
// the reason.
func TestUplinkIsRefused(t *testing.T) {
	t.Parallel()
	b := newUplinkBed(t)
	n := b.n
	n.Run("ip", "link", "add", "spare", "type", "veth", "peer", "name", "spare-far")
	n.Run("ip", "link", "add", "leased", "type", "veth", "peer", "name", "leased-far")
	n.Run("ip", "addr", "add", "10.9.0.1/24", "dev", "leased", "valid_lft", "600", "preferred_lft", "600")
	n.OVS.AddBridge("br-lan")
	n.OVS.Vsctl("add-port", "br-lan", "spare")
	n.OVS.AddBridge("br-theirs")
	n.Run("ip", "link", "add", "free", "type", "veth", "peer", "name", "free-far")
	n.Run("ip", "link", "add", "lan", "type", "bridge")
	n.Run("ip", "link", "add", "member", "type", "veth", "peer", "name", "member-far")
	n.Run("ip", "link", "set", "member", "master", "lan")
	n.Run("ip", "link", "add", "base", "type", "veth", "peer", "name", "base-far")
	n.Run("ip", "link", "add", "above", "link", "base", "type", "macvlan")
	pn := func(name, nic string) string {
		return object("kubeovn.io/v1", "ProviderNetwork", name, nil, map[string]any{"defaultInterface": nic})
	}
	n.WriteObjects("all.yaml", together(pn("none", "eth9"), pn("other", "spare"), pn("leased", "leased"), pn("member", "member"), pn("base", "base"), pn("theirs", "free"),
		pn("first", testbed.OutsideIf), pn("second", testbed.OutsideIf)))
	eventually(t, func() string {
		if !strings.Contains(n.OVS.Vsctl("list-br"), "br-first") {
			return n.OVS.Vsctl("list-br")
		}
		return ""
	})
	log := func() string {
		out, err := os.ReadFile(filepath.Join(n.Dir, "log", "agent-1"))
		if err != nil {
			all, _ := filepath.Glob(filepath.Join(n.Dir, "log", "*"))
			return fmt.Sprint(err, all)
		}
		return string(out)
	}
	for _, why := range []string{
		"this node has no link eth9", "spare is a port of bridge br-lan", "address 10.9.0.1/24 of leased ends unless", "member is a member of lan (bridge)",
		"above (macvlan) lies above base", "bridge br-theirs: already exists: it is somebody else's", "eth0 is provider network first's",
	} {
		eventually(t, func() string {
			if said := log(); !strings.Contains(said, why) {
				return why + " is not in " + said
			}
			return ""
		})
	}
	require.Equal(t, "br-first br-int br-lan br-theirs", strings.Join(strings.Fields(n.OVS.Vsctl("list-br")), " "))
	b.answers("with one of eight given")
}

// TestUplinkInACluster: the Node says what became of a ProviderNetwork, and follows what an
// administrator says on it, with the agent's rights.
func TestUplinkInACluster(t *testing.T) {
	t.Parallel()
	n := startClusterNode(t, kube.Shared(t))
	b := &uplinkBed{t: t, n: n.Node, world: n.Outside()}
	b.honest()
	b.a = n.Agent(n.args...)
	t.Cleanup(func() { n.c.Kubectl("delete", "provider-network", "net1", "--ignore-not-found") })
	const key = "net1.provider-network.kubernetes.io/"
	says := func(labels map[string]string, why string) {
		t.Helper()
		eventually(t, func() string {
			o, err := n.c.Client().CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			have := map[string]string{}
			for k, v := range o.Labels {
				if end, ok := strings.CutPrefix(k, key); ok {
					have[end] = v
				}
			}
			if !maps.Equal(have, labels) || (why == "") != (o.Annotations[key+"err_mesg"] == "") || !strings.Contains(o.Annotations[key+"err_mesg"], why) {
				return fmt.Sprint(have, o.Annotations)
			}
			return ""
		})
	}
	n.c.Apply(object("kubeovn.io/v1", "ProviderNetwork", "net1", nil, map[string]any{"defaultInterface": testbed.OutsideIf}) + "\n")
	b.on("br-net1")
	ready := map[string]string{"ready": "true", "interface": testbed.OutsideIf, "mtu": "1500"}
	says(ready, "")
	n.c.Kubectl("annotate", "node", n.name, key+"interface=eth9")
	says(nil, "this node has no link eth9")
	b.on(testbed.OutsideIf)
	n.c.Kubectl("annotate", "node", n.name, key+"interface-", key+"exclude=true")
	says(map[string]string{"exclude": "true"}, "")
	n.c.Kubectl("annotate", "node", n.name, key+"exclude-")
	b.on("br-net1")
	says(ready, "")
	n.c.Apply(object("kubeovn.io/v1", "Vlan", "v9", nil, map[string]any{"id": 9, "provider": "net1"}) + "\n")
	t.Cleanup(func() { n.c.Kubectl("delete", "vlan", "v9") })
	eventually(t, func() string {
		if trunks := n.OVS.Vsctl("get", "Port", testbed.OutsideIf, "trunks"); trunks != "[0, 9]" {
			return trunks
		}
		return ""
	})
	// What was told goes, also when the agent was away meanwhile.
	b.a.Kill()
	_ = b.a.Wait()
	n.c.Kubectl("delete", "provider-network", "net1")
	b.answers("without an agent")
	b.a = n.Agent(n.args...)
	b.on(testbed.OutsideIf)
	says(nil, "")
}
