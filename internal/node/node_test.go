package node_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// shell is a container that runs a script.
func shell(name, script string) v1.Container {
	return v1.Container{Name: name, Image: image.BusyboxName, Command: []string{"sh", "-c", script}}
}

// forever ends at once when it is told to.
const forever = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"

// web is a pod with two NICs, whose file says who it is: so it can change.
func web(i int) *v1.Pod {
	grace := int64(2)
	name := fmt.Sprintf("web-%d", i)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "storage"},
		},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{shell("c", forever)},
			Volumes: []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
	}
}

func webs(n int) []*v1.Pod {
	var out []*v1.Pod
	for i := range n {
		out = append(out, web(i))
	}
	return out
}

// exec runs a command in a pod's container.
func (b *bed) exec(pod *v1.Pod, argv ...string) string {
	b.t.Helper()
	out, err := b.tryExec(pod, argv...)
	require.NoError(b.t, err)
	return out
}

// tryExec is exec for a container that may be about to end.
func (b *bed) tryExec(pod *v1.Pod, argv ...string) (string, error) {
	if len(pod.Status.ContainerStatuses) == 0 {
		return "", errors.New("the pod has no container yet")
	}
	out, err := b.runtime.ExecSync(b.t.Context(), &cri.ExecSyncRequest{ContainerId: pod.Status.ContainerStatuses[0].ContainerID, Cmd: argv, Timeout: 20})
	if err == nil && out.GetExitCode() != 0 {
		err = fmt.Errorf("exit code %d: %s", out.GetExitCode(), out.GetStderr())
	}
	return string(out.GetStdout()), err
}

// finish ends a pod's container that waits for /tmp/end: who makes the file may be
// killed with the container, having made it.
func (b *bed) finish(pod *v1.Pod) {
	_, _ = b.tryExec(pod, "touch", "/tmp/end")
}

// sandboxes are the ids of all ready ones, by pod.
func (b *bed) sandboxes() map[string]string {
	b.t.Helper()
	list, err := b.runtime.ListPodSandbox(b.t.Context(), &cri.ListPodSandboxRequest{})
	require.NoError(b.t, err)
	out := map[string]string{}
	for _, s := range list.GetItems() {
		if s.GetState() == cri.PodSandboxState_SANDBOX_READY {
			require.NotContains(b.t, out, s.GetMetadata().GetName(), "two sandboxes of one pod")
			out[s.GetMetadata().GetName()] = s.GetId()
		}
	}
	return out
}

// folderPods is how many pods TestPodsOfAFolder has.
const folderPods = 6

func TestPodsOfAFolder(t *testing.T) {
	t.Parallel()
	testFolder(t, newBed(t, webs(folderPods)...))
}

// TestPodsOfAFolderOverDocker: the same over our own shim.
func TestPodsOfAFolderOverDocker(t *testing.T) {
	t.Parallel()
	testFolder(t, newDockerBed(t, webs(folderPods)...))
}

// TestPodsThatNobodyDeclares: a pod's own annotations, which the runtime hands
// over, are all that an agent without its object needs.
func TestPodsThatNobodyDeclares(t *testing.T) {
	t.Parallel()
	testUndeclared(t, newBed(t))
}

// TestPodsThatNobodyDeclaresOverDocker: the same over our own shim.
func TestPodsThatNobodyDeclaresOverDocker(t *testing.T) {
	t.Parallel()
	testUndeclared(t, newDockerBed(t))
}

