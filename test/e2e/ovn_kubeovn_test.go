package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// kubeOVNConf is what Kube-OVN writes into /etc/cni/net.d.
const kubeOVNConf = `{"cniVersion":"0.3.1","name":"kube-ovn","type":"kube-ovn","server_socket":"` + kubeOVNSocket + `"}`

// networkRows writes what Kube-OVN's controller has in the northbound database
// before any pod: the router of its Vpc, and a switch of each Subnet.
func (o *ovnCluster) networkRows() {
	o.t.Helper()
	o.central.Nbctl("lr-add", "ovn-cluster", "--", "set", "Logical_Router", "ovn-cluster", "external_ids:vendor=kube-ovn",
		"options:mac_binding_age_threshold=300", "options:dynamic_neigh_routers=true", "options:always_learn_from_arp_request=false")
	for i, s := range []struct{ name, v4, v6 string }{
		{"join", "100.64.0.1/16", "fd00:100:64::1/112"}, {"web", "10.16.0.1/16", "fd00:10:16::1/112"}, {"data", "10.17.0.1/16", "fd00:10:17::1/112"},
	} {
		inner, outer := s.name+"-ovn-cluster", "ovn-cluster-"+s.name
		o.central.Nbctl("ls-add", s.name, "--", "set", "Logical_Switch", s.name, "external_ids:vendor=kube-ovn",
			"--", "lrp-add", "ovn-cluster", outer, fmt.Sprintf("00:00:00:aa:00:%02x", i), s.v4, s.v6, "--", "set", "Logical_Router_Port", outer, "external_ids:vendor=kube-ovn",
			"--", "lsp-add", s.name, inner, "--", "lsp-set-type", inner, "router", "--", "lsp-set-addresses", inner, "router", "--", "lsp-set-options", inner, "router-port="+outer,
			"--", "set", "Logical_Switch_Port", inner, "external_ids:vendor=kube-ovn")
	}
}

// portRow writes a port as Kube-OVN's controller does; pod is NAMESPACE/NAME, or "".
func (o *ovnCluster) portRow(port, subnet, mac, v4, v6, pod string) {
	o.t.Helper()
	args := []string{"lsp-add", subnet, port, "--", "lsp-set-addresses", port, mac + " " + v4 + " " + v6,
		"--", "set", "Logical_Switch_Port", port, "external_ids:vendor=kube-ovn", "external_ids:ls=" + subnet}
	if pod != "" {
		args = append(args, `external_ids:pod="`+pod+`"`)
	}
	o.central.Nbctl(args...)
}

// annotations are those of Kube-OVN's controller under ovn.kubernetes.io/, as a patch.
func annotations(kv map[string]string) []byte {
	notes := map[string]string{}
	for k, v := range kv {
		notes["ovn.kubernetes.io/"+k] = v
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}})
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

// allocated writes what Kube-OVN's controller says of a pod's address and of a
// node's: the i-th of its Subnet.
func (p *ovnPod) allocated(i int) {
	o := p.n.o
	o.t.Helper()
	v4, v6, mac := fmt.Sprintf("10.16.0.%d", i), fmt.Sprintf("fd00:10:16::%x", i), fmt.Sprintf("00:00:00:bb:00:%02x", i)
	o.portRow(p.port(), "web", mac, v4, v6, p.Namespace+"/"+p.Name)
	_, err := o.c.Client().CoreV1().Pods(p.Namespace).Patch(o.t.Context(), p.Name, types.MergePatchType, annotations(map[string]string{
		"allocated": "true", "routed": "true", "ip_address": v4 + "," + v6, "mac_address": mac, "cidr": webSubnet, "gateway": "10.16.0.1,fd00:10:16::1",
		"logical_switch": "web", "logical_router": "ovn-cluster", "pod_nic_type": "veth-pair",
	}), metav1.PatchOptions{})
	require.NoError(o.t, err)
	p.ips = []string{v4, v6}
}

