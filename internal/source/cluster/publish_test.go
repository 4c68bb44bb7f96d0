package cluster_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// An ADD costs nothing to read and one write of the pod.
func TestRule11_AnAddReadsNothingAndWritesOnce(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, user := account(c, ns)
	c.Apply(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: net, namespace: ` + ns + `}, spec: {config: '{"cniVersion":"1.0.0","type":"macvlan"}'}}`)
	p := makePod(c, ns, "web", ns, "k8s.v1.cni.cncf.io/networks", "net")
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.synced()
	watchesNodes(t, c, user)

	since := c.Mark()
	found, err := a.Pod(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "net", found.Annotations["k8s.v1.cni.cncf.io/networks"])
	_, err = a.NAD(t.Context(), ns, "net")
	require.NoError(t, err)
	_, err = a.Subnets(t.Context())
	require.NoError(t, err)
	a.attach(record(p, "c1", "10.16.0.2"))
	eventually(t, "the status", func() bool { return status(t, c, p) != "" })
	var nets []core.Net
	require.NoError(t, json.Unmarshal([]byte(status(t, c, p)), &nets))
	require.Equal(t, a.records(p)[0].Statuses, nets)
	eventually(t, "the event", func() bool {
		return len(c.Requests(kube.Filter{User: user, Resource: "events", Since: since})) > 0
	})

	// What came after, came without a cause: there must be none.
	makePod(c, ns, "web", ns, "k8s.v1.cni.cncf.io/networks", "net", "other", "1")
	eventually(t, "the other annotation", func() bool {
		found, err := a.Pod(t.Context(), p)
		return err == nil && found.Annotations["other"] != ""
	})
	require.Empty(t, c.Requests(kube.Filter{User: user, Verbs: questions, Since: since}))
	require.Len(t, c.Requests(kube.Filter{User: user, Resource: "pods/status", Since: since}), 1)
	require.Len(t, c.Requests(kube.Filter{User: user, Verbs: kube.Writes, Since: since}), 2, "the status and the event")
}

// What a pod's status should be follows from the journal alone: a pod that was
// attached while no publisher ran, one whose sandbox was made anew, and one
// whose status somebody else wrote over all become right, each by one write.
func TestStatusFollowsTheJournal(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, user := account(c, ns)
	p, q := makePod(c, ns, "p", ns), makePod(c, ns, "q", ns)
	bare := makePod(c, ns, "bare", ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	a.synced()
	a.stop()

	since := c.Mark()
	a.commit(record(p, "p1", "10.16.0.2"))
	old := record(q, "q1", "10.16.0.3")
	old.Created = old.Created.Add(time.Hour) // the clock was set back since
	a.commit(old)
	a.commit(record(q, "q2", "10.16.0.4")) // the DEL of q1 is late
	stranger := record(bare, "b1", "10.16.0.5")
	stranger.Pod.UID = "another"
	a.commit(stranger)
	unfinished := record(bare, "b2", "10.16.0.6")
	unfinished.Phase = core.Adding
	a.commit(unfinished)
	a.start()
	eventually(t, "both statuses", func() bool { return status(t, c, p) != "" && status(t, c, q) != "" })
	require.Contains(t, status(t, c, q), "10.16.0.4")
	require.NotContains(t, status(t, c, q), "10.16.0.3")

	// A restart finds everything said.
	a.stop()
	a.start()
	makePod(c, ns, "sentinel", ns)
	a.attach(record(core.Pod{Namespace: ns, Name: "sentinel"}, "s1", "10.16.0.9"))
	eventually(t, "the sentinel", func() bool { return status(t, c, core.Pod{Namespace: ns, Name: "sentinel"}) != "" })
	require.Empty(t, status(t, c, bare))
	writes := kube.Filter{User: user, Verbs: kube.Writes, Resource: "pods/status", Since: since}
	require.Len(t, c.Requests(writes), 3, "p, q and the sentinel")

	// Somebody writes over it.
	right := status(t, c, p)
	c.Kubectl("annotate", "--overwrite", "pod", "-n", ns, "p", "k8s.v1.cni.cncf.io/network-status=nonsense")
	eventually(t, "the right status again", func() bool { return status(t, c, p) == right })

	// A hot-plugged network comes and goes.
	more := record(p, "p1", "10.20.0.7")
	more.Key.IfName, more.Statuses[0].Interface, more.Statuses[0].Name = "net1", "net1", "ns/storage"
	a.attach(more)
	eventually(t, "net1", func() bool { return strings.Contains(status(t, c, p), "net1") })
	a.mu.Lock()
	delete(a.journal, more.Key)
	a.mu.Unlock()
	a.Detached(more)
	eventually(t, "no net1", func() bool { return status(t, c, p) == right })
}

// A pod that took another's name gets nothing that was meant for the other, and
// a pod that is gone is no reason to try for ever.
func TestStatusOfAPodThatIsGone(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	g, through := newGate(t, c, kubeConfig(t, config))
	a := newAgent(t, cluster.Config{Kubeconfig: through, Node: ns})
	gone, replaced := makePod(c, ns, "gone", ns), makePod(c, ns, "replaced", ns)
	require.NoError(t, (<-a.askPod(gone)).err)
	require.NoError(t, (<-a.askPod(replaced)).err)
	// The watch does not tell of it before the writes.
	g.shut()
	deletePod(c, gone)
	deletePod(c, replaced)
	successor := makePod(c, ns, "replaced", ns)
	a.attach(record(gone, "c1", "10.16.0.2"))
	a.attach(record(replaced, "c2", "10.16.0.3"))
	g.open()
	require.NoError(t, (<-a.askPod(successor)).err)
	eventually(t, "an end", func() bool {
		_, err := a.Known(gone)
		return err != nil && len(a.Publisher.Problems()) == 0
	})
	require.Empty(t, status(t, c, successor))
}

// Conditions are set beside all others, change, and do not disturb the status.
func TestConditions(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
	p := makePod(c, ns, "web", ns)
	a.attach(record(p, "c1", "10.16.0.2"))
	get := func(kind string) (out corev1.PodCondition) {
		for _, cond := range getPod(t, c, p).Status.Conditions {
			if string(cond.Type) == kind {
				out = cond
			}
		}
		return out
	}
	c.Kubectl("patch", "pod", "-n", ns, "web", "--subresource=status", "--type=strategic",
		`-p={"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	a.Condition(p, "fairlead.io/NetworksAttached", "False", "NoNetworkFound", "ns/x does not exist")
	a.Condition(p, "fairlead.io/Other", "True", "", "")
	eventually(t, "both", func() bool { return get("fairlead.io/Other").Status == "True" })
	require.Equal(t, "NoNetworkFound", get("fairlead.io/NetworksAttached").Reason)
	since := get("fairlead.io/NetworksAttached").LastTransitionTime
	require.False(t, since.IsZero())
	a.Condition(p, "fairlead.io/NetworksAttached", "False", "NoNetworkFound", "ns/y does not exist")
	eventually(t, "the message", func() bool { return strings.Contains(get("fairlead.io/NetworksAttached").Message, "ns/y") })
	require.Equal(t, since, get("fairlead.io/NetworksAttached").LastTransitionTime)
	a.stop()
	a.Condition(p, "fairlead.io/NetworksAttached", "True", "", "") // and the agent ends before it is written
	require.EqualValues(t, "False", get("fairlead.io/NetworksAttached").Status)
	a.start()
	require.Equal(t, "True", a.Told(p, "fairlead.io/NetworksAttached"))
	eventually(t, "the end", func() bool { return get("fairlead.io/NetworksAttached").Status == "True" })
	a.Condition(p, "fairlead.io/Third", "True", "", "")
	eventually(t, "the third", func() bool { return get("fairlead.io/Third").Status == "True" })
	require.EqualValues(t, "True", get("fairlead.io/Other").Status, "it was said before the agent's start")
	require.EqualValues(t, "True", get("Ready").Status)
	require.NotEmpty(t, status(t, c, p))

	require.FileExists(t, a.conditions)
	c.Kubectl("delete", "pod", "-n", ns, "web", "--force", "--grace-period=0")
	eventually(t, "nothing is kept of a pod that is gone", func() bool {
		_, err := os.Stat(a.conditions)
		return errors.Is(err, os.ErrNotExist)
	})
}