func testUndeclared(t *testing.T, b *bed) {
	t.Helper()
	b.startNode()
	fixed := web(0)
	fixed.Annotations["ovn.kubernetes.io/ip_address"] = "10.16.9.9"
	fixed.Annotations["ovn.kubernetes.io/vlan_id"] = "100"
	b.write(fixed)
	b.write(web(1))
	for i := range 2 {
		up := b.awaitPod(fmt.Sprintf("web-%d", i), ready)
		addrs := b.exec(&up, "ip", "-o", "-4", "addr")
		require.Contains(t, addrs, up.Status.PodIP+"/")
		require.Contains(t, addrs, "net1")
		require.Contains(t, addrs, "10.20.")
		require.Equal(t, i == 0, up.Status.PodIP == "10.16.9.9")
	}
	require.Len(t, strings.Fields(b.OVS.Vsctl("--bare", "--columns=name", "find", "Port", "tag=100")), 1)
	b.erase("web-0")
	b.erase("web-1")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// testFolder brings pods up, changes two and takes all down.
func testFolder(t *testing.T, b *bed) {
	t.Helper()
	const pods = folderPods
	b.startNode()
	for i := range pods {
		b.write(web(i))
	}
	up := make([]v1.Pod, pods)
	for i := range pods {
		up[i] = b.awaitPod(fmt.Sprintf("web-%d", i), ready)
		addrs := b.exec(&up[i], "ip", "-o", "-4", "addr")
		require.Contains(t, addrs, up[i].Status.PodIP+"/")
		require.Contains(t, addrs, "net1")
		require.Contains(t, addrs, "10.20.")
	}
	_, err := b.Try("ping", "-c1", "-W5", up[1].Status.PodIP)
	require.NoError(t, err)
	had := b.sandboxes()

	// A label is no reason to touch a container; its environment is.
	labelled, changed := web(0), web(1)
	labelled.Labels["app"] = "other"
	changed.Spec.Containers[0].Env = []v1.EnvVar{{Name: "COLOUR", Value: "red"}, {
		Name: "WHO", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
	}}
	b.write(labelled)
	b.write(changed)
	now := b.awaitPod("web-1", func(p *v1.Pod) string {
		if p.Status.ContainerStatuses[0].ContainerID == up[1].Status.ContainerStatuses[0].ContainerID {
			return "the old container"
		}
		return ready(p)
	})
	require.Equal(t, "red web-1-node1\n", b.exec(&now, "sh", "-c", "echo $COLOUR $WHO"))
	same := b.awaitPod("web-0", func(p *v1.Pod) string {
		if p.Labels["app"] != "other" {
			return "the old label"
		}
		return ready(p)
	})
	require.Equal(t, up[0].Status.ContainerStatuses[0].ContainerID, same.Status.ContainerStatuses[0].ContainerID)
	require.Equal(t, had, b.sandboxes())

	for i := range pods {
		b.erase(fmt.Sprintf("web-%d", i))
	}
	b.awaitEmpty()
	b.requireNoLeaks()
}

// full tells that tests are to run with their full counts (make soak).
func full() bool { return os.Getenv("FAIRLEAD_SOAK") != "" }

// painted is a pod whose container knows a colour: another one makes another
// container.
func painted(i int, colour string) *v1.Pod {
	p := web(i)
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "COLOUR", Value: colour}}
	return p
}

// TestKilledAtRandom: pods come, change and go while the process is killed
// again and again, whatever it was doing; its successor goes on, with the
// sandboxes that run, and in the end all is as the folder says.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	pods, kills := 12, 6
	if full() {
		pods, kills = 100, 50
	}
	b := newBed(t, webs(pods)...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	there := map[int]bool{}
	for range kills {
		b.startNode()
		for range 1 + pods/6 {
			i := random.IntN(pods)
			if there[i] && random.IntN(2) == 0 {
				b.erase(fmt.Sprintf("web-%d", i))
				there[i] = false
				continue
			}
			b.write(painted(i, []string{"red", "green"}[random.IntN(2)]))
			there[i] = true
		}
		time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond) // any instant will do
		b.killNode()
	}
	b.startNode()
	for i := range pods {
		b.write(painted(i, "blue"))
	}
	for i := range pods {
		p := b.awaitPod(fmt.Sprintf("web-%d", i), func(p *v1.Pod) string {
			if c := p.Spec.Containers[0].Env; len(c) != 1 || c[0].Value != "blue" {
				return "the old pod"
			}
			return ready(p)
		})
		b.await("its new container", func() error {
			got, err := b.tryExec(&p, "sh", "-c", "echo $COLOUR")
			if err != nil || got != "blue\n" {
				p = b.awaitPod(fmt.Sprintf("web-%d", i), ready)
				return fmt.Errorf("the colour is %q: %w", got, err)
			}
			return nil
		})
	}
	testAdopted(t, b, pods)
}

