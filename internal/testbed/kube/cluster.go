package kube

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options change what a cluster is; the zero value is what most tests want.
type Options struct {
	// ServiceAccounts leaves the admission plugin of that name on: pods then
	// need an account, and nothing makes the account "default".
	ServiceAccounts bool
	// Control starts kube-scheduler and kube-controller-manager too, and turns
	// ServiceAccounts on: Deployments make pods, namespaces can be deleted.
	Control bool
	// PodCIDR is divided among the nodes, a /24 for each (spec.podCIDR). It takes
	// Control.
	PodCIDR string
	// NoCRDs leaves deploy/crds out: the test installs them.
	NoCRDs bool
	// Flags are further flags of the API server.
	Flags []string
}

// Cluster is one test's handle on a cluster. Its methods fail that test on
// errors of the harness.
type Cluster struct {
	t testing.TB
	s *server
}

// Start makes a cluster of the test's own: for tests that stop the API server
// or change what all see. It takes some seconds. At the end of the test it
// goes, and whatever is left of it fails the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	s, err := newServer(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		t.Helper()
		if t.Failed() && s.api != nil {
			t.Logf("kube-apiserver:\n%s", s.api.tail())
		}
		require.NoError(t, s.close())
	})
	return &Cluster{t: t, s: s}
}

// common is the cluster that the tests of a process share.
var common struct {
	once sync.Once
	s    *server
	err  error
}

// Shared returns a cluster that all tests of the process use, started by the
// first that asks. Tests that use it take a Namespace and node names of their
// own, and do not stop it. The package's TestMain must call Main.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	common.once.Do(func() { common.s, common.err = newServer(Options{}) })
	require.NoError(t, common.err)
	return &Cluster{t: t, s: common.s}
}

// Main is a TestMain for packages that use Shared:
//
//	func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }
//
// It ends the cluster; what is left of it is a failure.
func Main(m *testing.M) int {
	code := m.Run()
	if common.s == nil {
		return code
	}
	if err := common.s.close(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	return code
}

// With is the same cluster for another test: a subtest.
func (c *Cluster) With(t testing.TB) *Cluster { return &Cluster{t: t, s: c.s} }

// URL is the API server's address, https://127.0.0.1:PORT. It stays the same
// through Restart and in every namespace with a Link.
func (c *Cluster) URL() string { return c.s.url() }

// Dir holds the cluster's files; tests may put theirs beside them.
func (c *Cluster) Dir() string { return c.s.dir }

// Admin is the configuration of a user who may do everything.
func (c *Cluster) Admin() *rest.Config {
	cfg := c.s.config(c.s.admin)
	cfg.UserAgent = "kube-testbed"
	return cfg
}

// AdminKubeconfig is the path of a kubeconfig for the same user.
func (c *Cluster) AdminKubeconfig() string { return c.s.path("admin.kubeconfig") }

// User is the configuration of a user with a client certificate. What it may
// do is what RBAC says (nothing, at first) and, for system:node:NAME in the
// group system:nodes, the node authorizer.
func (c *Cluster) User(name string, groups ...string) *rest.Config {
	c.t.Helper()
	p, err := c.s.ca.Client(name, groups...)
	require.NoError(c.t, err)
	return c.s.config(p)
}

// ServiceAccountConfig is the configuration of a service account with a token
// (TokenRequest, one hour). The account is made if it is missing.
func (c *Cluster) ServiceAccountConfig(namespace, name string) *rest.Config {
	c.t.Helper()
	ctx, cancel := limited()
	defer cancel()
	cfg, err := c.s.serviceAccount(ctx, namespace, name)
	require.NoError(c.t, err)
	return cfg
}

// Kubeconfig writes a configuration of User or ServiceAccountConfig into a
// file, secrets included, and returns its path. The file goes with the
// cluster.
func (c *Cluster) Kubeconfig(cfg *rest.Config) string {
	c.t.Helper()
	c.s.mu.Lock()
	c.s.configs++
	file := c.s.path(fmt.Sprintf("kubeconfig-%d", c.s.configs))
	c.s.mu.Unlock()
	require.NoError(c.t, writeKubeconfig(file, cfg))
	return file
}

// Client is a typed client with Admin's rights.
func (c *Cluster) Client() kubernetes.Interface {
	c.t.Helper()
	k, err := kubernetes.NewForConfig(c.Admin())
	require.NoError(c.t, err)
	return k
}

// Dynamic is a client for objects of any kind with Admin's rights.
func (c *Cluster) Dynamic() dynamic.Interface {
	c.t.Helper()
	d, err := dynamic.NewForConfig(c.Admin())
	require.NoError(c.t, err)
	return d
}

// Alone has the cluster to one test's machine at a time: a Subnet's addresses are
// one node's where no controller gives them. It waits for the tests that have it;
// call it before the machine's Node is made.
func (c *Cluster) Alone() {
	c.s.alone.Lock()
	c.t.Cleanup(c.s.alone.Unlock)
}

// RegisterNode makes a Node as kubelet and the node-ipam controller do; it goes
// with the test.
func (c *Cluster) RegisterNode(name string, podCIDRs ...string) {
	c.t.Helper()
	nodes := c.Client().CoreV1().Nodes()
	n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.NodeSpec{PodCIDRs: podCIDRs}}
	if len(podCIDRs) > 0 {
		n.Spec.PodCIDR = podCIDRs[0]
	}
	ctx, cancel := limited()
	defer cancel()
	_, err := nodes.Create(ctx, n, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		if c.s.running() {
			ctx, cancel := limited()
			defer cancel()
			_ = nodes.Delete(ctx, name, metav1.DeleteOptions{}) // the test may have
		}
	})
}

