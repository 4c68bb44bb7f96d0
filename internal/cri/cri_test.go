package cri_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
)

// bridgeConf is a network of upstream's plugins, without our agent.
const bridgeConf = `{"cniVersion":"1.0.0","name":"test","plugins":[
 {"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`

// bed is a node with Docker and `fairlead cri` over it.
type bed struct {
	*docker.CRI
	t *testing.T
	n *testbed.Node
	e *docker.Engine
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOn(t, testbed.Bare(t), bridgeConf)
}

func newBedOn(t *testing.T, n *testbed.Node, conf string) *bed {
	t.Helper()
	b := &bed{t: t, n: n}
	b.conf("10-test.conflist", conf)
	b.e = docker.Start(t, n)
	b.CRI = b.e.StartCRI()
	return b
}

func (b *bed) conf(name, text string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.n.Dir, "disk/etc/cni/net.d", name), []byte(text), 0o600))
}

// pod is a sandbox's configuration.
func (b *bed) pod(name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Hostname:     name,
		LogDirectory: filepath.Join(b.n.Dir, "log", name),
		Labels:       map[string]string{"app": name},
		Annotations:  map[string]string{"note": "of " + name},
		Linux:        &cri.LinuxPodSandboxConfig{CgroupParent: b.e.Cgroup + "/pod-" + name},
	}
}

func (b *bed) run(config *cri.PodSandboxConfig) string {
	b.t.Helper()
	r, err := b.RunPodSandbox(b.t.Context(), &cri.RunPodSandboxRequest{Config: config})
	require.NoError(b.t, err)
	return r.PodSandboxId
}

func (b *bed) create(sandbox string, pod *cri.PodSandboxConfig, c *cri.ContainerConfig) string {
	b.t.Helper()
	r, err := b.CreateContainer(b.t.Context(), &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: c, SandboxConfig: pod})
	require.NoError(b.t, err)
	return r.ContainerId
}

func (b *bed) start(id string) {
	b.t.Helper()
	_, err := b.StartContainer(b.t.Context(), &cri.StartContainerRequest{ContainerId: id})
	require.NoError(b.t, err)
}

func (b *bed) exec(id string, argv ...string) string {
	b.t.Helper()
	r, err := b.ExecSync(b.t.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: argv, Timeout: 20})
	require.NoError(b.t, err)
	require.Zero(b.t, r.ExitCode, "%s", r.Stderr)
	return string(r.Stdout)
}

func (b *bed) status(sandbox string) *cri.PodSandboxStatus {
	b.t.Helper()
	r, err := b.PodSandboxStatus(b.t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
	require.NoError(b.t, err)
	return r.Status
}

func (b *bed) stop(sandbox string) {
	b.t.Helper()
	_, err := b.StopPodSandbox(b.t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
	require.NoError(b.t, err)
}

func (b *bed) remove(sandbox string) {
	b.t.Helper()
	_, err := b.RemovePodSandbox(b.t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	require.NoError(b.t, err)
}

// sleeper is a container that waits for its end.
func sleeper(name string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: docker.Busybox},
		Command: []string{"sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.1; done"}, LogPath: name + "/0.log",
	}
}

// leases are the addresses that host-local has given away.
func (b *bed) leases() []string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.n.Dir, "disk/var/lib/cni/networks/test/10.*"))
	require.NoError(b.t, err)
	return found
}

// clean wants nothing left of any pod.
func (b *bed) clean() {
	b.t.Helper()
	list, err := b.ListPodSandbox(b.t.Context(), &cri.ListPodSandboxRequest{})
	require.NoError(b.t, err)
	require.Empty(b.t, list.Items)
	require.Empty(b.t, b.leases(), "addresses are leaked")
	for _, d := range []string{"sandbox", "cni/results", "network/pods"} {
		entries, err := os.ReadDir(filepath.Join(b.Root, d))
		if !os.IsNotExist(err) {
			require.NoError(b.t, err)
		}
		require.Empty(b.t, entries, d)
	}
	require.NotContains(b.t, b.n.Run("ip", "-o", "link"), "veth")
}