func (n *ovnNode) allocated(i int) {
	o := n.o
	o.t.Helper()
	v4, v6, mac := fmt.Sprintf("100.64.0.%d", i), fmt.Sprintf("fd00:100:64::%x", i), fmt.Sprintf("00:00:00:cc:00:%02x", i)
	o.portRow("node-"+n.name, "join", mac, v4, v6, "")
	_, err := o.c.Client().CoreV1().Nodes().Patch(o.t.Context(), n.name, types.MergePatchType, annotations(map[string]string{
		"allocated": "true", "ip_address": v4 + "," + v6, "mac_address": mac, "cidr": "100.64.0.0/16,fd00:100:64::/112",
		"gateway": "100.64.0.1,fd00:100:64::1", "logical_switch": "join", "port_name": "node-" + n.name,
	}), metav1.PatchOptions{})
	require.NoError(o.t, err)
}

// kubeOVNPlugin runs Kube-OVN's own plugin for a pod, as a runtime does.
func (p *ovnPod) kubeOVNPlugin(program, op string) string {
	t := p.n.o.t
	t.Helper()
	cmd := p.n.Cmd(t.Context(), program)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+op, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns(), "CNI_IFNAME=eth0",
		"CNI_ARGS="+p.Args(), "CNI_PATH="+testbed.PluginDir)
	cmd.Stdin = strings.NewReader(kubeOVNConf)
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", op, out)
	return string(out)
}

// kubeOVNLeft is what Kube-OVN's daemon leaves on a node beside its rules: a pod of Subnet
// web, and one of VLAN 10 of provider network net1, whose bridge has the node's address there.
type kubeOVNLeft struct {
	n          *ovnNode
	web, under *ovnPod
	physical   *testbed.Pod // a machine on net1: on VLAN 10 the gateway
	dir        string       // of imports, and of what the runtime's libcni keeps
}

// Addresses on net1: the node's, and that of VLAN 10's gateway.
const (
	net1Node    = "198.18.0.1"
	net1Gateway = "10.10.0.1"
)

// leaves makes it, by the daemon's own commands. p is a pod of the node besides.
func (n *ovnNode) leaves(p *ovnPod) *kubeOVNLeft {
	o := n.o
	o.t.Helper()
	l := &kubeOVNLeft{n: n, physical: n.NewPod("far/physical"), dir: filepath.Join(n.Dir, "import")}
	n.Run("sh", "-ec", "ip link add nic1 type veth peer name wire; ip link set wire up; ip link set nic1 up; ip addr add "+net1Node+"/24 dev nic1; mkdir -p "+l.dir+"/results")
	n.OVS.AddBridge("br-far")
	n.OVS.Vsctl("--timeout=20", "add-port", "br-far", "wire", "--", "add-port", "br-far", "far0", "--", "set", "interface", "far0", "type=internal",
		"--", "add-port", "br-far", "far10", "tag=10", "--", "set", "interface", "far10", "type=internal")
	for dev, addr := range map[string]string{"far0": "198.18.0.2/24", "far10": net1Gateway + "/24"} {
		n.Run("ip", "link", "set", dev, "netns", filepath.Base(l.physical.Netns()))
		l.physical.Run("sh", "-ec", "ip link set "+dev+" up; ip addr add "+addr+" dev "+dev)
	}
	n.Run("sh", "-ec", inside.KubeOVNBridge("ovs-vsctl --timeout=20", "netdev", "net1", "nic1", net1Node+"/24"))
	o.central.Nbctl("ls-add", "v10", "--", "set", "Logical_Switch", "v10", "external_ids:vendor=kube-ovn", "--", "lsp-add", "v10", "localnet.v10", "--", "lsp-set-type", "localnet.v10", "localnet",
		"--", "lsp-set-addresses", "localnet.v10", "unknown", "--", "lsp-set-options", "localnet.v10", "network_name=net1", "--", "set", "Logical_Switch_Port", "localnet.v10", "tag=10")
	o.c.Apply(together(
		object("v1", "Namespace", "v10", nil, nil),
		l.net1(),
		object("kubeovn.io/v1", "Vlan", "v10", nil, map[string]any{"id": 10, "provider": "net1"}),
		subnetObject("v10", map[string]any{"cidrBlock": "10.10.0.0/24,fd00:10:10::/64", "gateway": net1Gateway + ",fd00:10:10::1", "vlan": "v10", "namespaces": []string{"v10"}}),
	))
	l.web, l.under = n.pod("web/c"), n.pod("v10/u")
	l.web.allocated(12)
	l.attach(l.web, "00:00:00:bb:00:0c", "10.16.0.1", l.web.ips[0]+"/16", l.web.ips[1]+"/112")
	l.under.ips = []string{"10.10.0.12", "fd00:10:10::c"}
	o.portRow(l.under.port(), "v10", "00:00:00:dd:00:0c", l.under.ips[0], l.under.ips[1], "v10/u")
	l.attach(l.under, "00:00:00:dd:00:0c", net1Gateway, l.under.ips[0]+"/24", l.under.ips[1]+"/64")
	l.keeps(inside.KubeOVNPod{Container: p.ContainerID, Netns: p.Netns(), Namespace: p.Namespace, Name: p.Name})
	return l
}

