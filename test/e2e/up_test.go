package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// upBed is a machine with Open vSwitch and a runtime, on which `fairlead up`
// runs the pods of a folder.
type upBed struct {
	*testbed.Node
	t    *testing.T
	dir  string
	args []string // of up
	// runtime asks containerd, or our shim while up runs; not by the code under
	// test.
	runtime cri.RuntimeServiceClient
	base    testbed.Inventory

	proc *exec.Cmd
	log  string
}

// upNetworks stand in the folder beside the pods.
const upNetworks = `{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: ovn-default}, spec: {default: true, cidrBlock: 10.16.0.0/16, natOutgoing: true}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: storage, namespace: default},
  spec: {config: '{"cniVersion": "1.0.0", "type": "fairlead", "provider": "storage.default.ovn"}'}}
---
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: storage}, spec: {cidrBlock: 10.20.0.0/16, provider: storage.default.ovn}}
---
{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: vlan100}, spec: {id: 100}}
---
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: backend}, spec: {cidrBlock: 10.100.0.0/24, vlan: vlan100}}
`

// upPod has eth0 and net1; notes are more annotations, text differs for a pod
// that is to be another one.
func upPod(name, notes, text string) string {
	return fmt.Sprintf(`---
{apiVersion: v1, kind: Pod, metadata: {name: %s, annotations: {k8s.v1.cni.cncf.io/networks: storage%s}},
 spec: {terminationGracePeriodSeconds: 2, containers: [{name: c, image: %q, env: [{name: TEXT, value: %q}],
  command: [sh, -c, 'trap exit TERM; while :; do sleep 1 & wait $!; done']}]}}
`, name, notes, kube.Busybox, text)
}

func newUpBed(t *testing.T) *upBed {
	t.Helper()
	b := &upBed{Node: testbed.New(t), t: t}
	b.dir = filepath.Join(b.Dir, "disk/pods")
	require.NoError(t, os.MkdirAll(b.dir, 0o755))
	b.write("networks.yaml", upNetworks)
	b.args = []string{"--dir=" + b.dir, "--node-name=node1", "--log-dir=" + filepath.Join(b.Dir, "disk/pod-logs")}
	return b
}

// newUpDocker has a Docker Engine of its own.
func newUpDocker(t *testing.T) *upBed {
	t.Helper()
	b := newUpBed(t)
	e := docker.Start(t, b.Node)
	b.args = append(b.args, "--runtime=docker", "--docker-host="+e.Host, "--sandbox-image="+docker.Pause, "--cgroup-root="+e.Cgroup)
	b.connect("run/fairlead/cri.sock")
	b.begin()
	return b
}

func (b *upBed) connect(socket string) {
	b.t.Helper()
	conn, err := podruntime.Dial("unix://" + filepath.Join(b.Dir, socket))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, conn.Close()) })
	b.runtime = cri.NewRuntimeServiceClient(conn)
}

// begin has the folder up and down once without pods: what the agent makes of a
// node stays there.
func (b *upBed) begin() {
	b.t.Helper()
	b.t.Cleanup(b.end)
	b.up()
	b.awaitUp()
	require.Contains(b.t, b.down(), "00-fairlead.conflist")
	b.base = b.Inventory()
}

// end is for tests that failed.
func (b *upBed) end() {
	if b.t.Failed() {
		out, err := b.TryFairlead("down", "--verbose")
		text, _ := os.ReadFile(b.log)
		b.t.Logf("down: %s %v\nup:\n%s", out, err, text)
	}
	b.kill()
}

// up starts `fairlead up` in the foreground and does not wait.
func (b *upBed) up(args ...string) {
	b.t.Helper()
	b.proc = b.Cmd(context.Background(), append(append([]string{testbed.Program(b.t), "up"}, b.args...), args...)...)
	b.log = filepath.Join(b.Dir, "log/up")
	out, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(b.t, err)
	defer out.Close()
	b.proc.Stdout, b.proc.Stderr = out, out
	require.NoError(b.t, b.proc.Start())
}

// kill ends the process as nothing can answer.
func (b *upBed) kill() {
	if b.proc != nil && b.proc.ProcessState == nil {
		_ = b.proc.Process.Kill()
		_ = b.proc.Wait()
	}
}

// awaitUp waits until all pods of the folder are up, and gives the table.
func (b *upBed) awaitUp() string {
	b.t.Helper()
	var out string
	eventually(b.t, func() string {
		var err error
		if out, err = b.TryFairlead(append(append([]string{"up", "--detach"}, b.args...), "--timeout=20s")...); err != nil {
			return err.Error()
		}
		return ""
	})
	return out
}

