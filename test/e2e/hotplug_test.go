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

// TestHotPlug: networks follow a running pod's annotation, whichever driver
// makes them. What is asked for as before is not touched, names do not move,
// CHECK covers what came, and DEL removes everything.
func TestHotPlug(t *testing.T) {
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
		if mac := linkOf(t, h.p, "net2")["address"]; mac != "02:00:00:00:00:77" {
			return fmt.Sprint("MAC of net2 is ", mac)
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