func TestAPodsLife(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.pod("web")
	pod.DnsConfig = &cri.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:5"}}
	sandbox := b.run(pod)

	status := b.status(sandbox)
	require.Equal(t, cri.PodSandboxState_SANDBOX_READY, status.State)
	require.Equal(t, "web", status.Metadata.Name)
	require.Equal(t, pod.Labels, status.Labels)
	require.Equal(t, pod.Annotations, status.Annotations)
	require.NotEmpty(t, status.Network.Ip)
	b.n.Run("ping", "-n", "-c", "1", "-w", "30", status.Network.Ip)

	c := b.create(sandbox, pod, sleeper("main"))
	b.start(c)
	require.Equal(t, "web\n", b.exec(c, "hostname"))
	require.Equal(t, "nameserver 10.96.0.10\nsearch a.example b.example\noptions ndots:5\n", b.exec(c, "cat", "/etc/resolv.conf"))
	require.Contains(t, b.exec(c, "ip", "-o", "addr", "show", "eth0"), status.Network.Ip)

	_, err := b.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: c, Timeout: 20})
	require.NoError(t, err)
	st, err := b.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: c})
	require.NoError(t, err)
	require.Equal(t, cri.ContainerState_CONTAINER_EXITED, st.Status.State)
	require.EqualValues(t, 3, st.Status.ExitCode)
	require.Equal(t, "Error", st.Status.Reason)

	b.stop(sandbox)
	require.Equal(t, cri.PodSandboxState_SANDBOX_NOTREADY, b.status(sandbox).State)
	require.Empty(t, b.leases(), "the address is free once the sandbox is stopped")
	b.stop(sandbox)
	b.remove(sandbox)
	b.remove(sandbox)
	b.stop(sandbox)
	b.clean()
}

// TestInTheNodesNetwork: a pod there has its own DNS settings, and is not ready before
// it has them.
func TestInTheNodesNetwork(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	node := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}
	config := func(name string) *cri.PodSandboxConfig {
		pod := b.pod(name)
		pod.DnsConfig = &cri.DNSConfig{Servers: []string{"10.96.0.10"}}
		pod.Linux.SecurityContext = &cri.LinuxSandboxSecurityContext{NamespaceOptions: node}
		return pod
	}
	pod, main := config("web"), sleeper("main")
	main.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: node}}
	sandbox := b.run(pod)
	require.Equal(t, cri.PodSandboxState_SANDBOX_READY, b.status(sandbox).State)
	require.Equal(t, cri.NamespaceMode_NODE, b.status(sandbox).Linux.Namespaces.Options.Network)
	c := b.create(sandbox, pod, main)
	b.start(c)
	require.Equal(t, "nameserver 10.96.0.10\n", b.exec(c, "cat", "/etc/resolv.conf"))
	for _, kind := range []string{"net", "uts"} {
		require.Equal(t, strings.TrimSpace(b.n.Run("readlink", "/proc/self/ns/"+kind)), strings.TrimSpace(b.exec(c, "readlink", "/proc/self/ns/"+kind)))
	}
	b.remove(sandbox)
	b.clean()

	for _, point := range []string{"cri.created", "cri.recorded", "cri.started"} {
		b.n.Crash(point)
		_, err := b.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: config("web")})
		require.Error(t, err, "the crash at %s did not happen", point)
		<-b.Done()
		b.n.Crash("")
		b.Run()
		b.clean()
	}
}

// TestARunThatFailsLeavesNothing: the network refuses, or there is none.
func TestARunThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.conf("10-test.conflist", `{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"bridge","bridge":"br1",
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]]}},{"type":"tuning","sysctl":{"net.nonsense":"1"}}]}`)
	_, err := b.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: b.pod("web")})
	require.ErrorContains(t, err, "nonsense")
	b.clean()

	b.conf("10-test.conflist", bridgeConf)
	sandbox := b.run(b.pod("web"))
	b.remove(sandbox)
	b.clean()
}

