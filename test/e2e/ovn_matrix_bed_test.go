package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kernelns "github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/inside"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

const (
	isleSubnet  = "10.18.0.0/16,fd00:10:18::/112" // of Vpc other
	servicesFor = "10.96.0.0/16,fd00:10:96::/112" // cluster IPs
	serverPort  = 8080                            // of pods, nodes and the world
)

// matrixBed is a cluster with all whom the matrix's rows name.
type matrixBed struct {
	t       *testing.T
	o       *ovnCluster
	rows    []pair
	parties map[string]*party // "NAME", and "NAME apart" where the other Vpc has its own
	pods    map[string]*ovnPod
	latest  time.Duration // that a change of rules took, of all
}

// party is somebody who asks and answers.
type party struct {
	name    string // as its answers have it
	ns      *kernelns.Handle
	ips     []string // one of each family
	service []string // the same of its Service; nil where it has none
}

// machines is how many nodes the matrix has.
func machines() int {
	if soak() {
		return 3
	}
	return 2
}

// newMatrix makes nodes with kube-proxy, pods in two Subnets of the default
// Vpc and in one of another, a Service for each pod, and the world outside.
func newMatrix(t *testing.T) *matrixBed {
	t.Helper()
	o := newOVNCentral(t, kube.Options{Flags: []string{"--service-cluster-ip-range=" + servicesFor}}, ovn.Over)
	o.nodes = make([]*ovnNode, machines())
	o.populate()
	m := &matrixBed{t: t, o: o, rows: matrixRows(len(o.nodes)), parties: map[string]*party{}, pods: map[string]*ovnPod{}}
	o.c.Apply(together(object("v1", "Namespace", "isle", nil, nil),
		object("kubeovn.io/v1", "Vpc", "other", nil, map[string]any{"namespaces": []string{"isle"}}),
		subnetObject("isle", map[string]any{"cidrBlock": isleSubnet, "vpc": "other", "namespaces": []string{"isle"}})))
	o.controller("a", "127.0.0.1:10666")
	m.outside()
	for _, p := range []struct {
		party, name, label string
		node               int
	}{
		{"subject", "web/subject", "subject", 0}, {"mate", "web/mate", "mate", 0}, {"far mate", "web/far", "far", 1},
		{"stranger", "data/near", "near", 0}, {"far stranger", "data/far", "far", 1},
		{"subject apart", "isle/subject", "subject", 0}, {"mate apart", "isle/mate", "mate", 0}, {"far mate apart", "isle/far", "far", 1},
		{"third mate", "web/third", "third", 2}, {"third stranger", "data/third", "far", 2}, {"third mate apart", "isle/third", "third", 2},
	} {
		if p.node < len(o.nodes) {
			m.pod(p.party, p.name, p.label, o.nodes[p.node])
		}
	}
	for _, name := range rowNames(m.rows) {
		require.Contains(t, m.parties, name)
	}
	return m
}

// outside gives nodes and the world servers, nodes kube-proxy and a way to the
// world, and the world one way to pods.
func (m *matrixBed) outside() {
	m.t.Helper()
	o := m.o
	world := &party{name: "world", ns: inside.Open(m.t, o.site.NetnsPath()), ips: []string{o.world.IP4, o.world.IP6}}
	m.serve("outside", world)
	for i, n := range o.nodes {
		n.Run("ip", "route", "add", "default", "via", o.world.IP4)
		n.Run("ip", "-6", "route", "add", "default", "via", o.world.IP6)
		kube.StartProxy(m.t, o.c, n.Node, n.name, "--proxy-mode=nftables", "--cluster-cidr="+webSubnet)
		m.serve([]string{"node", "far node", "third node"}[i], &party{name: n.name, ns: inside.Open(m.t, n.NetnsPath()), ips: []string{n.at.IP4, n.at.IP6}})
	}
	for i, cidr := range strings.Split(webSubnet+","+dataSubnet, ",") {
		gateway := o.nodes[0].at.IP4
		if i%2 == 1 {
			gateway = o.nodes[0].at.IP6
		}
		o.site.Run("ip", "route", "add", cidr, "via", gateway)
	}
}

func (m *matrixBed) serve(role string, p *party) {
	m.t.Helper()
	inside.Serve(m.t, p.ns, p.name, serverPort, p.ips...) // at its addresses: a node has one in the Subnet join too
	m.parties[role] = p
}