// Events say what was attached, which network is missing, and why an ADD failed:
// once, however often kubelet tries.
func TestRule10_Events(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns, Shell: "kubectl exec pod -- fairlead"})
	p := makePod(c, ns, "web", ns)
	require.NoError(t, (<-a.askPod(p)).err)
	r := record(p, "c1", "10.16.0.2")
	r.Statuses = append(r.Statuses, core.Net{Name: ns + "/storage", Interface: "net1", IPs: []string{"10.20.0.5", "fd00::5"}})
	a.attach(r)
	missing := core.Attempt{Op: core.Add, Pod: p, Code: 7, Error: "networks[0]: NetworkAttachmentDefinition " + ns + "/x does not exist; see `fairlead get nets`", NoNetwork: true}
	for range 20 {
		a.Failed(missing)
	}
	unnamed := p
	unnamed.UID = "" // cri-o before 1.24 does not tell it
	a.Failed(core.Attempt{Op: core.Add, Pod: unnamed, Code: 103, Error: strings.Repeat("\u00fcber", 400)})
	a.Failed(core.Attempt{Op: core.Del, Pod: p, Code: 5, Error: "a DEL is not an attachment"})
	a.Failed(core.Attempt{Op: core.Add, Code: 7, Error: "a container without a pod"})
	went := r
	went.Statuses = r.Statuses[1:]
	a.Detached(went) // hot-unplugged
	went.Phase = core.Deleting
	a.Detached(went) // its pod's end

	var events []eventsv1.Event
	eventually(t, "four events", func() bool {
		list, err := c.Client().EventsV1().Events(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		events = list.Items
		return len(events) >= 4
	})
	require.Len(t, events, 4)
	notes := map[string]eventsv1.Event{}
	for _, e := range events {
		require.Equal(t, p.UID, string(e.Regarding.UID))
		require.Equal(t, "fairlead", e.ReportingController)
		notes[e.Reason] = e
	}
	require.Equal(t, "Added eth0 [10.16.0.2] from fairlead, net1 [10.20.0.5 fd00::5] from "+ns+"/storage", notes["AddedInterface"].Note)
	require.Equal(t, "Normal", notes["AddedInterface"].Type)
	require.Equal(t, "Removed net1 [10.20.0.5 fd00::5] from "+ns+"/storage", notes["RemovedInterface"].Note)
	require.Equal(t, strings.Replace(missing.Error, "fairlead get", "kubectl exec pod -- fairlead get", 1)+" (code 7)",
		notes["NoNetworkFound"].Note, "it names the command that its reader can call")
	require.Equal(t, "Warning", notes["FailedAttachment"].Type)
	require.LessOrEqual(t, len(notes["FailedAttachment"].Note), 1024)
	require.True(t, utf8.ValidString(notes["FailedAttachment"].Note))

	for range 3 { // of the node itself, where kubelet's are
		a.WarnNode("RulesNameNIC", "a rule names eth1")
	}
	a.WarnNode("RulesNameNIC", "another one does")
	eventually(t, "the node's", func() bool {
		list, err := c.Client().EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		events = slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Kind != "Node" || e.Regarding.Name != ns })
		return slices.ContainsFunc(events, func(e eventsv1.Event) bool { return e.Note == "another one does" })
	})
	require.Len(t, events, 2)
}

