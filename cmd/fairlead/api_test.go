package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// said is what a command wrote, and its exit code.
type said struct {
	out, err string
	code     int
}

func say(t *testing.T, args string) said {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), strings.Fields(args), &stdout, &stderr)
	return said{stdout.String(), stderr.String(), code}
}

// tell is say for what must not fail.
func tell(t *testing.T, args string) said {
	t.Helper()
	s := say(t, args)
	require.Zero(t, s.code, "%s: %s", args, s.err)
	return s
}

// squeezed makes one blank of many.
func squeezed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

// town is a namespace with pods as a cluster of several nodes has them. The
// addresses are of a range that is the test's own.
type town struct {
	c       *kube.Cluster
	ns, net string // net: the first three bytes of its Subnet
	file    string // kubeconfig of a user who may read the namespace
	eve     string // of one who may read nothing
}

const townStatus = `[{"name":"fairlead","interface":"eth0","ips":["%[1]s.5"],"mac":"0a:00:00:00:00:05","mtu":1400,"default":true,"dns":{},"gateway":["%[1]s.1"]},` +
	`{"name":"%[2]s/lan","interface":"net1","ips":["192.168.9.7"],"mac":"0a:00:00:00:00:07","dns":{}}]`

func newTown(t *testing.T, net string) *town {
	t.Helper()
	isolated(t)
	v := &town{c: kube.Shared(t), net: net}
	v.ns = v.c.Namespace()
	v.c.Apply(strings.NewReplacer("NS", v.ns, "NET", net).Replace(`
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: NS}, spec: {cidrBlock: NET.0/24, gateway: NET.1, vlan: NS, excludeIps: [NET.2..NET.4]}}
---
{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: NS}, spec: {id: 77}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: lan, namespace: NS},
 spec: {config: '{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"host-local"}}'}}
---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: bad, namespace: NS}, spec: {config: '{"type":7}'}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: NS}, rules: [
  {apiGroups: [""], resources: [pods], verbs: [get, list]},
  {apiGroups: [events.k8s.io], resources: [events], verbs: [list]},
  {apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader, namespace: NS},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: tenant-NS}]}`))
	v.c.Apply(v.pod("web", "node1", "", fmt.Sprintf(townStatus, net, v.ns)))
	v.c.Apply(v.pod("new", "node2", "", ""))
	v.c.Apply(v.pod("late", "", "", ""))
	v.c.Apply(v.pod("old", "node1", "", strings.ReplaceAll(fmt.Sprintf(townStatus, net, v.ns), ".5", ".9")))
	v.c.Apply(v.pod("host", "node1", "hostNetwork: true, ", ""))
	v.phase(t, "old", "Succeeded")
	v.phase(t, "host", "Running")
	user := "tenant-" + v.ns
	v.file = v.inNamespace(t, v.c.Kubeconfig(v.c.User(user)))
	v.eve = v.c.Kubeconfig(v.c.User("eve-" + v.ns))
	v.awaitRights(t, user)
	return v
}

// isolated keeps the machine's own kubeconfigs out of a test.
func isolated(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", "")
	return home
}

func (v *town) pod(name, node, spec, status string) string {
	if node != "" {
		spec += "nodeName: " + node + ", "
	}
	note := ""
	if status != "" {
		note = fmt.Sprintf("k8s.v1.cni.cncf.io/network-status: %q, ", status)
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, annotations: {%s
    k8s.v1.cni.cncf.io/networks: lan, ovn.kubernetes.io/ingress_rate: "3", example.org/other: x}},
  spec: {%scontainers: [{name: c, image: none}]}}`, name, v.ns, note, spec)
}

// phase does what a kubelet would.
func (v *town) phase(t *testing.T, name, phase string) {
	t.Helper()
	_, err := v.c.TryKubectl("", "patch", "pod", name, "-n", v.ns, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"`+phase+`"}}`)
	require.NoError(t, err)
}

// inNamespace makes the test's namespace the context's.
func (v *town) inNamespace(t *testing.T, file string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	cfg.Contexts[cfg.CurrentContext].Namespace = v.ns
	require.NoError(t, clientcmd.WriteToFile(*cfg, file))
	return file
}