// ReportBoot has a Node say in which boot its machine is, as kubelet does.
func (c *Cluster) ReportBoot(node, boot string) {
	c.t.Helper()
	c.Kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", `{"status":{"nodeInfo":{"bootID":"`+boot+`"}}}`)
}

// Namespace makes a namespace with a new name.
func (c *Cluster) Namespace() string {
	c.t.Helper()
	b := make([]byte, 4)
	_, err := rand.Read(b)
	require.NoError(c.t, err)
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t-" + hex.EncodeToString(b)}}
	ctx, cancel := limited()
	defer cancel()
	_, err = c.Client().CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return ns.Name
}

// Apply makes or changes objects by server-side apply, as kubectl would, with
// Admin's rights. text is YAML or JSON, several documents if wanted; an object
// without a namespace goes into "default". It returns the objects as stored.
func (c *Cluster) Apply(text string) []*unstructured.Unstructured {
	c.t.Helper()
	var out []*unstructured.Unstructured
	a, objects := c.objects(text)
	for _, o := range objects {
		stored, err := a.apply(context.Background(), o)
		require.NoError(c.t, err, "apply %s %s", o.GetKind(), o.GetName())
		out = append(out, stored)
	}
	return out
}

// TryApply is Apply as another user, for what may be refused: the error is the
// API server's.
func (c *Cluster) TryApply(as *rest.Config, text string) error {
	c.t.Helper()
	objects, err := decode(text)
	require.NoError(c.t, err)
	a, err := newApplier(as)
	require.NoError(c.t, err)
	for _, o := range objects {
		if _, err := a.apply(context.Background(), o); err != nil {
			return err
		}
	}
	return nil
}

// Delete deletes the objects that text names, without grace. A pod that is
// bound to a node is gone at once; no kubelet is asked.
func (c *Cluster) Delete(text string) {
	c.t.Helper()
	a, objects := c.objects(text)
	for _, o := range objects {
		require.NoError(c.t, a.delete(context.Background(), o), "delete %s %s", o.GetKind(), o.GetName())
	}
}

func (c *Cluster) objects(text string) (*applier, []*unstructured.Unstructured) {
	c.t.Helper()
	objects, err := decode(text)
	require.NoError(c.t, err)
	a, err := newApplier(c.Admin())
	require.NoError(c.t, err)
	return a, objects
}

// Lines is what a JSONPath makes of each object of a kind, in all namespaces. A
// process of kubectl costs more, and tests look often.
func (c *Cluster) Lines(kind, template string) []string {
	c.t.Helper()
	a, _ := c.objects("")
	lines, err := a.lines(kind, template)
	require.NoError(c.t, err)
	return lines
}

// Kubectl runs kubectl with Admin's rights and returns its standard output.
func (c *Cluster) Kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.TryKubectl("", args...)
	require.NoError(c.t, err)
	return out
}

// TryKubectl is Kubectl for commands that may fail, with text on standard
// input; the error holds standard error.
func (c *Cluster) TryKubectl(stdin string, args ...string) (string, error) {
	c.t.Helper()
	bin, err := program("kubectl")
	require.NoError(c.t, err)
	ctx, cancel := limited()
	defer cancel()
	cmd := lean(exec.CommandContext(ctx, bin, append([]string{"--kubeconfig=" + c.AdminKubeconfig(), "--cache-dir=" + c.s.path("kubectl")}, args...)...))
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Pause stops the API server's process (SIGSTOP): connections stay open and
// nothing answers, as behind a broken network. Not for a shared cluster.
func (c *Cluster) Pause() {
	c.t.Helper()
	require.NoError(c.t, c.s.suspend(true))
}

// Resume ends Pause.
func (c *Cluster) Resume() {
	c.t.Helper()
	require.NoError(c.t, c.s.suspend(false))
}

// Stop kills the API server: connections break, new ones are refused. etcd
// keeps everything. Not for a shared cluster.
func (c *Cluster) Stop() { c.s.stopAPI() }

// Restart starts the API server again, after Stop or instead of it, with the
// same data and address, and waits until it is ready.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.s.stopAPI()
	ctx, cancel := limited()
	defer cancel()
	require.NoError(c.t, c.s.startAPI(ctx))
}

// Mark is now, for Filter.Since.
func (c *Cluster) Mark() Mark {
	c.t.Helper()
	m, err := c.s.mark()
	require.NoError(c.t, err)
	return m
}

// Requests returns the requests that the filter chooses, in the order of their
// arrival at the API server: every one that was answered, and of the others
// those that have arrived. A watch counts once, when it begins. The server's
// own requests and questions for its health are not among them.
func (c *Cluster) Requests(f Filter) []Request {
	c.t.Helper()
	r, err := c.s.requests(f)
	require.NoError(c.t, err)
	return r
}

// Link makes the API server reachable from a network namespace, a path such as
// testbed's Node.NetnsPath: there, too, it has the address that all
// kubeconfigs name. lo must be up. The link ends with the test; after a
// reboot of the node it takes a new one.
func (c *Cluster) Link(netns string) *Link {
	c.t.Helper()
	l, err := newLink(c.s, netns)
	require.NoError(c.t, err)
	c.t.Cleanup(l.close)
	return l
}

// Cut breaks all connections through the link and refuses new ones, until
// Heal: the API server is down for this namespace alone.
func (l *Link) Cut() { l.close() }

// Heal ends Cut.
func (l *Link) Heal() error { return l.open() }