// TestWritesRefused: what the API server refuses for want of rights is known,
// until it takes it; what it refuses because of one object is not meant.
func TestWritesRefused(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	cfg := c.ServiceAccountConfig(ns, "reader")
	role := func(more string) {
		c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader-` + ns + `}, rules: [` + more + `
  {apiGroups: ["", k8s.cni.cncf.io, kubeovn.io], resources: [pods, nodes, network-attachment-definitions, subnets, vlans], verbs: [get, list, watch]}]}`)
	}
	role("")
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: reader-` + ns + `},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader-` + ns + `}, subjects: [{kind: ServiceAccount, name: reader, namespace: ` + ns + `}]}`)
	awaitRights(c, "system:serviceaccount:"+ns+":reader")
	a := newAgent(t, cluster.Config{Kubeconfig: c.Kubeconfig(cfg), Node: ns})
	a.synced()
	require.NoError(t, a.Writable())
	p := makePod(c, ns, "web", ns)
	require.NoError(t, (<-a.askPod(p)).err)
	a.attach(record(p, "c1", "10.16.0.2"))
	eventually(t, "both are told", func() bool {
		err := a.Writable()
		return err != nil && strings.Contains(err.Error(), "write events") && strings.Contains(err.Error(), "write pods/status")
	})
	role(`{apiGroups: ["", events.k8s.io], resources: [pods/status, events], verbs: [patch, create]},`)
	eventually(t, "the status is written", func() bool { return status(t, c, p) != "" })
	a.attach(record(p, "c1", "10.16.0.2")) // another event
	eventually(t, "all is well", func() bool { return a.Writable() == nil })
}
