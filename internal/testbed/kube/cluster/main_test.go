package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asProgram makes this binary the program itself.
const asProgram = "CLUSTER_TEST_NODES"

// chartOVS behind a number of nodes has Open vSwitch be the chart's.
const chartOVS = " with Open vSwitch"

func TestMain(m *testing.M) {
	size, ovs := strings.CutSuffix(os.Getenv(asProgram), chartOVS)
	if nodes, err := strconv.Atoi(size); err == nil {
		go func() { // its standard input is the test's: it ends with a test that was killed
			_, _ = io.Copy(io.Discard, os.Stdin)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}()
		os.Exit(run(nodes, extra{ovs: ovs}))
	}
	os.Exit(m.Run())
}

// shell runs lines of shell with a cluster's env file, as the guide says.
type shell struct {
	t   *testing.T
	env string
}

func (s shell) try(line string) (string, error) {
	out, err := exec.CommandContext(s.t.Context(), "bash", "-ec", ". "+s.env+"\n"+line).CombinedOutput()
	return string(out), err
}

func (s shell) run(line string) string {
	s.t.Helper()
	out, err := s.try(line)
	require.NoError(s.t, err, "%s: %s", line, out)
	return out
}

// until is run for what comes a moment later.
func (s shell) until(line string) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if _, err := s.try(line); err == nil {
			return
		}
	}
	s.run(line)
}

// begin starts the program and waits until the cluster is there; the function
// ends it as Ctrl-C does.
func begin(t *testing.T, tmp, nodes string) (s shell, interrupt func() string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"="+nodes, "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	interrupt = func() string {
		ended = true
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		rest, err := io.ReadAll(out)
		require.NoError(t, err)
		require.NoError(t, cmd.Wait())
		return string(rest)
	}
	t.Cleanup(func() {
		if !ended {
			interrupt()
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if env, ok := strings.CutPrefix(lines.Text(), "  . "); ok {
			return shell{t, env}, interrupt
		}
	}
	ended = true
	require.FailNow(t, "no cluster", "%v", cmd.Wait())
	return shell{}, nil
}

// TestCluster: what `make cluster` starts has Fairlead as users install it, with
// its account and policies; nothing in it works as the administrator; and it
// goes as it came.
func TestCluster(t *testing.T) {
	t.Parallel()
	sizes := []string{"2"}
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		sizes = append(sizes, "1", "1"+chartOVS, "3")
	}
	for _, nodes := range sizes {
		t.Run(nodes, func(t *testing.T) {
			t.Parallel()
			testCluster(t, nodes)
		})
	}
}

func testCluster(t *testing.T, nodes string) {
	t.Helper()
	tmp, err := os.MkdirTemp("", "flc") // not t.TempDir: sockets have short names
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.Remove(tmp) }) // an error: it is gone, or there is what the failure was about
	s, interrupt := begin(t, tmp, nodes)
	require.Equal(t, strings.TrimSpace(strings.Repeat("fairlead-agent true ", len(strings.Fields(s.run("kubectl get nodes -o name"))))),
		s.run(`kubectl -n kube-system get pods -l app.kubernetes.io/component=agent -o jsonpath='{range .items[*]}{.spec.serviceAccountName} {.status.containerStatuses[0].ready} {end}' | sed 's/ $//'`))
	s.run("kubectl -n kube-system exec ds/fairlead-agent -- fairlead status")
	s.until("kubectl -n kube-system exec ds/fairlead-agent -- fairlead doctor") // ovn-controller may still be on its way to central
	s.until("in_node fairlead doctor")

	tenant := "kubectl -n tenant --as=tenant run --image=fairlead.local/busybox:1 "
	out, err := s.try(tenant + "fixed --annotations=ovn.kubernetes.io/ip_address=10.16.0.99 -- sleep 1000")
	require.Error(t, err)
	require.Contains(t, out, "ValidatingAdmissionPolicy 'fairlead-requests' with binding 'fairlead-requests' denied request: service account tenant/default may not set ovn.kubernetes.io/ip_address")
	s.run(tenant + "free -- sleep 1000")
	s.run("kubectl -n tenant wait --for=condition=Ready pod/free --timeout=80s")
	s.run("kubectl create deployment web --image=fairlead.local/busybox:1 --replicas=0 -- sleep 1000")
	s.run(`kubectl patch deployment web -p '` + spread + `'`)
	s.run("kubectl rollout status deployment/web --timeout=80s") // all of them: Available is true of three
	if !strings.HasPrefix(nodes, "1") {
		requireOneNetwork(s)
		s.until("kubectl -n kube-system exec ds/fairlead-central -- fairlead doctor --cluster | grep 'southbound raft .* leads'")
		s.run("kubectl -n kube-system exec ds/fairlead-central -- fairlead ovn nbctl ls-list | grep ovn-default")
		requireRelay(s)
	}
	requireOwnUsers(t, filepath.Dir(s.env))

	require.Contains(t, interrupt(), "Removing everything")
	require.NoError(t, os.Remove(tmp), "all of it is gone")
}