// TestSurvivesTheEndOfEitherDaemon: this process or Docker is killed; the pods
// live on and are the same.
func TestSurvivesTheEndOfEitherDaemon(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.pod("web")
	sandbox := b.run(pod)
	c := b.create(sandbox, pod, sleeper("main"))
	b.start(c)
	before := b.status(sandbox)
	known, err := b.Version(t.Context(), &cri.VersionRequest{})
	require.NoError(t, err)
	require.NotEqual(t, "0.0.0", known.RuntimeVersion)

	b.Kill()
	b.Run()
	require.Equal(t, fmt.Sprint(before), fmt.Sprint(b.status(sandbox)))

	b.e.Kill()
	st, err := b.Status(t.Context(), &cri.StatusRequest{})
	require.NoError(t, err)
	require.False(t, st.Status.Conditions[0].Status)
	require.Equal(t, "DockerDaemonNotReady", st.Status.Conditions[0].Reason)
	version, err := b.Version(t.Context(), &cri.VersionRequest{})
	require.NoError(t, err)
	require.Equal(t, known, version)
	b.e.Run()
	require.Equal(t, fmt.Sprint(before), fmt.Sprint(b.status(sandbox)))
	b.exec(c, "true")
	b.remove(sandbox)
	b.clean()
}

// TestACrashAnywhereLeaksNothing kills the server at each of its crash points,
// in a run and in a stop. The next process takes back what was begun; the caller
// tries again as kubelet does.
func TestACrashAnywhereLeaksNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.remove(b.run(b.pod("first")))
	points := b.n.CrashTrace()
	require.Subset(t, points, []string{"cri.created", "cri.recorded", "cri.started",
		"cni.recorded", "cni.added", "cri.attached", "cni.deleted", "cri.detached"})
	for i, point := range points {
		if !strings.HasPrefix(point, "cri.") && !strings.HasPrefix(point, "cni.") {
			continue
		}
		pod := b.pod(fmt.Sprint("web", i))
		b.n.Crash(point)
		r, err := b.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod})
		if err == nil { // a point of the way down
			_, err = b.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: r.PodSandboxId})
		}
		require.Error(t, err, "the crash at %s did not happen", point)
		<-b.Done()
		b.n.Crash("")
		b.Run()
		list, err := b.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
		require.NoError(t, err)
		if r == nil {
			require.Empty(t, list.Items, "after a crash at %s", point)
			r = &cri.RunPodSandboxResponse{PodSandboxId: b.run(pod)}
		}
		require.Len(t, b.leases(), b.attached(), "after a crash at %s", point)
		b.remove(r.PodSandboxId)
		b.clean()
	}
}

// attached counts the sandboxes that are ready.
func (b *bed) attached() int {
	b.t.Helper()
	list, err := b.ListPodSandbox(b.t.Context(), &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
	}})
	require.NoError(b.t, err)
	return len(list.Items)
}

// TestTeardownIsNeverBlocked: without its record, with a damaged one, without a
// network configuration, and after Docker has lost the container.
func TestTeardownIsNeverBlocked(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	record := func(id string) string { return filepath.Join(b.Root, "sandbox", id) }
	for name, harm := range map[string]func(id string){
		"no record":      func(id string) { require.NoError(t, os.Remove(record(id))) },
		"damaged record": func(id string) { require.NoError(t, os.WriteFile(record(id), []byte("{\"version\""), 0o600)) },
		"no conf":        func(string) { b.n.Run("rm", filepath.Join(b.n.Dir, "disk/etc/cni/net.d/10-test.conflist")) },
		"other conf": func(string) {
			b.conf("10-test.conflist", strings.ReplaceAll(bridgeConf, `"name":"test"`, `"name":"other"`))
		},
		"no container": func(id string) { b.e.Docker("rm", "-f", id) },
	} {
		t.Run(name, func(t *testing.T) {
			sandbox := b.run(b.pod("web"))
			require.Len(t, b.leases(), 1)
			b.Kill()
			harm(sandbox)
			b.Run()
			b.stop(sandbox)
			b.remove(sandbox)
			b.conf("10-test.conflist", bridgeConf)
			b.clean()
		})
	}
}

