package node_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// cluster is a bed whose node has an API server too.
type cluster struct {
	*bed
	c    *kube.Cluster
	link *kube.Link
	api  kubernetes.Interface
	conf string // kubeconfig of the node's own user
	ns   string
}

func newCluster(t *testing.T, b *bed, flags ...string) *cluster {
	t.Helper()
	k := &cluster{bed: b, c: kube.Start(t, kube.Options{Flags: flags})}
	k.link, k.api, k.ns = k.c.Link(b.NetnsPath()), k.c.Client(), k.c.Namespace()
	k.conf = k.c.Kubeconfig(k.c.User("system:node:node1", "system:nodes"))
	t.Cleanup(func() { b.node.end(9) }) // before the server, which it would miss
	return k
}

func (k *cluster) start() { k.startNode("--kubeconfig", k.conf, "--node-ip", "192.0.2.1") }

// create makes a pod of the API server, bound to the node.
func (k *cluster) create(name, script string) {
	k.t.Helper()
	p := web(0)
	p.Name, p.UID, p.Namespace, p.Annotations = name, "", k.ns, nil
	p.Spec.NodeName, p.Spec.Containers = "node1", []v1.Container{shell("c", script)}
	p.Spec.AutomountServiceAccountToken = new(bool)
	_, err := k.api.CoreV1().Pods(k.ns).Create(k.t.Context(), p, metav1.CreateOptions{})
	require.NoError(k.t, err)
}

// object waits until a pod's object is as good says, "" when it is.
func (k *cluster) object(ns, name string, good func(*v1.Pod) string) *v1.Pod {
	k.t.Helper()
	var out *v1.Pod
	k.await("object of pod "+name, func() error {
		p, err := k.api.CoreV1().Pods(ns).Get(k.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if why := good(p); why != "" {
			return fmt.Errorf("%s: %+v", why, p.Status)
		}
		out = p
		return nil
	})
	return out
}

func (k *cluster) absent(ns, name string) {
	k.t.Helper()
	k.await("the end of pod "+name, func() error {
		p, err := k.api.CoreV1().Pods(ns).Get(k.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is there: %+v", p.Status)
		}
		return err
	})
}

func (k *cluster) delete(name string) {
	k.t.Helper()
	require.NoError(k.t, k.api.CoreV1().Pods(k.ns).Delete(k.t.Context(), name, metav1.DeleteOptions{}))
}

// restarts is how often a pod's first container was started again; -1 when it
// has none yet.
func restarts(p *v1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return -1
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// TestPodsOfAPIServer: the life of a node and of a pod in a real API server.
func TestPodsOfAPIServer(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	k.start()
	k.awaitNodeReady()
	k.create("api-0", forever)
	k.create("done", "exit 0")
	up := k.object(k.ns, "api-0", ready)
	require.Equal(t, v1.PodRunning, up.Status.Phase)
	require.Equal(t, "192.0.2.1", up.Status.HostIP)
	require.NotEmpty(t, up.Status.PodIP)
	require.Regexp(t, "^containerd://[0-9a-f]{64}$", up.Status.ContainerStatuses[0].ContainerID)
	had := k.sandboxes()
	require.Contains(t, had, "api-0")

	// A condition of somebody else stays.
	_, err := k.c.TryKubectl("", "-n", k.ns, "patch", "pod", "api-0", "--subresource=status", "--type=strategic", "-p",
		`{"status": {"phase": "Pending", "conditions": [{"type": "example.com/gate", "status": "True"}]}}`)
	require.NoError(t, err)
	k.object(k.ns, "api-0", func(p *v1.Pod) string {
		for _, c := range p.Status.Conditions {
			if c.Type == "example.com/gate" && p.Status.Phase == v1.PodRunning {
				return ""
			}
		}
		return "not put right"
	})

	k.delete("api-0")
	k.absent(k.ns, "api-0")
	k.await("the end of the sandbox", func() error {
		if id, has := k.sandboxes()["api-0"]; has {
			return errors.New(id)
		}
		return nil
	})
	k.delete("done")
	k.absent(k.ns, "done")

	// A pod that does not want to end, whose user loses patience.
	k.create("stubborn", "trap '' TERM; while :; do sleep 1; done")
	k.object(k.ns, "stubborn", ready)
	for _, grace := range []int64{10000, 2} {
		require.NoError(t, k.api.CoreV1().Pods(k.ns).Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: &grace}))
		if grace > 2 {
			k.local("stubborn", func(p *v1.Pod) string {
				if p.Status.Reason != node.ReasonTerminating {
					return "not terminating"
				}
				return ""
			})
		}
	}
	k.absent(k.ns, "stubborn")
	k.awaitEmpty()
	k.requireNoLeaks()
}

