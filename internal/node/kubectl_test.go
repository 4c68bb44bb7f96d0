package node_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// nodeIP is the node's address in the cluster.
const nodeIP = "192.0.2.1"

// reach makes the node one that the API server goes to.
func (k *cluster) reach() kube.Serving {
	k.t.Helper()
	files := k.c.Reach(nodeIP, "node1", k.NetnsPath())
	k.Run("ip", "addr", "add", nodeIP+"/32", "dev", "lo")
	k.base = k.Inventory()
	return files
}

// kubectl runs it in the test's namespace; it must succeed.
func (k *cluster) kubectl(stdin string, args ...string) string {
	k.t.Helper()
	out, err := k.c.TryKubectl(stdin, append([]string{"-n", k.ns}, args...)...)
	require.NoError(k.t, err)
	return out
}

// createTalker makes a pod that serves a page, and one that answers.
func (k *cluster) createTalker() {
	k.t.Helper()
	p := web(0)
	p.Name, p.UID, p.Namespace, p.Annotations = "talks", "", k.ns, nil
	p.Spec.NodeName, p.Spec.AutomountServiceAccountToken = "node1", new(bool)
	p.Spec.Containers = []v1.Container{
		shell("c", "echo one; echo two; echo three; until [ -e /tmp/end ]; do sleep 0.1; done; rm /tmp/end; echo four; exit 1"),
		shell("side", "echo hello >/tmp/index.html; httpd -p 8080 -h /tmp; "+forever),
	}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].VolumeMounts = []v1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
	}
	asks := p.DeepCopy()
	asks.Name, asks.Spec.RestartPolicy = "asks", v1.RestartPolicyNever
	asks.Spec.Containers = []v1.Container{shell("c", `read -r line; echo "heard $line"; exit 0`)}
	asks.Spec.Containers[0].Stdin, asks.Spec.Containers[0].StdinOnce = true, true
	for _, pod := range []*v1.Pod{p, asks} {
		_, err := k.api.CoreV1().Pods(k.ns).Create(k.t.Context(), pod, metav1.CreateOptions{})
		require.NoError(k.t, err)
		k.object(k.ns, pod.Name, ready)
	}
}