// testAdopted kills the node, under which pods run, and takes one of them away
// meanwhile: the next one ends that, and leaves the others as they are.
func testAdopted(t *testing.T, b *bed, pods int) {
	t.Helper()
	had := b.sandboxes()
	require.Len(t, had, pods)
	ids := map[string]string{}
	for i := range pods {
		p := b.awaitPod(fmt.Sprintf("web-%d", i), ready)
		ids[p.Name] = p.Status.ContainerStatuses[0].ContainerID
	}
	b.killNode()
	b.erase("web-0")
	b.startNode()
	delete(had, "web-0-node1")
	b.await("the end of web-0", func() error {
		if n := len(b.sandboxes()); n != pods-1 {
			return fmt.Errorf("%d sandboxes", n)
		}
		return nil
	})
	for i := 1; i < pods; i++ {
		p := b.awaitPod(fmt.Sprintf("web-%d", i), ready)
		require.Equal(t, ids[p.Name], p.Status.ContainerStatuses[0].ContainerID)
	}
	require.Equal(t, had, b.sandboxes())
	for i := 1; i < pods; i++ {
		b.erase(fmt.Sprintf("web-%d", i))
	}
	b.awaitEmpty()
	b.requireNoLeaks()
}

// TestOrderOfContainers: init containers one after the other, the sidecar from
// its place on, and after all others at the end.
func TestOrderOfContainers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	always := v1.ContainerRestartPolicyAlways
	p := web(0)
	p.Annotations = nil
	note := func(c v1.Container) v1.Container {
		c.VolumeMounts = []v1.VolumeMount{{Name: "order", MountPath: "/order"}}
		return c
	}
	dir := b.Dir + "/order"
	p.Spec.Volumes = []v1.Volume{{Name: "order", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{
		Path: dir, Type: new(v1.HostPathDirectoryOrCreate),
	}}}}
	lives := func(name string) v1.Container {
		return note(shell(name, "echo "+name+" begins >>/order/log; trap 'echo "+name+" ends >>/order/log; exit 0' TERM; while :; do sleep 1 & wait $!; done"))
	}
	side := lives("side")
	side.RestartPolicy = &always
	main := lives("main")
	main.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "echo hook >>/order/log"}}}}
	p.Spec.InitContainers = []v1.Container{
		note(shell("first", "echo first >>/order/log")), side,
		// Fails once: the next instance finds the mark.
		note(shell("second", "if [ -e /order/mark ]; then echo second >>/order/log; else touch /order/mark; exit 3; fi")),
	}
	p.Spec.Containers = []v1.Container{main}
	b.startNode()
	b.write(p)
	got := b.awaitPod("web-0", ready)
	require.Equal(t, int32(1), got.Status.InitContainerStatuses[2].RestartCount)
	b.await("the main container", func() error {
		if text := b.Run("cat", dir+"/log"); !strings.Contains(text, "main begins") {
			return fmt.Errorf("%q", text)
		}
		return nil
	})
	b.erase("web-0")
	b.awaitEmpty()
	require.Equal(t, []string{"first", "side", "begins", "second", "main", "begins", "hook", "main", "ends", "side", "ends"},
		strings.Fields(b.Run("cat", dir+"/log")))
	b.requireNoLeaks()
}

