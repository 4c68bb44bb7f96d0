package e2e

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// twoNetworks are the annotations of a pod that gets a second interface from
// our own NAD, with fixed addresses where given: of eth0 and of net1.
func twoNetworks(fixed ...string) map[string]string {
	notes := map[string]string{networksKey: "default/storage"}
	for i, key := range []string{"ovn", storageProvider} {
		if i < len(fixed) {
			notes[key+".kubernetes.io/ip_address"] = fixed[i]
		}
	}
	return notes
}

// nics are the pod's interfaces, by name.
func (p *kubePod) nics() map[string]podNIC {
	p.n.t.Helper()
	return p.n.nicsIn(filepath.Base(p.Netns()))[p.Netns()]
}

// ips are the pod's addresses, eth0's first.
func (p *kubePod) ips() []string {
	p.n.t.Helper()
	var out []string
	have := p.nics()
	for _, name := range slices.Sorted(maps.Keys(have)) {
		out = append(out, have[name].ip)
	}
	return out
}

// add attaches the pod, and gives its addresses once its status says so too.
func (p *kubePod) add() []string {
	p.n.t.Helper()
	p.cni("ADD").Must()
	p.awaitStatus()
	return p.ips()
}

// awaitStatus waits until the pod's annotation says what is there. Both are read
// each time: an interface that is being hot-plugged is there before its address.
func (p *kubePod) awaitStatus() {
	p.n.t.Helper()
	eventually(p.n.t, func() string {
		told, err := p.n.statuses()
		if err != nil {
			return err.Error()
		}
		return differsFrom(told[p.Name], p.nics())
	})
}

// testReborn: pods that are deleted and made again under the same name, as by a
// StatefulSet.
func testReborn(n *kubeNode) {
	before := n.Inventory()
	testFixedAddress(n)
	testStickyAddress(n)
	testLaggingWatch(n)
	n.RequireNoLeaks(before)
}

// testFixedAddress: the successor has the fixed addresses, those of net1 too,
// and what still comes for its predecessor does not touch it.
func testFixedAddress(n *kubeNode) {
	n.t.Helper()
	fixed := []string{"10.16.7.7", "10.20.7.7"}
	old := n.makePod("web-0", twoNetworks(fixed...))
	require.Equal(n.t, fixed, old.add())

	// Force-deleted: the object is gone, the sandbox still has the addresses.
	n.erase("web-0")
	reborn := n.makePod("web-0", twoNetworks(fixed...))
	require.NotEqual(n.t, old.uid, reborn.uid)
	held := reborn.cni("ADD").MustCode(103)
	require.Contains(n.t, held.Msg+held.Details, "web-0")
	require.Empty(n.t, reborn.ips())
	require.Equal(n.t, fixed, old.ips())
	old.cni("CHECK").Must()

	old.cni("DEL").Must()
	require.Equal(n.t, fixed, reborn.add())
	old.cni("DEL").Must() // late, and again
	old.Delete()
	old.cni("DEL").Must()
	reborn.cni("CHECK").Must()
	require.Equal(n.t, fixed, reborn.ips())
	reborn.awaitStatus()
	reborn.end()
	n.erase("web-0")
}

// testStickyAddress: without a fixed address the successor gets its
// predecessor's while that is free, on both networks.
func testStickyAddress(n *kubeNode) {
	n.t.Helper()
	old := n.makePod("db-0", twoNetworks())
	had := old.add()
	old.end()
	n.erase("db-0")
	other := n.makePod("other", twoNetworks())
	require.NotEqual(n.t, had, other.add(), "an address that was just given back")
	reborn := n.makePod("db-0", twoNetworks())
	require.Equal(n.t, had, reborn.add())
	reborn.end()
	n.erase("db-0")

	thief := n.makePod("thief", twoNetworks(had[0]))
	require.Equal(n.t, had[0], thief.add()[0])
	third := n.makePod("db-0", twoNetworks())
	now := third.add()
	require.NotEqual(n.t, had[0], now[0])
	require.Equal(n.t, had[1], now[1])
	for _, p := range []*kubePod{other, thief, third} {
		p.end()
		n.erase(p.Name)
	}
}

// testLaggingWatch: while the agent still takes a name for the predecessor's,
// the successor's ADD waits, and never gets what the predecessor asked for.
func testLaggingWatch(n *kubeNode) {
	n.t.Helper()
	old := n.makePod("lag-0", twoNetworks("10.16.8.1", "10.20.8.1"))
	old.add()
	old.end()
	release := n.deafen()
	n.erase("lag-0")
	fixed := []string{"10.16.8.2", "10.20.8.2"}
	reborn := n.makePod("lag-0", twoNetworks(fixed...))
	done := make(chan testbed.Answer, 1)
	go func() { done <- reborn.cni("ADD") }()
	eventually(n.t, func() string {
		_, metrics, err := n.agent.Get("/metrics")
		require.NoError(n.t, err)
		if !strings.Contains(metrics, "\nfairlead_cni_operations_in_flight 1\n") {
			return "the ADD has not come to the agent"
		}
		return ""
	})
	require.Empty(n.t, reborn.ips())
	release()
	(<-done).Must()
	require.Equal(n.t, fixed, reborn.ips())
	reborn.awaitStatus()
	reborn.end()
	n.erase("lag-0")
}

