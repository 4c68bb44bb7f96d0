package declarations_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/agent/declarations"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/source/cluster/settings"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// patience bounds what a test waits for; nothing is measured by it.
const patience = 2 * time.Minute

// bed is a Keeper with the chart's rights and policies, on a node of its own. The
// journal's heads are the test's.
type bed struct {
	*declarations.Keeper
	*kube.Cluster
	t        *testing.T
	src      *cluster.Source
	ns, node string

	mu    sync.Mutex
	heads map[core.Pod]journal.Head
}

func newBed(t *testing.T) *bed {
	t.Helper()
	c := kube.Shared(t)
	b := &bed{Cluster: c, t: t, ns: c.Namespace(), heads: map[core.Pod]journal.Head{}}
	b.node = "node-" + b.ns
	v, err := manifest.Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Set("rbac.nodeCertificates=true"))
	objects, err := manifest.Render(v)
	require.NoError(t, err)
	text, err := manifest.YAML(objects)
	require.NoError(t, err)
	c.Apply(string(text))
	c.RegisterNode(b.node)
	kubeconfig := c.Kubeconfig(c.User("system:fairlead:"+b.node, "system:fairlead"))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	src := cluster.New(cluster.Config{Kubeconfig: kubeconfig, Node: b.node, UserAgent: "fairlead/test", Log: log})
	b.src = src
	declared := settings.New(settings.Config{Login: src.Logins.Current, Log: log})
	explain := func(ctx context.Context, p core.Pod) (resolve.Explained, error) {
		in := resolve.Input{Request: core.Request{Key: core.Key{IfName: "eth0"}, Pod: p, Conf: core.Conf{Name: "fairlead", Type: "fairlead"}}, Declared: declared}
		return resolve.Explain(ctx, resolve.FromMemory{Source: src}, in, func(core.Want) error { return nil })
	}
	b.Keeper = declarations.New(cluster.NewPublisher(src, func(core.Pod) []cluster.Held { return nil }, filepath.Join(t.TempDir(), "conditions.json")), declarations.Config{
		Node: b.node, Pods: src, Settings: declared, Heads: b.all, Explain: explain, Log: log,
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){src.Run, declared.Run, b.Run, b.Keep} {
		wg.Go(func() { run(ctx) })
	}
	t.Cleanup(func() { stop(); wg.Wait() })
	return b
}

func (b *bed) all() (out []journal.Head) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.heads {
		out = append(out, h)
	}
	return out
}

// attach makes a pod on the node that has these networks.
func (b *bed) attach(name string, nets ...core.Net) core.Pod {
	b.t.Helper()
	p := b.pod(name)
	b.mu.Lock()
	b.heads[p] = journal.Head{Pod: p, Phase: core.Added, Statuses: nets}
	b.mu.Unlock()
	b.Attached(core.Record{Pod: p, Statuses: nets, Phase: core.Added})
	return p
}

// pod makes one that has nothing yet.
func (b *bed) pod(name string) core.Pod {
	b.t.Helper()
	o := b.Apply(`{apiVersion: v1, kind: Pod, metadata: {namespace: ` + b.ns + `, name: ` + name + `, labels: {app: db}}, spec: {nodeName: ` + b.node + `, containers: [{name: c, image: i}]}}`)
	return core.Pod{Namespace: b.ns, Name: name, UID: string(o[0].GetUID())}
}

func (b *bed) get(name string) (o v1alpha1.PodNetwork) {
	b.t.Helper()
	raw, err := b.Client().CoreV1().RESTClient().Get().AbsPath("/apis/net.fairlead.io/v1alpha1/namespaces/" + b.ns + "/podnetworks/" + name).DoRaw(b.t.Context())
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(raw, &o))
	return o
}

// awaits returns once the conditions of an object are these.
func (b *bed) awaits(name, ready, restart string) v1alpha1.PodNetwork {
	b.t.Helper()
	var o v1alpha1.PodNetwork
	have := func() (out []string) {
		o = b.get(name)
		for _, c := range o.Status.Conditions {
			out = append(out, c.Type+" "+string(c.Status)+" "+c.Reason)
			if c.ObservedGeneration != o.Generation {
				return nil
			}
		}
		return out
	}
	want := []string{"Ready " + ready, "RestartNeeded " + restart}
	require.Eventually(b.t, func() bool { return strings.Join(have(), ",") == strings.Join(want, ",") }, patience, 100*time.Millisecond, "%s: want %v, have %+v", name, want, &o)
	return o
}

// event returns once there is one.
func (b *bed) event(kind, name, reason, note string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		all, err := b.Client().EventsV1().Events(b.ns).List(b.t.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=" + kind + ",regarding.name=" + name})
		require.NoError(b.t, err)
		for _, e := range all.Items {
			if e.Reason == reason && strings.Contains(e.Note, note) && e.Regarding.UID != "" {
				return true
			}
		}
		return false
	}, patience, 100*time.Millisecond, "%s %s: %s %s", kind, name, reason, note)
}

