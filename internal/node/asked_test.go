package node_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fairlead/fairlead/internal/testbed/docker"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// TestAskedFor: what a pod's file asks for is done, or the pod is not run, or it is
// told; by name each.
func TestAskedFor(t *testing.T) {
	t.Parallel()
	testAskedFor(t, newBed(t))
}

// TestAskedForOverDocker: the same over our own shim.
func TestAskedForOverDocker(t *testing.T) {
	t.Parallel()
	testAskedFor(t, newDockerBed(t))
}

func testAskedFor(t *testing.T, b *bed) {
	t.Helper()
	b.startNode("--cluster-domain", "cluster.test")
	b.refused()
	b.told()
	b.named()
	b.restarted()
	b.signalled()
	b.bounded()
	b.awaitEmpty()
	b.requireNoLeaks()
}

// not writes a pod that the node does not run, and wants its reason.
func (b *bed) not(reason, message string, edit func(*v1.Pod)) {
	b.t.Helper()
	p := plain(0)
	edit(p)
	b.write(p)
	got := b.awaitPod("web-0", func(p *v1.Pod) string {
		if p.Status.Phase == v1.PodFailed && p.Status.Reason == reason {
			return ""
		}
		return "not refused for " + reason
	})
	require.Contains(b.t, got.Status.Message, message)
	require.NotContains(b.t, b.sandboxes(), "web-0-node1")
	b.erase("web-0")
	b.awaitGone("web-0")
}

func (b *bed) awaitGone(name string) {
	b.t.Helper()
	b.await("the end of "+name, func() error {
		all, err := b.list()
		if _, there := all[name+"-node1"]; there && err == nil {
			return fmt.Errorf("%s is still there", name)
		}
		return err
	})
}

// refused are pods that must not run here, or cannot.
func (b *bed) refused() {
	b.t.Helper()
	no := false
	b.not("UnsupportedField", "spec.hostUsers: user namespaces are not supported", func(p *v1.Pod) { p.Spec.HostUsers = &no })
	b.not("OutOfcpu", "the pod requests 1k, other pods have 0 of ", func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
	})
	b.not("OutOfmemory", "the pod requests 1Pi", func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{shell("i", "true")}
		p.Spec.InitContainers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Pi")}
	})
	b.not("OutOfexample.com/card", "of 0", func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/card": resource.MustParse("1")}
	})
	b.not("NodeAffinity", "spec.nodeSelector: this node has not the label kubernetes.io/hostname=node2", func(p *v1.Pod) {
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "node2"}
	})
	b.not("NodeAffinity", "none of the required terms", func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: v1.LabelOSStable, Operator: v1.NodeSelectorOpNotIn, Values: []string{"linux"}},
			}}},
		}}}
	})
}

// told are pods that run without something that has no effect here, and whose node
// says so.
func (b *bed) told() {
	b.t.Helper()
	b.place("web-0.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: web-0}, spec: {terminationGracePeriodSeconds: 2, priorityClassName: high,
  nodeSelector: {kubernetes.io/hostname: node1},
  containers: [{name: c, image: "`+image.BusyboxName+`", comand: [sleep],
  command: [sh, -c, "`+forever+`"]}]}}`)
	up := b.awaitPod("web-0", ready)
	b.awaitHeld("web-0", "NotCarriedOut", `web-0.yaml:4: unknown field "spec.containers[0].comand"`, "spec.priorityClassName: priorities have no effect")
	require.NotEmpty(b.t, up.Status.HostIP, "every node has an address")
	said := b.describe("web-0")
	require.Equal(b.t, 2, strings.Count(said, "Warning NotCarriedOut: "), said)
	b.place("web-0.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: web-1}, spec: {containers: [{name: c, image: i}], securitycontext: {runAsUser: 1}}}`)
	b.place("web-2.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: web-2}, spec: {terminationGracePeriodSeconds: 2, containers: [{name: c, image: "`+
		image.BusyboxName+`", command: [sh, -c, "`+forever+`"]}]}}`)
	b.awaitPod("web-2", ready)
	all, err := b.list()
	require.NoError(b.t, err)
	require.NotContains(b.t, all, "web-1-node1", "a pod without the rights that it was to have does not run")
	for _, name := range []string{"web-0", "web-2"} {
		require.NoError(b.t, os.Remove(filepath.Join(b.pods(), name+".yaml")))
		b.awaitGone(name)
	}
}

