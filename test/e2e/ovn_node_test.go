package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/testbed"
)

// agentOf is the account of the chart's agent with the token that its pod on a node
// has.
func (o *ovnCluster) agentOf(node string) *rest.Config {
	o.t.Helper()
	const ns, account = "kube-system", "fairlead-agent"
	pod, err := o.c.Client().CoreV1().Pods(ns).Create(o.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node},
		Spec:       corev1.PodSpec{NodeName: node, HostNetwork: true, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(o.t, err)
	token, err := o.c.Client().CoreV1().ServiceAccounts(ns).CreateToken(o.t.Context(), account, &authv1.TokenRequest{
		Spec: authv1.TokenRequestSpec{BoundObjectRef: &authv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	require.NoError(o.t, err)
	cfg := rest.AnonymousClientConfig(o.c.Admin())
	cfg.BearerToken = token.Status.Token
	return cfg
}

// id is an external id of the node's Open vSwitch.
func (n *ovnNode) id(key string) string {
	n.o.t.Helper()
	return strings.Trim(n.OVS.Vsctl("--timeout=20", "--if-exists", "get", "open_vswitch", ".", "external_ids:"+key), `"`)
}

// says waits until Open vSwitch has an external id.
func (n *ovnNode) says(key, want string) {
	n.o.t.Helper()
	eventually(n.o.t, func() string {
		if got := n.id(key); got != want {
			return fmt.Sprintf("%s: %s is %q, not %q", n.name, key, got, want)
		}
		return ""
	})
}

// note waits until the Node has an annotation.
func (n *ovnNode) note(key, want string) {
	n.o.t.Helper()
	eventually(n.o.t, func() string {
		node, err := n.o.c.Client().CoreV1().Nodes().Get(n.o.t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got := node.Annotations[key]; got != want {
			return fmt.Sprintf("annotation %s of %s is %q, not %q", key, n.name, got, want)
		}
		return ""
	})
}

// chassis proves that the agent made each node a chassis, and that it puts back what
// somebody changes and follows the address of the tunnels' interface.
func (o *ovnCluster) chassis() {
	o.t.Helper()
	two := o.nodes[1]
	for key, want := range map[string]string{
		"system-id": two.name, "ovn-remote": o.central.Remote(), "ovn-encap-type": "geneve", "ovn-encap-ip": two.at.IP4,
		"ovn-encap-csum": "false", "ovn-bridge": "br-int", "ovn-bridge-datapath-type": "netdev", "ovn-ofctrl-wait-before-clear": "5000",
	} {
		two.says(key, want)
	}
	for _, n := range o.nodes {
		n.note("ovn.kubernetes.io/chassis", n.name)
	}
	two.OVS.Vsctl("--timeout=20", "remove", "open_vswitch", ".", "external_ids", "ovn-remote", "--", "set", "open_vswitch", ".", "external_ids:ovn-encap-csum=true")
	two.says("ovn-remote", o.central.Remote())
	two.says("ovn-encap-csum", "false")

	const moved = "172.18.0.102"
	dev := testbed.PhyBridge
	two.Run("ip", "addr", "add", moved+"/25", "dev", dev)      // of another length, or it would go with the first one
	two.Run("ip", "addr", "del", two.at.IP4+"/24", "dev", dev) // the other is the first one now
	two.says("ovn-encap-ip", moved)
	eventually(o.t, func() string {
		if got := o.central.Sbctl("--bare", "--columns=ip", "find", "Encap", "chassis_name="+two.name); got != moved {
			return fmt.Sprintf("the encap of %s is %q, not %q", two.name, got, moved)
		}
		return ""
	})
	two.Run("ip", "addr", "add", two.at.IP4+"/24", "dev", dev)
	two.Run("ip", "addr", "del", moved+"/25", "dev", dev)
	two.says("ovn-encap-ip", two.at.IP4)

	// A Node's own choice counts more than the flag.
	annotate := func(value string) {
		_, err := o.c.Client().CoreV1().Nodes().Patch(o.t.Context(), two.name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"ovn.kubernetes.io/tunnel_interface":%s}}}`, value), metav1.PatchOptions{})
		require.NoError(o.t, err)
	}
	annotate(fmt.Sprintf("%q", two.at.IP6))
	two.says("ovn-encap-ip", two.at.IP6)
	annotate("null")
	two.says("ovn-encap-ip", two.at.IP4)
	o.central.Sync()
}

// restarts proves that nothing that is killed and comes back costs two pods of two
// nodes a packet, but ovs-vswitchd, which carries them.
func (o *ovnCluster) restarts(a, b *ovnPod) {
	t := o.t
	t.Helper()
	const pace = 20 * time.Millisecond
	one := a.n
	for _, r := range []struct {
		what string
		kill func()
	}{
		{"agent", func() {
			one.agent.Kill()
			one.agent = one.Agent(one.args...)
			one.agent.WaitReady()
		}},
		{"ovn-controller", func() { one.chassis.Kill(); one.chassis.Start() }},
		{"northd", func() { o.central.KillNorthd(); o.central.StartNorthd() }},
		{"southbound database", func() { o.central.KillSB(); o.central.StartSB() }},
		{"northbound database", func() { o.central.KillNB(); o.central.StartNB() }},
		{"ovn-controller without southbound database", func() {
			o.central.KillSB()
			// Who asks anew for a neighbour of IPv6 meanwhile gets no answer: that is
			// ovn-controller's to give, not a flow's (docs/cluster.md).
			a.knows(b)
			b.knows(a)
			one.chassis.Kill()
			one.chassis.Start()
			time.Sleep(6 * time.Second) // past the time for which it keeps flows without doubt
			o.central.StartSB()
		}},
	} {
		pings := []*testbed.Pinger{a.StartPing(b.ips[0], pace), b.StartPing(a.ips[1], pace)}
		r.kill()
		o.central.Sync()
		for _, g := range pings {
			g.Answers(10)
			answered, lost := g.Stop()
			require.Zero(t, lost, "pings lost while %s was restarted, %d answered", r.what, answered)
		}
	}
	pings := a.StartPing(b.ips[0], pace)
	one.OVS.KillVswitchd()
	one.OVS.StartVswitchd()
	pings.Answers(10)
	answered, lost := pings.Stop()
	t.Logf("ovs-vswitchd restarted: %d pings lost, %d answered, one each %s", lost, answered, pace)
}

// blind: an agent that starts without the right to read Nodes, which say what the
// node's way to pods is, takes that for unknown and leaves it as it is; pods are
// served.
func (n *ovnNode) blind(far *ovnPod) {
	t := n.o.t
	t.Helper()
	roles := n.o.c.Client().RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "fairlead-agent", metav1.GetOptions{})
	require.NoError(t, err)
	all := slices.Clone(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "nodes") })
	require.Less(t, len(role.Rules), len(all))
	role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	way := func() string {
		return n.Run("ip", "-o", "link", "show", "ovn0") + n.Run("ip", "route") + n.Run("ip", "-6", "route")
	}
	before := way()
	n.agent.Kill()
	n.agent = n.Agent(n.args...)
	eventually(t, func() string {
		if _, body, _ := n.agent.Get("/metrics"); !strings.Contains(body, `fairlead_api_requests_total{code="403",method="GET"}`) {
			return "nothing was refused"
		}
		return ""
	})
	n.run("web/unread").end()
	require.Equal(t, before, way())
	for _, ip := range far.ips {
		require.NoError(t, n.Ping(ip))
	}
	role.Rules = all
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	n.agent.WaitReady()
	n.unavailable("False", "answers")
	require.Equal(t, before, way())
}

// knows has the pod never ask for the other's MAC by IPv6.
func (p *ovnPod) knows(other *ovnPod) {
	p.n.o.t.Helper()
	p.Run("ip", "-6", "neigh", "change", other.ips[1], "dev", "eth0", "nud", "permanent")
}

// overfull has an ADD wait in a Subnet without a free address. What it gives proves
// that the answer says so, and takes all of it away.
func (n *ovnNode) overfull() (proves func()) {
	t, o := n.o.t, n.o
	t.Helper()
	tiny := subnetObject("tiny", map[string]any{"cidrBlock": "10.18.0.0/30", "namespaces": []string{"tiny"}})
	o.c.Apply(together(object("v1", "Namespace", "tiny", nil, nil), tiny))
	has := n.pod("tiny/has")
	o.has("pods", `{.metadata.name}: {.metadata.annotations.ovn\.kubernetes\.io/allocated}`, "has: true")
	waits, answer := n.pod("tiny/waits"), make(chan testbed.Answer, 1)
	go func() { answer <- waits.call("ADD") }()
	return func() {
		t.Helper()
		e := (<-answer).Err()
		require.NotNil(t, e)
		require.Equal(t, uint(tryAgain), e.Code)
		require.Contains(t, e.Details, "the controller says: pod left without an address: Subnet tiny is full (IPv4: 1 in use of 1)")
		waits.gone()
		has.gone()
		o.c.Delete(tiny)
	}
}

// cutOff proves that both of two nodes say so while no tunnel leads from one to the other.
func (n *ovnNode) cutOff(other *ovnNode) {
	n.o.t.Helper()
	const drops = "priority=1000,udp,tp_dst=6081"
	n.Run("ovs-ofctl", "add-flow", testbed.PhyBridge, drops+",actions=drop")
	for _, one := range []*ovnNode{n, other} {
		one.unavailable("True", "no other node answers through a tunnel")
	}
	n.Run("ovs-ofctl", "--strict", "del-flows", testbed.PhyBridge, drops)
	for _, one := range []*ovnNode{n, other} {
		one.unavailable("False", "answers")
	}
}

// sayAgain proves that nobody makes a pod with what the controller said of another.
func (n *ovnNode) sayAgain(of *ovnPod) {
	t := n.o.t
	t.Helper()
	pods := n.o.c.Client().CoreV1().Pods(of.Namespace)
	saved, err := pods.Get(t.Context(), of.Name, metav1.GetOptions{})
	require.NoError(t, err)
	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "again", Namespace: of.Namespace, Annotations: saved.Annotations}, Spec: saved.Spec}
	_, err = pods.Create(t.Context(), again, metav1.CreateOptions{})
	require.ErrorContains(t, err, "ovn.kubernetes.io/allocated")
	require.ErrorContains(t, err, "of a new pod: only the controller that gives addresses writes them")
}

// TestSeedCommandLine: the whole command line of Kube-OVN's daemon starts the agent,
// which says what has no effect.
func TestSeedCommandLine(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.Outside()
	a := n.Agent("--ovs-socket=/run/openvswitch/db.sock", "--bind-socket="+kubeOVNSocket, "--enable-mirror=true", "--encap-checksum=true",
		"--service-cluster-ip-range=10.96.0.0/12", "--iface="+testbed.OutsideIf, "--network-type=vxlan", "--default-interface-name=eth9")
	a.WaitReady()
	require.Equal(t, "true", n.OVS.Vsctl("--bare", "--columns=select_all", "list", "Mirror"))
	require.Equal(t, "1450", n.OVS.Vsctl("--bare", "--columns=mtu_request", "find", "Interface", "external_ids:fairlead-gateway=ovn-default"), "vxlan takes 50 bytes")
	examined, _ := n.TryFairlead("doctor")
	require.Regexp(t, `✓ MTU +pods get 1450 bytes; `+testbed.OutsideIf+` has 1500`, examined)
	_, err := n.Try("test", "-S", kubeOVNSocket)
	require.NoError(t, err)
	text, err := os.ReadFile(a.Log)
	require.NoError(t, err)
	log := string(text)
	for _, flag := range []string{"default-interface-name", "encap-checksum"} {
		require.Contains(t, log, `"flag":"`+flag+`"`)
	}
	a.Stop()
	for args, says := range map[string]string{
		"--network-type=vlan": "is no tunnel", "--network-type=stt": "--network-type stt", "--ovn-remote=tcp:10.0.0.1:6642": "go with --ovn",
	} {
		_, err := n.TryFairlead("agent", args)
		require.ErrorContains(t, err, says)
	}
}
