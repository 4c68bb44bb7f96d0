package kube

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

const podYAML = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: NS}
spec:
  nodeName: NS
  containers: [{name: c, image: none}]
`

// readerYAML lets the account "agent" read pods.
const readerYAML = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NS}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: agent, namespace: NS}]
`

func in(ns, text string) string { return strings.ReplaceAll(text, "NS", ns) }

func client(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return k
}

func TestPodsBoundToANode(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	ns := c.Namespace()
	stored := c.Apply(in(ns, podYAML))
	require.Len(t, stored, 1)
	require.NotEmpty(t, stored[0].GetUID())
	pods, err := c.Client().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + ns})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	require.Equal(t, stored[0].GetUID(), pods.Items[0].UID)
	require.Equal(t, "pod/web\n", c.Kubectl("get", "pods", "-n", ns, "-o", "name"))
	c.Delete(in(ns, podYAML))
	_, err = c.Client().CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestRightsAreEnforced(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	ns := c.Namespace()
	c.Apply(in(ns, podYAML+"---"+readerYAML))
	list := func(cfg *rest.Config) error {
		_, err := client(t, cfg).CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		return err
	}
	agent := c.ServiceAccountConfig(ns, "agent")
	require.NoError(t, list(agent))
	require.True(t, apierrors.IsForbidden(list(c.ServiceAccountConfig(ns, "other"))))
	require.True(t, apierrors.IsForbidden(list(c.User("somebody"))))
	require.True(t, apierrors.IsForbidden(c.TryApply(agent, in(ns, podYAML))))
	anonymous := c.User("nobody")
	anonymous.CertData, anonymous.KeyData = nil, nil
	require.True(t, apierrors.IsForbidden(list(anonymous)))
	require.NoError(t, c.TryApply(c.User("root", "system:masters"), in(ns, podYAML)))

	// The node authorizer: a node reads its own pods, not those of others.
	node := client(t, c.User("system:node:"+ns, "system:nodes"))
	_, err := node.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	other := client(t, c.User("system:node:other", "system:nodes"))
	_, err = other.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestAdmissionPolicies(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	ns := c.Namespace()
	c.Apply(in(ns, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NS}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "object.metadata.name != 'refused'", message: "not that name"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NS}
spec: {policyName: NS, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}}}
`))
	// The server reads new policies a moment after they were stored.
	err := until(t.Context(), "the policy", func() error {
		err := c.TryApply(c.Admin(), in(ns, "{apiVersion: v1, kind: ConfigMap, metadata: {name: refused, namespace: NS}}"))
		if err == nil {
			c.Delete(in(ns, "{apiVersion: v1, kind: ConfigMap, metadata: {name: refused, namespace: NS}}"))
			return os.ErrNotExist
		}
		require.ErrorContains(t, err, "not that name")
		return nil
	})
	require.NoError(t, err)
	c.Apply(in(ns, "{apiVersion: v1, kind: ConfigMap, metadata: {name: fine, namespace: NS}}"))
}

func TestCustomResources(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	ns := c.Namespace()
	nad := in(ns, `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: macvlan, namespace: NS}