// deafen drops all that the API server says to the node's agent, as a broken
// network does, until the function that it returns is called.
func (n *kubeNode) deafen() (release func()) {
	n.t.Helper()
	u, err := url.Parse(n.c.URL())
	require.NoError(n.t, err)
	n.Run("nft", fmt.Sprintf("add table inet deaf; add chain inet deaf in { type filter hook input priority 0; }; "+
		"add rule inet deaf in tcp sport %s drop", u.Port()))
	return func() { n.Run("nft", "delete table inet deaf") }
}

// testCounts: an ADD reads nothing at the API server and writes its pod once;
// CHECK and DEL ask for nothing, be the pod there or not.
func testCounts(n *kubeNode) {
	const count = 20
	before := n.Inventory()
	warm := n.makePod("warm", twoNetworks()) // for the first one the node claims the Subnets
	warm.cni("ADD").Must()
	warm.end()
	pods := n.makePods(count, stormNotes)
	since := n.c.Mark()
	n.all("ADD", pods)
	for _, p := range pods {
		p.awaitStatus()
	}
	n.all("CHECK", pods)
	n.requireCounts(since, map[string]int{"patch pods/status": count})

	for _, p := range pods[:count/2] {
		n.erase(p.Name)
	}
	n.awaitForgotten(pods[:count/2])
	since = n.c.Mark()
	n.all("DEL", pods)
	n.all("DEL", pods) // of containers that nobody knows any more
	n.requireCounts(since, map[string]int{})
	for _, p := range pods {
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// all calls the plugin for all pods, some at a time.
func (n *kubeNode) all(op string, pods []*kubePod) {
	n.t.Helper()
	failed := make(chan string, len(pods))
	atOnce(8, len(pods), func(i int) {
		if e := pods[i].cni(op).Err(); e != nil {
			failed <- fmt.Sprintf("%s %s: code %d: %s: %s", op, pods[i].Name, e.Code, e.Msg, e.Details)
		}
	})
	close(failed)
	require.Empty(n.t, <-failed)
}

// requireCounts compares what the agent asked of the API server with what it
// may; events are for people, and their number is only bounded.
func (n *kubeNode) requireCounts(since kube.Mark, want map[string]int) {
	n.t.Helper()
	have := tally(n.requests(since, ""))
	const events = "create events"
	require.LessOrEqual(n.t, have[events], want["patch pods/status"])
	delete(have, events)
	require.Equal(n.t, want, have)
}

// awaitForgotten waits until the agent knows that the objects of pods are gone.
func (n *kubeNode) awaitForgotten(pods []*kubePod) {
	n.t.Helper()
	for _, p := range pods {
		eventually(n.t, func() string {
			if asked[agent.Pod](n.t, n.Node, "describe", "pod", n.name+"/"+p.Name).Known {
				return p.Name + " is still known"
			}
			return ""
		})
	}
}

var nadKind = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}

// testChangedNAD: what an ADD made is checked and taken away by what was true
// then, be the NAD another one, or gone, and the pod with it.
func testChangedNAD(n *kubeNode) {
	conf := func(subnet string) string {
		return `{"cniVersion":"1.0.0","type":"bridge","bridge":"br-foreign","ipam":{"type":"host-local","subnet":"` + subnet + `"}}`
	}
	before := n.Inventory()
	n.c.Apply(together(nadObject(n.name+"/moves", conf("10.31.0.0/24")),
		nadObject(n.name+"/own", `{"cniVersion":"1.0.0","type":"fairlead","provider":"`+storageProvider+`"}`)))
	notes := map[string]string{networksKey: "moves,own"}
	first := n.makePod("first", notes)
	require.Equal(n.t, "10.31.0.2", first.add()[1])

	n.c.Apply(together(nadObject(n.name+"/moves", conf("10.32.0.0/24")),
		nadObject(n.name+"/own", `{"cniVersion":"1.0.0","type":"macvlan","master":"nowhere"}`)))
	var second *kubePod
	for i := 0; second == nil; i++ { // the agent learns of it soon
		p := n.makePod(fmt.Sprintf("second-%d", i), map[string]string{networksKey: "moves"})
		if p.add()[1] == "10.32.0.2" {
			second = p
			continue
		}
		p.end()
	}
	first.cni("CHECK").Must()

	nads := n.c.Dynamic().Resource(nadKind).Namespace(n.name)
	for _, name := range []string{"moves", "own"} {
		require.NoError(n.t, nads.Delete(n.t.Context(), name, metav1.DeleteOptions{}))
	}
	n.erase("first")
	first.cni("CHECK").Must()
	first.end()
	second.cni("CHECK").Must()
	second.end()
	n.RequireNoLeaks(before)
}

// testStranger: DEL of a pod that nobody knows any more, attached by whoever
// was here before: what the configuration names is removed.
func testStranger(n *kubeNode) {
	before := n.Inventory()
	const bridge = `{"cniVersion":"1.0.0","name":"old","type":"bridge","bridge":"br-foreign","ipam":{"type":"host-local","subnet":"10.33.0.0/24"}}`
	p := n.NewPod(n.name + "/stranger")
	call := func(op, conf string) testbed.Answer {
		return n.CNI(cni.Request{Command: op, ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0",
			Args: p.Args() + ";K8S_POD_UID=8f6c2b1e-0000-4000-8000-000000000002", Config: []byte(conf)})
	}
	call("ADD", bridge).Must()
	since := n.c.Mark()
	call("DEL", `{"cniVersion":"1.0.0","name":"net","type":"multus","delegates":[`+bridge+`]}`).Must()
	require.Empty(n.t, n.requests(since, ""))
	requireBare(n.t, p)
	p.Delete()
	n.RequireNoLeaks(before)
}
