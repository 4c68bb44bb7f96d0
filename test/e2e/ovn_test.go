package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/cni"
	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	crds "github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// Subnets of the test's cluster: web is the default one, data that of namespace
// data; a router joins them.
const (
	webSubnet  = "10.16.0.0/16,fd00:10:16::/112"
	dataSubnet = "10.17.0.0/16,fd00:10:17::/112"
)

// ovnCluster is a cluster whose pods OVN joins: two nodes, where a test wants it more,
// another one with OVN's central part and two controllers, and an API server.
type ovnCluster struct {
	t       *testing.T
	c       *kube.Cluster
	site    *testbed.Node
	under   *testbed.Underlay
	world   *testbed.Site // where the site is on the nodes' underlay
	central *ovn.Central
	signer  *testbed.Process // of certificates, while there is no controller
	nodes   []*ovnNode

	former   string   // the folder of a former version's programs, while it is that which starts
	flags    []string // of each controller
	tunnel   string   // of the nodes: geneve or vxlan
	centrals int      // starts of central
	probes   []string // ports at which controllers answer for metrics
}

// ovnNode is a node with ovn-controller and an agent.
type ovnNode struct {
	*testbed.Node
	o       *ovnCluster
	name    string
	at      *testbed.Site
	chassis *ovn.Chassis
	args    []string // of the agent
	agent   *testbed.Agent
	before  testbed.Inventory
}

// newOVNCluster makes it, without a controller; flags are the API server's.
func newOVNCluster(t *testing.T, flags ...string) *ovnCluster {
	t.Helper()
	return newOVNCentral(t, kube.Options{Flags: flags}, ovn.Over).populate()
}

// populate adds central and the nodes.
func (o *ovnCluster) populate() *ovnCluster {
	o.t.Helper()
	o.startCentral()
	return o.enroll()
}

// enroll adds the nodes, while the signer runs, which ends then.
func (o *ovnCluster) enroll() *ovnCluster {
	o.t.Helper()
	for i := range o.nodes {
		o.nodes[i] = o.join(o.under, fmt.Sprintf("node-%d", i+1))
	}
	for _, n := range o.nodes {
		n.settle()
	}
	o.signer.Stop()
	return o
}

// newOVNCentral is such a cluster without nodes, with a central of package ovn's.
func newOVNCentral(t *testing.T, options kube.Options, central func(testing.TB, *testbed.Node, string) *ovn.Central) *ovnCluster {
	t.Helper()
	return newOVNSite(t, options, central, testbed.NewUnderlay(t)).subnets(webSubnet, dataSubnet)
}

// newOVNSite is such a cluster without Subnets, beside others on an underlay.
func newOVNSite(t *testing.T, options kube.Options, central func(testing.TB, *testbed.Node, string) *ovn.Central, under *testbed.Underlay) *ovnCluster {
	t.Helper()
	o := &ovnCluster{t: t, c: kube.Start(t, options), site: testbed.Bare(t), under: under, tunnel: "geneve", nodes: make([]*ovnNode, 2)}
	o.world = o.under.Join(o.site)
	o.central = central(t, o.site, o.world.IP4)
	crds.Install(t, o.c)
	// The rights of the chart's controller, and its policies, which refuse others'
	// changes of the annotations that it writes.
	o.c.Apply(o.site.Fairlead("install", "--dry-run", "-o", "yaml", "--crds=false", "--set", "ovn.enabled=true", "--set", "ovn.nb="+o.central.Endpoint()))
	o.c.Link(o.site.NetnsPath())
	for _, ns := range []string{"web", "data"} {
		o.c.Apply(object("v1", "Namespace", ns, nil, nil))
	}
	return o
}

// subnets adds Subnets web, the default one, and data.
func (o *ovnCluster) subnets(web, data string) *ovnCluster {
	o.t.Helper()
	o.c.Apply(together(
		subnetObject("web", map[string]any{"cidrBlock": web, "default": true}),
		subnetObject("data", map[string]any{"cidrBlock": data, "namespaces": []string{"data"}}),
	))
	return o
}