spec: {config: '{"cniVersion": "1.0.0", "type": "macvlan"}'}
`)
	c.Apply(nad)
	require.Contains(t, c.Kubectl("get", "net-attach-def", "-n", ns, "macvlan", "-o", "jsonpath={.spec.config}"), "macvlan")
	c.Delete(nad)
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	ns := c.Namespace()
	c.Apply(in(ns, podYAML+"---"+readerYAML))
	cfg := c.ServiceAccountConfig(ns, "agent")
	cfg.UserAgent = "counted/" + ns
	pods := client(t, cfg).CoreV1().Pods(ns)
	mine := Filter{UserAgent: "counted/" + ns}
	require.Empty(t, c.Requests(mine))

	_, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	got := c.Requests(mine)
	require.Len(t, got, 1)
	want := Request{User: "system:serviceaccount:" + ns + ":agent", UserAgent: "counted/" + ns, Verb: "get", Resource: "pods",
		Namespace: ns, Name: "web", URI: "/api/v1/namespaces/" + ns + "/pods/web", Time: got[0].Time}
	require.Equal(t, want, got[0])

	mine.Since = c.Mark()
	require.Empty(t, c.Requests(mine))
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	_, err = pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Error(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	_, err = pods.Patch(t.Context(), "web", "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{}, "status")
	require.Error(t, err)

	count := func(f Filter) int {
		f.Since, f.UserAgent = mine.Since, mine.UserAgent
		return len(c.Requests(f))
	}
	require.Equal(t, 4, count(Filter{}))
	require.Equal(t, 2, count(Filter{Verbs: Reads}))
	require.Equal(t, 2, count(Filter{Verbs: Writes}), "refused requests count too")
	require.Equal(t, 1, count(Filter{Verbs: []string{"watch"}}))
	require.Equal(t, 4, count(Filter{Resource: "pods"}))
	require.Equal(t, 1, count(Filter{Resource: "pods/status"}))
	require.Equal(t, 2, count(Filter{Name: "web"}))
	require.Equal(t, 0, count(Filter{Namespace: "default"}))
	require.Equal(t, 4, count(Filter{User: want.User}))
}

// TestLifeOfTheServer: crash and hang, with the same data and address after.
func TestLifeOfTheServer(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	ns := c.Namespace()
	c.Apply(in(ns, podYAML))
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := c.Client().CoreV1().Pods(ns).Get(ctx, "web", metav1.GetOptions{})
		return err
	}
	require.NoError(t, get())

	c.Pause()
	require.ErrorIs(t, get(), context.DeadlineExceeded)
	c.Resume()
	require.NoError(t, until(t.Context(), "resumed", get))

	before, url := c.Mark(), c.URL()
	c.Stop()
	require.Eventually(t, func() bool { // a request on a connection of before may end otherwise
		err := get()
		return err != nil && strings.Contains(err.Error(), "connection refused")
	}, time.Minute, 50*time.Millisecond)
	c.Restart()
	require.NoError(t, get())
	require.Equal(t, url, c.URL())
	c.Restart()
	require.NoError(t, get())
	require.Len(t, c.Requests(Filter{Since: before, Resource: "pods", Name: "web"}), 2, "the count survives a restart")
}

// namespace makes a network namespace without name; it goes with its holder.
func namespace(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	_, err = out.Read(make([]byte, 3))
	require.NoError(t, err)
	return "/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/net"
}

func TestLinkIntoANamespace(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	netns := namespace(t)
	cfg := c.Admin()
	cfg.Timeout = patience
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return relay.Dial(ctx, netns, network, addr)
	}
	k := client(t, cfg)
	get := func() error {
		_, err := k.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	require.ErrorContains(t, get(), "connection refused")
	l := c.Link(netns)
	require.NoError(t, get())
	l.Cut()
	require.Error(t, get())
	require.NoError(t, l.Heal())
	require.NoError(t, get())
}

// TestNothingIsLeft looks at a cluster's end: files, processes, the port.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	s, err := newServer(Options{})
	require.NoError(t, err)
	require.Len(t, mentioning(s.dir), 2, "etcd and kube-apiserver")
	require.NoError(t, s.close())
	require.Empty(t, mentioning(s.dir))
	require.NoDirExists(t, s.dir)
	l, err := net.Listen("tcp4", strings.TrimPrefix(s.url(), "https://"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, s.close(), "a second time")
}

// TestClusterDiesWithItsProcess runs this test's binary again, which starts a
// cluster and kills itself.
func TestClusterDiesWithItsProcess(t *testing.T) {
	if file := os.Getenv("KUBE_TEST_DIE"); file != "" {
		s, err := newServer(Options{})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, []byte(s.dir), 0o600))
		dieNow(t)
	}
	t.Parallel()
	dir := runAndDie(t, "^TestClusterDiesWithItsProcess$")[0]
	require.NoError(t, until(t.Context(), "the end of its children", func() error { return nobody(dir) }))
	require.NoError(t, os.RemoveAll(dir))
}

func dieNow(t *testing.T) {
	t.Helper()
	p, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	select {}
}

// runAndDie runs one test in a process of its own, which kills itself, and
// returns the lines that it wrote for $KUBE_TEST_DIE.
func runAndDie(t *testing.T, pattern string) []string {
	t.Helper()
	file := t.TempDir() + "/left"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern)
	cmd.Env = append(os.Environ(), "KUBE_TEST_DIE="+file)
	out, err := cmd.CombinedOutput()
	require.ErrorContains(t, err, "killed", "%s", out)
	b, err := os.ReadFile(file)
	require.NoError(t, err, "%s", out)
	return strings.Split(string(b), "\n")
}

// nobody wants no process that knows one of the folders.
func nobody(dirs ...string) error {
	for _, d := range dirs {
		if left := mentioning(d); len(left) > 0 {
			return errors.New(strings.Join(left, "; "))
		}
	}
	return nil
}

func TestTheServerThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := newServer(Options{Flags: []string{"--no-such-flag"}})
	require.ErrorIs(t, err, errFinal)
	require.ErrorContains(t, err, "no-such-flag")
}
