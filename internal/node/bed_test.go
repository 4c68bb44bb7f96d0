package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
)

// patience bounds every wait. It decides how late a failure is seen, never
// whether a test passes: a call of the runtime may take four minutes.
const patience = 5 * time.Minute

// daemon is a process in the node, known by its pid.
type daemon struct {
	cmd *exec.Cmd
	log string
}

// bed is a machine with Open vSwitch, the agent and containerd, on which
// `fairlead node` runs the pods of a folder.
type bed struct {
	*testbed.Node
	t       *testing.T
	cgroups *cgroup.Group
	// runtime asks containerd; not through the code under test.
	runtime cri.RuntimeServiceClient
	base    testbed.Inventory

	containerd *kube.Containerd // nil over Docker
	docker     *docker.Engine   // nil over containerd
	node       *daemon
	endpoint   string // the runtime's, for the node
	starts     int
	killed     bool // the node was
}

// newBed tells the agent of these pods' metadata before it starts. Of others it
// hears by the runtime.
func newBed(t *testing.T, pods ...*v1.Pod) *bed {
	t.Helper()
	b := newMachine(t, pods...)
	b.containerd = kube.NewContainerd(t, b.Node)
	b.runtime = b.containerd
	b.containerd.Start()
	t.Cleanup(b.end)
	b.base = b.Inventory()
	return b
}

// newDockerBed has `fairlead cri` over Docker in containerd's place.
func newDockerBed(t *testing.T, pods ...*v1.Pod) *bed {
	t.Helper()
	b := newMachine(t, pods...)
	logs := filepath.Join(b.Dir, "disk/var/log")
	b.Run("mkdir", "-p", logs)
	b.Run("mount", "--bind", logs, "/var/log")
	b.docker = docker.Start(t, b.Node)
	shim := b.docker.StartCRI()
	b.runtime, b.endpoint = shim.RuntimeServiceClient, "unix://"+shim.Socket
	t.Cleanup(b.end)
	b.base = b.Inventory()
	return b
}

// newMachine has no runtime yet.
func newMachine(t *testing.T, pods ...*v1.Pod) *bed {
	t.Helper()
	b := &bed{Node: testbed.New(t), t: t, endpoint: "unix:///run/containerd/containerd.sock"}
	var err error
	b.cgroups, err = cgroup.New("fln-" + filepath.Base(b.Dir))
	require.NoError(t, err)
	t.Cleanup(b.close)
	require.NoError(t, os.MkdirAll(b.pods(), 0o755))
	b.WriteObjects("networks.yaml", `{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: storage, namespace: default},
  spec: {config: '{"cniVersion": "1.0.0", "type": "fairlead", "provider": "storage.default.ovn"}'}}
---
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: storage}, spec: {cidrBlock: 10.20.0.0/16, gateway: 10.20.0.1, provider: storage.default.ovn}}
`)
	for _, p := range pods {
		seen := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		seen.Name, seen.Namespace, seen.Annotations = p.Name+"-node1", "default", p.Annotations
		text, err := json.Marshal(seen)
		require.NoError(t, err)
		b.WriteObjects("pod-"+p.Name+".yaml", string(text))
	}
	b.Agent().WaitReady()
	conf := filepath.Join(b.Dir, "disk/etc/cni/net.d/00-fairlead.conflist")
	require.NoError(t, os.WriteFile(conf, []byte(`{"cniVersion": "1.1.0", "name": "fairlead", "plugins": [
		{"type": "fairlead", "capabilities": {"io.kubernetes.cri.pod-annotations": true}}]}`), 0o600))
	return b
}

// reboot ends all that runs, at once, and brings agent and containerd up again.
func (b *bed) reboot() {
	b.t.Helper()
	b.killNode()
	b.containerd.Kill()
	require.NoError(b.t, b.cgroups.Remove())
	b.endStrayShims()
	b.Reboot()
	var err error
	b.cgroups, err = cgroup.New(strings.TrimPrefix(b.cgroups.Name, "/"))
	require.NoError(b.t, err)
	b.Agent().WaitReady()
	b.containerd.Start()
}

// pods is the folder of pods, at one path inside and outside.
func (b *bed) pods() string { return filepath.Join(b.Dir, "pods") }

func (b *bed) daemon(name string, argv ...string) *daemon {
	b.t.Helper()
	b.starts++
	d := &daemon{log: filepath.Join(b.Dir, "log", fmt.Sprintf("%s-%d", name, b.starts))}
	out, err := os.Create(d.log)
	require.NoError(b.t, err)
	defer out.Close()
	d.cmd = b.Cmd(context.Background(), argv...) // tests end it on purpose
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.Env = append(os.Environ(), "FAIRLEAD_FAIL_DIR="+filepath.Join(b.Dir, "fail"))
	require.NoError(b.t, d.cmd.Start())
	return d
}

func (d *daemon) end(s syscall.Signal) {
	if d != nil && d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Signal(s)
		_ = d.cmd.Wait() // killed on purpose
	}
}

// startNode starts `fairlead node` and does not wait.
func (b *bed) startNode(args ...string) {
	b.t.Helper()
	b.node = b.daemon("node", append([]string{testbed.Program(b.t), "node", "--pod-dir", b.pods(), "--node-name", "node1",
		"--runtime", b.endpoint, "--cgroup-root", b.cgroups.Name}, args...)...)
}

func (b *bed) killNode() {
	b.killed = true
	b.node.end(syscall.SIGKILL)
}