// net1 is the provider network, which this node alone has.
func (l *kubeOVNLeft) net1() string {
	return object("kubeovn.io/v1", "ProviderNetwork", "net1", nil, map[string]any{"defaultInterface": "nic1", "excludeNodes": []string{l.n.o.nodes[0].name}})
}

// keeps writes what the runtime's libcni does of a pod.
func (l *kubeOVNLeft) keeps(p inside.KubeOVNPod) {
	l.n.o.t.Helper()
	require.NoError(l.n.o.t, os.WriteFile(filepath.Join(l.dir, "results", "kube-ovn-"+p.Container+"-eth0"), []byte(p.Cached()), 0o600))
}

// attach gives a pod its port as the daemon does, and waits until OVN has it.
func (l *kubeOVNLeft) attach(p *ovnPod, mac, gateway string, addrs ...string) {
	l.n.o.t.Helper()
	k := inside.KubeOVNPod{
		Vsctl: "ovs-vsctl --timeout=20", Container: p.ContainerID, Netns: p.Netns(), Namespace: p.Namespace, Name: p.Name, MAC: mac, Addrs: addrs, Gateways: []string{gateway},
	}
	p.Run("sh", "-ec", k.Before())
	l.n.Run("sh", "-ec", k.Attach())
	p.Run("sh", "-ec", k.Configure())
	l.keeps(k)
	eventually(l.n.o.t, func() string {
		return lacks(l.n.OVS.Vsctl("--timeout=20", "get", "interface", k.HostIf(), "external_ids"), `ovn-installed="true"`)
	})
}

// imports runs an import.
func (l *kubeOVNLeft) imports(way string) (string, error) {
	l.n.o.t.Helper()
	return l.n.Try("env", "FAIRLEAD_FAIL_DIR="+filepath.Join(l.n.Dir, "fail"), testbed.Program(l.n.o.t), "import", "kube-ovn", way, "--import-dir", l.dir, "--cni-dir", l.dir)
}

// must is imports that succeeds, and what it says.
func (l *kubeOVNLeft) must(way string) string {
	l.n.o.t.Helper()
	out, err := l.imports(way)
	require.NoError(l.n.o.t, err, out)
	return out
}

// everything is what is to be Kube-OVN's again, by the node's programs, but for counters, the
// order within sets, the seeds of sets that were made anew, and the time of OVN's marks.
func (l *kubeOVNLeft) everything() string {
	l.n.o.t.Helper()
	return l.n.Run("sh", "-ec", `(iptables-save; ip6tables-save) | grep -v '^#' | sed 's/ \[[0-9:]*\]//'; ipset save | sed 's/ bucketsize.*//' | sort
ovs-vsctl --timeout=20 --columns=external_ids list open_vswitch . -- --columns=name,external_ids,other_config,fail_mode list bridge br-net1 -- --columns=name,tag,trunks,external_ids,other_config list port nic1 -- \
	--columns=name,type,external_ids list interface nic1 `+hostIf(l.web.Pod, "eth0")+" "+hostIf(l.under.Pod, "eth0")+` | sed 's/ovn-installed-ts="[0-9]*"//'
ip -o link show type veth | sed 's/ qlen[^\\]*//; s/<.*>//' | grep -e `+hostIf(l.web.Pod, "eth0")+" -e "+hostIf(l.under.Pod, "eth0")+" -e nic1; ip -4 -br addr show br-net1")
}

