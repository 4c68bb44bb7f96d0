package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
)

// plugged is a node with a pod whose annotation can be changed.
type plugged struct {
	t     *testing.T
	n     *testbed.Node
	agent *testbed.Agent
	p     *testbed.Pod
	marks int
}

// hotNode has a network of ours (own), macvlan with our addresses (lan) and
// recorders, and pod p attached to the networks given.
func hotNode(t *testing.T, networks string, types ...string) (*plugged, *recorders) {
	t.Helper()
	h := &plugged{t: t, n: testbed.New(t)}
	r := installRecorders(t, h.n, types...)
	bond(h.n)
	h.n.WriteObjects("objects.yaml", together(ownNetwork("own", "10.20.0.0/24"), lan(), nadObject("lan", lanConf)))
	for _, name := range types {
		h.n.WriteObjects(name+".yaml", nadObject(name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":%q}`, name, name)))
	}
	h.annotate(networks)
	h.agent = h.n.Agent(r.args()...)
	h.agent.WaitReady()
	h.p = h.n.NewPod("p")
	return h, r
}

// annotate writes what the pod asks for.
func (h *plugged) annotate(networks string) {
	h.t.Helper()
	h.n.WriteObjects("pod.yaml", podObject("p", map[string]string{networksKey: networks}))
}

// annotateKnown is annotate for a pod that is not attached: it returns when the
// agent knows of the change, which another object in the same file tells.
func (h *plugged) annotateKnown(networks string) {
	h.t.Helper()
	h.marks++
	mark := fmt.Sprintf("mark%d", h.marks)
	h.n.WriteObjects("pod.yaml", together(podObject("p", map[string]string{networksKey: networks}),
		nadObject(mark, `{"cniVersion":"1.0.0","type":"mark"}`)))
	awaitNet(h.t, h.n, "default/"+mark, "mark")
}

// await waits until the pod has exactly these interfaces, and the record says
// so too.
func (h *plugged) await(names ...string) {
	h.t.Helper()
	eventually(h.t, func() string {
		have := strings.Join(linkNames(h.t, h.p), " ")
		if want := strings.Join(names, " "); have != want {
			return "the pod has " + have + ", not " + want
		}
		var told []string
		for _, i := range h.attachment().Interfaces {
			told = append(told, i.Name)
		}
		if len(told) != len(names)-1 { // lo
			return fmt.Sprintf("the record has %v", told)
		}
		return ""
	})
}

func (h *plugged) attachment() agent.Attachment {
	h.t.Helper()
	var p agent.Pod
	require.NoError(h.t, json.Unmarshal([]byte(h.n.Fairlead("describe", "pod", "default/p", "-o", "json")), &p))
	require.Len(h.t, p.Attachments, 1)
	return p.Attachments[0]
}

// index is the kernel's number of an interface: another one means that it was
// made anew.
func (h *plugged) index(ifName string) any {
	h.t.Helper()
	return linkOf(h.t, h.p, ifName)["ifindex"]
}

// TestRule12_HotPlug: networks follow a running pod's annotation, whichever driver
// makes them. What is asked for as before is not touched, names do not move,
// CHECK covers what came, and DEL removes everything.
func TestRule12_HotPlug(t *testing.T) {
	t.Parallel()
	h, _ := hotNode(t, "own")
	before := h.n.Inventory()
	added := h.p.CNI("ADD", ownConf).Must()
	check := func() { h.t.Helper(); h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must() }
	h.await("eth0", "lo", "net1")
	eth0, net1 := h.index("eth0"), h.index("net1")

	h.annotate("own,lan@lan0,own")
	h.await("eth0", "lan0", "lo", "net1", "net2")
	require.Equal(t, []any{eth0, net1}, []any{h.index("eth0"), h.index("net1")})
	require.Len(t, addresses(t, h.p, "net2"), 1)
	require.Len(t, addresses(t, h.p, "lan0"), 2)
	require.Len(t, heldBy(t, h.n, h.p, "lan0"), 2)
	check()
	net2 := h.index("net2")
	require.Len(t, h.attachment().NetworkStatus, 4)
	h.p.CNI("ADD", ownConf).MustCode(105)

	// The first of two that are alike stays; a name that is free is used again.
	h.annotate(`[{"name":"lan","interface":"lan0"},{"name":"own"},{"name":"own","mac":"02:00:00:00:00:77"}]`)
	eventually(t, func() string {
		if links := h.p.Run("ip", "-o", "link"); !strings.Contains(links, "02:00:00:00:00:77") {
			return links
		}
		return ""
	})
	h.await("eth0", "lan0", "lo", "net1", "net2")
	require.Equal(t, net1, h.index("net1"))
	require.NotEqual(t, net2, h.index("net2"))
	check()
	h.p.Run("ip", "link", "set", "net2", "down")
	h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).MustCode(106)
	h.p.Run("ip", "link", "set", "net2", "up")

	h.annotate("")
	h.await("eth0", "lo")
	require.Equal(t, eth0, h.index("eth0"))
	require.Empty(t, heldBy(t, h.n, h.p, "lan0"))
	check()

	h.annotate("lan,own")
	h.await("eth0", "lo", "net1", "net2")
	h.p.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, h.p))
	h.n.RequireNoLeaks(before)
}