// awaitRights returns when the server knows of the grant.
func (v *town) awaitRights(t *testing.T, user string) {
	t.Helper()
	review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authzv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: v.ns},
	}}
	require.Eventually(t, func() bool {
		out, err := v.c.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		return err == nil && out.Status.Allowed
	}, time.Minute, 50*time.Millisecond)
}

// admin is for what a tenant may not see.
func (v *town) admin(t *testing.T, args string) said {
	t.Helper()
	return tell(t, args+" --kubeconfig "+v.c.AdminKubeconfig())
}

func TestPodsOfACluster(t *testing.T) {
	v := newTown(t, "10.201.1")
	s := tell(t, "get pods --kubeconfig "+v.file)
	require.Empty(t, s.err)
	lines := strings.Split(strings.ReplaceAll(squeezed(s.out), v.ns, "NS"), "\n")
	require.Equal(t, "NAMESPACE POD INTERFACE NETWORK IP MAC STATE AGE NODE", lines[0])
	require.Len(t, lines, 8, s.out)
	for i, want := range []string{
		`NS host - - - - host-network \S+ node1`,
		`NS late - - - - unscheduled \S+ -`,
		`NS new - - - - pending \S+ node2`,
		`NS old - - - - ended \S+ node1`,
		`NS web eth0 fairlead 10.201.1.5 0a:00:00:00:00:05 added \S+ node1`,
		`NS web net1 NS/lan 192.168.9.7 0a:00:00:00:00:07 added \S+ node1`,
	} {
		require.Regexp(t, "^"+want+"$", lines[i+1])
	}
	wide := squeezed(tell(t, "get pods web -o wide --kubeconfig "+v.file).out)
	require.Contains(t, wide, " NODE MTU GATEWAY\n")
	require.Regexp(t, `node1 1400 10\.201\.1\.1\n`, wide)
	require.NotContains(t, wide, "late")

	var list agent.PodList
	require.NoError(t, json.Unmarshal([]byte(tell(t, "get pods -o json web "+v.ns+"/new --kubeconfig "+v.file).out), &list))
	require.Len(t, list.Items, 2)
	require.Equal(t, "10.201.1.5/32", list.Items[1].Attachments[0].Interfaces[0].Addresses[0].String())
	require.Contains(t, tell(t, "get pods -o yaml --kubeconfig "+v.file).out, "node: node2\n")
}