// survivesKills proves of an apply and a rollback that one that was killed at any point (see
// sample) goes on where it was: the end is the same. The node is Kube-OVN's before and after.
func (l *kubeOVNLeft) survivesKills(before string) {
	t := l.n.o.t
	t.Helper()
	l.n.CrashTrace()
	points := map[string][]string{}
	for _, way := range []string{"--apply", "--rollback"} {
		l.must(way)
		points[way] = passed(l.n.CrashTrace(), "kubeovn.", "uplink.")
	}
	require.Contains(t, points["--apply"], "kubeovn.linked")
	require.Contains(t, points["--rollback"], "kubeovn.filter")
	killed := func(way, point string) {
		l.n.Crash(point)
		_, err := l.imports(way)
		require.Error(t, err, point)
		require.False(t, l.n.CrashPending(), point)
		l.must(way)
	}
	for _, point := range sample(points["--apply"]) {
		killed("--apply", point)
		require.Contains(t, l.must("--apply"), "nothing to do", point)
		require.NotEqual(t, before, l.everything(), point)
		l.must("--rollback")
		require.Equal(t, before, l.everything(), point)
	}
	for _, point := range sample(points["--rollback"]) {
		l.must("--apply")
		killed("--rollback", point)
		require.Equal(t, before, l.everything(), point)
	}
}

// serves proves that a new agent has taken everything over.
func (l *kubeOVNLeft) serves() {
	n := l.n
	n.o.t.Helper()
	n.agent = n.Agent(n.args...)
	eventually(n.o.t, func() string { return lacks(n.Run("ipset", "list", "-n"), "ovn40subnets-out") })
	n.agent.WaitReady()
	eventually(n.o.t, func() string {
		return lacks(n.OVS.Vsctl("--timeout=20", "get", "bridge", "br-net1", "external_ids"), "fairlead-uplink=net1")
	})
	for _, p := range []*ovnPod{l.web, l.under} {
		n.Fairlead("check", p.Namespace+"/"+p.Name)
	}
}

// goes proves that what was taken over ends as what the agent made: by a DEL of the runtime,
// and by the end of the provider network, whose NIC has its address again.
func (l *kubeOVNLeft) goes() {
	t := l.n.o.t
	t.Helper()
	for _, p := range []*ovnPod{l.web, l.under} {
		p.call("DEL").Must()
		requireBare(t, p.Pod)
		require.NotContains(t, l.n.OVS.Vsctl("--timeout=20", "list-ports", "br-int"), hostIf(p.Pod, "eth0"))
		p.gone()
	}
	l.n.o.c.Delete(l.net1())
	eventually(t, func() string { return lacks(l.n.Run("ip", "addr", "show", "nic1"), net1Node) })
	eventually(t, func() string { return holds(l.n.OVS.Vsctl("--timeout=20", "list-br"), "br-net1") })
}