// await looks until look returns nil.
func (b *bed) await(what string, look func() error) {
	b.t.Helper()
	err := look()
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); err = look() {
		time.Sleep(50 * time.Millisecond)
	}
	require.NoError(b.t, err, what)
}

// write puts a pod into the folder.
func (b *bed) write(pod *v1.Pod) {
	b.t.Helper()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	text, err := json.Marshal(pod)
	require.NoError(b.t, err)
	tmp := filepath.Join(b.Dir, pod.Name+".tmp")
	require.NoError(b.t, os.WriteFile(tmp, text, 0o600))
	require.NoError(b.t, os.Rename(tmp, filepath.Join(b.pods(), pod.Name+".json")))
}

// erase takes a pod out of the folder.
func (b *bed) erase(name string) {
	b.t.Helper()
	require.NoError(b.t, os.Remove(filepath.Join(b.pods(), name+".json")))
}

// list asks the node for its pods, by name.
func (b *bed) list() (map[string]v1.Pod, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.Dir, "run/fairlead/node.sock"))
	}}}
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://node/pods", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list v1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	out := map[string]v1.Pod{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i]
	}
	return out, nil
}

// awaitPod waits until a pod is as good says, "" when it is.
func (b *bed) awaitPod(name string, good func(*v1.Pod) string) v1.Pod {
	b.t.Helper()
	var pod v1.Pod
	b.await("pod "+name, func() error {
		all, err := b.list()
		if err != nil {
			return err
		}
		var there bool
		if pod, there = all[name+"-node1"]; !there {
			return fmt.Errorf("there is no pod %s", name)
		}
		if why := good(&pod); why != "" {
			return fmt.Errorf("%s: %+v", why, pod.Status)
		}
		return nil
	})
	return pod
}

// ready is a condition for awaitPod.
func ready(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return ""
		}
	}
	return "not ready"
}

// awaitEmpty waits until the runtime has nothing any more.
func (b *bed) awaitEmpty() {
	b.t.Helper()
	healed, began := !b.killed || b.containerd == nil, time.Now()
	b.await("the end of all pods", func() error {
		if !healed && time.Since(began) > patience/5 {
			// containerd 2.3.7, whose client goes while it asks for a new task's pid,
			// calls the container ended, keeps the task, and so can remove neither;
			// its own next start does.
			b.t.Log("containerd is started anew")
			healed = true
			require.NoError(b.t, b.containerd.Stop())
			b.containerd.Start()
		}
		boxes, err := b.runtime.ListPodSandbox(b.t.Context(), &cri.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		dirs, err := os.ReadDir(b.Path("/var/lib/fairlead/node/pods"))
		if err == nil && len(boxes.GetItems())+len(dirs) > 0 {
			err = fmt.Errorf("%d sandboxes, %d folders", len(boxes.GetItems()), len(dirs))
		}
		return err
	})
}

// requireNoLeaks ends the node and wants the machine as it was before the first
// pod.
func (b *bed) requireNoLeaks() {
	b.t.Helper()
	b.node.end(syscall.SIGTERM)
	require.True(b.t, b.node.cmd.ProcessState.Success(), "the node's end: %s", b.node.cmd.ProcessState)
	b.RequireNoLeaks(b.base)
	for _, dir := range b.cgroups.Paths {
		for _, class := range []string{"", "/burstable", "/besteffort"} {
			left, err := filepath.Glob(dir + class + "/pod*")
			require.NoError(b.t, err)
			require.Empty(b.t, left)
		}
	}
	logs, err := filepath.Glob(filepath.Join(b.Dir, "disk/var/log/pods/*"))
	require.NoError(b.t, err)
	require.Empty(b.t, logs)
	if b.killed {
		b.endStrayShims()
	}
}

// endStrayShims ends what containerd forgets when its client goes in the middle
// of a start: a shim without a container, which it finds at its own next start
// neither. Nothing may run below it.
func (b *bed) endStrayShims() {
	b.t.Helper()
	mine, err := os.Readlink(filepath.Join(filepath.Dir(b.NetnsPath()), "mnt"))
	require.NoError(b.t, err)
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(b.t, err)
	for _, dir := range all {
		argv, _ := os.ReadFile(dir + "/cmdline") // it may have ended
		ns, _ := os.Readlink(dir + "/ns/mnt")
		if ns != mine || !bytes.Contains(argv, []byte("containerd-shim-runc-v2")) {
			continue
		}
		below, _ := filepath.Glob(dir + "/task/*/children")
		for _, f := range below {
			children, _ := os.ReadFile(f)
			require.Empty(b.t, strings.TrimSpace(string(children)), "below a shim that nobody knows")
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(b.t, err)
		b.t.Logf("containerd has left a shim, pid %d", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// end ends the node, then what a failed test left, before the runtime ends.
func (b *bed) end() {
	b.node.end(syscall.SIGKILL)
	list, err := b.runtime.ListPodSandbox(context.Background(), &cri.ListPodSandboxRequest{})
	if err != nil {
		return
	}
	for _, s := range list.GetItems() {
		_, _ = b.runtime.StopPodSandbox(context.Background(), &cri.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		_, _ = b.runtime.RemovePodSandbox(context.Background(), &cri.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
	}
}

// close removes the cgroups, with all that is left in them.
func (b *bed) close() {
	if b.t.Failed() {
		logs, _ := filepath.Glob(filepath.Join(b.Dir, "log/node-*"))
		for _, f := range logs {
			text, _ := os.ReadFile(f)
			b.t.Logf("%s:\n%s", filepath.Base(f), text)
		}
	}
	require.NoError(b.t, b.cgroups.Remove())
}
