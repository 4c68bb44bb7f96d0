package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestKubeAway: pods go on, and all that needs no answer of the API server
// works, while it is down, and after a restart of the agent meanwhile.
func TestKubeAway(t *testing.T) {
	t.Parallel()
	lonelyNode(t).outage((*kube.Cluster).Stop, (*kube.Cluster).Restart)
}

// TestKubeHangs: the same of an API server that accepts everything and answers
// nothing, at first for a moment while pods are made.
func TestKubeHangs(t *testing.T) {
	t.Parallel()
	n := lonelyNode(t)
	n.slow()
	n.outage((*kube.Cluster).Pause, (*kube.Cluster).Resume)
}

// lonelyNode is a node whose API server no other test uses.
func lonelyNode(t *testing.T) *kubeNode {
	t.Helper()
	c := kube.Start(t, kube.Options{})
	c.Apply(kubeObjects())
	return newKubeNode(t, c)
}

// slow: the API server hangs and comes back while pods are made. Each has all
// its networks then, or was given none.
func (n *kubeNode) slow() {
	n.t.Helper()
	before := n.Inventory()
	seen := n.makePod("seen", twoNetworks()) // the watch may have told of it
	unseen := &kubePod{n: n, Pod: n.NewPod(n.name + "/unseen")}
	n.c.Pause()
	made := make(chan error, 1)
	go func() { _, err := n.create("unseen", twoNetworks()); made <- err }()
	answers := map[*kubePod]chan testbed.Answer{seen: make(chan testbed.Answer, 1), unseen: make(chan testbed.Answer, 1)}
	for p, answer := range answers {
		go func() { answer <- p.cni("ADD") }()
	}
	time.Sleep(5 * time.Second) // how long it hangs
	n.c.Resume()
	require.NoError(n.t, <-made)
	for p, answer := range answers {
		p.requireAllOrNone(<-answer)
	}
	for p := range answers {
		p.end()
	}
	n.RequireNoLeaks(before)
}

// requireAllOrNone: an ADD gave the pod both networks, or nothing and "try
// again later"; then it was right to.
func (p *kubePod) requireAllOrNone(a testbed.Answer) {
	p.n.t.Helper()
	if e := a.Err(); e != nil {
		p.n.t.Logf("%s: %s: %s", p.Name, e.Msg, e.Details)
		a.MustCode(11)
		require.Empty(p.n.t, p.ips())
		p.cni("CHECK").MustCode(3)
		p.cni("ADD").Must()
	}
	require.Len(p.n.t, p.ips(), 2)
	p.cni("CHECK").Must()
	p.awaitStatus()
}

// away is a node whose API server goes away.
type away struct {
	*kubeNode
	// keep and near talk to each other all the time; stale is left by the
	// runtime, gone and late are removed, before and after the agent's restart.
	keep, near, stale, gone, late *kubePod
	// known was made in time for the agent to see it, fresh was not attached
	// before the agent forgot it.
	known, fresh *kubePod
}

func (n *kubeNode) outage(goes, comes func(*kube.Cluster)) {
	n.t.Helper()
	length := 10 * time.Second
	if soak() {
		length = time.Minute
	}
	a := &away{kubeNode: n}
	before := n.Inventory()
	a.known, a.fresh = n.makePod("known", twoNetworks()), n.makePod("fresh", twoNetworks())
	for name, to := range map[string]**kubePod{"keep": &a.keep, "near": &a.near, "stale": &a.stale, "gone": &a.gone, "late": &a.late} {
		*to = n.makePod(name, twoNetworks())
		(*to).add() // so the agent knows of all that was made before it
	}
	ping := a.keep.StartPing(a.near.ips()[0], 100*time.Millisecond)

	since := time.Now()
	goes(n.c)
	a.whileAway()
	n.agent.Kill()
	n.agent = n.Agent(n.args...)
	a.afterRestart()
	time.Sleep(time.Until(since.Add(length)))
	comes(n.c)
	n.agent.WaitReady()
	a.whenBack()

	ping.Answers(3)
	answered, lost := ping.Stop()
	n.t.Logf("away for %s; %d pings answered", time.Since(since).Round(time.Second), answered)
	require.Zero(n.t, lost)
	for _, p := range []*kubePod{a.keep, a.near, a.known, a.fresh} {
		p.end()
	}
	n.RequireNoLeaks(before)
}