// named are pods that have names of their own for hosts, and for themselves.
func (b *bed) named() {
	b.t.Helper()
	yes, other := true, "other.name"
	p := plain(0)
	p.Spec.HostNetwork, p.Spec.HostAliases = true, []v1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"seven", "vii"}}}
	b.write(p)
	up := b.awaitPod("web-0", ready)
	own, err := os.ReadFile("/etc/hosts")
	require.NoError(b.t, err)
	require.Equal(b.t, strings.TrimRight(string(own), "\n")+"\n192.0.2.7\tseven\tvii\n", b.exec(&up, "cat", "/etc/hosts"))
	b.erase("web-0")
	q := plain(1)
	q.Spec.Hostname, q.Spec.Subdomain, q.Spec.SetHostnameAsFQDN = "me", "sub", &yes
	b.write(q)
	up = b.awaitPod("web-1", ready)
	require.Equal(b.t, "me.sub.default.svc.cluster.test\n", b.exec(&up, "hostname"))
	b.erase("web-1")
	r := plain(2)
	r.Spec.HostnameOverride = &other
	b.write(r)
	up = b.awaitPod("web-2", ready)
	require.Equal(b.t, "other.name\n", b.exec(&up, "hostname"))
	require.Contains(b.t, b.exec(&up, "cat", "/etc/hosts"), "\tother.name\n")
	b.erase("web-2")
}

// restarted are containers with rules of their own about their end.
func (b *bed) restarted() {
	b.t.Helper()
	never, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	p := plain(3)
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	c := shell("c", "if mkdir /v/once; then exit 42; fi; exit 7")
	c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	c.RestartPolicy = &never
	c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
	p.Spec.Containers = []v1.Container{c}
	b.write(p)
	done := b.awaitPod("web-3", func(p *v1.Pod) string {
		if p.Status.Phase == v1.PodFailed {
			return ""
		}
		return "not failed"
	})
	st := done.Status.ContainerStatuses[0]
	require.EqualValues(b.t, 1, st.RestartCount)
	require.EqualValues(b.t, 7, st.State.Terminated.ExitCode)
	require.EqualValues(b.t, 42, st.LastTerminationState.Terminated.ExitCode)
	b.erase("web-3")

	q := plain(4) // one of a pod's containers restarts always, the pod never
	q.Spec.RestartPolicy = v1.RestartPolicyNever
	a := shell("a", "exit 0")
	a.RestartPolicy = &always
	q.Spec.Containers = []v1.Container{shell("b", "exit 0"), a}
	b.write(q)
	b.awaitPod("web-4", func(p *v1.Pod) string {
		if len(p.Status.ContainerStatuses) == 2 && p.Status.ContainerStatuses[1].RestartCount > 0 && p.Status.ContainerStatuses[0].RestartCount == 0 {
			return ""
		}
		return "not restarted"
	})
	b.erase("web-4")
}

// signalled is a container that ends by the signal that it asks for.
func (b *bed) signalled() {
	b.t.Helper()
	dir := filepath.Join(b.Dir, "said")
	require.NoError(b.t, os.Mkdir(dir, 0o777))
	signal := v1.SIGUSR1
	p := plain(5)
	p.Spec.TerminationGracePeriodSeconds = new(int64(60))
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}}
	c := shell("c", "trap 'echo usr1 >/v/end; exit 0' USR1; trap 'echo term >/v/end; exit 0' TERM; touch /v/up; while :; do sleep 1 & wait $!; done")
	c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	c.Lifecycle = &v1.Lifecycle{StopSignal: &signal}
	c.ReadinessProbe = every(exists("/v/up"))
	p.Spec.Containers = []v1.Container{c}
	b.write(p)
	b.awaitPod("web-5", ready)
	b.erase("web-5")
	b.awaitGone("web-5")
	said, err := os.ReadFile(filepath.Join(dir, "end"))
	require.NoError(b.t, err)
	require.Equal(b.t, "usr1\n", string(said))
}

