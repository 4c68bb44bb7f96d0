package node_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// place writes a file into the pods' folder at once.
func (b *bed) place(name, text string) {
	b.t.Helper()
	tmp := filepath.Join(b.Dir, name+".tmp")
	require.NoError(b.t, os.WriteFile(tmp, []byte("---\n"+text), 0o600)) // as YAML
	require.NoError(b.t, os.Rename(tmp, filepath.Join(b.pods(), name)))
}

// awaitOutput waits until a command in a pod prints a text.
func (b *bed) awaitOutput(pod *v1.Pod, want string, argv ...string) {
	b.t.Helper()
	b.await(strings.Join(argv, " "), func() error {
		if out := b.exec(pod, argv...); out != want {
			return fmt.Errorf("%q, not %q", out, want)
		}
		return nil
	})
}

// plain is a pod with the one network.
func plain(i int) *v1.Pod {
	p := web(i)
	p.Annotations, p.Spec.Volumes = nil, nil
	return p
}

// awaitHeld waits until a pod says why it does not run.
func (b *bed) awaitHeld(name string, words ...string) {
	b.t.Helper()
	b.awaitPod(name, func(p *v1.Pod) string {
		for _, c := range p.Status.Conditions {
			if c.Status == v1.ConditionFalse && saysAll(c.Reason+": "+c.Message, words) {
				return ""
			}
		}
		return "does not say " + strings.Join(words, ", ")
	})
}

func saysAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// TestObjectsOfAFolder: what stands beside the pods is in their files and
// variables; files follow it, variables and parts of volumes do not; a pod
// waits for what is missing.
func TestObjectsOfAFolder(t *testing.T) {
	t.Parallel()
	testObjects(t, newBed(t))
}

// TestObjectsOfAFolderOverDocker: the same over our own shim.
func TestObjectsOfAFolderOverDocker(t *testing.T) {
	t.Parallel()
	testObjects(t, newDockerBed(t))
}