// TestPodsThatEnd: the restart policy decides; what has ended is not run again,
// by no successor either.
func TestPodsThatEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	made := func(i int, policy v1.RestartPolicy, script string) *v1.Pod {
		p := web(i)
		p.Annotations, p.Spec.RestartPolicy = nil, policy
		p.Spec.Containers = []v1.Container{shell("c", script)}
		return p
	}
	b.startNode()
	b.write(made(0, v1.RestartPolicyNever, "echo gone >/dev/termination-log; exit 7"))
	b.write(made(1, v1.RestartPolicyOnFailure, "exit 0"))
	b.write(made(2, v1.RestartPolicyAlways, "exit 5"))
	bad := made(3, v1.RestartPolicyAlways, forever)
	bad.Spec.Containers[0].Image, bad.Spec.Containers[0].ImagePullPolicy = "fairlead.local/none:1", v1.PullIfNotPresent
	b.write(bad)
	phase := func(want v1.PodPhase) func(*v1.Pod) string {
		return func(p *v1.Pod) string {
			if p.Status.Phase != want {
				return "not " + string(want)
			}
			return ""
		}
	}
	failed := b.awaitPod("web-0", phase(v1.PodFailed))
	require.Equal(t, int32(7), failed.Status.ContainerStatuses[0].State.Terminated.ExitCode)
	require.Equal(t, "gone\n", failed.Status.ContainerStatuses[0].State.Terminated.Message)
	b.awaitPod("web-1", phase(v1.PodSucceeded))
	b.awaitPod("web-2", func(p *v1.Pod) string {
		for _, c := range p.Status.ContainerStatuses { // none before its first turn
			if w := c.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" {
				return ""
			}
		}
		return "not in back-off"
	})
	b.awaitPod("web-3", func(p *v1.Pod) string {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && strings.Contains(c.Message, "ErrImagePull") && strings.Contains(c.Message, "fairlead.local/none:1") {
				return ""
			}
		}
		return "not explained"
	})

	b.killNode()
	b.startNode()
	again := b.awaitPod("web-0", phase(v1.PodFailed))
	require.Equal(t, failed.Status.ContainerStatuses[0].ContainerID, again.Status.ContainerStatuses[0].ContainerID)
	for i := range 4 {
		b.erase(fmt.Sprintf("web-%d", i))
	}
	b.awaitEmpty()
	b.requireNoLeaks()
}

// TestNameIsHandedOn: a file that changes is another pod of the same name,
// which has its predecessor's fixed address and so cannot start beside it.
func TestNameIsHandedOn(t *testing.T) {
	t.Parallel()
	p := web(0)
	p.UID = "" // made from the file's text
	p.Annotations["ovn.kubernetes.io/ip_address"] = "10.16.7.7"
	b := newBed(t, p)
	b.startNode()
	b.write(p)
	old := b.awaitPod("web-0", ready)
	require.Equal(t, "10.16.7.7", old.Status.PodIP)
	p.Labels["app"] = "other"
	b.write(p)
	now := b.awaitPod("web-0", func(n *v1.Pod) string {
		if n.UID == old.UID {
			return "the old pod"
		}
		return ready(n)
	})
	require.Equal(t, old.Status.PodIP, now.Status.PodIP)
	require.Len(t, b.sandboxes(), 1)
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// TestNoNetwork: a pod says why it does not run.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	p := web(0)
	p.Annotations["k8s.v1.cni.cncf.io/networks"] = "nowhere"
	b := newBed(t, p)
	b.startNode()
	b.write(p)
	got := b.awaitPod("web-0", func(p *v1.Pod) string {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReadyToStartContainers && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "nowhere") {
				return ""
			}
		}
		return "not explained"
	})
	require.Equal(t, v1.PodPending, got.Status.Phase)
	require.Equal(t, "FailedCreatePodSandBox", got.Status.Reason)
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// TestRuntimeAway: pods are brought up and taken down once the runtime is back.
func TestRuntimeAway(t *testing.T) {
	t.Parallel()
	b := newBed(t, webs(2)...)
	b.startNode()
	b.write(web(0))
	b.awaitPod("web-0", ready)
	b.containerd.Kill()
	b.erase("web-0")
	b.write(web(1))
	b.awaitPod("web-1", func(*v1.Pod) string { return "" }) // heard of
	b.containerd.Start()
	b.awaitPod("web-1", ready)
	b.erase("web-1")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// TestSharedByContainers: the pod's volumes, hosts and network, and the node's
// own network for a pod that asks for it.
func TestSharedByContainers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p := web(0)
	p.Annotations = nil
	p.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"alias"}}}
	p.Spec.Containers = []v1.Container{shell("reader", forever), shell("writer", "echo hello >/tmp/said; "+forever)}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].VolumeMounts = []v1.VolumeMount{{Name: "tmp", MountPath: "/tmp", SubPath: "below"}}
	}
	host := web(1)
	host.Annotations, host.Spec.HostNetwork = nil, true
	b.startNode()
	b.write(p)
	b.write(host)
	got := b.awaitPod("web-0", ready)
	b.await("the other container's file", func() error {
		if out := b.exec(&got, "sh", "-c", "cat /tmp/said || true"); out != "hello\n" {
			return fmt.Errorf("%q", out)
		}
		return nil
	})
	require.Contains(t, b.exec(&got, "cat", "/etc/hosts"), "192.0.2.7\talias")
	require.Contains(t, b.exec(&got, "cat", "/etc/hosts"), got.Status.PodIP+"\tweb-0-node1")
	require.Equal(t, "web-0-node1\n", b.exec(&got, "hostname"))
	hosted := b.awaitPod("web-1", ready)
	require.Equal(t, b.Run("readlink", "/proc/self/ns/net"), b.exec(&hosted, "readlink", "/proc/self/ns/net"))
	b.erase("web-0")
	b.erase("web-1")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// TestSamePodAgain: a pod that comes back while it ends is begun anew after its
