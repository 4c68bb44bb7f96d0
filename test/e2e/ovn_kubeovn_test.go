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

// handsOver proves that a node whose packet filter is as Kube-OVN's daemon leaves it is taken
// over by the agent, and given back as it was, without a lost ping of its pod to the world,
// which sees the node. The agent that comes then has the node again.
func (n *ovnNode) handsOver(p *ovnPod) {
	o := n.o
	o.t.Helper()
	o.c.Apply(subnetObject("web", map[string]any{"cidrBlock": webSubnet, "default": true, "natOutgoing": true}))
	o.central.Nbctl("lr-route-add", "ovn-cluster", "0.0.0.0/0", "100.64.0.3") // the node's
	n.agent.Stop()
	n.Run("sh", "-c", "for t in iptables ip6tables; do for x in nat mangle filter; do $t -t $x -F; $t -t $x -X; done; done; ipset destroy") // what ours had written
	n.Run("sh", "-ec", inside.KubeOVN)
	everything := func() string { // but for counters, the order within sets, and the seeds of sets that were made anew
		return n.Run("sh", "-c", `(iptables-save; ip6tables-save) | grep -v '^#' | sed 's/ \[[0-9:]*\]//'; ipset save | sed 's/ bucketsize.*//' | sort`)
	}
	before := everything()
	ping := p.StartPing(o.world.IP4, 10*time.Millisecond)
	dir := filepath.Join(n.Dir, "import")
	require.Contains(o.t, n.Fairlead("import", "kube-ovn", "--apply", "--import-dir", dir), "of Kube-OVN are kept in ")
	n.agent = n.Agent(n.args...)
	eventually(o.t, func() string { return lacks(n.Run("ipset", "list", "-n"), "ovn40subnets-out") })
	n.agent.WaitReady()
	require.NotEqual(o.t, before, everything())
	ping.Answers(20)
	n.agent.Stop()
	require.Contains(o.t, n.Fairlead("import", "kube-ovn", "--rollback", "--import-dir", dir), "are as they were")
	require.Equal(o.t, before, everything())
	ping.Answers(20)
	_, lost := ping.Stop()
	require.Zero(o.t, lost)
	n.agent = n.Agent(n.args...)
	n.agent.WaitReady()
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