func testObjects(t *testing.T, b *bed) {
	t.Helper()
	b.startNode()
	p := plain(0)
	p.Spec.Volumes = []v1.Volume{
		{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}}},
		{Name: "keys", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "login", DefaultMode: new(int32(0o400))}}},
		{Name: "self", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		}}}},
	}
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "conf", MountPath: "/conf"}, {Name: "keys", MountPath: "/keys"}, {Name: "self", MountPath: "/self"},
		{Name: "conf", MountPath: "/etc/app.ini", SubPath: "app.ini"},
	}
	c.Env = []v1.EnvVar{{Name: "USER_NAME", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: "login"}, Key: "user",
	}}}}
	c.EnvFrom = []v1.EnvFromSource{{Prefix: "APP_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "vars"}}}}
	b.write(p)
	b.awaitHeld("web-0", "FailedMount", "volume conf of default/web-0-node1", "configmap default/app is not there")
	b.place("app.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {app.ini: one, more: x}}")
	b.awaitHeld("web-0", "FailedMount", "volume keys", "secret default/login is not there")
	b.place("login.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {user: alice}}")
	b.awaitHeld("web-0", "CreateContainerConfigError", "container c", "configmap default/vars is not there")
	b.place("vars.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: vars}, data: {colour: red}}")
	up := b.awaitPod("web-0", ready)
	require.Equal(t, "alice red\n", b.exec(&up, "sh", "-c", "echo $USER_NAME $APP_colour"))
	require.Equal(t, "one", b.exec(&up, "cat", "/conf/app.ini"))
	require.Equal(t, "one", b.exec(&up, "cat", "/etc/app.ini"))
	require.Equal(t, "alice 400\n", b.exec(&up, "sh", "-c", "echo $(cat /keys/user) $(stat -Lc %a /keys/user)"))
	require.Equal(t, `app="web"`, b.exec(&up, "cat", "/self/labels"))

	b.place("app.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {app.ini: two}}")
	b.awaitOutput(&up, "two", "cat", "/conf/app.ini")
	require.Equal(t, "app.ini\n", b.exec(&up, "ls", "/conf"))
	require.Equal(t, "one", b.exec(&up, "cat", "/etc/app.ini"))
	b.place("login.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {user: bob}}")
	b.awaitOutput(&up, "bob", "cat", "/keys/user")
	require.Equal(t, "alice\n", b.exec(&up, "sh", "-c", "echo $USER_NAME"))
	p.Labels["app"] = "other"
	b.write(p)
	b.awaitOutput(&up, `app="other"`, "cat", "/self/labels")

	// A file that is gone, or wrong, takes nothing away.
	require.NoError(t, os.Remove(filepath.Join(b.pods(), "login.yaml")))
	b.place("app.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {app.ini: [")
	b.killNode()
	b.startNode()
	now := b.awaitPod("web-0", ready)
	require.Equal(t, up.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)
	require.Equal(t, "two bob\n", b.exec(&up, "sh", "-c", "echo $(cat /conf/app.ini) $(cat /keys/user)"))
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// every is a probe that looks each second and believes what it sees first.
func every(h v1.ProbeHandler) *v1.Probe {
	return &v1.Probe{ProbeHandler: h, PeriodSeconds: 1, TimeoutSeconds: 10, SuccessThreshold: 1, FailureThreshold: 1}
}

func exists(file string) v1.ProbeHandler {
	return v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e", file}}}
}

// TestProbes: a container is restarted, talked to and let on as its probes say,
// and its pod's status says why.
func TestProbes(t *testing.T) {
	t.Parallel()
	testProbes(t, newBed(t))
}

// TestProbesOverDocker: the same over our own shim.
func TestProbesOverDocker(t *testing.T) {
	t.Parallel()
	testProbes(t, newDockerBed(t))
}

func testProbes(t *testing.T, b *bed) {
	t.Helper()
	b.startNode()
	p := plain(0)
	c := &p.Spec.Containers[0]
	c.Command[2] = "mkdir -p /www; echo fine >/www/health; touch /alive; httpd -p 8080 -h /www; " + forever
	c.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}
	c.StartupProbe = every(exists("/started"))
	c.StartupProbe.FailureThreshold = 1000
	c.ReadinessProbe = every(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/health", Port: intstr.FromString("web")}})
	c.LivenessProbe = every(exists("/alive"))
	b.write(p)

	// Until it has started nothing else counts.
	b.awaitHeld("web-0", "container c is not ready", "startup probe: test -e /started: exit status 1")
	up := b.awaitPod("web-0", func(p *v1.Pod) string {
		if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Running == nil {
			return "does not run"
		}
		return ""
	})
	require.False(t, *up.Status.ContainerStatuses[0].Started)
	b.exec(&up, "touch", "/started")
	up = b.awaitPod("web-0", ready)
	require.True(t, *up.Status.ContainerStatuses[0].Started)

	b.exec(&up, "mv", "/www/health", "/www/ill")
	b.awaitHeld("web-0", "container c is not ready", "readiness probe: GET http://"+up.Status.PodIP+":8080/health: 404")
	b.exec(&up, "mv", "/www/ill", "/www/health")
	now := b.awaitPod("web-0", ready)
	require.Equal(t, up.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)

	b.exec(&up, "rm", "/alive")
	now = b.awaitPod("web-0", func(p *v1.Pod) string {
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount != 1 || s[0].State.Running == nil {
			return "not restarted"
		}
		return ""
	})
	last := now.Status.ContainerStatuses[0].LastTerminationState.Terminated
	require.NotNil(t, last)
	require.Contains(t, last.Message, "liveness probe failed: test -e /alive: exit status 1")
	require.Contains(t, b.nodeLog(), "liveness probe failed: test -e /alive")
	b.exec(&now, "touch", "/started")
	b.awaitPod("web-0", ready)
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// nodeLog is what the node that runs has logged.
func (b *bed) nodeLog() string {
	b.t.Helper()
	text, err := os.ReadFile(b.node.log)
	require.NoError(b.t, err)
	return string(text)
}

// shared makes a folder of the machine whose mounts containers may hear of.
func (b *bed) shared(name string) string {
	b.t.Helper()
	dir := filepath.Join(b.Dir, name)
	b.Run("mkdir", dir)
	b.Run("mount", "--bind", dir, dir)
	b.Run("mount", "--make-shared", dir)
	return dir
}

func hostDir(name, path string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: new(v1.HostPathDirectoryOrCreate)}}}
}