// TestKubectl: an API server reaches the node as it reaches kubelet, for who may.
func TestKubectl(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	files := k.reach()
	k.startNode("--kubeconfig", k.conf, "--node-ip", nodeIP,
		"--client-ca-file", files.CA, "--tls-cert-file", files.Cert, "--tls-private-key-file", files.Key)
	k.createTalker()
	n, err := k.api.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(10250), n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	k.testLogs(t)
	k.testExecs(t)
	k.testForward(t)
	k.testAttach(t)
	k.testFollowed(t)
	k.testRights(t)

	// A static pod goes by the name of its mirror pod. By its short one it is
	// known to the operator, unless that is another's; to an API server never.
	static := web(1)
	static.Name, static.Namespace, static.UID, static.Annotations = "talks", k.ns, "", nil
	static.Spec.Containers = []v1.Container{shell("c", "echo static; "+forever)}
	k.write(static)
	k.object(k.ns, "talks-node1", ready)
	k.await("what a static pod says", func() error {
		if out := k.kubectl("", "logs", "talks-node1"); out != "static\n" {
			return errors.New(out)
		}
		return nil
	})
	require.Equal(t, said{}, k.fairlead("", "exec", "-n", k.ns, "talks", "-c", "side", "--", "true"))
	k.delete("talks")
	k.absent(k.ns, "talks")
	k.await("the short name", func() error {
		if got := k.fairlead("", "logs", "-n", k.ns, "talks", "-c", "c"); got != (said{out: "static\n"}) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	admin := k.certificate("admin", k.c.Admin())
	require.Equal(t, "200", k.curl(admin, "/containerLogs/"+k.ns+"/talks-node1/c"))
	require.Equal(t, "404", k.curl(admin, "/containerLogs/"+k.ns+"/talks/c"))

	k.erase("talks")
	k.end("asks")
}

// TestKubectlOverDocker: the streams are those of our own CRI, the certificate
// is the node's own, and the API server one that takes any, as kubeadm's are.
func TestKubectlOverDocker(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newDockerBed(t), "--kubelet-certificate-authority=")
	k.startNode("--kubeconfig", k.conf, "--node-ip", nodeIP, "--client-ca-file", k.reach().CA)
	k.createTalker()
	k.testLogs(t)
	k.testExecs(t)
	k.testForward(t)
	k.testAttach(t)
	k.testFollowed(t)
	k.end("talks", "asks")
}

// testAttach talks to a container, whose log is there also after its end.
func (k *cluster) testAttach(t *testing.T) {
	t.Helper()
	require.Contains(t, k.kubectl("hello\n", "attach", "-i", "asks"), "heard hello")
	k.object(k.ns, "asks", func(p *v1.Pod) string {
		if p.Status.Phase != v1.PodSucceeded {
			return "not ended"
		}
		return ""
	})
	require.Equal(t, "heard hello\n", k.kubectl("", "logs", "asks"))
}

// end ends pods of the API server, and the node.
func (k *cluster) end(names ...string) {
	k.t.Helper()
	for _, name := range names {
		k.delete(name)
		k.absent(k.ns, name)
	}
	k.awaitEmpty()
	k.requireNoLeaks()
}

func (k *cluster) testLogs(t *testing.T) {
	t.Helper()
	k.await("what it says", func() error {
		if out := k.kubectl("", "logs", "talks", "-c", "c"); out != "one\ntwo\nthree\n" {
			return errors.New(out)
		}
		return nil
	})
	require.Equal(t, "three\n", k.kubectl("", "logs", "talks", "-c", "c", "--tail=1"))
	require.Equal(t, "one\ntw", k.kubectl("", "logs", "talks", "-c", "c", "--limit-bytes=6"))
	require.Regexp(t, `^20\d\d-\d\d-\d\dT[0-9:.]+\S* one\n`, k.kubectl("", "logs", "talks", "-c", "c", "--timestamps", "--since=1h"))
	_, err := k.c.TryKubectl("", "-n", k.ns, "logs", "talks", "-c", "c", "-p")
	require.ErrorContains(t, err, "was not started before")
}

// testExecs: commands over WebSockets, which are kubectl's way, and over SPDY.
func (k *cluster) testExecs(t *testing.T) {
	t.Helper()
	require.Equal(t, "read this", k.kubectl("read this", "exec", "-i", "talks", "-c", "side", "--", "cat"))
	long := ": " + strings.Repeat("x", 100_000) + "; echo done" // a command goes in the request's line
	require.Equal(t, "done\n", k.kubectl("", "exec", "talks", "-c", "side", "--", "sh", "-c", long))
	_, err := k.c.TryKubectl("", "-n", k.ns, "exec", "talks", "-c", "side", "--", "sh", "-c", "echo why >&2; exit 7")
	require.ErrorContains(t, err, "exit code 7")
	require.ErrorContains(t, err, "why")
	_, err = k.c.TryKubectl("", "-n", k.ns, "exec", "talks", "-c", "side", "--", "/no/such/program")
	require.ErrorContains(t, err, "/no/such/program")

	at := k.pod("talks").SubResource("exec").Param("container", "side").
		Param("command", "sh").Param("command", "-c").Param("command", "cat; echo err >&2; exit 5").
		Param("stdin", "true").Param("stdout", "true").Param("stderr", "true").URL()
	e, err := remotecommand.NewSPDYExecutor(k.c.Admin(), http.MethodPost, at)
	require.NoError(t, err)
	var out, errs bytes.Buffer
	err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &errs})
	exit := exec.CodeExitError{}
	require.ErrorAs(t, err, &exit)
	require.Equal(t, []any{5, "in", "err\n"}, []any{exit.Code, out.String(), errs.String()})

	file := filepath.Join(t.TempDir(), "file")
	content := strings.Repeat("copied\n", 20000)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	k.kubectl("", "cp", "-c", "side", file, "talks:/tmp/copy")
	k.kubectl("", "cp", "-c", "side", "talks:/tmp/copy", file+".back")
	back, err := os.ReadFile(file + ".back")
	require.NoError(t, err)
	require.True(t, content == string(back), "%d bytes", len(back))
}

// pod is a request for a part of a pod.
func (k *cluster) pod(name string) *rest.Request {
	return k.api.CoreV1().RESTClient().Post().Namespace(k.ns).Resource("pods").Name(name)
}

// testForward: connections into a pod, over both protocols.
func (k *cluster) testForward(t *testing.T) {
	t.Helper()
	k.await("the page", func() error {
		_, err := k.c.TryKubectl("", "-n", k.ns, "exec", "talks", "-c", "side", "--", "wget", "-q", "-O", "-", "http://127.0.0.1:8080/")
		return err
	})
	at := k.pod("talks").SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(k.c.Admin())
	require.NoError(t, err)
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, k.c.Admin())
	require.NoError(t, err)
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY": spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at), "WebSocket": socket,
	} {
		stop, up := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, up, io.Discard, io.Discard)
		require.NoError(t, err, name)
		ended := make(chan error, 1)
		go func() { ended <- f.ForwardPorts() }()
		select {
		case <-up:
		case err := <-ended:
			require.NoError(t, err, name)
		}
		ports, err := f.GetPorts()
		require.NoError(t, err, name)
		require.Len(t, ports, 1)
		for range 3 {
			require.Equal(t, "hello\n", get(t, fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local)), name)
		}
		close(stop)
		require.NoError(t, <-ended, name)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// testFollowed follows a container to its end, and reads of the one before.