// join adds a node.
func (o *ovnCluster) join(under *testbed.Underlay, name string) *ovnNode {
	o.t.Helper()
	n := o.enlist(under, name)
	n.starts()
	return n
}

// enlist adds a node whose agent does not run yet.
func (o *ovnCluster) enlist(under *testbed.Underlay, name string) *ovnNode {
	o.t.Helper()
	n := &ovnNode{Node: testbed.New(o.t), o: o, name: name}
	n.at = under.Join(n.Node)
	n.chassis = ovn.NewHost(o.t, n.Node, ovn.Keys(chassisKeys)...)
	o.c.RegisterNode(name)
	_, err := o.c.Client().CoreV1().Nodes().Patch(o.t.Context(), name, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"addresses":[{"type":"InternalIP","address":%q},{"type":"InternalIP","address":%q}],"conditions":[{"type":"Ready","status":"True"}]}}`, n.at.IP4, n.at.IP6), metav1.PatchOptions{}, "status")
	require.NoError(o.t, err)
	o.c.Link(n.NetnsPath())
	n.args = []string{
		"--ovn", "--compat-socket", kubeOVNSocket, "--ovn-remote", o.central.Remote(), "--iface", testbed.PhyBridge, "--encap-checksum=false", "--network-type", o.tunnel,
		"--kubeconfig", o.c.Kubeconfig(o.agentOf(name)), "--node-name", name,
	}
	return n
}

// starts starts the node's agent, of the version that starts now.
func (n *ovnNode) starts() {
	n.o.t.Helper()
	if n.o.former != "" {
		n.agent = n.AgentOf(filepath.Join(n.o.former, "fairlead"), n.args...)
		return
	}
	n.agent = n.Agent(n.args...)
}

// settle waits until the node is ready and has its tunnel to the other.
func (n *ovnNode) settle() {
	n.o.t.Helper()
	n.agent.WaitReady()
	eventually(n.o.t, func() string {
		if n.OVS.Vsctl("--bare", "--columns=name", "find", "interface", "type="+n.o.tunnel) == "" {
			return n.name + " has no tunnel"
		}
		return ""
	})
}

// joined waits until the node has its own port with routes to both Subnets and knows the
// other nodes, of which only a controller of ours tells, and takes the inventory to compare with.
func (n *ovnNode) joined() {
	n.o.t.Helper()
	eventually(n.o.t, func() string {
		routes := n.Run("ip", "route") + n.Run("ip", "-6", "route")
		for _, cidr := range strings.Split(webSubnet+","+dataSubnet, ",") {
			if !strings.Contains(routes, cidr+" via ") {
				return n.name + " has no route to " + cidr
			}
		}
		filter := n.Run("sh", "-c", "nft list ruleset; ipset save")
		for _, other := range n.o.nodes {
			if len(n.o.probes) > 0 && other != n && other != nil && !strings.Contains(filter, other.at.IP4) {
				return n.name + " does not know " + other.name
			}
		}
		return ""
	})
	n.before = n.Inventory()
}

// unavailable waits for the Node's condition NetworkUnavailable, and for the event
// that tells of it.
func (n *ovnNode) unavailable(status, message string) {
	n.o.t.Helper()
	eventually(n.o.t, func() string {
		node, err := n.o.c.Client().CoreV1().Nodes().Get(n.o.t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "NetworkUnavailable" && string(c.Status) == status && strings.Contains(c.Message, message) {
				return ""
			}
		}
		return fmt.Sprintf("%s: %+v, not %s (%s)", n.name, node.Status.Conditions, status, message)
	})
	eventually(n.o.t, func() string {
		events, err := n.o.c.Client().EventsV1().Events(metav1.NamespaceDefault).List(n.o.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		level := map[string]string{"True": corev1.EventTypeWarning, "False": corev1.EventTypeNormal}[status]
		for _, e := range events.Items {
			if e.Regarding.Kind == "Node" && e.Regarding.Name == n.name && e.Type == level && strings.Contains(e.Note, message) {
				return ""
			}
		}
		return fmt.Sprintf("%s: no event says %s", n.name, message)
	})
}

// controller starts a controller; each has an address of its own for its probes.
func (o *ovnCluster) controller(id, http string) *testbed.Process {
	o.t.Helper()
	_, port, _ := strings.Cut(http, ":")
	o.probes = append(o.probes, port)
	return o.site.Start("controller-"+id, o.controls(o.central.Endpoint(), id, http)...)
}

// controls is the command line of a controller of a northbound database.
func (o *ovnCluster) controls(nb, id, http string) []string {
	o.t.Helper()
	program := testbed.Controller(o.t)
	if o.former != "" {
		program = filepath.Join(o.former, "fairlead-controller")
	}
	return append([]string{program, "--kubeconfig", o.account(fairlead.ControllerAccount), "--nb", nb,
		"--id", id, "--http", http, "--lease-duration", ovnLease.String()}, o.flags...)
}

// ovnLease is how long the controllers wait for a leader that renews no more.
const ovnLease = 4 * time.Second

// leader waits until the Lease names somebody else than past, and gives the name.
func (o *ovnCluster) leader(past string) (id string) {
	o.t.Helper()
	eventually(o.t, func() string {
		l, err := o.c.Client().CoordinationV1().Leases("kube-system").Get(o.t.Context(), "fairlead-controller", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || *l.Spec.HolderIdentity == past {
			return "nobody leads but " + past
		}
		id = *l.Spec.HolderIdentity
		return ""
	})
	return id
}

// ovnPod is a pod of the API server with its sandbox on a node.
type ovnPod struct {
	*testbed.Pod
	n   *ovnNode
	uid string
	ips []string // one of each family, once it was added

	again atomic.Int32 // ADDs that were answered with tryAgain
}

// pod makes a pod, NAMESPACE/NAME, that is bound to the node.
func (n *ovnNode) pod(name string) *ovnPod {
	n.o.t.Helper()
	return n.labelled(name, nil)
}

// labelled is pod with labels.
func (n *ovnNode) labelled(name string, labels map[string]string, change ...func(*corev1.Pod)) *ovnPod {
	n.o.t.Helper()
	ns, short, _ := strings.Cut(name, "/")
	pod := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: short, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for _, fn := range change {
		fn(&pod)
	}
	text, err := json.Marshal(pod)
	require.NoError(n.o.t, err)
	stored := n.o.c.Apply(string(text))
	return &ovnPod{Pod: n.NewPod(name), n: n, uid: string(stored[0].GetUID())}
}

// call is the plugin's call as containerd makes it. Safe in any goroutine.
func (p *ovnPod) call(op string) testbed.Answer {
	return p.n.CNI(cni.Request{
		Command: op, ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0",
		Args: p.Args() + ";K8S_POD_UID=" + p.uid, Config: []byte(ownConf),
	})
}

// added keeps what an ADD answered.
func (p *ovnPod) added(a testbed.Answer) *ovnPod {
	p.n.o.t.Helper()
	for _, ip := range a.Must().IPs() {
		p.ips = append(p.ips, bare(ip))
	}
	require.Len(p.n.o.t, p.ips, 2, "an address of each family")
	return p
}

// run makes a pod and adds it.
func (n *ovnNode) run(name string) *ovnPod {
	n.o.t.Helper()
	p := n.pod(name)
	return p.added(p.add())
}

// add is what a runtime does: as long as the answer is to try again, it does, and the
// log has why. Safe in any goroutine.
func (p *ovnPod) add() testbed.Answer {
	for {
		a := p.call("ADD")
		e := a.Err()
		if e == nil || e.Code != tryAgain {
			return a
		}
		p.n.o.t.Logf("ADD of %s: %s: %s", p.port(), e.Msg, e.Details)
		p.again.Add(1)
	}
}

// tryAgain is CNI's code for what is not there yet.
const tryAgain = 11

// port is the name of the pod's logical port.
func (p *ovnPod) port() string { return p.Name + "." + p.Namespace }

// end is a pod's end: DEL, the sandbox and the object go, and then its row.
func (p *ovnPod) end() {
	t := p.n.o.t
	t.Helper()
	p.call("DEL").Must()
	requireBare(t, p.Pod)
	p.gone()
	eventually(t, func() string {
		if p.n.o.central.Get("Logical_Switch_Port", p.port(), "name") != "" {
			return "port " + p.port() + " is still there"
		}
		return ""
	})
}

// gone removes the sandbox and the object of a pod after its DEL.
func (p *ovnPod) gone() {
	t := p.n.o.t
	t.Helper()
	p.Delete()
	now := int64(0)
	require.NoError(t, p.n.o.c.Client().CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// reaches proves that the first packet that the pod sends to another one arrives
// there, in both families, whatever time a loaded machine takes for it.
func (p *ovnPod) reaches(to *ovnPod) {
	t := p.n.o.t
	t.Helper()
	for i, counter := range []string{"IcmpInEchos", "Icmp6InEchos"} {
		before := to.counter(counter)
		_, _ = p.Try("ping", "-n", "-c", "1", "-W", "1", to.ips[i]) // whether the answer comes back is another question
		eventually(t, func() string {
			if to.counter(counter) == before {
				return fmt.Sprintf("the first packet from %s to %s (%s) is lost", p.port(), to.port(), to.ips[i])
			}
			return ""
		})
	}
}

// counter is one of the kernel's, of the pod's namespace.
func (p *ovnPod) counter(name string) string {
	p.n.o.t.Helper()
	f := strings.Fields(p.Run("sh", "-c", "nstat -asz "+name+" | grep "+name))
	require.NotEmpty(p.n.o.t, f)
	return f[1]
}

// talks proves that packets of 1400 bytes go there and back.
func (p *ovnPod) talks(to *ovnPod) {
	t := p.n.o.t
	t.Helper()
	for i, payload := range []string{"1372", "1352"} {
		_, err := p.Try("ping", "-n", "-M", "do", "-s", payload, "-c", "1", "-w", "30", to.ips[i])
		require.NoError(t, err, "%s to %s", p.port(), to.port())
	}
}

// using waits until a Subnet's status counts so many addresses of each family.
func (o *ovnCluster) using(subnet string, count int) {
	o.t.Helper()
	o.has("subnets", "{.metadata.name}: {.status.v4usingIPs} {.status.v6usingIPs}", fmt.Sprintf("%s: %d %d", subnet, count, count))
}

// has waits until an object of a kind says a line, see kube.Cluster.Lines.
func (o *ovnCluster) has(kind, template, line string) {
	o.t.Helper()
	eventually(o.t, func() string {
		if all := o.c.Lines(kind, template); !slices.Contains(all, line) {
			return fmt.Sprintf("%q is not among %q", line, all)
		}
		return ""
	})
}

// waiting waits until the node's agent has calls under way.
func (n *ovnNode) waiting() {
	n.o.t.Helper()
	eventually(n.o.t, func() string {
		_, body, err := n.agent.Get("/metrics")
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(body, "\nfairlead_cni_operations_in_flight 1\n") {
			return "no ADD is under way"
		}
		return ""
	})
}

// TestClusterNetwork: pods of two nodes and two Subnets have addresses of a
// controller and talk over geneve, in both families; a controller that is killed
// costs no packet, and another goes on.
func TestClusterNetwork(t *testing.T) {
	t.Parallel()
	o := newOVNCluster(t)
	one, two := o.nodes[0], o.nodes[1]

	// An ADD that comes before any controller waits for one.
	early := one.pod("web/early")
	answer := make(chan testbed.Answer, 1)
	go func() { answer <- early.add() }()
	one.waiting()
	require.Empty(t, o.central.Nbctl("ls-list"), "nobody has written yet")
	one.unavailable("True", "no address in the Subnet join")
	controllers := map[string]*testbed.Process{"a": o.controller("a", "127.0.0.1:10666"), "b": o.controller("b", "127.0.0.1:10667")}
	early.added(<-answer)
	for _, n := range o.nodes {
		n.joined()
		n.unavailable("False", "answers")
	}
	two.claimsLate()
	isFull := two.overfull()

	// Two nodes, two Subnets.
	peer := two.run("web/peer")
	peer.reaches(early)
	other := two.run("data/other")
	other.reaches(early)
	near := one.declared(two, early)
	near.reaches(peer)
	for _, pair := range [][2]*ovnPod{{early, peer}, {peer, early}, {early, other}, {other, early}, {near, other}, {near, early}} {
		pair[0].talks(pair[1])
	}

	o.serves(peer, early, other)
	o.traces(early, near, other, peer)

	// Each has its IP object.
	for _, p := range []*ovnPod{early, peer, other, near} {
		o.has("ips", "{.metadata.name}: {.spec.ipAddress} {.spec.nodeName} {.spec.subnet}",
			p.port()+": "+strings.Join(p.ips, ",")+" "+p.n.name+" "+p.Namespace)
	}

	// A node reaches pods of its own and of the other, by its own port.
	for _, p := range []*ovnPod{early, peer} {
		for _, ip := range p.ips {
			eventually(t, func() string {
				if err := one.Ping(ip); err != nil {
					return err.Error()
				}
				return ""
			})
		}
	}

	// The way out: as the pod, as the node, and as the pod again.
	o.outside()
	o.leaves(false, early, peer)
	web := func(more map[string]any) {
		spec := map[string]any{"cidrBlock": webSubnet, "default": true, "natOutgoing": true}
		maps.Copy(spec, more)
		o.c.Apply(subnetObject("web", spec))
	}
	web(nil)
	o.leaves(true, early, peer)
	o.filtered(peer, web)
	o.routed(two)
	web(map[string]any{"natOutgoing": false})
	o.leaves(false, early, peer)
	o.egress(early, peer)

	isFull()
	// The leader dies; what runs goes on, and the next pod is served.
	pings := []*testbed.Pinger{early.StartPing(peer.ips[0], 100*time.Millisecond), other.StartPing(early.ips[1], 100*time.Millisecond)}
	first := o.leader("")
	controllers[first].Kill()
	second := o.leader(first)
	// Before the next ADD: in user space a link that comes costs tunnelled packets
	// (docs/cluster.md).
	for _, g := range pings {
		g.Answers(10)
		answered, lost := g.Stop()
		require.Zero(t, lost, "pings lost while the controller died, %d answered", answered)
	}
	late := one.run("web/late")
	for _, before := range []*ovnPod{early, peer, other, near} {
		for _, ip := range before.ips {
			require.NotContains(t, late.ips, ip, "given twice")
		}
	}
	late.reaches(other)
	two.sayAgain(other)
	o.restarts(early, peer)
	one.blind(peer)
	o.using("web", 3)
	o.using("data", 2)

	// What ends leaves nothing, in the database nor on its node.
	for _, p := range []*ovnPod{peer, other, near, late} {
		p.end()
	}
	for _, n := range o.nodes {
		n.RequireNoLeaks(n.before)
	}
	o.chassis()
	o.agrees()

	// A node without switch says that it has no network, and takes it back.
	two.OVS.KillVswitchd()
	two.unavailable("True", "does not answer")
	_, metrics, err := two.agent.Get("/metrics")
	require.NoError(t, err)
	require.Contains(t, metrics, "fairlead_network_unavailable 1")
	two.OVS.StartVswitchd()
	two.unavailable("False", "answers")
	if soak() { // it takes a minute; TestTunnel of the agent has the rest
		two.cutOff(one)
	}
	early.end()
	o.using("web", 0)
	o.using("data", 0)
	o.agrees()
	controllers[second].Stop()
}
