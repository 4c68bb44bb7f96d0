package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
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

	proc       *upDaemon
	containerd *kube.Containerd // of newUpContainerd
	engine     *docker.Engine   // of newUpDocker
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

// upObjects are of the kinds that only the node loop knows what to do with.
var upObjects = fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: colours, namespace: default}, data: {first: blue}}
---
{apiVersion: v1, kind: Secret, metadata: {name: hidden, namespace: default}, stringData: {key: value}}
---
{apiVersion: v1, kind: Pod, metadata: {name: reader}, spec: {terminationGracePeriodSeconds: 2, containers: [{name: c, image: %q,
  command: [sh, -c, 'trap exit TERM; while :; do sleep 1 & wait $!; done'],
  env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: colours, key: first}}}, {name: KEY, valueFrom: {secretKeyRef: {name: hidden, key: key}}}]}]}}
`, kube.Busybox)

func newUpBed(t *testing.T) *upBed {
	t.Helper()
	b := &upBed{Node: testbed.New(t), t: t}
	b.dir = filepath.Join(b.Dir, "disk/pods")
	require.NoError(t, os.MkdirAll(b.dir, 0o755))
	b.write("networks.yaml", upNetworks)
	b.args = []string{"--dir=" + b.dir, "--node-name=node1", "--log-dir=" + filepath.Join(b.Dir, "disk/pod-logs")}
	return b
}

// newUpDocker has a Docker Engine of its own, which `auto` takes: containerd
// serves no CRI.
func newUpDocker(t *testing.T) *upBed {
	t.Helper()
	b := newUpBed(t)
	e := docker.Start(t, b.Node)
	b.engine = e
	b.args = append(b.args, "--docker-host="+e.Host, "--sandbox-image="+docker.Pause, "--cgroup-root="+e.Cgroup)
	conn, err := podruntime.Dial("unix://" + filepath.Join(b.Dir, "run/fairlead/cri.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	b.runtime = cri.NewRuntimeServiceClient(conn)
	b.begin()
	return b
}

// newUpContainerd has containerd with its CRI plugin, where `auto` looks.
func newUpContainerd(t *testing.T) *upBed {
	t.Helper()
	return newUpContainerdOf(t, kube.Containerd2)
}

// newUpContainerdOf is newUpContainerd with a version.
func newUpContainerdOf(t *testing.T, v kube.ContainerdVersion) *upBed {
	t.Helper()
	b := newUpBed(t)
	group, err := cgroup.New("flu-" + filepath.Base(b.Dir))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, group.Remove()) })
	b.args = append(b.args, "--cgroup-root="+group.Name)
	b.containerd = kube.NewContainerdOf(t, b.Node, v)
	b.runtime = b.containerd
	b.containerd.Start()
	b.begin()
	return b
}

// upDaemon is a process in the node, known by its pid.
type upDaemon struct{ cmd *exec.Cmd }

func (b *upBed) daemon(name string, env []string, argv ...string) *upDaemon {
	b.t.Helper()
	out, err := os.OpenFile(filepath.Join(b.Dir, "log", name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(b.t, err)
	defer out.Close()
	d := &upDaemon{cmd: b.Cmd(context.Background(), argv...)} // tests end it on purpose
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	require.NoError(b.t, d.cmd.Start())
	return d
}

// end is nothing for one that has ended, or was never started.
func (d *upDaemon) end(s syscall.Signal) {
	if d != nil && d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Signal(s)
		_ = d.cmd.Wait() // killed on purpose
	}
}

// begin has the folder up and down once without pods: the bridge and the
// agent's files stay.
func (b *upBed) begin() {
	b.t.Helper()
	b.t.Cleanup(b.end)
	b.up()
	b.awaitUp()
	require.Contains(b.t, b.down(), "00-fairlead.conflist")
	require.NotContains(b.t, b.Run("ip", "address"), "10.16.0.1/", "a gateway is left")
	require.Empty(b.t, b.Run("nft", "list", "ruleset"))
	b.base = b.Inventory()
}

// end is for tests that failed.
func (b *upBed) end() {
	if b.t.Failed() {
		out, err := b.TryFairlead("down", "--verbose")
		text, _ := os.ReadFile(filepath.Join(b.Dir, "log/up"))
		b.t.Logf("down: %s %v\nup:\n%s", out, err, text)
	}
	b.proc.end(syscall.SIGKILL)
}

// up starts `fairlead up` in the foreground and does not wait.
func (b *upBed) up(args ...string) {
	b.t.Helper()
	b.proc = b.daemon("up", nil, append(append([]string{testbed.Program(b.t), "up"}, b.args...), args...)...)
}

// awaitUp waits until all pods of the folder are up, and gives the table.
func (b *upBed) awaitUp() string {
	b.t.Helper()
	eventually(b.t, func() string { // else `--detach` would begin one of its own
		pid, err := os.ReadFile(filepath.Join(b.Dir, "disk/var/lib/fairlead/up.lock"))
		if err != nil || string(pid) != strconv.Itoa(b.proc.cmd.Process.Pid) {
			return fmt.Sprintf("the lock is not up's: %s %v", pid, err)
		}
		return ""
	})
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
	if b.proc != nil && b.proc.cmd.ProcessState == nil {
		require.NoError(b.t, b.proc.cmd.Wait(), "the end of up")
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

// TestUp_Containerd: the same over containerd, which is found.
func TestUp_Containerd(t *testing.T) {
	t.Parallel()
	testUp(t, newUpContainerd(t))
}

func testUp(t *testing.T, b *upBed) {
	t.Helper()
	b.write("a.yaml", upPod("web-0", "", "one"))
	b.write("objects.yaml", upObjects)
	b.write("b.yaml", upPod("web-1", `, ovn.kubernetes.io/ip_address: 10.16.0.77`, "one"))
	b.up()
	table := b.awaitUp()
	require.Regexp(t, `(?m)^default/web-1-node1 +Running +10\.16\.0\.77 +eth0=fairlead, net1=default/storage 10\.20\.0\.\d+$`, table)
	require.Equal(t, "10.16.0.77", b.ip("web-1-node1", "eth0"))
	for _, nic := range []string{"eth0", "net1"} {
		b.container("web-0-node1", "ping", "-c1", "-W5", b.ip("web-1-node1", nic))
	}
	require.Contains(t, b.Fairlead("get", "pods"), "web-0-node1")
	require.Equal(t, "blue\n", b.container("reader-node1", "sh", "-c", "echo $COLOUR"))
	require.NotContains(t, b.Fairlead("status"), "objects.yaml")

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

// netns is where a pod's network namespace is found in the node.
func (b *upBed) netns(pod string) string {
	b.t.Helper()
	st, err := b.runtime.PodSandboxStatus(b.t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: b.sandboxes()[pod], Verbose: true})
	require.NoError(b.t, err)
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	require.NoError(b.t, json.Unmarshal([]byte(st.GetInfo()["info"]), &info))
	for _, n := range info.RuntimeSpec.Linux.Namespaces {
		if n.Type == "network" {
			return n.Path
		}
	}
	require.Fail(b.t, "no network namespace", "%s", st.GetInfo()["info"])
	return ""
}

// upPing is a ping that goes on while the test breaks things.
type upPing struct {
	*upDaemon
	log string
}

// ping pings addr from a pod every 10 ms and returns once it was answered.
func (b *upBed) ping(pod, addr string) *upPing {
	b.t.Helper()
	p := &upPing{log: filepath.Join(b.Dir, "log/ping-"+pod)}
	p.upDaemon = b.daemon("ping-"+pod, nil, "nsenter", "--net="+b.netns(pod), "ping", "-n", "-i", "0.01", addr)
	b.t.Cleanup(func() { p.end(syscall.SIGKILL) })
	p.answers(b.t, 1)
	return p
}

var icmpSeq = regexp.MustCompile(`(?m) bytes from .* icmp_seq=(\d+) .*time=[0-9.]+ ms$`)

// answers waits until so many have come, and tells the number of the last.
func (p *upPing) answers(t *testing.T, n int) (got, last int) {
	t.Helper()
	eventually(t, func() string {
		text, err := os.ReadFile(p.log)
		require.NoError(t, err)
		all := icmpSeq.FindAllStringSubmatch(string(text), -1)
		if got = len(all); got < n {
			return fmt.Sprintf("%d of %d answers", got, n)
		}
		last, err = strconv.Atoi(all[got-1][1])
		require.NoError(t, err)
		return ""
	})
	return got, last
}

// requireNoneLost waits for more answers and wants one for every request.
func (p *upPing) requireNoneLost(t *testing.T) {
	t.Helper()
	got, _ := p.answers(t, 1)
	got, last := p.answers(t, got+20)
	require.Equal(t, last, got, "answers are missing")
}

// TestUpKilled_Docker: the one process is killed at any moment, and Docker once;
// pods and their networks do not notice, and in the end the machine is as the
// folder says.
func TestUpKilled_Docker(t *testing.T) {
	t.Parallel()
	testUpKilled(t, newUpDocker(t))
}

// TestUpKilled_Containerd: the same over containerd.
func TestUpKilled_Containerd(t *testing.T) {
	t.Parallel()
	testUpKilled(t, newUpContainerd(t))
}

// restartRuntime kills the runtime's daemon, too, and starts it again.
func (b *upBed) restartRuntime() {
	b.t.Helper()
	if b.engine != nil {
		b.engine.Kill()
		b.engine.Run()
		return
	}
	b.containerd.Kill()
	b.containerd.Start()
}

func testUpKilled(t *testing.T, b *upBed) {
	t.Helper()
	const others, kills = 3, 8
	b.write("a.yaml", upPod("web-0", "", "one")+upPod("web-1", "", "one"))
	b.up()
	b.awaitUp()
	had := b.sandboxes()
	pings := []*upPing{
		b.ping("web-0-node1", b.ip("web-1-node1", "eth0")),
		b.ping("web-1-node1", b.ip("web-0-node1", "net1")),
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	there := map[int]bool{}
	for range kills {
		i := random.IntN(others)
		name := fmt.Sprintf("other-%d", i)
		if there[i] {
			b.erase(name + ".yaml")
		} else {
			b.write(name+".yaml", upPod(name, "", "one"))
		}
		there[i] = !there[i]
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond) // any moment will do
		b.proc.end(syscall.SIGKILL)
		b.up()
	}
	b.awaitUp()
	want := []string{"web-0-node1", "web-1-node1"}
	for i, is := range there {
		if is {
			want = append(want, fmt.Sprintf("other-%d-node1", i))
		}
	}
	eventually(t, func() string {
		now := slices.Collect(maps.Keys(b.sandboxes()))
		if slices.Sort(now); len(now) != len(want) || len(b.list()) != len(want) {
			return fmt.Sprint(now, b.list())
		}
		return ""
	})
	// Not earlier: a container that Docker is killed over may keep its shim.
	b.restartRuntime()
	b.awaitUp()
	now := b.sandboxes()
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(now)))
	for pod, id := range had {
		require.Equal(t, id, now[pod], pod)
	}
	for _, p := range pings {
		p.requireNoneLost(t)
		p.end(syscall.SIGINT)
	}

	// The end needs no process that runs, and may be killed itself.
	b.proc.end(syscall.SIGKILL)
	down := b.daemon("down", nil, testbed.Program(b.t), "down", "--verbose")
	time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
	down.end(syscall.SIGKILL)
	b.down()
	require.Empty(t, b.list())
	b.requireNothing()
}

// TestUpAfterReboot: pods come back by themselves with their fixed addresses,
// and `down` right after a reboot leaves nothing.
func TestUpAfterReboot(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	b.write("a.yaml", upPod("web-0", `, ovn.kubernetes.io/ip_address: 10.16.0.77`, "one")+upPod("web-1", "", "one"))
	b.up()
	b.awaitUp()
	b.Reboot()
	b.proc.end(syscall.SIGKILL)
	b.containerd.Kill()
	b.containerd.Start()
	b.up()
	b.awaitUp()
	require.Equal(t, "10.16.0.77", b.ip("web-0-node1", "eth0"))
	b.container("web-1-node1", "ping", "-c1", "-W5", "10.16.0.77")

	b.Reboot()
	b.proc.end(syscall.SIGKILL)
	b.containerd.Kill()
	b.containerd.Start()
	b.down()
	left, err := b.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	require.NoError(t, err)
	require.Empty(t, left.GetItems())
	b.requireNothing()
}

// TestUpEndsStrayShims: containerd forgets the shim that it is just starting when
// its client goes, and removes the folder in which that one works. `up` and `down`
// end such shims, and no others.
func TestUpEndsStrayShims(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	b.write("a.yaml", upPod("web-0", "", "one"))
	known := b.shim("known", "k8s.io")
	foreign := b.shim("foreign", "moby")
	b.forget("foreign")
	b.shim("early", "k8s.io")
	b.forget("early")
	b.up()
	b.awaitUp()
	require.Equal(t, []string{"foreign", "known"}, b.shims())

	b.shim("late", "k8s.io")
	b.forget("late")
	b.proc.end(syscall.SIGKILL)
	require.Contains(t, b.down(), "ended 1 shims that containerd had forgotten\n")
	require.Equal(t, []string{"foreign", "known"}, b.shims())
	b.Run("kill", "-9", known, foreign)
	eventually(t, func() string { return strings.Join(b.shims(), " ") })
	b.Run("rm", "-r", "/run/shims")
	b.requireNothing()
}

// shim starts a shim as containerd does, in a folder of its own, and gives its pid.
func (b *upBed) shim(id, namespace string) string {
	b.t.Helper()
	programs, err := kube.Programs()
	require.NoError(b.t, err)
	dir := b.shimDir(id)
	b.Run("sh", "-c", `mkdir -p "$1"; cd "$1"; echo {} >config.json; mkfifo log; exec env GRPC_ADDRESS=/run/containerd/containerd.sock "$2" -namespace "$3" -id "$4" -address /run/containerd/containerd.sock start </dev/null >/dev/null`,
		"shim", dir, filepath.Join(programs, "containerd-shim-runc-v2"), namespace, filepath.Base(dir))
	return b.running()[id]
}

// forget removes a shim's folder as containerd does, which renames it first.
func (b *upBed) forget(id string) {
	b.t.Helper()
	hidden := filepath.Join("/run/shims", "."+filepath.Base(b.shimDir(id)))
	b.Run("mv", b.shimDir(id), hidden)
	b.Run("rm", "-r", hidden)
}

// shimDir is the folder of one, whose name is its id, and no other node's.
func (b *upBed) shimDir(id string) string { return "/run/shims/" + id + "-" + filepath.Base(b.Dir) }

// running are the pids of shim's shims, by their ids.
func (b *upBed) running() map[string]string {
	b.t.Helper()
	out := map[string]string{}
	for _, id := range []string{"known", "foreign", "early", "late"} {
		if pid, err := b.Try("pgrep", "-f", "--", " -id "+filepath.Base(b.shimDir(id))+" -address /run/containerd/containerd.sock"); err == nil {
			out[id] = strings.TrimSpace(pid)
		}
	}
	return out
}

// shims are the ids of those that run.
func (b *upBed) shims() []string { return slices.Sorted(maps.Keys(b.running())) }