// pod makes a pod with its Service; label is its role for policies.
func (m *matrixBed) pod(role, name, label string, n *ovnNode) {
	t := m.t
	t.Helper()
	pod := n.labelled(name, map[string]string{"role": label})
	m.pods[role] = pod.added(pod.add())
	p := &party{name: name, ns: inside.Open(t, pod.NetnsPath()), ips: pod.ips}
	m.serve(role, p)
	stored := m.o.c.Apply(together(
		object("v1", "Service", name, nil, map[string]any{"ipFamilyPolicy": "RequireDualStack", "ports": []any{
			map[string]any{"name": "t", "port": 80, "protocol": "TCP"}, map[string]any{"name": "u", "port": 80, "protocol": "UDP"}}}),
		endpoints(name, "IPv4", pod.ips[0]), endpoints(name, "IPv6", pod.ips[1])))
	b, err := json.Marshal(stored[0].Object)
	require.NoError(t, err)
	var s struct{ Spec struct{ ClusterIPs []string } }
	require.NoError(t, json.Unmarshal(b, &s))
	require.Len(t, s.Spec.ClusterIPs, 2)
	p.service = s.Spec.ClusterIPs
}

// probes: with --enable-tproxy a node reaches its pod of another Vpc at the ports at which
// its containers are probed, and at no other; a pod of a third Vpc with the same address is
// told that it is not probed. Without the option nothing of it is left.
func (m *matrixBed) probes() {
	t, n := m.t, m.o.nodes[0]
	t.Helper()
	agent := func(more ...string) {
		n.agent.Stop()
		n.agent = n.Agent(append(slices.Clone(n.args), more...)...)
		n.agent.WaitReady()
	}
	const tcp, http, other = 8081, 8082, 8083
	probed := func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: http}}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(tcp)}}}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}}
	}
	agent("--enable-tproxy")
	first := n.labelled("isle/probed", nil, probed)
	first.added(first.add())
	in := inside.Open(t, first.NetnsPath())
	for _, port := range []int{tcp, http, other} {
		inside.Serve(t, in, "isle/probed", port, first.ips...)
	}
	node := m.parties["node"].ns
	ask := func(ip string, port int, limit time.Duration) string {
		return inside.Query(node, inside.Peer{Network: "tcp", Host: ip, Port: port, Limit: limit})
	}
	for _, ip := range first.ips {
		for _, port := range []int{tcp, http} {
			eventually(t, func() string {
				if said := ask(ip, port, answers); said != "isle/probed sees "+ip {
					return fmt.Sprintf("node by port %d of %s: %q", port, ip, said)
				}
				return ""
			})
		}
		require.NotContains(t, ask(ip, other, time.Second), "sees", "it is not probed there")
	}

	m.o.c.Apply(together(object("v1", "Namespace", "key", nil, nil),
		object("kubeovn.io/v1", "Vpc", "third", nil, map[string]any{"namespaces": []string{"key"}}),
		subnetObject("key", map[string]any{"cidrBlock": isleSubnet, "vpc": "third", "namespaces": []string{"key"}})))
	second := n.labelled("key/double", nil, probed, func(p *corev1.Pod) {
		p.Annotations = map[string]string{"ovn.kubernetes.io/ip_address": strings.Join(first.ips, ",")}
	})
	second.added(second.add())
	require.Equal(t, first.ips, second.ips)
	eventually(t, func() string {
		events, err := m.o.c.Client().EventsV1().Events("key").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if e.Reason == "ProbeNotForwarded" && e.Regarding.Name == "double" && strings.Contains(e.Note, "isle/probed") {
				return ""
			}
		}
		return "no event tells double that it is not probed"
	})
	require.Equal(t, "isle/probed sees "+first.ips[0], ask(first.ips[0], tcp, answers))
	require.Contains(t, n.Fairlead("describe", "node", "--node-local"), "probes of isle/probed at "+first.ips[0]+":8081: led to the pod")

	agent()
	eventually(t, func() string {
		if left := n.Run("sh", "-c", "iptables-save; ip6tables-save; nft list ruleset; ip rule; ip -6 rule"); strings.Contains(left, "90003") {
			return "rules of probes are left: " + left
		}
		return ""
	})
	second.end()
	first.end()
	m.o.c.Delete(subnetObject("key", nil))
}