// lastFailure is what `describe pod` tells of the last operation that failed.
func (h *plugged) lastFailure() string {
	h.t.Helper()
	var p agent.Pod
	require.NoError(h.t, json.Unmarshal([]byte(h.n.Fairlead("describe", "pod", "default/p", "-o", "json")), &p))
	if p.LastFailure == nil {
		return ""
	}
	return p.LastFailure.Op + ": " + p.LastFailure.Cause
}

func (h *plugged) awaitFailure(says string) {
	h.t.Helper()
	eventually(h.t, func() string {
		if f := h.lastFailure(); !strings.HasPrefix(f, "HOTPLUG: ") || !strings.Contains(f, says) {
			return "the last failure is " + f
		}
		return ""
	})
}

// TestHotPlugFailures: what fails is told and tried again, and takes nothing
// else with it: neither what the pod has nor what else it is to get.
func TestHotPlugFailures(t *testing.T) {
	t.Parallel()
	h, r := hotNode(t, "own", "bad")
	before := h.n.Inventory()
	added := h.p.CNI("ADD", ownConf).Must()
	h.await("eth0", "lo", "net1")
	net1 := h.index("net1")

	// A plugin that fails: undone in full, and complete once it works.
	r.order("bad", "ADD", "fail 142 no more of these")
	h.annotate("own,bad,lan@lan0")
	h.awaitFailure("no more of these")
	eventually(t, func() string {
		if len(heldBy(t, h.n, h.p, "lan0")) != 2 {
			return "lan0 has to come all the same"
		}
		return ""
	})
	require.Equal(t, net1, h.index("net1"))
	h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
	r.order("bad", "ADD", "")
	eventually(t, func() string {
		if len(h.attachment().NetworkStatus) != 4 {
			return "the network that failed is not there yet"
		}
		return ""
	})
	calls := verbs(r.take())
	require.Equal(t, []string{"ADD bad", "DEL bad"}, calls[:2])
	require.Equal(t, "ADD bad", calls[len(calls)-1])

	// An annotation that cannot be read, and a network that does not exist.
	h.annotate("own,bad,lan@lan0,nowhere")
	h.awaitFailure("default/nowhere")
	h.annotate(`[{"name":"own","interface":"eth0"}`)
	h.annotate("own,bad,lan@lan0,own@eth0")
	h.awaitFailure("eth0")
	require.Equal(t, net1, h.index("net1"))
	require.Len(t, h.attachment().NetworkStatus, 4)
	h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()

	// A plugin that will not let go: the others go, and it goes when it can.
	r.take()
	r.order("bad", "DEL", "fail 143 not yet")
	h.annotate("own")
	h.awaitFailure("not yet")
	eventually(t, func() string { return strings.Join(heldBy(t, h.n, h.p, "lan0"), " ") })
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, h.p))
	h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
	r.order("bad", "DEL", "")
	r.take()
	eventually(t, func() string {
		if len(r.peek()) == 0 {
			return "bad was not asked again"
		}
		return ""
	})
	h.p.CNI("DEL", ownConf).Must()
	h.n.RequireNoLeaks(before)
	require.Equal(t, "DEL bad", verbs(r.take())[0])
}

// TestComplaint_HotPluggedHaveTheirDEL: networks that came to a running pod have a DEL as exact
// as the others, also those that are stuck half-way; hot-plugged networks
// without DEL are what Multus' users complain of.
func TestComplaint_HotPluggedHaveTheirDEL(t *testing.T) {
	t.Parallel()
	h, r := hotNode(t, "", "one", "two", "stuck")
	before := h.n.Inventory()
	h.p.CNI("ADD", ownConf).Must()
	h.annotate(`[{"name":"one","cni-args":{"color":"blue"}},{"name":"two"}]`)
	eventually(t, func() string {
		if len(h.attachment().NetworkStatus) != 3 {
			return "not attached yet"
		}
		return ""
	})
	adds := r.take()
	require.Equal(t, []string{"ADD one", "ADD two"}, verbs(adds))
	h.p.CNI("CHECK", ownConf).Must()
	require.Equal(t, []string{"CHECK one", "CHECK two"}, verbs(r.take()))
	r.order("stuck", "ADD", "hang")
	h.annotate(`[{"name":"one","cni-args":{"color":"blue"}},{"name":"two"},{"name":"stuck"}]`)
	eventually(t, func() string {
		if len(r.peek()) == 0 {
			return "not at the plugin that hangs yet"
		}
		return ""
	})
	h.p.CNI("DEL", ownConf).Must()
	calls := r.take()
	require.Equal(t, []string{"ADD stuck", "DEL stuck", "DEL two", "DEL one"}, verbs(calls))
	require.JSONEq(t, without(t, adds[0].Stdin, "prevResult"), without(t, calls[3].Stdin, "prevResult"))
	require.Contains(t, string(calls[3].Stdin), "blue")
	h.n.RequireNoLeaks(before)
}