// bounded is a pod whose cgroup, with all of its containers in it, has its weight and
// limits.
func (b *bed) bounded() {
	b.t.Helper()
	p := plain(6)
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("16Mi")},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")},
	}
	b.write(p)
	b.awaitPod("web-6", ready)
	dirs, files := map[string]string{}, map[string]string{"cpu.weight": "10", "cpu.max": "50000 100000", "memory.max": "67108864"}
	for _, dir := range b.cgroups.Paths {
		dirs[filepath.Base(filepath.Dir(dir))] = dir
	}
	if dirs["cpu"] != "" { // v1
		files = map[string]string{"cpu.shares": "256", "cpu.cfs_quota_us": "50000", "memory.limit_in_bytes": "67108864"}
	}
	for file, want := range files {
		dir := b.cgroups.Paths[0]
		if dirs["cpu"] != "" {
			dir = dirs[strings.Split(file, ".")[0]]
		}
		pod := filepath.Join(dir, "burstable", "poduid-of-web-6")
		got, err := os.ReadFile(filepath.Join(pod, file))
		require.NoError(b.t, err)
		require.Equal(b.t, want, strings.TrimSpace(string(got)), file)
		inside, err := filepath.Glob(pod + "/*/cgroup.procs")
		require.NoError(b.t, err)
		require.Len(b.t, inside, 2, "the sandbox and the container are in it")
	}
	b.erase("web-6")
}

// TestPullSecrets: a registry that wants to know who asks is shown a pod's pull
// secret, or the node's own file, and nothing else makes it give an image.
func TestPullSecrets(t *testing.T) {
	t.Parallel()
	testPullSecrets(t, newBed(t))
}

// TestPullSecretsOverDocker: the same over our own shim.
func TestPullSecretsOverDocker(t *testing.T) {
	t.Parallel()
	testPullSecrets(t, newDockerBed(t))
}

func testPullSecrets(t *testing.T, b *bed) {
	t.Helper()
	name := docker.Registry(t, b.Node, 5000, "anna", "se:cret") + "/private/app:1"
	b.push(name, "anna", "se:cret")
	b.startNode()
	config := `{"auths": {"127.0.0.1:5000/private": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("anna:se:cret")) + `"}}}`
	asks := func(i int, secrets ...string) {
		p := plain(i)
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = name, v1.PullAlways
		for _, s := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
		}
		b.write(p)
	}
	asks(0)
	b.awaitHeld("web-0", "ErrImagePull")
	asks(1, "absent", "login")
	b.awaitHeld("web-1", "ErrImagePull")
	require.Contains(t, b.describe("web-1"), "Warning FailedToRetrieveImagePullSecret: container c: pull secret absent: secret default/absent is not there")
	b.erase("web-0")
	b.place("login.yaml", "{apiVersion: v1, kind: Secret, type: kubernetes.io/dockerconfigjson, metadata: {name: login}, stringData: {.dockerconfigjson: '"+config+"'}}")
	b.awaitPod("web-1", ready)
	b.erase("web-1")
	// The node's own.
	file := b.Path("/var/lib/fairlead/node/config.json")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	asks(2)
	up := b.awaitPod("web-2", ready)
	require.Regexp(t, `^127\.0\.0\.1:5000/private/app@sha256:[0-9a-f]{64}$`, up.Status.ContainerStatuses[0].ImageID)
	b.erase("web-2")
	b.awaitEmpty()
	require.NoError(t, os.Remove(file))
	b.requireNoLeaks()
}

// push gives busybox to a registry; the runtime does not keep it by that name.
func (b *bed) push(name, user, password string) {
	b.t.Helper()
	if b.containerd != nil {
		b.containerd.Push(image.BusyboxName, name, user, password)
		return
	}
	auth, err := authconfig.Encode(registry.AuthConfig{Username: user, Password: password})
	require.NoError(b.t, err)
	_, err = b.docker.ImageTag(b.t.Context(), client.ImageTagOptions{Source: docker.Busybox, Target: name})
	require.NoError(b.t, err)
	out, err := b.docker.ImagePush(b.t.Context(), name, client.ImagePushOptions{RegistryAuth: auth})
	require.NoError(b.t, err)
	said, err := io.ReadAll(out)
	require.NoError(b.t, err)
	require.NotContains(b.t, string(said), "errorDetail")
	_, err = b.docker.ImageRemove(b.t.Context(), name, client.ImageRemoveOptions{})
	require.NoError(b.t, err)
}