// nodePort: pods and nodes reach an endpoint by a port of its node with
// externalTrafficPolicy: Local, which kube-proxy does not masquerade; the answer comes
// back by the node.
func (m *matrixBed) nodePort() {
	t, n := m.t, m.o.nodes[0]
	t.Helper()
	const name, port = "web/port", 30080
	onNode := func(family, ip string) string {
		return strings.Replace(endpoints(name, family, ip), fmt.Sprintf("addresses: [%q]", ip), fmt.Sprintf("addresses: [%q], nodeName: %s", ip, n.name), 1)
	}
	subject := m.pods["subject"]
	m.o.c.Apply(together(
		object("v1", "Service", name, nil, map[string]any{"type": "NodePort", "externalTrafficPolicy": "Local", "ipFamilyPolicy": "RequireDualStack", "ports": []any{
			map[string]any{"name": "t", "port": 80, "protocol": "TCP", "nodePort": port}, map[string]any{"name": "u", "port": 80, "protocol": "UDP", "nodePort": port}}}),
		onNode("IPv4", subject.ips[0]), onNode("IPv6", subject.ips[1])))
	for _, from := range []string{"mate", "far mate", "stranger", "node", "far node"} {
		for _, ip := range []string{n.at.IP4, n.at.IP6} {
			for _, network := range []string{"tcp", "udp"} {
				eventually(t, func() string {
					peer := inside.Peer{Network: network, Host: ip, Port: port, Limit: answers}
					if said := inside.Query(m.parties[from].ns, peer); !strings.HasPrefix(said, m.parties["subject"].name+" sees ") {
						return fmt.Sprintf("%s by %s port %d of %s: %q", from, network, port, ip, said)
					}
					return ""
				})
			}
		}
	}
}