// TestVolumes: who may write where, what of a volume a container sees, and what
// becomes of mounts that come later.
func TestVolumes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.startNode()
	dir, late := filepath.Join(b.Dir, "data"), b.shared("late")
	p := plain(0)
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), FSGroup: new(int64(2000))}
	limit := resource.MustParse("1Mi")
	p.Spec.Volumes = []v1.Volume{
		{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}}},
		hostDir("host", dir), hostDir("late", late),
		{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: new(int32(0o400)), Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "pod/uid", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}},
		}}}},
	}
	c := &p.Spec.Containers[0]
	c.Env = []v1.EnvVar{{Name: "WHO", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "disk", MountPath: "/disk"}, {Name: "ram", MountPath: "/ram"}, {Name: "all", MountPath: "/all"},
		{Name: "disk", MountPath: "/part", SubPath: "a/b"}, {Name: "host", MountPath: "/own", SubPathExpr: "of-$(WHO)"},
		{Name: "host", MountPath: "/read", ReadOnly: true},
		{Name: "late", MountPath: "/late", MountPropagation: new(v1.MountPropagationHostToContainer)}, {Name: "late", MountPath: "/never"},
	}
	b.place("app.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {a: one}}")
	b.write(p)
	up := b.awaitPod("web-0", ready)
	sh := func(script string) string { return strings.TrimSpace(b.exec(&up, "sh", "-c", script)) }
	require.Equal(t, "1000 2000 2777", sh("touch /disk/f /ram/f /part/f && echo $(stat -c '%u %g' /part/f) $(stat -c %a /disk/a/b)"))
	require.Equal(t, "f", sh("ls /disk/a/b"))
	require.Equal(t, "one uid-of-web-0", sh("echo $(cat /all/a) $(cat /all/pod/uid)"))
	require.Equal(t, "full", sh("dd if=/dev/zero of=/ram/big bs=1024 count=2000 2>/dev/null && echo fits || echo full"))
	require.Equal(t, "no", sh("touch /read/x 2>/dev/null && echo yes || echo no"))
	require.Equal(t, "no", sh("touch /all/x 2>/dev/null && echo yes || echo no"))
	require.Equal(t, "of-web-0-node1", strings.TrimSpace(b.Run("ls", dir)))
	b.Run("mkdir", late+"/in")
	b.Run("mount", "-t", "tmpfs", "tmpfs", late+"/in")
	b.Run("touch", late+"/in/seen")
	require.Equal(t, "seen", sh("ls /late/in"))
	require.Empty(t, sh("ls /never/in"))
	b.erase("web-0")
	b.awaitEmpty()
	require.Equal(t, "of-web-0-node1", strings.TrimSpace(b.Run("ls", dir)))
	b.Run("umount", late+"/in")
	b.Run("umount", late)
	b.requireNoLeaks()
}

// TestPartThatLeadsOut: a container that puts a link into its volume does not
// get another one to mount what it leads to.
func TestPartThatLeadsOut(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.startNode()
	p := plain(0)
	p.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	liar := shell("liar", "ln -s / /disk/evil; ln -s ../../../.. /disk/up")
	liar.VolumeMounts = []v1.VolumeMount{{Name: "disk", MountPath: "/disk"}}
	p.Spec.InitContainers = []v1.Container{liar}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "disk", MountPath: "/mnt", SubPath: "evil/etc"}}
	b.write(p)
	b.awaitHeld("web-0", "container c", "mount of volume disk: subPath evil/etc", "escapes")
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "up"
	b.write(p)
	b.awaitHeld("web-0", "mount of volume disk: subPath up", "escapes")
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "good"
	b.write(p)
	b.awaitPod("web-0", ready)
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// volumePoints are the crash points of package volume. That all are named here
// shows TestKilledInVolumes itself.
var volumePoints = []string{
	"volume.made", "volume.memory", "volume.mounted", "volume.written", "volume.switched", "volume.linked", "volume.place", "volume.held", "volume.unmounted",
}

// TestKilledInVolumes: killed between any two steps, the next process goes on,
// and nothing is left in the end.
func TestKilledInVolumes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p := plain(0)
	p.Spec.Volumes = []v1.Volume{
		{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}}},
	}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "disk", MountPath: "/part", SubPath: "a"}, {Name: "ram", MountPath: "/ram"}, {Name: "conf", MountPath: "/conf"}}
	b.place("app.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {a: one}}")
	crash := func(point string) {
		b.startNode()
		b.await("the crash at "+point, func() error {
			if b.CrashPending() {
				return errors.New("not there yet")
			}
			return nil
		})
		b.node.end(syscall.SIGKILL) // dead already
	}
	passed := map[string]bool{}
	for i, point := range volumePoints {
		b.Crash(point)
		b.write(p)
		if point == "volume.unmounted" { // on the way down
			b.startNode()
			b.awaitPod("web-0", ready)
			b.erase("web-0")
			b.killNode()
		}
		crash(point)
		if i%2 == 0 && point != "volume.unmounted" { // it is still wanted
			b.startNode()
			up := b.awaitPod("web-0", ready)
			require.Equal(t, "one", b.exec(&up, "sh", "-c", "touch /part/x /ram/x && cat /conf/a"), point)
			b.killNode()
		}
		if point != "volume.unmounted" {
			b.erase("web-0")
		}
		b.startNode()
		b.awaitEmpty()
		b.killNode()
		for _, passedNow := range b.CrashTrace() {
			if strings.HasPrefix(passedNow, "volume.") {
				passed[passedNow] = true
			}
		}
	}
	require.ElementsMatch(t, volumePoints, slices.Collect(maps.Keys(passed)))
	b.startNode()
	b.write(p)
	b.awaitPod("web-0", ready)
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

// apiAccess is the volume that the API server gives to every pod.
func apiAccess() v1.Volume {
	return v1.Volume{Name: "kube-api-access-1", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	}}}}
}

