package cluster_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

const networks = "k8s.v1.cni.cncf.io/networks"

// questions are what an ADD might ask the server. That a watch begins anew has
// nothing to do with any ADD.
var questions = []string{"get", "list"}

// answer is what a question gave, once it has.
type answer struct {
	pod *resolve.Pod
	err error
}

// askPod asks as an ADD does, in the background, and returns when the question
// is waiting.
func (a *agent) askPod(p core.Pod) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		ctx, stop := context.WithTimeout(a.t.Context(), patience)
		defer stop()
		pod, err := a.Pod(ctx, p)
		out <- answer{pod, err}
	}()
	return out
}

// A runtime may be faster than the watch: ADD waits for the pod.
func TestAddWaitsForALatePod(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, user := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.synced()
	watchesNodes(t, c, user)
	since := c.Mark()
	waiting := a.askPod(core.Pod{Namespace: ns, Name: "late"})
	p := makePod(c, ns, "late", ns, networks, "net")
	got := <-waiting
	require.NoError(t, got.err)
	require.Equal(t, p, got.pod.Pod)
	require.Equal(t, "net", got.pod.Annotations[networks])
	require.Empty(t, c.Requests(kube.Filter{User: user, Verbs: questions, Since: since}), "it waits, it does not ask")
}

// The successor of a StatefulSet's pod has the name and other annotations.
func TestASuccessorIsNotTakenForThePodThatHadItsName(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	old := makePod(c, ns, "db-0", ns, networks, "old")
	got := <-a.askPod(old)
	require.NoError(t, got.err)

	deletePod(c, old)
	successor := makePod(c, ns, "db-0", ns, networks, "new")
	got = <-a.askPod(successor)
	require.NoError(t, got.err)
	require.Equal(t, "new", got.pod.Annotations[networks])

	// Both answers take their time: one is asked for beside the other.
	taken := a.askPod(old)
	gone := core.Pod{Namespace: ns, Name: "db-1", UID: old.UID}
	got = <-a.askPod(gone)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(got.err))
	require.NotErrorIs(t, got.err, core.ErrNotFound, "that would give it the default network")
	require.ErrorContains(t, got.err, "is not known to the API server")
	got = <-taken
	require.Equal(t, core.CodeTryAgain, core.CodeOf(got.err))
	require.ErrorContains(t, got.err, "another pod took the name")
}

// The runtime knows a static pod by kubelet's hash, the API server its mirror by
// another UID.
func TestRule5_StaticPods(t *testing.T) {
	t.Parallel()
	const hash = "0123456789abcdef0123456789abcdef"
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.synced()
	static := core.Pod{Namespace: ns, Name: "proxy-" + ns, UID: hash}
	got := <-a.askPod(static)
	require.ErrorIs(t, got.err, core.ErrNotFound, "without a mirror it gets the default network")

	mirror := makePod(c, ns, static.Name, ns, networks, "net", "kubernetes.io/config.hash", hash, "kubernetes.io/config.mirror", hash)
	got = <-a.askPod(static)
	require.NoError(t, got.err)
	require.Equal(t, static, got.pod.Pod)
	require.Equal(t, "net", got.pod.Annotations[networks])

	a.attach(record(static, "c1", "10.16.0.9"))
	eventually(t, "the mirror's status", func() bool { return status(t, c, mirror) != "" })

	other := static
	other.UID = "fedcba9876543210fedcba9876543210"
	got = <-a.askPod(other)
	require.ErrorIs(t, got.err, core.ErrNotFound, "another manifest's mirror is not this pod's")
}

// A pod of another node is not watched, and answered when it is asked for.
func TestPodsOfOtherNodesAreNotKept(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	makePod(c, ns, "theirs", "other-node")
	mine := makePod(c, ns, "mine", ns)
	got := <-a.askPod(mine)
	require.NoError(t, got.err)
	_, err := a.Known(core.Pod{Namespace: ns, Name: "theirs"})
	require.ErrorIs(t, err, core.ErrNotFound)
}

// A source that was never connected says so, in a time that leaves places for
// others; a caller that goes away is not waited for.
func TestWithoutAnAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cluster.New(cluster.Config{Kubeconfig: "/nonexistent", Node: "n"})
		pod := core.Pod{Namespace: "ns", Name: "p"}
		_, err := s.Pod(t.Context(), pod)
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
		_, err = s.NAD(t.Context(), "ns", "n")
		require.ErrorIs(t, err, core.ErrUnavailable)
		_, err = s.Subnets(t.Context())
		require.ErrorIs(t, err, core.ErrUnavailable)
		_, err = s.Known(pod)
		require.ErrorIs(t, err, core.ErrUnavailable)
		pod.UID = "0123456789abcdef0123456789abcdef"
		_, err = s.Pod(t.Context(), pod)
		require.ErrorIs(t, err, core.ErrNotFound, "a static pod may be the API server")
		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err = s.Pod(ctx, core.Pod{Namespace: "ns", Name: "p"})
		require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	})
}

// Hot plug hears of each pod once, and of every change that is a request.
func TestWatchPodsTellsOfRequests(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	var mu sync.Mutex
	var heard []core.Pod
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.WatchPods(func(p core.Pod) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, p)
	})
	times := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(heard)
	}
	p := makePod(c, ns, "web", ns, networks, "one")
	eventually(t, "the pod", func() bool { return times() == 1 })
	a.attach(record(p, "c1", "10.16.0.2"))
	eventually(t, "the status", func() bool {
		known, err := a.Known(p)
		return err == nil && known.Annotations["k8s.v1.cni.cncf.io/network-status"] != ""
	})
	makePod(c, ns, "web", ns, networks, "one,two")
	eventually(t, "the change", func() bool { return times() == 2 })
	require.Equal(t, []core.Pod{p, p}, heard, "not of what is published itself")
}

// Changes of a pod are told to whoever waits for them, and that it is another's
// name now.
func TestDiffers(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.synced()
	p := makePod(c, ns, "p", ns, networks, "net")
	eventually(t, "known", func() bool { _, err := a.Known(p); return err == nil })
	known, err := a.Known(p)
	require.NoError(t, err)
	require.NoError(t, a.Differs(t.Context(), p, nil), "they differ already")

	got := make(chan error, 1)
	go func() { got <- a.Differs(t.Context(), p, known.Annotations) }()
	c.Kubectl("annotate", "pod", "p", "-n", ns, "test/a=1")
	require.NoError(t, <-got)
	known, err = a.Known(p)
	require.NoError(t, err)
	require.Equal(t, "1", known.Annotations["test/a"])

	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	require.ErrorIs(t, a.Differs(short, p, known.Annotations), context.DeadlineExceeded)
	go func() { got <- a.Differs(t.Context(), p, known.Annotations) }()
	deletePod(c, p)
	makePod(c, ns, "p", ns)
	require.ErrorIs(t, <-got, core.ErrNotFound)
}