func (b *upBed) down(args ...string) string {
	b.t.Helper()
	out := b.Fairlead(append([]string{"down"}, args...)...)
	if b.proc != nil {
		_ = b.proc.Wait()
	}
	return out
}

// write puts a file into the folder, by rename.
func (b *upBed) write(name, text string) {
	b.t.Helper()
	tmp := filepath.Join(b.Dir, "tmp-"+name)
	require.NoError(b.t, os.WriteFile(tmp, []byte(text), 0o600))
	require.NoError(b.t, os.Rename(tmp, filepath.Join(b.dir, name)))
}

func (b *upBed) erase(name string) {
	b.t.Helper()
	require.NoError(b.t, os.Remove(filepath.Join(b.dir, name)))
}

// sandboxes are the ids of those that run, by pod.
func (b *upBed) sandboxes() map[string]string {
	b.t.Helper()
	list, err := b.runtime.ListPodSandbox(b.t.Context(), &cri.ListPodSandboxRequest{})
	require.NoError(b.t, err)
	out := map[string]string{}
	for _, s := range list.GetItems() {
		if s.GetState() == cri.PodSandboxState_SANDBOX_READY {
			out[s.GetMetadata().GetName()] = s.GetId()
		}
	}
	return out
}

// container runs a command in a pod's container.
func (b *upBed) container(pod string, argv ...string) string {
	b.t.Helper()
	list, err := b.runtime.ListContainers(b.t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}, LabelSelector: map[string]string{"io.kubernetes.pod.name": pod},
	}})
	require.NoError(b.t, err)
	require.Len(b.t, list.GetContainers(), 1)
	resp, err := b.runtime.ExecSync(b.t.Context(), &cri.ExecSyncRequest{ContainerId: list.GetContainers()[0].GetId(), Cmd: argv, Timeout: 20})
	require.NoError(b.t, err)
	require.Zero(b.t, resp.GetExitCode(), "%s%s", resp.GetStdout(), resp.GetStderr())
	return string(resp.GetStdout())
}

var inet = regexp.MustCompile(`inet ([0-9.]+)/`)

// ip is a pod's address on an interface, as its container sees it.
func (b *upBed) ip(pod, nic string) string {
	b.t.Helper()
	m := inet.FindStringSubmatch(b.container(pod, "ip", "-4", "-o", "addr", "show", "dev", nic))
	require.Len(b.t, m, 2)
	return m[1]
}

// requireNothing wants the machine as it was before the first pod.
func (b *upBed) requireNothing() {
	b.t.Helper()
	b.RequireNoLeaks(b.base)
	left, err := filepath.Glob(filepath.Join(b.Dir, "disk/pod-logs/*"))
	require.NoError(b.t, err)
	require.Empty(b.t, left)
}

// TestUp_Docker: from nothing to pods with two NICs over Docker, and back.
func TestUp_Docker(t *testing.T) {
	t.Parallel()
	testUp(t, newUpDocker(t))
}

func testUp(t *testing.T, b *upBed) {
	t.Helper()
	b.write("a.yaml", upPod("web-0", "", "one"))
	b.write("b.yaml", upPod("web-1", `, ovn.kubernetes.io/ip_address: 10.16.0.77`, "one"))
	b.up()
	table := b.awaitUp()
	require.Regexp(t, `(?m)^default/web-1-node1 +Running +10\.16\.0\.77 +eth0=fairlead, net1=default/storage 10\.20\.0\.\d+$`, table)
	require.Equal(t, "10.16.0.77", b.ip("web-1-node1", "eth0"))
	for _, nic := range []string{"eth0", "net1"} {
		b.container("web-0-node1", "ping", "-c1", "-W5", b.ip("web-1-node1", nic))
	}
	require.Contains(t, b.Fairlead("get", "pods"), "web-0-node1")

	// What changes in the folder changes on the machine.
	before := b.sandboxes()
	b.write("a.yaml", upPod("web-0", "", "two"))
	eventually(t, func() string {
		if id := b.sandboxes()["web-0-node1"]; id == "" || id == before["web-0-node1"] {
			return "the old pod"
		}
		return ""
	})
	b.awaitUp()
	require.Equal(t, "two\n", b.container("web-0-node1", "sh", "-c", "echo $TEXT"))
	require.Equal(t, before["web-1-node1"], b.sandboxes()["web-1-node1"])
	b.erase("b.yaml")
	eventually(t, func() string {
		if _, is := b.sandboxes()["web-1-node1"]; is {
			return "web-1 runs"
		}
		return ""
	})

	out := b.down()
	require.Contains(t, out, "removed pod default/web-0-node1\n")
	require.Equal(t, "nothing is up\n", b.down())
	b.requireNothing()
}