// declare makes or changes a PodNetwork of an address.
func (b *bed) declare(name, fields string) {
	b.t.Helper()
	b.Apply(`{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + b.ns + `, name: ` + name + `}, spec: {interfaces: [{name: eth0, ` + fields + `}]}}`)
}

// TestStatus: who declares settings sees whether a pod has them, is refused, or would get
// them with a restart only; and sees no pod that is gone.
func TestStatus(t *testing.T) {
	b := newBed(t)
	b.declare("db-0", `ips: [10.16.0.50]`)
	pod := b.attach("db-0", core.Net{Name: "fairlead", Interface: "eth0", IPs: []string{"10.16.0.50"}, MAC: "02:00:00:00:00:01"})
	o := b.awaits("db-0", "True Applied", "False Applied")
	require.Equal(t, []v1alpha1.PodNetworkNode{{Name: b.node, ObservedGeneration: o.Generation, Pods: []v1alpha1.PodNetworkPod{{Name: "db-0", Reason: "Applied"}}}}, o.Status.Nodes)

	b.declare("db-0", `ips: [10.16.0.51]`)
	o = b.awaits("db-0", "False RestartNeeded", "True RestartNeeded")
	require.Contains(t, o.Status.Conditions[0].Message, "a new pod gets ips [10.16.0.51] of interface eth0")
	b.event("Pod", "db-0", "RestartNeeded", "ips [10.16.0.51]")

	b.declare("db-0", `ips: [10.99.0.51]`)
	o = b.awaits("db-0", "False AddressOutsideSubnet", "False Applied")
	require.Contains(t, o.Status.Conditions[0].Message, "pod db-0 on node "+b.node)
	b.declare("db-0", `ips: [10.16.0.50]`)
	b.awaits("db-0", "True Applied", "False Applied")

	b.Delete(`{apiVersion: v1, kind: Pod, metadata: {namespace: ` + b.ns + `, name: db-0}}`)
	b.mu.Lock()
	delete(b.heads, pod)
	b.mu.Unlock()
	b.Detached(core.Record{Pod: pod, Phase: core.Deleting})
	require.Empty(t, b.awaits("db-0", "Unknown NoPod", "False Applied").Status.Nodes)
}

// TestRefusal: the reason of a refusal is that of the Event on the pod and on the objects
// that declare what is refused, and of the condition; it goes with the pod's success.
func TestRefusal(t *testing.T) {
	b := newBed(t)
	b.declare("vf-0", `ips: [10.16.0.60]`)
	pod := b.pod("vf-0")
	b.Failed(core.Attempt{Op: core.Add, Pod: pod, Code: core.CodeDevice, Reason: core.ReasonNoVFMatches, Error: "NoVFMatches: none is free", Objects: []string{"PodNetwork " + b.ns + "/vf-0"}})
	b.event("Pod", "vf-0", "NoVFMatches", "none is free (code 104)")
	b.event("PodNetwork", "vf-0", "NoVFMatches", "pod "+b.ns+"/vf-0: NoVFMatches: none is free")
	b.awaits("vf-0", "False NoVFMatches", "False Applied")
	b.attach("vf-0", core.Net{Name: "fairlead", Interface: "eth0", IPs: []string{"10.16.0.60"}})
	b.awaits("vf-0", "True Applied", "False Applied")
}

// TestPolicyInVain: a NetworkPolicy that selects a pod has no effect on interfaces with a
// way to the wire of their own, and the pod's owner hears of it.
func TestPolicyInVain(t *testing.T) {
	b := newBed(t)
	b.Apply(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {namespace: ` + b.ns + `, name: mv}, spec: {config: '{"cniVersion":"1.0.0","type":"macvlan","master":"up0"}'}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: ` + b.ns + `, name: deny}, spec: {podSelector: {matchLabels: {app: db}}}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: ` + b.ns + `, name: other}, spec: {podSelector: {matchLabels: {app: web}}}}
`)
	require.Eventually(t, func() bool {
		_, err := b.src.KnownNAD(b.ns, "mv")
		return err == nil
	}, patience, 100*time.Millisecond)
	b.attach("db-0", core.Net{Name: "fairlead", Interface: "eth0"}, core.Net{Name: b.ns + "/mv", Interface: "net1"})
	b.event("Pod", "db-0", declarations.ReasonPolicy, "NetworkPolicy deny selects the pod, and has no effect on net1 (macvlan)")

	// Another pod is no reason to ask of this one again.
	since := b.Mark()
	b.attach("db-1", core.Net{Name: b.ns + "/mv", Interface: "net1"})
	b.event("Pod", "db-1", declarations.ReasonPolicy, "NetworkPolicy deny selects the pod")
	require.Len(t, b.Requests(kube.Filter{Since: since, User: "system:fairlead:" + b.node, Verbs: []string{"list"}, Resource: "networkpolicies"}), 1)
}