// TestObjectsOfAPIServer: a pod as any cluster makes it, with the token that its
// service account has by default; read with the rights of a node, which may see
// what its pods name and nothing else.
func TestObjectsOfAPIServer(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	k.start()
	k.awaitNodeReady()
	k.c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: %s}}", k.ns))
	p := plain(0)
	p.Name, p.UID, p.Namespace, p.Spec.NodeName, p.Spec.ServiceAccountName = "api-0", "", k.ns, "node1", "robot"
	const own = "/var/run/secrets/kubernetes.io/serviceaccount/"
	p.Spec.AutomountServiceAccountToken = new(bool)
	p.Spec.Volumes = []v1.Volume{
		{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}}},
		apiAccess(),
	}
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{{Name: "conf", MountPath: "/conf"}, {Name: "kube-api-access-1", MountPath: own}}
	c.Env = []v1.EnvVar{{Name: "USER_NAME", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: "login"}, Key: "user",
	}}}}
	_, err := k.api.CoreV1().Pods(k.ns).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
	held := func(words ...string) {
		t.Helper()
		k.object(k.ns, "api-0", func(p *v1.Pod) string {
			for _, c := range p.Status.Conditions {
				if c.Status == v1.ConditionFalse && saysAll(c.Message, words) {
					return ""
				}
			}
			return "does not say " + strings.Join(words, ", ")
		})
	}
	held("volume conf of "+k.ns+"/api-0", "configmap "+k.ns+"/app is not there", "the API server has none")
	k.c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: app, namespace: %s}, data: {a: one}}", k.ns))
	held("volume kube-api-access-", "configmap "+k.ns+"/kube-root-ca.crt is not there")
	k.c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: %s}, data: {ca.crt: root}}", k.ns))
	held("container c", "secret "+k.ns+"/login is not there")
	k.c.Apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: login, namespace: %s}, stringData: {user: alice}}", k.ns))
	up := k.object(k.ns, "api-0", ready)
	up.Status.ContainerStatuses[0].ContainerID = up.Status.ContainerStatuses[0].ContainerID[strings.LastIndex(up.Status.ContainerStatuses[0].ContainerID, "/")+1:]
	require.Equal(t, "one alice root "+k.ns+"\n", k.exec(up, "sh", "-c", "echo $(cat /conf/a) $USER_NAME $(cat "+own+"ca.crt) $(cat "+own+"namespace)"))
	review, err := k.api.AuthenticationV1().TokenReviews().Create(t.Context(), &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: k.exec(up, "cat", own+"token")},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.True(t, review.Status.Authenticated)
	require.Equal(t, "system:serviceaccount:"+k.ns+":robot", review.Status.User.Username)
	require.Equal(t, authentication.ExtraValue{"api-0"}, review.Status.User.Extra["authentication.kubernetes.io/pod-name"])
	k.c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: app, namespace: %s}, data: {a: two}}", k.ns))
	k.awaitOutput(up, "two", "cat", "/conf/a")
	k.delete("api-0")
	k.absent(k.ns, "api-0")
	k.awaitEmpty()
	k.requireNoLeaks()
}

// TestHooks: what a container does before it counts as started, and before it
// ends; one whose first hook fails says so.
func TestHooks(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.startNode()
	dir := filepath.Join(b.Dir, "heard")
	p := plain(0)
	p.Spec.HostNetwork, p.Spec.Volumes = true, []v1.Volume{hostDir("heard", dir)}
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{{Name: "heard", MountPath: "/heard"}}
	// It hears of its end by HTTP, at the node's own address.
	c.Command[2] = "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho bye >/heard/bye; echo; echo ok' >/www/cgi-bin/bye; chmod +x /www/cgi-bin/bye; httpd -p 127.0.0.1:8099 -h /www; " + forever
	c.Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "echo up >/heard/up"}}},
		PreStop:   &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/cgi-bin/bye", Port: intstr.FromInt32(8099)}},
	}
	bad := plain(1)
	bad.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "echo no >&2; exit 4"}}}}
	b.write(p)
	b.write(bad)
	up := b.awaitPod("web-0", ready)
	require.Equal(t, "up\n", b.exec(&up, "cat", "/heard/up"))
	b.awaitOutput(&up, "ok\n", "sh", "-c", "wget -qO- http://127.0.0.1:8099/cgi-bin/bye || true")
	b.exec(&up, "rm", "/heard/bye")
	b.awaitPod("web-1", func(p *v1.Pod) string {
		for _, c := range p.Status.ContainerStatuses {
			if last := c.LastTerminationState.Terminated; last != nil && saysAll(last.Message, []string{"postStart hook of c", "exit status 4: no"}) {
				return ""
			}
		}
		return "does not say why"
	})
	b.erase("web-0")
	b.erase("web-1")
	b.awaitEmpty()
	require.Equal(t, "bye\n", b.Run("cat", dir+"/bye"))
	b.requireNoLeaks()
}
