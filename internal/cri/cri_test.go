package cri_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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

func newBed(t *testing.T, args ...string) *bed {
	t.Helper()
	n := testbed.Bare(t)
	b := &bed{t: t, n: n}
	b.conf("10-test.conflist", bridgeConf)
	b.e = docker.Start(t, n)
	b.CRI = b.e.StartCRI(args...)
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
	for _, d := range []string{"sandbox", "cni/results"} {
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
	b.n.Run("ping", "-n", "-c", "1", "-w", "3", status.Network.Ip)

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

	b.Kill()
	b.Run()
	require.Equal(t, fmt.Sprint(before), fmt.Sprint(b.status(sandbox)))

	b.e.Kill()
	st, err := b.Status(t.Context(), &cri.StatusRequest{})
	require.NoError(t, err)
	require.False(t, st.Status.Conditions[0].Status)
	require.Equal(t, "DockerDaemonNotReady", st.Status.Conditions[0].Reason)
	b.e.Run()
	require.Equal(t, fmt.Sprint(before), fmt.Sprint(b.status(sandbox)))
	b.exec(c, "true")
	b.remove(sandbox)
	b.clean()
}
