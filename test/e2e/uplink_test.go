package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
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
	// before is all that the NIC had, as whole tells it.
	before    string
	exchanged bool // bridge and NIC change names
}

func newUplinkBed(t *testing.T) *uplinkBed {
	n := testbed.New(t)
	b := &uplinkBed{t: t, n: n, world: n.Outside()}
	b.start(n.Agent)
	return b
}

// start dresses the node and starts its agent.
func (b *uplinkBed) start(agent func(...string) *testbed.Agent, args ...string) {
	b.t.Helper()
	b.dress()
	b.before = b.whole(testbed.OutsideIf)
	b.a = agent(args...)
}

// dress has the machine's programs give the NIC what else a node may have, under a strict
// rp_filter: further addresses, one that no more is to begin with, routes of other tables and
// by several hops, a rule, a neighbour.
func (b *uplinkBed) dress() {
	b.t.Helper()
	b.honest()
	b.n.Run("sysctl", "-w", "net.ipv4.conf.all.rp_filter=1")
	for _, line := range []string{
		"addr add 198.51.100.3/24 dev eth0", "addr add 203.0.113.1 peer 203.0.113.9/32 dev eth0", "addr add 2001:db8:51::3/64 dev eth0 nodad preferred_lft 0",
		"route add 10.1.0.0/16 via 198.51.100.1 dev eth0 table 100 proto bird", "route add 10.3.0.0/16 dev eth0 scope link metric 9 mtu 1400",
		"route add 10.2.0.0/16 nexthop via 198.51.100.1 dev eth0 weight 3 nexthop via 198.51.100.7 dev eth0", "rule add iif eth0 lookup 100 priority 77",
		"neigh add 198.51.100.7 lladdr 02:00:00:00:09:09 dev eth0 nud permanent",
	} {
		b.n.Run(append([]string{"ip"}, strings.Fields(line)...)...)
	}
	eventually(b.t, func() string {
		if has := b.n.Run("ip", "addr", "show", "dev", testbed.OutsideIf); strings.Contains(has, "tentative") {
			return has
		}
		return ""
	})
}

// whole is all that a link has, in iproute2's words, with the link's name as "NIC".
func (b *uplinkBed) whole(link string) string {
	b.t.Helper()
	text, err := b.n.Try("sh", "-c", strings.ReplaceAll(`ip -o addr show dev LINK; ip -4 route show table all dev LINK; ip -6 route show table all dev LINK
		ip rule; ip neigh show nud permanent dev LINK; sysctl net.ipv4.conf.LINK.rp_filter`, "LINK", link))
	if err != nil {
		return err.Error() + text
	}
	var all []string
	name := regexp.MustCompile(`\b` + link + `\b(:\d+)?`) // a link that is renamed has its labels numbered
	for line := range strings.Lines(text) {
		line = regexp.MustCompile(`^\d+: `).ReplaceAllString(strings.TrimSpace(line), "")
		all = append(all, strings.Join(strings.Fields(name.ReplaceAllString(line, "NIC")), " "))
	}
	slices.Sort(all) // the kernel tells routes of one metric by when they came
	return strings.Join(all, "\n")
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
	b.n.WriteObjects(uplinkObject, object("kubeovn.io/v1", "ProviderNetwork", "net1", nil, map[string]any{"defaultInterface": testbed.OutsideIf, "exchangeLinkName": b.exchanged}))
}

func (b *uplinkBed) withdraw() {
	b.t.Helper()
	require.NoError(b.t, os.Remove(filepath.Join(b.n.Objects(), uplinkObject)))
}

// on waits until the NIC, or the bridge's device, has all that the NIC had, and the other one
// nothing. Where they change names that is always the link of the NIC's name.
func (b *uplinkBed) on(link string) {
	b.t.Helper()
	bridge, has, other := "br-net1", link, "br-net1"
	switch {
	case b.exchanged:
		bridge, has = testbed.OutsideIf, testbed.OutsideIf
	case link == "br-net1":
		other = testbed.OutsideIf
	}
	eventually(b.t, func() string {
		whole := b.whole(has)
		rest, _ := b.n.Try("sh", "-c", strings.ReplaceAll("for f in -4 -6; do ip -o $f addr show dev LINK; ip $f route show dev LINK; done 2>/dev/null; ip -4 route show table all dev LINK 2>/dev/null", "LINK", other))
		bridges := strings.Fields(b.n.OVS.Vsctl("list-br"))
		if whole != b.before || strings.TrimSpace(rest) != "" || slices.Contains(bridges, bridge) != (link == "br-net1") {
			return fmt.Sprintf("%s has\n%s\nand not\n%s\n%s has %s, bridges %s", has, whole, b.before, other, rest, bridges)
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
		for i, point := range way.points {
			b.killedAt(point, way.order, i%4 == 3 || soak())
			b.on(way.to)
			b.answers("after it was killed at " + point)
			way.undo()
			b.on(way.from)
		}
	}
}

// killedAt has the agent killed at a point on the way that an order begins, the machine too,
// perhaps, and starts another one.
func (b *uplinkBed) killedAt(point string, order func(), reboot bool) {
	b.t.Helper()
	b.n.Crash(point)
	order()
	require.Error(b.t, b.a.Wait(), "killed at %s", point)
	require.True(b.t, b.a.Killed(), point)
	b.answers("killed at " + point)
	if reboot {
		b.n.Reboot()
		b.dress()
		b.answers("rebooted at " + point)
	}
	b.a = b.n.Agent()
}

// TestUplinkKilledAsNamesChange: as TestUplinkOfTheDefaultRoute, where bridge and NIC change
// names, at the points about that.
func TestUplinkKilledAsNamesChange(t *testing.T) {
	t.Parallel()
	b := newUplinkBed(t)
	b.exchanged = true
	b.n.CrashTrace()
	b.declare()
	b.on("br-net1")
	there := uplinkPoints(b.n.CrashTrace())
	b.withdraw()
	b.on(testbed.OutsideIf)
	back := uplinkPoints(b.n.CrashTrace())
	require.Contains(t, there, "uplink.renamed")
	require.Contains(t, back, "uplink.named")
	if !soak() {
		there = []string{"journal.taken", "uplink.renamed", "uplink.bridged", "uplink.drop"}
		back = []string{"uplink.drop-back", "uplink.detached", "uplink.named"}
	}
	for i, point := range there {
		b.killedAt(point, b.declare, i%2 == 1)
		b.on("br-net1")
		b.answers("after it was killed at " + point)
		b.withdraw()
		b.on(testbed.OutsideIf)
	}
	for i, point := range back {
		b.declare()
		b.on("br-net1")
		b.killedAt(point, b.withdraw, i%2 == 1)
		b.on(testbed.OutsideIf)
		b.answers("after it was killed at " + point)
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
				b.dress()
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
	b.dress()
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
	b.start(n.Agent, n.args...)
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