// TestNamespacesAsKubectl: the context's, another by -n or by name, all by -A.
func TestNamespacesAsKubectl(t *testing.T) {
	v := newTown(t, "10.201.2")
	other := v.c.Namespace()
	v.c.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: lone, namespace: ` + other + `}, spec: {containers: [{name: c, image: none}]}}`)
	require.Contains(t, tell(t, "get pods --kubeconfig "+v.file).out, "web")
	require.Equal(t, "no pods in namespace default\n", v.admin(t, "get pods").err)
	require.NotContains(t, v.admin(t, "get pods -n "+other).out, "web")
	all := v.admin(t, "get pods -A -n "+other).out
	require.Contains(t, all, "web")
	require.Contains(t, all, "lone")
	both := v.admin(t, "get pods "+v.ns+"/web "+other+"/lone").out
	require.Contains(t, both, "web")
	require.Contains(t, both, "lone")
	require.NotContains(t, both, "late")
	require.Contains(t, v.admin(t, "get pods "+other+"/lone").out, "lone")
	s := say(t, "get pods nobody --kubeconfig "+v.file)
	require.Equal(t, exitNotFound, s.code)
	require.Contains(t, s.err, `pods: none in namespace `+v.ns+` is named "nobody"`)
	require.Equal(t, exitFailed, say(t, "get pods -n ../../x --kubeconfig "+v.file).code)
	require.Contains(t, tell(t, "__complete describe pod --kubeconfig "+v.file+" w").out, v.ns+"/web\n")
}

func TestNetsOfACluster(t *testing.T) {
	v := newTown(t, "10.201.3")
	s := v.admin(t, "get nets -o wide -n "+v.ns)
	text := strings.ReplaceAll(squeezed(s.out), v.ns, "NS")
	require.Regexp(t, `(?m)^fairlead fairlead \S+ yes [1-9]\d* ok - built-in -$`, text)
	require.Contains(t, text, "\nNS/lan macvlan - no 1 ok 1.0.0 API server -\n")
	require.Regexp(t, `(?m)^NS/bad - - no 0 unusable - API server .+$`, text)
	require.Contains(t, v.admin(t, "get net lan -n "+v.ns).out, v.ns+"/lan")

	// Who may read only a namespace sees its networks, and is told what is missing.
	s = tell(t, "get nets --kubeconfig "+v.file)
	require.Contains(t, squeezed(s.out), v.ns+"/lan macvlan - no - ok")
	require.Contains(t, s.err, "note: SUBNET is not shown: the right to list subnets.kubeovn.io is missing\n")
	require.Contains(t, s.err, "note: INTERFACES are not counted: the right to list pods in all namespaces is missing\n")
}

func TestSubnetsOfACluster(t *testing.T) {
	v := newTown(t, "10.201.4")
	v.c.Apply(`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: z-` + v.ns + `}, spec: {cidrBlock: ` + v.net + `.0/25}}`)
	t.Cleanup(func() {
		v.c.Delete(`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: z-` + v.ns + `}}`)
	})
	s := v.admin(t, "get subnets "+v.ns)
	require.Contains(t, squeezed(s.out), v.ns+" 10.201.4.0/24 10.201.4.1 77 1 249 256 no no\n")
	require.Contains(t, s.err, "note: Subnet z-"+v.ns+" is not in force as written: spec.cidrBlock: ")
	require.Contains(t, say(t, "get subnet none --kubeconfig "+v.c.AdminKubeconfig()).err, `subnets: none in the cluster is named "none"`)
	s = say(t, "get subnets --kubeconfig "+v.file)
	require.Equal(t, exitFailed, s.code)
	require.Contains(t, s.err, "fairlead: the right to list subnets.kubeovn.io is missing: ")
	require.Contains(t, s.err, "next: ask for a role with `list` on `subnets.kubeovn.io`; ")
}

func TestAddressesOfACluster(t *testing.T) {
	v := newTown(t, "10.201.5")
	text := strings.ReplaceAll(squeezed(v.admin(t, "get ips -n "+v.ns).out), v.ns, "NS")
	require.Equal(t, `IP SUBNET NAMESPACE POD INTERFACE MAC STATE NODE
