package cluster_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// patience bounds what a test waits for; nothing is measured by it.
const patience = time.Minute

// agent is a source and a publisher as `fairlead agent` runs them.
type agent struct {
	*cluster.Source
	*cluster.Publisher
	t    *testing.T
	stop func()

	mu         sync.Mutex
	journal    map[core.Key]core.Record
	conditions string // the file
}

// rights are what the chart gives an agent.
const rights = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: agent}, rules: [
  {apiGroups: [""], resources: [pods], verbs: [get, list, watch]},
  {apiGroups: [""], resources: [nodes], verbs: [list, watch]},
  {apiGroups: [""], resources: [pods/status, nodes/status], verbs: [patch]},
  {apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get, list, watch]},
  {apiGroups: [kubeovn.io], resources: [subnets, vlans], verbs: [list, watch]},
  {apiGroups: [events.k8s.io], resources: [events], verbs: [create]}]}`

// account is a service account with just these rights, as a kubeconfig.
func account(c *kube.Cluster, ns string) (kubeconfig, user string) {
	cfg := c.ServiceAccountConfig(ns, "agent")
	grant(c, ns, "{kind: ServiceAccount, name: agent, namespace: "+ns+"}")
	user = "system:serviceaccount:" + ns + ":agent"
	awaitRights(c, user)
	return c.Kubeconfig(cfg), user
}

// awaitRights returns when the server knows of a grant: an agent that comes too
// early is refused at first, and asks again.
func awaitRights(c *kube.Cluster, user string) {
	review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authzv1.ResourceAttributes{Verb: "list", Group: "kubeovn.io", Resource: "vlans"},
	}}
	for range int(patience / (50 * time.Millisecond)) {
		out, err := c.Client().AuthorizationV1().SubjectAccessReviews().Create(context.Background(), review, metav1.CreateOptions{})
		if err == nil && out.Status.Allowed {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func grant(c *kube.Cluster, name, subject string) {
	c.Apply(rights)
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: agent-` + name + `},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}, subjects: [` + subject + `]}`)
}

// newAgent runs an agent whose journal is what the test attaches.
func newAgent(t *testing.T, cfg cluster.Config, prepare ...func(*cluster.Source)) *agent {
	t.Helper()
	cfg.UserAgent = "fairlead/test"
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	a := &agent{t: t, Source: cluster.New(cfg), journal: map[core.Key]core.Record{}, conditions: filepath.Join(t.TempDir(), "conditions.json")}
	for _, p := range prepare {
		p(a.Source)
	}
	a.start()
	return a
}

// start connects what is made; records survive in the journal.
func (a *agent) start() {
	a.Publisher = cluster.NewPublisher(a.Source, a.held, a.conditions)
	ctx, cancel := context.WithCancel(a.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { a.Source.Run(ctx) })
	wg.Go(func() { a.Publisher.Run(ctx) })
	a.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	a.t.Cleanup(a.stop)
}

func (a *agent) records(p core.Pod) []core.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []core.Record
	for _, r := range a.journal {
		if r.Pod.Namespace == p.Namespace && r.Pod.Name == p.Name {
			out = append(out, r)
		}
	}
	return out
}

// held is as the node agent makes it.
func (a *agent) held(p core.Pod) []cluster.Held {
	var out []cluster.Held
	for _, r := range a.records(p) {
		if r.Phase == core.Added && !r.Orphan {
			out = append(out, cluster.Held{Container: r.Key.Container, UID: r.Pod.UID, Called: r.Called(), Nets: r.Statuses})
		}
	}
	return out
}

// attach does what the engine does at the end of an ADD.
func (a *agent) attach(r core.Record) {
	a.commit(r)
	a.Attached(r)
}

func (a *agent) commit(r core.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.journal[r.Key] = r
}

func (a *agent) synced() {
	a.t.Helper()
	require.Eventually(a.t, func() bool { return a.Synced() == nil }, patience, 20*time.Millisecond, "%v", a.Synced())
}

// watchesNodes waits until an agent has listed the nodes, all of them and its
// own: no ADD needs these lists, so that Synced does not wait for them.
func watchesNodes(t *testing.T, c *kube.Cluster, user string) {
	t.Helper()
	eventually(t, "the watches of nodes", func() bool {
		return len(c.Requests(kube.Filter{User: user, Resource: "nodes", Verbs: []string{"watch"}})) >= 2
	})
}

// record is an attachment of a pod with one network.
func record(p core.Pod, container, ip string) core.Record {
	return core.Record{
		Key: core.Key{Container: container, IfName: "eth0"}, Pod: p, Phase: core.Added, Created: time.Now(),
		Netns: core.Netns{BootID: "boot"}, Boottime: time.Duration(time.Now().UnixNano()),
		Statuses: []core.Net{{Name: "fairlead", Interface: "eth0", IPs: []string{ip}, MAC: "0a:00:00:00:00:01", Default: true}},
	}
}

// makePod makes a pod on a node and gives it as a runtime would name it.
func makePod(c *kube.Cluster, ns, name, node string, notes ...string) core.Pod {
	list := ""
	for i := 0; i+1 < len(notes); i += 2 {
		list += fmt.Sprintf("%q: %q, ", notes[i], notes[i+1])
	}
	o := c.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, namespace: ` + ns + `, annotations: {` + list + `}},
  spec: {nodeName: ` + node + `, containers: [{name: c, image: none}]}}`)
	return core.Pod{Namespace: ns, Name: name, UID: string(o[0].GetUID())}
}

func deletePod(c *kube.Cluster, p core.Pod) {
	c.Delete(`{apiVersion: v1, kind: Pod, metadata: {name: ` + p.Name + `, namespace: ` + p.Namespace + `}}`)
}

func getPod(t *testing.T, c *kube.Cluster, p core.Pod) *corev1.Pod {
	t.Helper()
	out, err := c.Client().CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return out
}

func status(t *testing.T, c *kube.Cluster, p core.Pod) string {
	t.Helper()
	return getPod(t, c, p).Annotations["k8s.v1.cni.cncf.io/network-status"]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 50*time.Millisecond, what)
}

// gate is a way to the API server that can be shut.
type gate struct {
	t    *testing.T
	to   string // host:port
	addr string

	mu    sync.Mutex
	l     net.Listener
	conns map[net.Conn]struct{}
}

// newGate gives a kubeconfig that leads through the gate, which is open.
func newGate(t *testing.T, c *kube.Cluster, cfg *rest.Config) (*gate, string) {
	t.Helper()
	g := &gate{t: t, to: strings.TrimPrefix(c.URL(), "https://"), addr: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
	g.open()
	t.Cleanup(g.shut)
	cfg = rest.CopyConfig(cfg)
	cfg.Host = "https://" + g.addr
	return g, c.Kubeconfig(cfg)
}

func (g *gate) open() {
	l, err := net.Listen("tcp", g.addr)
	require.NoError(g.t, err)
	g.l, g.addr = l, l.Addr().String()
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go g.pass(in)
		}
	}()
}

func (g *gate) pass(in net.Conn) {
	out, err := net.Dial("tcp", g.to)
	if err != nil {
		_ = in.Close()
		return
	}
	g.mu.Lock()
	g.conns[in], g.conns[out] = struct{}{}, struct{}{}
	g.mu.Unlock()
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = way[0].Close(), way[1].Close()
		}()
	}
}

// shut breaks what is connected and refuses the rest.
func (g *gate) shut() {
	_ = g.l.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func kubeConfig(t *testing.T, file string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	return cfg
}