// whileAway: the agent knows what it knew.
func (n *away) whileAway() {
	n.t.Helper()
	n.keep.cni("CHECK").Must()
	call(n.Node, "STATUS").Must() // pods that are known get their networks
	n.known.cni("ADD").Must()
	require.Len(n.t, n.known.ips(), 2)
	n.known.cni("CHECK").Must()

	unknown := &kubePod{n: n.kubeNode, Pod: n.NewPod(n.name + "/unknown"), uid: "8f6c2b1e-0000-4000-8000-000000000001"}
	unknown.cni("ADD").MustCode(11)
	require.Empty(n.t, unknown.ips())
	unknown.tells("ADD", twoNetworks("10.16.9.9")).Must() // NADs and Subnets are known
	require.Len(n.t, unknown.ips(), 2)
	require.Equal(n.t, "10.16.9.9", unknown.ips()[0])
	unknown.cni("CHECK").Must()
	unknown.end()

	n.gone.end()
	n.gc(n.keep, n.near, n.known, n.late).Must()
	requireBare(n.t, n.stale.Pod)
	n.stale.end()
	for _, p := range []*kubePod{n.keep, n.near, n.known, n.late} {
		p.cni("CHECK").Must()
	}
	eventually(n.t, func() string { // a pod's status that was not written may be told sooner
		problems := asked[agent.Status](n.t, n.Node, "status").Problems
		if slices.ContainsFunc(problems, func(p agent.Problem) bool { return p.File == "API server" }) {
			return ""
		}
		return fmt.Sprintf("problems: %+v", problems)
	})
}

// afterRestart: the agent knows only its journal.
func (n *away) afterRestart() {
	n.t.Helper()
	for _, p := range []*kubePod{n.keep, n.near, n.known, n.late} {
		p.cni("CHECK").Must()
	}
	n.late.end()
	n.gc(n.keep, n.near, n.known).Must()
	require.Contains(n.t, call(n.Node, "STATUS").MustCode(50).Details, "not known yet")
	n.fresh.cni("ADD").MustCode(11)
	require.Empty(n.t, n.fresh.ips())
	n.keep.cni("CHECK").Must()
}

// whenBack: what happened meanwhile is published.
func (n *away) whenBack() {
	n.t.Helper()
	call(n.Node, "STATUS").Must()
	n.known.awaitStatus()
	n.fresh.add()
	for _, p := range []*kubePod{n.keep, n.near, n.known, n.fresh} {
		p.cni("CHECK").Must()
		o, err := n.c.Client().CoreV1().Pods(n.name).Get(n.t.Context(), p.Name, metav1.GetOptions{})
		require.NoError(n.t, err)
		require.Empty(n.t, o.Status.Conditions, "of an outage that was not the pod's")
	}
	eventually(n.t, func() string {
		if p := asked[agent.Status](n.t, n.Node, "status").Problems; len(p) > 0 {
			return p[0].File + ": " + p[0].Reason
		}
		return ""
	})
}

// gc is the runtime's GC with these pods alone as the valid ones.
func (n *away) gc(valid ...*kubePod) testbed.Answer {
	n.t.Helper()
	list := []map[string]string{}
	for _, p := range valid {
		list = append(list, map[string]string{"containerID": p.ContainerID, "ifname": "eth0"})
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "fairlead", "cni.dev/valid-attachments": list,
	})
	require.NoError(n.t, err)
	return n.CNI(cni.Request{Command: "GC", Config: conf})
}