// handsOver proves that a node whose packet filter, ports and bridge are as Kube-OVN's daemon
// leaves them is taken over by the agent, and given back as it was, without a lost ping of its
// pods to the world and to the gateway of their VLAN, and of a machine to the node's address on
// the bridge. The agent that comes then has the node again, with all of it.
func (n *ovnNode) handsOver(p *ovnPod) {
	o := n.o
	o.t.Helper()
	o.c.Apply(subnetObject("web", map[string]any{"cidrBlock": webSubnet, "default": true, "natOutgoing": true}))
	o.central.Nbctl("lr-route-add", "ovn-cluster", "0.0.0.0/0", "100.64.0.3") // the node's
	n.agent.Stop()
	n.Run("sh", "-c", "for t in iptables ip6tables; do for x in nat mangle filter; do $t -t $x -F; $t -t $x -X; done; done; ipset destroy") // what ours had written
	n.Run("sh", "-ec", inside.KubeOVN)
	l := n.leaves(p)
	before := l.everything()
	pods := []*testbed.Pinger{p.StartPing(o.world.IP4, 10*time.Millisecond), l.web.StartPing(o.world.IP4, 10*time.Millisecond), l.under.StartPing(net1Gateway, 10*time.Millisecond)}
	node := l.physical.StartPing(net1Node, 10*time.Millisecond)
	goOn := func() {
		for _, ping := range append(pods, node) {
			ping.Answers(20)
		}
	}
	require.Contains(o.t, l.must("--apply"), "of Kube-OVN are kept in ")
	l.serves()
	require.NotEqual(o.t, before, l.everything())
	goOn()
	n.agent.Stop()
	said := l.must("--rollback")
	require.Contains(o.t, said, "are as they were")
	require.Contains(o.t, said, "3 pods are Kube-OVN's", "what the agent attached too")
	require.Equal(o.t, before, l.everything())
	require.NotContains(o.t, n.OVS.Vsctl("--timeout=20", "get", "interface", hostIf(p.Pod, "eth0"), "external_ids"), "container_id", "what the agent attached is Kube-OVN's too")
	goOn()
	l.survivesKills(before)
	l.must("--apply")
	l.serves()
	goOn()
	for _, ping := range pods {
		_, lost := ping.Stop()
		require.Zero(o.t, lost)
	}
	l.goes()
	node.Answers(20)
	_, lost := node.Stop()
	require.Zero(o.t, lost)
	n.OVS.Vsctl("--timeout=20", "del-br", "br-far")
	n.Run("ip", "link", "del", "nic1")
	l.physical.Delete()
}

// TestKubeOVNsCluster: where Kube-OVN's controller rules, what it writes serves our
// agent as it stands, on Nodes, on pods and in the northbound database; and who
// calls may be Kube-OVN's plugin: by its requests, in make soak the program itself.
func TestKubeOVNsCluster(t *testing.T) {
	t.Parallel()
	o := newOVNCluster(t)
	o.networkRows()
	for i, n := range o.nodes {
		n.allocated(i + 2)
		n.joined()
		n.unavailable("False", "answers")
	}
	a, b := o.nodes[0].pod("web/a"), o.nodes[1].pod("web/b")
	a.allocated(10)
	b.allocated(11)

	status, body := post(t, a.n.Node, cni.PathKubeOVNAdd, kubeOVNRequest(a.Pod, nil))
	require.Equal(t, http.StatusOK, status, "%s", body)
	var said cni.KubeOVNResponse
	strictly(t, body, &said)
	require.Equal(t, "00:00:00:bb:00:0a", said.MacAddress)
	if soak() {
		root, err := testbed.Repository()
		require.NoError(t, err)
		program := filepath.Join(root, ".cache/bench/kube-ovn")
		require.FileExists(t, program, "make soak builds it")
		out := b.kubeOVNPlugin(program, "ADD")
		for _, want := range append(b.ips, "00:00:00:bb:00:0b", "10.16.0.1", "fd00:10:16::1") {
			require.Contains(t, out, want)
		}
		defer func() {
			b.kubeOVNPlugin(program, "DEL")
			requireBare(t, b.Pod)
		}()
	} else {
		require.ElementsMatch(t, []string{b.ips[0] + "/16", b.ips[1] + "/112"}, b.add().Must().IPs())
	}
	a.reaches(b)
	b.reaches(a)
	for _, pair := range [][2]*ovnPod{{a, b}, {b, a}} {
		pair[0].talks(pair[1])
	}
	for _, ip := range b.ips {
		require.NoError(t, o.nodes[0].Ping(ip), "a node to a pod of the other")
	}
	eventually(t, func() string { return unbound(o.central, map[string]string{a.port(): a.n.name, b.port(): b.n.name}) })
	b.n.handsOver(b)
	status, body = post(t, a.n.Node, cni.PathKubeOVNDel, kubeOVNRequest(a.Pod, nil))
	require.Equal(t, http.StatusNoContent, status, "%s", body)
	requireBare(t, a.Pod)
	require.Equal(t, "a.web", o.central.Get("Logical_Switch_Port", "a.web", "name"), "rows are their controller's to remove")
}