// TestHotPlugAfterRestart: what was changed while no agent was there is made up
// for by the next one; what a dead agent left half-way is removed first, and
// its plugin killed. A reboot removes everything.
func TestHotPlugAfterRestart(t *testing.T) {
	t.Parallel()
	h, r := hotNode(t, "own", "stuck")
	before := h.n.Inventory()
	added := h.p.CNI("ADD", ownConf).Must()
	net1 := h.index("net1")
	h.agent.Kill()
	h.annotate("lan,own")
	h.agent = h.n.Agent(r.args()...)
	h.await("eth0", "lo", "net1", "net2")
	require.Equal(t, net1, h.index("net1"), "own was there first")
	h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()

	r.order("stuck", "ADD", "hang")
	h.annotate("lan,own,stuck")
	eventually(t, func() string {
		if len(r.peek()) == 0 {
			return "not at the plugin that hangs yet"
		}
		return ""
	})
	h.agent.Kill()
	stuck := r.take()[0]
	h.annotate("own")
	h.agent = h.n.Agent(r.args()...)
	h.await("eth0", "lo", "net1")
	require.Equal(t, net1, h.index("net1"))
	requireGone(t, stuck)
	require.Equal(t, []string{"DEL stuck"}, verbs(r.take()))
	h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
	h.p.CNI("DEL", ownConf).Must()
	h.n.RequireNoLeaks(before)

	h.p.CNI("ADD", ownConf).Must()
	h.annotate("own,lan")
	h.await("eth0", "lo", "net1", "net2")
	h.n.Reboot()
	bond(h.n)
	h.n.Agent(r.args()...).WaitReady()
	require.NotContains(t, h.n.Fairlead("get", "ips", "-A"), h.p.ContainerID[:12])
}

// TestHotPlugDefaultRoute: a network that comes may take the default route, and
// gives it back when it goes; CHECK and the status know.
func TestHotPlugDefaultRoute(t *testing.T) {
	t.Parallel()
	h, _ := hotNode(t, "own")
	h.n.WriteObjects("routed.yaml", nadObject("routed",
		`{"cniVersion":"1.0.0","type":"fairlead","provider":"own.default.ovn","routes":[{"dst":"0.0.0.0/0","gw":"10.20.0.9"}]}`))
	before := h.n.Inventory()
	added := h.p.CNI("ADD", ownConf).Must()
	check := func() { h.t.Helper(); h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must() }
	via := func(want string) {
		h.t.Helper()
		eventually(t, func() string {
			if got := strings.Join(trimProto(defaultRoutes(h.p, "-4")), "; "); got != want {
				return got + " in place of " + want
			}
			return ""
		})
		check()
	}
	via("default via 10.16.0.1 dev eth0")
	h.annotate(`[{"name":"own"},{"name":"own","interface":"far","default-route":["10.20.0.1"]}]`)
	via("default via 10.20.0.1 dev far")
	h.annotate(`[{"name":"own"},{"name":"lan","default-route":["10.62.0.254"]}]`)
	via("default via 10.62.0.254 dev net2")
	h.annotate("own")
	via("default via 10.16.0.1 dev eth0")
	h.p.Run("ip", "route", "del", "default")
	h.p.CNI("CHECK", withPrev(ownConf, added.Stdout)).MustCode(106)
	h.p.CNI("DEL", ownConf).Must()
	awaitReaper(t, h.n)

	// The ADD gave it to a network that then goes.
	h.annotateKnown(`[{"name":"own","default-route":["10.20.0.1"]}]`)
	added = h.p.CNI("ADD", ownConf).Must()
	via("default via 10.20.0.1 dev net1")
	h.annotate("")
	via("default via 10.16.0.1 dev eth0")

	// A NAD of ours writes one; far gets back one with a gateway that it asked for.
	h.annotate(`[{"name":"routed"}]`)
	via("default via 10.20.0.9 dev net1")
	h.annotate(`[{"name":"own","interface":"far","default-route":["10.20.0.8"]}]`)
	via("default via 10.20.0.8 dev far")
	h.annotate(`[{"name":"own","interface":"far","default-route":["10.20.0.8"]},{"name":"routed"}]`)
	via("default via 10.20.0.9 dev net1")
	h.annotate(`[{"name":"own","interface":"far","default-route":["10.20.0.8"]}]`)
	via("default via 10.20.0.8 dev far")
	h.p.CNI("DEL", ownConf).Must()
	awaitReaper(t, h.n)

	// At the ADD too; and a plugin's empty list takes it from a NIC of ours.
	for networks, want := range map[string]string{
		"own,routed": "default via 10.20.0.9 dev net2", `[{"name":"lan","default-route":[]}]`: "default via 10.62.0.254 dev net1",
	} {
		h.annotateKnown(networks)
		added = h.p.CNI("ADD", ownConf).Must()
		via(want)
		require.False(t, hasDefault(t, added), "eth0 has lost it: %s", added.Stdout)
		h.p.CNI("DEL", ownConf).Must()
		awaitReaper(t, h.n)
	}
	h.n.RequireNoLeaks(before)
}