// spread has four pods of a Deployment run on all nodes: without, the scheduler may
// find one node good enough for all.
const spread = `{"spec": {"replicas": 4, "template": {"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
	"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]}}}}`

// requireOneNetwork wants pods on every node, of which each reaches those of the
// others, in both families.
func requireOneNetwork(s shell) {
	s.t.Helper()
	const list = `kubectl get pods -l app=web -o jsonpath='{range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIPs[*].ip}{"\n"}{end}'`
	var pods [][]string
	nodes := map[string]bool{}
	for line := range strings.Lines(s.run(list)) {
		f := strings.Fields(line)
		require.Len(s.t, f, 4, line)
		pods = append(pods, f)
		nodes[f[1]] = true
	}
	require.Greater(s.t, len(nodes), 1)
	for _, p := range pods {
		for _, ip := range p[2:] {
			s.run("kubectl exec " + pods[0][0] + " -- ping -c 1 -W 5 " + ip)
		}
	}
}

// requireRelay asks OVN's databases, which take certificates, as an administrator who
// has a kubeconfig alone: through the API server. On the pod's node its switch answers too.
func requireRelay(s shell) {
	s.t.Helper()
	s.run("fairlead ovn nbctl ls-list | grep ovn-default")
	s.run("fairlead ovn sbctl list Chassis | grep hostname")
	s.run("fairlead ovn backup $(dirname $KUBECONFIG)/ovn.tar && tar tf $(dirname $KUBECONFIG)/ovn.tar | grep -x nb.db")
	s.run("fairlead ip leaks")
	s.run("kubectl apply -f - <<<'{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: shut}, spec: {podSelector: {}, policyTypes: [Ingress]}}'")
	s.until(`set -- $(kubectl get pods -l app=web -o name); fairlead trace default/${1#pod/} default/${2#pod/} | grep 'DROPPED by NetworkPolicy default/shut'`)
	s.run("for p in $(kubectl get pods -l app=web -o name); do in_node fairlead trace default/${p#pod/} 10.16.0.1 || true; done | grep 'this switch'")
	s.run("kubectl delete networkpolicy shut")
}

// requireOwnUsers wants everybody under a name of his own in the audit log: who
// watches does his daily work.
func requireOwnUsers(t *testing.T, dir string) {
	t.Helper()
	log, err := os.Open(filepath.Join(dir, "audit.log"))
	require.NoError(t, err)
	defer log.Close()
	watchers, creators := map[string]bool{}, map[string]bool{}
	for lines := json.NewDecoder(log); lines.More(); {
		var e struct {
			Verb, UserAgent string
			User            struct{ Username string }
			ObjectRef       struct{ Resource string }
		}
		if lines.Decode(&e) != nil {
			break // a line that is being written
		}
		if e.Verb == "watch" && !strings.HasPrefix(e.UserAgent, "kubectl/") {
			watchers[e.User.Username] = true
		}
		if e.Verb == "create" && e.ObjectRef.Resource == "pods" {
			creators[e.User.Username] = true
		}
	}
	require.NotContains(t, watchers, "kubernetes-admin")
	require.Contains(t, creators, "system:serviceaccount:kube-system:replicaset-controller")
	require.Contains(t, creators, "system:serviceaccount:kube-system:daemon-set-controller")
	for _, name := range []string{
		"system:serviceaccount:kube-system:fairlead-agent", "system:node:demo", "system:kube-scheduler",
		"system:kube-controller-manager",
	} {
		require.Contains(t, watchers, name)
	}
}

// TestHomes: a folder is removed once its run has ended without doing so.
func TestHomes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	tmp := os.Getenv("TMPDIR")
	var said int
	again := func() *home {
		require.NoError(t, os.Setenv("TMPDIR", tmp))
		h, err := newHome(func(string, ...any) { said++ })
		require.NoError(t, err)
		require.Equal(t, h.dir, os.TempDir())
		return h
	}
	killed, running := again(), again()
	require.NoError(t, os.MkdirAll(filepath.Join(killed.dir, "fl1/disk"), 0o755))
	require.NoError(t, killed.lock.Close())
	last := again()
	require.NoDirExists(t, killed.dir)
	require.DirExists(t, running.dir)
	require.Equal(t, 1, said)
	require.NoError(t, running.remove())
	require.NoError(t, last.remove())
}