// awaitNodeReady waits for the Node object and its lease.
func (k *cluster) awaitNodeReady() {
	k.t.Helper()
	k.await("node", func() error {
		n, err := k.api.CoreV1().Nodes().Get(k.t.Context(), "node1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				require.Contains(k.t, n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.1"})
				require.Equal(k.t, "node1", n.Labels[v1.LabelHostname])
				require.False(k.t, n.Status.Capacity.Memory().IsZero())
				require.Contains(k.t, n.Status.NodeInfo.ContainerRuntimeVersion, "containerd://")
				return nil
			}
		}
		return fmt.Errorf("%+v", n.Status.Conditions)
	})
	k.awaitRenewed(time.Time{})
}

// awaitRenewed waits until the lease was renewed after a time.
func (k *cluster) awaitRenewed(after time.Time) time.Time {
	k.t.Helper()
	var at time.Time
	k.await("lease", func() error {
		l, err := k.api.CoordinationV1().Leases("kube-node-lease").Get(k.t.Context(), "node1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if at = l.Spec.RenewTime.Time; !at.After(after) {
			return fmt.Errorf("renewed at %s", at)
		}
		return nil
	})
	return at
}

// TestMirrorPods: a static pod has an object that says how it is, and follows
// it; nobody keeps it away or makes it stay.
func TestMirrorPods(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	k.start()
	p := web(0)
	p.UID, p.Annotations = "", nil // made from the file's text
	k.write(p)
	first := k.object("default", "web-0-node1", ready)
	static := k.awaitPod("web-0", ready)
	require.Equal(t, string(static.UID), first.Annotations[v1.MirrorPodAnnotationKey])
	require.Len(t, first.OwnerReferences, 1)
	require.Equal(t, "Node", first.OwnerReferences[0].Kind)
	require.Equal(t, static.Status.PodIP, first.Status.PodIP)
	had := k.sandboxes()

	// Who deletes the object deletes nothing else.
	require.NoError(t, k.api.CoreV1().Pods("default").Delete(t.Context(), "web-0-node1", metav1.DeleteOptions{}))
	second := k.object("default", "web-0-node1", func(p *v1.Pod) string {
		if p.UID == first.UID {
			return "the old object"
		}
		return ready(p)
	})
	require.Equal(t, had, k.sandboxes())

	// Another pod by the same name has another object.
	p.Labels["app"] = "other"
	k.write(p)
	third := k.object("default", "web-0-node1", func(p *v1.Pod) string {
		if p.UID == second.UID || p.Labels["app"] != "other" {
			return "the old object"
		}
		return ready(p)
	})
	require.NotEqual(t, second.Annotations[v1.MirrorPodAnnotationKey], third.Annotations[v1.MirrorPodAnnotationKey])

	// A pod that goes while nobody looks takes its object along.
	k.killNode()
	k.erase("web-0")
	k.start()
	k.absent("default", "web-0-node1")
	k.awaitEmpty()
	k.requireNoLeaks()
}