// end, not kept.
func TestSamePodAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, webs(1)...)
	p := web(0)
	// Its hook waits until the test lets it end.
	p.Spec.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: b.Dir}}}}
	p.Spec.TerminationGracePeriodSeconds = new(int64(600))
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
	c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "until [ -e /tmp/end ]; do sleep 0.1; done"}}}}
	b.startNode()
	b.write(p)
	old := b.awaitPod("web-0", ready)
	b.erase("web-0")
	b.awaitPod("web-0", func(p *v1.Pod) string {
		if p.Status.Reason != node.ReasonTerminating {
			return "not terminating"
		}
		return ""
	})
	b.write(p)
	require.NoError(t, os.WriteFile(filepath.Join(b.Dir, "end"), nil, 0o600))
	now := b.awaitPod("web-0", func(p *v1.Pod) string {
		if p.Status.Reason == node.ReasonTerminating {
			return "the old pod"
		}
		return ready(p)
	})
	require.Equal(t, old.UID, now.UID)
	require.NotEqual(t, old.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)
	require.Zero(t, now.Status.ContainerStatuses[0].RestartCount)
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// TestSourceThatIsLate: as long as one source has not spoken, a pod that no
// other names may be its.
func TestSourceThatIsLate(t *testing.T) {
	t.Parallel()
	b := newBed(t, webs(2)...)
	var asked, answers atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1); answers.Load() == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "PodList", "items": []}`))
	}))
	require.NoError(t, server.Listener.Close()) // this machine's; the node has its own
	require.NoError(t, relay.InNetns(b.NetnsPath(), func() (err error) {
		server.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	server.Start()
	defer server.Close()
	b.startNode()
	b.write(web(0))
	b.awaitPod("web-0", ready)
	had := b.sandboxes()
	b.killNode()
	b.erase("web-0")
	b.write(web(1))

	b.startNode("--url", server.URL)
	b.awaitPod("web-1", ready)
	b.await("the second question", func() error {
		if asked.Load() < 2 {
			return errors.New("the source was asked once")
		}
		return nil
	})
	require.Equal(t, had["web-0-node1"], b.sandboxes()["web-0-node1"])
	answers.Store(1)
	b.await("the end of web-0", func() error {
		if id, has := b.sandboxes()["web-0-node1"]; has {
			return errors.New(id)
		}
		return nil
	})
	b.erase("web-1")
	b.awaitEmpty()
	b.requireNoLeaks()
}