// endpoints is an EndpointSlice of one family, as the controller of Kubernetes
// makes it.
func endpoints(service, family, ip string) string {
	ns, name, _ := strings.Cut(service, "/")
	return fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice,
  metadata: {name: %s-%s, namespace: %s, labels: {kubernetes.io/service-name: %[1]s}}, addressType: %[4]s,
  ports: [{name: t, port: %d, protocol: TCP}, {name: u, port: %[5]d, protocol: UDP}], endpoints: [{addresses: [%q]}]}`,
		name, strings.ToLower(family), ns, family, serverPort, ip)
}

// question is a question of a row.
type question struct {
	pair
	from *party
	peer inside.Peer
	says string // the answer's begin
}

func (c question) String() string {
	return fmt.Sprintf("%s to %s (%s %s): %s", c.pair.from, c.to, c.peer.Network, c.peer.Host, c.why)
}

// answered tells whether somebody answers, and the right one.
func (c question) answered(limit time.Duration) bool {
	p := c.peer
	p.Limit = limit
	return strings.HasPrefix(inside.Query(c.from.ns, p), c.says+" sees ")
}

// party is whom a row's word means in a state.
func (m *matrixBed) party(name, state string) *party {
	if p := m.parties[name+" "+state]; p != nil {
		return p
	}
	return m.parties[name]
}

// questions are the questions of a state, with and without an answer.
func (m *matrixBed) questions(state string) (reach, cut []question) {
	for _, p := range m.rows {
		if slices.Contains(p.reach, state) {
			reach = append(reach, m.asked(p, state)...)
		} else {
			cut = append(cut, m.asked(p, state)...)
		}
	}
	return reach, cut
}

// asked are the questions of a row in a state, by TCP and UDP in both families.
func (m *matrixBed) asked(p pair, state string) (all []question) {
	name, service := strings.CutSuffix(p.to, "'s Service")
	to := m.party(name, state)
	ips, port := to.ips, serverPort
	if service {
		ips, port = to.service, 80
	}
	for _, ip := range ips {
		for _, network := range []string{"tcp", "udp"} {
			all = append(all, question{pair: p, from: m.party(p.from, state), peer: inside.Peer{Network: network, Host: ip, Port: port}, says: to.name})
		}
	}
	return all
}

// Silence that counts as being cut, and patience with those who must answer.
const (
	silence = time.Second
	answers = 3 * time.Second
)

// Who must answer and does not is asked again and again at first, and then after a
// silence in which the switch forgets the flow that the packets took. Open vSwitch
// 3.1 was seen to keep one in its userspace datapath, after a change of rules, that
// leads into a recirculation which is gone (coverage counts each of its packets as a
// datapath_drop_upcall_error): it goes when nobody has used it for 10 s (max-idle), and
// whoever asks more often asks in vain for ever.
const (
	impatient = 10 * time.Second
	forgotten = 12 * time.Second
)

// wrong asks all at once and gives those that are not as they should be.
func wrong(questions []question, reach bool, limit time.Duration) (out []question) {
	bad := make([]bool, len(questions))
	var wg sync.WaitGroup
	for i, c := range questions {
		wg.Go(func() { bad[i] = c.answered(limit) != reach })
	}
	wg.Wait()
	for i, c := range questions {
		if bad[i] {
			out = append(out, c)
		}
	}
	return out
}

// is waits until the matrix has a state's answers. What must be cut is cut first,
// then those who must answer do, and then those that are cut still are.
func (m *matrixBed) is(state string) {
	m.t.Helper()
	reach, cut := m.questions(state)
	m.cutIn(state)
	m.settle(state+": not answered", reach, true, answers)
	if again := wrong(cut, false, silence); len(again) > 0 {
		require.Empty(m.t, again, "%s: answered again; asked once more: %v; under the rules\n%s", state, wrong(again, false, silence),
			m.o.central.Nbctl("--columns=priority,direction,match,action,external_ids", "list", "ACL"))
	}
}

// cutIn waits until nobody answers whom a state cuts off.
func (m *matrixBed) cutIn(state string) {
	m.t.Helper()
	_, cut := m.questions(state)
	m.settle(state+": answered though it must be cut", cut, false, silence)
}

// settle asks those again that are not as they should be. Those who must be cut are
// asked without a silence: a flow that still lets them through is seen.
func (m *matrixBed) settle(what string, left []question, reached bool, limit time.Duration) {
	m.t.Helper()
	patient := time.Now().Add(impatient)
	eventually(m.t, func() string {
		if reached && time.Now().After(patient) {
			time.Sleep(forgotten)
		}
		if left = wrong(left, reached, limit); len(left) > 0 {
			return fmt.Sprintf("%s: %v", what, left)
		}
		return ""
	})
}

// reconciles is how often rules change under a flood.
func reconciles() int {
	if soak() {
		return 200
	}
	return 5
}

// holds floods the subject by those who are cut from it, in both families, while
// its rules change: with another network of nobody's, and without. None arrives.
func (m *matrixBed) holds(from []string, rules func(network string) string) {
	t := m.t
	t.Helper()
	subject := m.pods["subject"]
	before := [2]string{subject.counter("IcmpInEchos"), subject.counter("Icmp6InEchos")}
	var floods []*flood
	for _, name := range from {
		for _, ip := range subject.ips {
			floods = append(floods, startFlood(t, m.pods[name].Pod, ip))
		}
	}
	const network = "203.0.113.0/24"
	for i := range reconciles() {
		with := i%2 == 0
		m.change(network, with, func() { m.o.c.Apply(rules(map[bool]string{true: network}[with])) })
	}
	for _, f := range floods {
		f.stop()
	}
	require.Equal(t, before, [2]string{subject.counter("IcmpInEchos"), subject.counter("Icmp6InEchos")}, "packets of %v have passed", from)
}

// change changes rules, waits until OVN's have a text or have it no more, and until each
// node has carried that out, and notes how long it took from the write on.
func (m *matrixBed) change(text string, with bool, write func()) {
	m.t.Helper()
	began := time.Now()
	write()
	eventually(m.t, func() string {
		rows := m.o.central.Nbctl("--bare", "--columns=match,external_ids", "list", "ACL") + m.o.central.Nbctl("--bare", "--columns=addresses", "list", "Address_Set")
		if strings.Contains(rows, text) != with {
			return fmt.Sprintf("%s in OVN's rules: wanted %t", text, with)
		}
		return ""
	})
	m.o.central.Sync()
	m.latest = max(m.latest, time.Since(began))
}

// latestBound is five times what is promised of a change of rules, which only soak
// asserts: its machine does nothing else.
const latestBound = 5 * time.Second

// flood is a ping of 200 packets a second.
type flood struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *strings.Builder
}

func startFlood(t *testing.T, p *testbed.Pod, ip string) *flood {
	t.Helper()
	f := &flood{t: t, cmd: p.Cmd(context.Background(), "ping", "-n", "-i", "0.005", "-W", "1", ip), said: &strings.Builder{}}
	f.cmd.Stdout, f.cmd.Stderr = f.said, f.said
	require.NoError(t, f.cmd.Start())
	t.Cleanup(func() { _ = f.cmd.Process.Kill() })
	return f
}

// stop ends it; it must have gone on to the end, and have sent something.
func (f *flood) stop() {
	f.t.Helper()
	require.NoError(f.t, f.cmd.Process.Signal(syscall.SIGINT))
	_ = f.cmd.Wait() // status 1: nobody has answered
	require.Contains(f.t, f.said.String(), " packets transmitted")
	require.NotContains(f.t, f.said.String(), "\n0 packets transmitted")
}
