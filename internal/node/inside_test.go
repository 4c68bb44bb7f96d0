package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// place writes a file into the pods' folder at once.
func (b *bed) place(name, text string) {
	b.t.Helper()
	tmp := filepath.Join(b.Dir, name+".tmp")
	require.NoError(b.t, os.WriteFile(tmp, []byte(text), 0o600))
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