// TestAnAddThatFailedIsUndoneByItsOwnConf: the plugin before the one that fails
// has given an address; then the process is killed and the configuration changed.
func TestAnAddThatFailedIsUndoneByItsOwnConf(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.n.Crash("cni.recorded")
	_, err := b.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: b.pod("web")})
	require.Error(t, err)
	<-b.Done()
	b.n.Crash("")
	list, err := b.e.ContainerList(t.Context(), client.ContainerListOptions{All: true})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	// What an ADD that was cut off leaves, and libcni keeps no word of.
	lease := filepath.Join(b.n.Dir, "disk/var/lib/cni/networks/test/10.88.0.9")
	require.NoError(t, os.MkdirAll(filepath.Dir(lease), 0o755))
	require.NoError(t, os.WriteFile(lease, []byte(list.Items[0].ID+"\r\neth0"), 0o600))
	b.conf("10-test.conflist", strings.ReplaceAll(bridgeConf, `"name":"test"`, `"name":"other"`))
	b.Run()
	b.clean()
}

// TestANameIsGivenOnce: the same pod and attempt twice is a mistake, and the
// first one stays whole.
func TestANameIsGivenOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.pod("web")
	sandbox := b.run(pod)
	_, err := b.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod})
	require.Equal(t, codes.AlreadyExists, status.Code(err), "%v", err)
	require.Equal(t, cri.PodSandboxState_SANDBOX_READY, b.status(sandbox).State)
	c := sleeper("main")
	first := b.create(sandbox, pod, c)
	second := b.create(sandbox, pod, c)
	require.NotEqual(t, first, second, "the first answer may have been lost")
	b.start(second)
	_, err = b.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: c, SandboxConfig: pod})
	require.Equal(t, codes.AlreadyExists, status.Code(err), "%v", err)
	b.remove(sandbox)
	b.clean()
}

// TestNetworkNotReady: the reason names the file and what is wrong with it.
func TestNetworkNotReady(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	condition := func() *cri.RuntimeCondition {
		st, err := b.Status(t.Context(), &cri.StatusRequest{})
		require.NoError(t, err)
		require.Equal(t, cri.NetworkReady, st.Status.Conditions[1].Type)
		return st.Status.Conditions[1]
	}
	require.True(t, condition().Status)
	b.conf("00-broken.conflist", "{")
	require.True(t, condition().Status, "a broken file is passed over")
	b.Kill()
	b.conf("10-test.conflist", `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"missing"}]}`)
	b.Run()
	got := condition()
	require.False(t, got.Status)
	require.Equal(t, "NetworkPluginNotReady", got.Reason)
	require.Contains(t, got.Message, "00-broken.conflist")
	require.Contains(t, got.Message, `"missing"`)
	_, err := b.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: b.pod("web")})
	require.ErrorContains(t, err, "missing")
	b.conf("10-test.conflist", bridgeConf)
	require.True(t, condition().Status)
	b.clean()
}

// TestContainersThatFail tell why.
func TestContainersThatFail(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.pod("web")
	sandbox := b.run(pod)
	c := sleeper("bad")
	c.Command = []string{"/nonsense"}
	id := b.create(sandbox, pod, c)
	_, err := b.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: id})
	require.ErrorContains(t, err, "/nonsense")
	st, err := b.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	require.NoError(t, err)
	require.Equal(t, cri.ContainerState_CONTAINER_EXITED, st.Status.State)
	require.Equal(t, "ContainerCannotRun", st.Status.Reason)
	require.NotZero(t, st.Status.ExitCode)
	list, err := b.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: sandbox}})
	require.NoError(t, err)
	require.Equal(t, cri.ContainerState_CONTAINER_EXITED, list.Containers[0].State)
	_, err = b.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: sandbox})
	require.Equal(t, codes.NotFound, status.Code(err), "a sandbox is no container")
	b.remove(sandbox)
	b.clean()
}

// TestMaskedPath: what is masked cannot be read.
func TestMaskedPath(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.pod("web")
	sandbox := b.run(pod)
	c := sleeper("main")
	c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{MaskedPaths: []string{"/etc/passwd"}, ReadonlyPaths: []string{"/var"}}}
	id := b.create(sandbox, pod, c)
	b.start(id)
	require.Empty(t, b.exec(id, "cat", "/etc/passwd"))
	r, err := b.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"touch", "/var/x"}})
	require.NoError(t, err)
	require.Contains(t, string(r.Stderr), "Read-only")
	b.remove(sandbox)
	b.clean()
}