// TestAPIServerAway: pods go on, also over a restart of the node; what ends is
// started again; what was asked meanwhile happens afterwards.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	k.start()
	k.create("stays", forever)
	k.create("goes", forever)
	// Ends whenever the test wants it to.
	k.create("ends", "until [ -e /tmp/end ]; do sleep 0.1; done; exit 1")
	for _, name := range []string{"stays", "goes", "ends"} {
		k.object(k.ns, name, ready)
	}
	had := k.sandboxes()
	renewed := k.awaitRenewed(time.Time{})
	k.link.Cut()
	k.killNode()
	k.delete("goes")
	k.create("comes", forever)
	k.start()
	ends := k.local("ends", ready)
	k.finish(&ends)
	k.local("ends", func(p *v1.Pod) string {
		if restarts(p) < 1 {
			return "not started again"
		}
		return ready(p)
	})
	require.Equal(t, had, k.sandboxes(), "no source has spoken")

	require.NoError(t, k.link.Heal())
	k.object(k.ns, "comes", ready)
	k.absent(k.ns, "goes")
	k.object(k.ns, "ends", func(p *v1.Pod) string {
		if restarts(p) < 1 {
			return "the restart is not told"
		}
		return ready(p)
	})
	k.awaitRenewed(renewed)
	require.Equal(t, had["stays"], k.sandboxes()["stays"])
	require.Zero(t, restarts(k.object(k.ns, "stays", ready)))
	for _, name := range []string{"stays", "ends", "comes"} {
		k.delete(name)
		k.absent(k.ns, name)
	}
	k.awaitEmpty()
	k.requireNoLeaks()
}

// local waits until the node itself says of a pod of the API server that it is
// as good says.
func (k *cluster) local(name string, good func(*v1.Pod) string) v1.Pod {
	k.t.Helper()
	var pod v1.Pod
	k.await("pod "+name+" on the node", func() error {
		all, err := k.list()
		if err != nil {
			return err
		}
		var there bool
		if pod, there = all[name]; !there || len(pod.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("nothing is known of %s", name)
		}
		if why := good(&pod); why != "" {
			return fmt.Errorf("%s: %+v", why, pod.Status)
		}
		return nil
	})
	return pod
}

// TestReboot: pods come up again with their addresses, those of the API server
// before it can be reached.
func TestReboot(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	fixed, plain := web(0), web(1)
	fixed.Annotations["ovn.kubernetes.io/ip_address"] = "10.16.5.5"
	k.start()
	k.write(fixed)
	k.write(plain)
	of := web(2)
	of.Name, of.UID, of.Namespace = "api", "", k.ns
	of.Annotations = map[string]string{"ovn.kubernetes.io/ip_address": "10.16.6.6"}
	of.Spec.NodeName, of.Spec.AutomountServiceAccountToken = "node1", new(bool)
	_, err := k.api.CoreV1().Pods(k.ns).Create(t.Context(), of, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.16.6.6", k.object(k.ns, "api", ready).Status.PodIP)
	require.Equal(t, "10.16.5.5", k.awaitPod("web-0", ready).Status.PodIP)
	had := k.awaitPod("web-1", ready)
	boxes := k.sandboxes()

	k.reboot()
	k.start()
	up := func(p *v1.Pod) string {
		if n := restarts(p); n < 1 {
			return fmt.Sprintf("started %d times before", n)
		}
		return ready(p)
	}
	require.Equal(t, "10.16.5.5", k.awaitPod("web-0", up).Status.PodIP)
	require.Equal(t, had.Status.PodIP, k.awaitPod("web-1", up).Status.PodIP)
	require.Equal(t, "10.16.6.6", k.local("api", up).Status.PodIP)
	for name, id := range k.sandboxes() {
		require.NotEqual(t, boxes[name], id)
	}

	k.link = k.c.Link(k.NetnsPath())
	k.object(k.ns, "api", up)
	k.delete("api")
	k.absent(k.ns, "api")
	k.erase("web-0")
	k.erase("web-1")
	k.awaitEmpty()
	k.requireNoLeaks()
}
