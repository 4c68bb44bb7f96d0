package report_test

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/report"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// patience bounds what a test waits for; nothing is measured by it.
const patience = 2 * time.Minute

// node says what the test wants.
type node struct {
	mu   sync.Mutex
	pods []report.Pod
}

func (n *node) Heard() bool { return true }

func (n *node) Reports() []report.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]report.Pod(nil), n.pods...)
}

// say makes a pod's status have a message.
func (n *node) say(r *report.Reporter, pod *v1.Pod, version uint64, message string) {
	p := pod.DeepCopy()
	p.Status = v1.PodStatus{Phase: v1.PodRunning, Message: message}
	n.mu.Lock()
	n.pods = []report.Pod{{Pod: p, Version: version}}
	n.mu.Unlock()
	r.Changed()
}

type bed struct {
	c    *kube.Cluster
	ns   string
	name string // the node's
	user string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	c := kube.Shared(t)
	ns := c.Namespace()
	return &bed{c: c, ns: ns, name: ns, user: "system:node:" + ns}
}

// start runs a reporter over a runtime that does not answer. Its disk is memory:
// the machine's may be full.
func (b *bed) start(t *testing.T, of report.Node) *report.Reporter {
	t.Helper()
	conn, err := podruntime.Dial("unix:///nowhere")
	require.NoError(t, err)
	r, err := report.New(report.Config{
		Server: b.c.User(b.user, "system:nodes"), Node: b.name, Addresses: []string{"192.0.2.9"}, Disk: "/dev/shm", Version: "test",
		Runtime: cri.NewRuntimeServiceClient(conn), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, of) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, conn.Close())
	})
	return r
}

func (b *bed) pod(t *testing.T, name string) *v1.Pod {
	t.Helper()
	p, err := b.c.Client().CoreV1().Pods(b.ns).Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
			NodeName: b.name, AutomountServiceAccountToken: new(bool), Containers: []v1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return p
}

func (b *bed) get(t *testing.T, name string) *v1.Pod {
	t.Helper()
	p, err := b.c.Client().CoreV1().Pods(b.ns).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return p
}

func (b *bed) awaitMessage(t *testing.T, name, want string) *v1.Pod {
	t.Helper()
	require.Eventually(t, func() bool { return b.get(t, name).Status.Message == want }, patience, 10*time.Millisecond, want)
	return b.get(t, name)
}

// TestStatus: what is known of an object may be old, or of another pod by the
// same name: a status never goes back, and never to another pod.
func TestStatus(t *testing.T) {
	b, n := newBed(t), &node{}
	first := b.pod(t, "web")
	r := b.start(t, n)
	r.Hear([]*v1.Pod{first.DeepCopy()})
	n.say(r, first, 1, "one")
	b.awaitMessage(t, "web", "one")
	n.say(r, first, 2, "two") // what it knows of the object is still the first
	two := b.awaitMessage(t, "web", "two")
	r.Hear([]*v1.Pod{two.DeepCopy()})
	r.Hear([]*v1.Pod{first.DeepCopy()})
	n.say(r, first, 3, "three")
	b.awaitMessage(t, "web", "three")

	// Another pod takes the name; nobody has told us yet.
	require.NoError(t, b.c.Client().CoreV1().Pods(b.ns).Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	second := b.pod(t, "web")
	since := b.c.Mark()
	n.say(r, first, 4, "of the first")
	require.Eventually(t, func() bool {
		return len(b.c.Requests(kube.Filter{Since: since, User: b.user, Verbs: []string{"get"}, Resource: "pods", Name: "web"})) > 0
	}, patience, 10*time.Millisecond)
	r.Hear([]*v1.Pod{second.DeepCopy()})
	n.say(r, second, 1, "of the second")
	b.awaitMessage(t, "web", "of the second")
	for _, q := range b.c.Requests(kube.Filter{Since: since, User: b.user, Verbs: []string{"patch"}, Resource: "pods"}) {
		require.Equal(t, "status", q.Subresource)
	}
	require.Equal(t, second.UID, b.get(t, "web").UID)

	// What is as it should be is not written again.
	since = b.c.Mark()
	r.Hear([]*v1.Pod{b.get(t, "web")})
	n.say(r, second, 2, "of the second")
	n.say(r, second, 3, "last")
	b.awaitMessage(t, "web", "last")
	require.Len(t, b.c.Requests(kube.Filter{Since: since, User: b.user, Verbs: []string{"patch"}, Resource: "pods"}), 1)
}

// TestEnd: an object goes when nothing of its pod runs any more, and somebody
// deleted it.
func TestEnd(t *testing.T) {
	b, n := newBed(t), &node{}
	pod := b.pod(t, "web")
	r := b.start(t, n)
	ended := func(p *v1.Pod, exit int32) {
		p = p.DeepCopy()
		p.Status = v1.PodStatus{Phase: v1.PodRunning, Message: "ended", ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", Image: "i", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: exit, ContainerID: "id"}},
		}}}
		n.mu.Lock()
		n.pods = []report.Pod{{Pod: p, Version: 2, Ended: true}}
		n.mu.Unlock()
		r.Changed()
	}
	r.Hear([]*v1.Pod{pod})
	ended(pod, 0)
	b.awaitMessage(t, "web", "ended")
	require.NoError(t, b.c.Client().CoreV1().Pods(b.ns).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	deleted := b.get(t, "web")
	require.NotNil(t, deleted.DeletionTimestamp)
	r.Hear([]*v1.Pod{deleted})
	require.Eventually(t, func() bool {
		list, err := b.c.Client().CoreV1().Pods(b.ns).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	}, patience, 10*time.Millisecond)
}

// TestNode: a node whose runtime does not answer says so, and its lease lives.
func TestNode(t *testing.T) {
	b := newBed(t)
	r := b.start(t, &node{})
	select {
	case <-r.Registered():
	case <-time.After(patience):
		t.Fatal("not registered")
	}
	api := b.c.Client()
	require.Eventually(t, func() bool {
		l, err := api.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), b.name, metav1.GetOptions{})
		return err == nil && *l.Spec.HolderIdentity == b.name && *l.Spec.LeaseDurationSeconds == 40 && len(l.OwnerReferences) == 1
	}, patience, 10*time.Millisecond)
	n, err := api.CoreV1().Nodes().Get(t.Context(), b.name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, c := range n.Status.Conditions {
		require.Equal(t, v1.ConditionFalse, c.Status, "%s: %s", c.Type, c.Message)
		if c.Type == v1.NodeReady {
			require.Contains(t, c.Message, "/nowhere")
		}
	}
	require.Len(t, n.Status.Conditions, 4)
	require.Equal(t, "fairlead test", n.Status.NodeInfo.KubeletVersion)
	require.NotEmpty(t, n.Status.NodeInfo.KernelVersion)
}
