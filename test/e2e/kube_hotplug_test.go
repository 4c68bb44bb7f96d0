package e2e

import (
	"encoding/json"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ask changes what a running pod asks for.
func (p *kubePod) ask(networks string) {
	p.n.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{networksKey: networks}}})
	require.NoError(p.n.t, err)
	_, err = p.n.c.Client().CoreV1().Pods(p.n.name).Patch(p.n.t.Context(), p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(p.n.t, err)
}

// condition is the pod's condition about its networks: status and reason.
func (p *kubePod) condition() string {
	p.n.t.Helper()
	o, err := p.n.c.Client().CoreV1().Pods(p.n.name).Get(p.n.t.Context(), p.Name, metav1.GetOptions{})
	require.NoError(p.n.t, err)
	for _, c := range o.Status.Conditions {
		if c.Type == "fairlead.io/NetworksAttached" {
			return string(c.Status) + " " + c.Reason + " " + c.Message
		}
	}
	return ""
}

func (p *kubePod) awaitCondition(starts string) {
	p.n.t.Helper()
	eventually(p.n.t, func() string {
		if c := p.condition(); !strings.HasPrefix(c, starts) {
			return "the condition is " + c
		}
		return ""
	})
}

// awaitNICs waits until the pod has so many interfaces, and its status says so.
func (p *kubePod) awaitNICs(count int) {
	p.n.t.Helper()
	eventually(p.n.t, func() string {
		if have := linkNames(p.n.t, p); len(have) != count+1 {
			return strings.Join(have, " ")
		}
		return ""
	})
	p.awaitStatus()
}

// testHotPlug: networks follow the annotation of a running pod of the API server;
// failures are events and a condition, which ends with them.
func testHotPlug(n *kubeNode) {
	before := n.Inventory()
	p := n.makePod("hot", nil)
	p.add()
	p.ask("default/storage,default/foreign")
	p.awaitNICs(3)
	require.Empty(n.t, p.condition(), "nothing was ever wrong")
	p.ask("default/foreign,default/nowhere,default/storage")
	p.awaitCondition("False NoNetworkFound")
	require.Contains(n.t, p.condition(), "default/nowhere")
	eventually(n.t, func() string {
		events, err := n.c.Client().CoreV1().Events(n.name).List(n.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=hot"})
		require.NoError(n.t, err)
		told := map[string]corev1.Event{}
		for _, e := range events.Items {
			told[e.Reason] = e
		}
		if !strings.Contains(told["NoNetworkFound"].Message, "default/nowhere") || !strings.Contains(told["AddedInterface"].Message, "net1") {
			return "events"
		}
		return ""
	})
	p.awaitNICs(3)
	p.cni("CHECK").Must()
	n.agent.Kill()
	p.ask("default/storage")
	n.agent = n.Agent(n.args...)
	p.awaitNICs(2)
	p.awaitCondition("True AsAnnotated")
	p.cni("CHECK").Must()
	p.end()
	n.erase("hot")
	n.RequireNoLeaks(before)
}