10.201.5.5 NS NS web eth0 0a:00:00:00:00:05 held node1
192.168.9.7 - NS web net1 0a:00:00:00:00:07 held node1
`, text)
	s := tell(t, "get ips --kubeconfig "+v.file)
	require.Contains(t, squeezed(s.out), "10.201.5.5 - ")
	require.Contains(t, s.err, "note: SUBNET is not shown")

	require.Equal(t, "10.201.5.5 is eth0 of pod "+v.ns+"/web (subnet "+v.ns+")\n  mac        0a:00:00:00:00:05\n  node       node1\n",
		v.admin(t, "ip who 10.201.5.5").out)
	require.Contains(t, v.admin(t, "ip who 10.201.5.1").out, "is the gateway of subnet "+v.ns)
	require.Contains(t, v.admin(t, "ip who 10.201.5.3").out, "is excluded from subnet "+v.ns)
	require.Contains(t, v.admin(t, "ip who 10.201.5.9").out, "is free in subnet "+v.ns) // its pod has ended
	require.Equal(t, exitNotFound, say(t, "ip who 203.0.113.9 --kubeconfig "+v.c.AdminKubeconfig()).code)

	s = say(t, "ip who 10.201.5.5 --kubeconfig "+v.file)
	require.Equal(t, exitFailed, s.code)
	require.Contains(t, s.err, "the right to list pods in all namespaces is missing: ")
	require.Contains(t, s.err, "or name a namespace that is yours with -n")
	require.Contains(t, tell(t, "ip who 10.201.5.5 --kubeconfig "+v.file+" -n "+v.ns).out, "is eth0 of pod "+v.ns+"/web (no subnet of ours)")
	// Of an address that nobody has in this namespace nobody can say that it is free.
	require.Equal(t, exitNotFound, say(t, "ip who 10.201.5.77 --kubeconfig "+v.c.AdminKubeconfig()+" -n "+v.ns).code)
}

func TestDescribeAPodOfACluster(t *testing.T) {
	v := newTown(t, "10.201.6")
	uid := v.c.Kubectl("get", "pod", "web", "-n", v.ns, "-o", "jsonpath={.metadata.uid}")
	event := func(name, uid, reason, kind, note string) {
		v.c.Apply(fmt.Sprintf(`{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: %s, namespace: %s}, eventTime: "2026-01-01T00:00:00.000000Z",
  reportingController: fairlead, reportingInstance: node1, action: Add, reason: %s, type: %s, note: %q,
  regarding: {apiVersion: v1, kind: Pod, namespace: %[2]s, name: web, uid: %[6]q}}`, name, v.ns, reason, kind, note, uid))
	}
	event("a", uid, "AddedInterface", "Normal", "Added eth0 [10.201.6.5] from fairlead")
	event("b", uid, "FailedAttachment", "Warning", "no address (code 103)")
	event("c", "6f1c", "FailedAttachment", "Warning", "of another pod of this name")
	_, err := v.c.TryKubectl("", "patch", "pod", "web", "-n", v.ns, "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"fairlead.io/NetworksAttached","status":"False","reason":"Failed","message":"lan: no such device"}]}}`)
	require.NoError(t, err)

	text := strings.ReplaceAll(tell(t, "describe pod web --kubeconfig "+v.file).out, v.ns, "NS")
	for _, want := range []string{
		"Pod:          NS/web\n", "Node:         node1\n", "State:        added\n",
		"Requested\n  k8s.v1.cni.cncf.io/networks: lan\n  ovn.kubernetes.io/ingress_rate: 3\n\n",
		"    Address:  10.201.6.5\n    Gateway:  10.201.6.1\n", "  Interface net1\n    Network:  NS/lan\n",
		"  fairlead.io/NetworksAttached False   Failed: lan: no such device\n",
		" Normal  AddedInterface: Added eth0 [10.201.6.5] from fairlead\n", " Warning FailedAttachment: no address (code 103)\n",
		"knows node node1:\n  fairlead describe pod NS/web --node-local\n",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "another pod")
	require.NotContains(t, text, "example.org")

	var pod agent.Pod
	require.NoError(t, json.Unmarshal([]byte(tell(t, "describe pod "+v.ns+"/web -o json --kubeconfig "+v.c.AdminKubeconfig()).out), &pod))
	require.Len(t, pod.Events, 2)
	require.Equal(t, exitNotFound, say(t, "describe pod nobody --kubeconfig "+v.file).code)
}

// TestWithoutRights: the message names the right.
func TestWithoutRights(t *testing.T) {
	v := newTown(t, "10.201.7")
	for args, right := range map[string]string{
		"get pods -n " + v.ns:                 "list pods in namespace " + v.ns,
		"get pods -A":                         "list pods in all namespaces",
		"get nets -n " + v.ns:                 "list network-attachment-definitions.k8s.cni.cncf.io in namespace " + v.ns,
		"get subnets":                         "list subnets.kubeovn.io",
		"get ips -A":                          "list pods in all namespaces",
		"describe pod web -n " + v.ns:         "get pods in namespace " + v.ns,
		"ip who 10.201.7.5":                   "list pods in all namespaces",
		"get pods web --namespace " + v.ns:    "list pods in namespace " + v.ns,
		"get pods -o json --namespace kube-x": "list pods in namespace kube-x",
	} {
		s := say(t, args+" --kubeconfig "+v.eve)
		require.Equal(t, exitFailed, s.code, args)
		require.Empty(t, s.out, args)
		require.Contains(t, s.err, "fairlead: the right to "+right+" is missing: ", args)
		require.Contains(t, s.err, `User "eve-`+v.ns+`"`, args)
		require.Contains(t, s.err, "--node-local", args)
	}
	unknown := v.c.User("x")
	unknown.CertData, unknown.KeyData, unknown.BearerToken = nil, nil, "no such token"
	s := say(t, "get pods --kubeconfig "+v.c.Kubeconfig(unknown))
	require.Equal(t, exitFailed, s.code)
	require.Contains(t, s.err, "does not accept the kubeconfig's credentials")
}