// TestPodsOnOurOwnNetwork: the shim's pods with the agent's network. They reach
// each other, a fixed address is the one asked for, and after all daemons were
// killed nothing is lost and everything can be given back.
func TestPodsOnOurOwnNetwork(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	b := newBedOn(t, n, `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead",
		"capabilities":{"io.kubernetes.cri.pod-annotations":true}}]}`)
	n.WriteObjects("pods.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: fixed
  namespace: default
  annotations: {ovn.kubernetes.io/ip_address: 10.16.0.77}
`)
	agent := n.Agent()
	agent.WaitReady()
	before := n.Inventory()
	fixed, other := b.pod("fixed"), b.pod("other")
	a, o := b.run(fixed), b.run(other)
	require.Equal(t, "10.16.0.77", b.status(a).Network.Ip)
	c := b.create(o, other, sleeper("main"))
	b.start(c)
	b.exec(c, "ping", "-c", "1", "-w", "30", "10.16.0.77")

	b.Kill()
	agent.Kill()
	b.e.Kill()
	b.e.Run()
	agent = n.Agent()
	b.Run()
	b.exec(c, "ping", "-c", "1", "-w", "30", "10.16.0.77")
	require.Equal(t, "10.16.0.77", b.status(a).Network.Ip)
	b.remove(a)
	b.remove(o)
	n.RequireNoLeaks(before)
	agent.Stop()
}

// TestOwnCgroup: the process is accounted where it was told to be.
func TestOwnCgroup(t *testing.T) {
	t.Parallel()
	n := testbed.Bare(t)
	e := docker.Start(t, n)
	c := e.StartCRI("--runtime-cgroups=" + e.Cgroup + "/runtime")
	where, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.PID()))
	require.NoError(t, err)
	require.Contains(t, string(where), e.Cgroup+"/runtime\n")
}

// TestEvents tells of each change of a pod with its state.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	stream, err := b.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	require.NoError(t, err)
	pod := b.pod("web")
	sandbox := b.run(pod)
	id := b.create(sandbox, pod, sleeper("main"))
	b.start(id)
	b.remove(sandbox)
	kinds := map[string][]cri.ContainerEventType{}
	for len(kinds[sandbox]) < 4 {
		e, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, "web", e.PodSandboxStatus.Metadata.Name)
		kinds[e.ContainerId] = append(kinds[e.ContainerId], e.ContainerEventType)
	}
	all := []cri.ContainerEventType{
		cri.ContainerEventType_CONTAINER_CREATED_EVENT, cri.ContainerEventType_CONTAINER_STARTED_EVENT,
		cri.ContainerEventType_CONTAINER_STOPPED_EVENT, cri.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	require.Equal(t, all, kinds[sandbox])
	require.Equal(t, all, kinds[id])
	b.clean()
}

// TestLimitsAndStats: limits are those of the cgroup, can be changed, and what a
// pod uses is told.
func TestLimitsAndStats(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.pod("web")
	sandbox := b.run(pod)
	c := sleeper("main")
	c.Linux = &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuQuota: 50000, CpuPeriod: 100000, CpuShares: 512}}
	id := b.create(sandbox, pod, c)
	b.start(id)
	_, err := b.UpdateContainerResources(t.Context(), &cri.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 128 << 20},
	})
	require.NoError(t, err)
	st, err := b.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	require.NoError(t, err)
	limits := st.Status.Resources.Linux
	require.EqualValues(t, 128<<20, limits.MemoryLimitInBytes)
	require.EqualValues(t, 50000, limits.CpuQuota)
	require.EqualValues(t, 512, limits.CpuShares)

	stats, err := b.PodSandboxStats(t.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: sandbox})
	require.NoError(t, err)
	require.Len(t, stats.Stats.Linux.Containers, 1)
	require.NotZero(t, stats.Stats.Linux.Containers[0].Cpu.UsageCoreNanoSeconds.Value)
	require.NotZero(t, stats.Stats.Linux.Memory.UsageBytes.Value)
	require.Equal(t, "eth0", stats.Stats.Linux.Network.DefaultInterface.Name)
	b.remove(sandbox)
	b.clean()
}