func (k *cluster) testFollowed(t *testing.T) {
	t.Helper()
	follow, err := k.api.CoreV1().Pods(k.ns).GetLogs("talks", &v1.PodLogOptions{Container: "c", Follow: true}).Stream(t.Context())
	require.NoError(t, err)
	defer follow.Close()
	lines := bufio.NewReader(follow)
	next := func() string {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		return line
	}
	for _, want := range []string{"one\n", "two\n", "three\n"} {
		require.Equal(t, want, next())
	}
	k.kubectl("", "exec", "talks", "-c", "side", "--", "touch", "/tmp/end")
	require.Equal(t, "four\n", next())
	_, err = lines.ReadString('\n')
	require.ErrorIs(t, err, io.EOF)
	k.await("the log of before", func() error {
		out, err := k.c.TryKubectl("", "-n", k.ns, "logs", "talks", "-c", "c", "--previous")
		if err == nil && out != "one\ntwo\nthree\nfour\n" {
			err = errors.New(out)
		}
		return err
	})
}

// certificate writes a user's certificate and gives curl's words for it.
func (k *cluster) certificate(name string, of *rest.Config) []string {
	k.t.Helper()
	file := filepath.Join(k.Dir, name+".pem")
	require.NoError(k.t, os.WriteFile(file, append(bytes.Clone(of.CertData), of.KeyData...), 0o600))
	return []string{"--cert", file}
}

func bearer(token string) []string { return []string{"-H", "Authorization: Bearer " + token} }

// curl asks the node itself, and gives the answer's status.
func (k *cluster) curl(as []string, path string, more ...string) string {
	k.t.Helper()
	at := url.URL{Scheme: "https", Host: nodeIP + ":10250"}
	argv := append([]string{"curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}"}, as...)
	return k.Run(append(append(argv, more...), at.String()+path)...)
}

// rules lets a user do something with nodes.
func (k *cluster) rules(name, user, resource, verb string) {
	k.t.Helper()
	k.c.Apply(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %[1]s},
  rules: [{apiGroups: [""], resources: [%[3]s], verbs: [%[4]s]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %[1]s},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: %[2]q}]}
`, name, user, resource, verb))
}

// testRights: who asks the node itself is known, and may, or is refused.
func (k *cluster) testRights(t *testing.T) {
	t.Helper()
	log := "/containerLogs/" + k.ns + "/talks/side"
	run := "/exec/" + k.ns + "/talks/side?command=true&output=1"
	upgrade := []string{"-H", "Connection: Upgrade", "-H", "Upgrade: websocket"}
	admin, jane := k.certificate("admin", k.c.Admin()), k.certificate("jane", k.c.User("jane", "people"))
	for _, path := range []string{"/pods", "/healthz", log, run, "/nowhere"} {
		require.Equal(t, "401", k.curl(nil, path), path)
		require.Equal(t, "401", k.curl(bearer("wrong"), path), path)
		require.Equal(t, "403", k.curl(jane, path), path)
	}
	require.Equal(t, "200", k.curl(admin, "/pods"))
	require.Equal(t, "404", k.curl(admin, "/nowhere"))
	// Somebody else's authority makes nobody known, whatever the name.
	k.Run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
		"-subj", "/O=system:masters/CN=kubernetes-admin", "-keyout", filepath.Join(k.Dir, "other.key"), "-out", filepath.Join(k.Dir, "other.crt"))
	other := []string{"--cert", filepath.Join(k.Dir, "other.crt"), "--key", filepath.Join(k.Dir, "other.key")}
	require.Equal(t, "401", k.curl(other, "/pods"))

	account := k.c.ServiceAccountConfig(k.ns, "reader").BearerToken
	require.Equal(t, "403", k.curl(bearer(account), log))
	k.rules("reads", "system:serviceaccount:"+k.ns+":reader", "nodes/proxy", "get")
	k.rules("lists", "jane", "nodes/pods", "get")
	allowed := func(as []string, path string) {
		k.await(path, func() error {
			if code := k.curl(as, path); code != "200" {
				return errors.New(code)
			}
			return nil
		})
	}
	allowed(bearer(account), log)
	require.Equal(t, "403", k.curl(bearer(account), run, upgrade...), "a right to read is none to run commands")
	allowed(jane, "/pods")
	require.Equal(t, "403", k.curl(jane, log))

	// Whoever cannot be asked about is not let in, and not called unknown.
	k.link.Cut()
	require.Equal(t, "500", k.curl(bearer("another"), log))
	require.Equal(t, "500", k.curl(k.certificate("joe", k.c.User("joe", "system:masters")), log))
	require.Equal(t, "401", k.curl(nil, log))
	require.NoError(t, k.link.Heal())
	allowed(k.certificate("joe", k.c.User("joe", "system:masters")), log)
}