// TestWithoutServer: exit code 4, and where else to ask.
func TestWithoutServer(t *testing.T) {
	isolated(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	file := filepath.Join(t.TempDir(), "config")
	cfg := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "https://%s"}}],
  users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: k, user: u}}]}`, addr)
	require.NoError(t, os.WriteFile(file, []byte(cfg), 0o600))
	for _, args := range []string{"get pods", "get nets", "get subnets", "get ips", "ip who 10.0.0.1", "describe pod a/b"} {
		s := say(t, args+" --kubeconfig "+file)
		require.Equal(t, exitNoAgent, s.code, args)
		require.Contains(t, s.err, "fairlead: the API server https://"+addr+" does not answer: ", args)
		require.Contains(t, s.err, "next: on a node --node-local asks the agent", args)
	}
	s := say(t, "get pods --context other --kubeconfig "+file)
	require.Equal(t, exitFailed, s.code)
	require.Contains(t, s.err, "specified context: other")
}

// TestServerThatHangs: a server that takes connections and says nothing is as
// good as none.
func TestServerThatHangs(t *testing.T) {
	isolated(t)
	c := kube.Start(t, kube.Options{})
	c.Pause()
	defer c.Resume()
	s := say(t, "get pods --timeout 3s --kubeconfig "+c.AdminKubeconfig())
	require.Equal(t, exitNoAgent, s.code, s.err)
	require.Contains(t, s.err, "does not answer: ")
}

// TestWhoIsAsked is the rule of docs/cli.md.
func TestWhoIsAsked(t *testing.T) {
	home := isolated(t)
	c := kube.Shared(t)
	none := filepath.Join(home, "none")
	const (
		api, node, usage, failed = "in namespace default", "no agent: ", "leave out --kubeconfig", "kubeconfig: "
	)
	asked := func(want, args string) {
		t.Helper()
		require.Contains(t, say(t, args).err, want, args)
	}
	// The default socket does not exist where tests run, or belongs to an agent
	// that is none of ours: only named ones are asked.
	local := "get pods --socket " + none
	asked(node, local)
	asked(node, "get pods --node-local --socket "+none)
	asked(usage, local+" --kubeconfig "+c.AdminKubeconfig())
	asked(usage, "get pods --node-local --context x")
	asked(api, "get pods --kubeconfig "+c.AdminKubeconfig())
	asked(failed, "get pods --kubeconfig "+none)

	t.Setenv("KUBECONFIG", c.AdminKubeconfig())
	asked(api, "get pods")
	asked(node, local)
	t.Setenv("KUBECONFIG", none+":"+c.AdminKubeconfig())
	asked(api, "get pods")
	t.Setenv("KUBECONFIG", none) // it was named: nothing else is asked in its place
	asked(failed, "get pods")
	t.Setenv("KUBECONFIG", "")

	f := &originFlags{}
	require.Empty(t, f.files())
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".kube"), 0o700))
	config, err := os.ReadFile(c.AdminKubeconfig())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".kube", "config"), config, 0o600))
	asked(api, "get pods")
	asked(node, local)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".kube", "config"), nil, 0o600))
	asked("names no cluster", "get pods")
}

// TestFallingBack: where nothing names a cluster the agent is asked, and where
// that matters it is said.
func TestFallingBack(t *testing.T) {
	isolated(t)
	o, err := (&originFlags{}).open(rootCommand(), nil)
	require.NoError(t, err)
	require.True(t, o.Fell)
	require.Nil(t, o.API)
	require.Contains(t, o.Place(), "on this node (nothing names a cluster")
	none := &client.NoAgentError{Socket: "/s", Err: fs.ErrNotExist}
	require.NotContains(t, none.Hint(), "--kubeconfig")
	var h interface{ Hint() string }
	require.ErrorAs(t, o.Explain(none), &h)
	require.Contains(t, h.Hint(), "to ask a cluster give --kubeconfig")
}
