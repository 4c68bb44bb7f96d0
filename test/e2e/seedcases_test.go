package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

const kubeOVNSocket = "/run/openvswitch/kube-ovn-daemon.sock"

// bond makes a veth end called bond0 in the node, which stands for the
// machine's bonded NIC, and returns the name of its other end.
func bond(n *testbed.Node) {
	n.Run("ip", "link", "add", "bond0", "address", "02:00:00:00:b0:00", "type", "veth",
		"peer", "name", "bond0peer", "address", "02:00:00:00:b0:01") // the same after a reboot
	n.Run("ip", "link", "set", "bond0", "up")
	n.Run("ip", "link", "set", "bond0peer", "up")
}

// attachment reads the only attachment of a pod, as the operator sees it.
func attachment(t *testing.T, n *testbed.Node, pod string) agent.Attachment {
	t.Helper()
	var p agent.Pod
	require.NoError(t, json.Unmarshal([]byte(n.Fairlead("describe", "pod", pod, "-o", "json")), &p))
	require.Len(t, p.Attachments, 1)
	return p.Attachments[0]
}

// TestSeedMultus is 00-multus.conf with its NAD and pod. This kernel has no
// ipvlan: macvlan stands in.
func TestSeedMultus(t *testing.T) {
	t.Parallel()
	nad := strings.Replace(seed(t, "nad-ipvlan-net2.yaml"), `"type": "ipvlan"`, `"type": "macvlan"`, 1)
	n := testbed.New(t)
	n.Outside()
	bond(n)
	n.WriteObjects("nad.yaml", nad)
	n.WriteObjects("pod.yaml", seed(t, "pod-ipvlanpod22.yaml"))
	n.Agent("--iface", testbed.OutsideIf).WaitReady()
	awaitGateways(t, n)
	conf := strings.TrimSpace(seed(t, "00-multus.conf"))
	p := n.NewPod("ipvlanpod22")
	before := n.Inventory()

	answer := p.CNI("ADD", conf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	eth0 := addresses(t, p, "eth0")
	require.Equal(t, eth0, answer.IPs(), "the result is the default network's")
	require.InDelta(t, 1400, linkOf(t, p, "eth0")["mtu"], 0)
	require.Len(t, defaultRoutes(p, "-4"), 1)
	require.Contains(t, defaultRoutes(p, "-4")[0], "default via 10.16.0.1 dev eth0")

	require.Equal(t, []string{"192.168.133.190/24"}, addresses(t, p, "net1"))
	require.Equal(t, "macvlan", kind(linkOf(t, p, "net1")))
	require.Contains(t, p.Run("ip", "rule", "show"), "from 192.168.133.190 lookup 100")
	require.Contains(t, p.Run("ip", "route", "show", "table", "100"), "192.168.133.0/24 dev net1")

	a := attachment(t, n, "default/ipvlanpod22")
	require.Equal(t, "multus-cni-network", a.Network)
	require.Len(t, a.Interfaces, 2)
	require.Equal(t, "kube-ovn", a.Interfaces[0].Network)
	require.True(t, a.Interfaces[0].Default)
	require.Equal(t, []string{"portmap"}, a.Interfaces[0].Plugins)
	require.Equal(t, "default/ipvlan-net2", a.Interfaces[1].Network)
	require.Equal(t, []string{"macvlan", "sbr"}, a.Interfaces[1].Plugins)
	require.Equal(t, "192.168.133.190/24", a.Interfaces[1].Addresses[0].String())

	status := a.NetworkStatus
	require.Len(t, status, 2)
	require.Equal(t, "kube-ovn eth0", status[0].Name+" "+status[0].Interface)
	require.True(t, status[0].Default)
	require.Equal(t, "default/ipvlan-net2 net1", status[1].Name+" "+status[1].Interface)
	require.Equal(t, []string{"192.168.133.190"}, status[1].IPs)
	require.False(t, status[1].Default)

	p.CNI("CHECK", withPrev(conf, answer.Stdout)).MustCode(1) // 0.3.1 has none
	p.CNI("CHECK", withPrev(strings.ReplaceAll(conf, "0.3.1", "0.4.0"), answer.Stdout)).Must()

	p.CNI("DEL", conf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	n.RequireNoLeaks(before)
	p.CNI("DEL", conf).Must()
}

func kind(link map[string]any) any {
	info, _ := link["linkinfo"].(map[string]any)
	return info["info_kind"]
}

// TestSeedKubeOVN has a runtime run 01-kube-ovn.conflist: our plugin under the
// name kube-ovn finds the agent at Kube-OVN's socket, and portmap behind it
// gets the host ports. A host port is proved by traffic from outside.
func TestSeedKubeOVN(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	out := n.Outside()
	n.Agent("--compat-socket", kubeOVNSocket).WaitReady()
	awaitGateways(t, n)
	n.Run("sh", "-c", "cat > /etc/cni/net.d/01-kube-ovn.conflist <<'END'\n"+seed(t, "01-kube-ovn.conflist")+"END")
	env := []string{
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web",
		`CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`,
	}
	p := n.NewPod("web")
	tool := func(op string) testbed.Answer { return n.CNITool("/etc/cni/net.d", env, op, "kube-ovn", p.Netns()) }
	// portmap's own chains stay after its first DEL: they are part of the base line.
	tool("add").Must()
	tool("del").Must()
	before := n.Inventory()

	answer := tool("add").Must()
	require.Equal(t, addresses(t, p, "eth0"), answer.IPs())
	require.Contains(t, n.Run("nft", "list", "ruleset"), "dport 8080", "portmap's rule")
	serveHello(t, p)
	requireHello(t, out, 8080)

	tool("del").Must()
	require.NotContains(t, n.Run("nft", "list", "ruleset"), "dport 8080")
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	n.RequireNoLeaks(before)
}

// serveHello runs a web server on port 80 of the pod until the test ends.
func serveHello(t *testing.T, p *testbed.Pod) {
	t.Helper()
	p.Run("sh", "-c", "mkdir -p /run/www && echo hello > /run/www/index.html")
	cmd := p.Cmd(context.WithoutCancel(t.Context()), "busybox", "httpd", "-f", "-p", "80", "-h", "/run/www")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	})
}

// requireHello reads the pod's page through a port of the node.
func requireHello(t *testing.T, out *testbed.Outside, port int) {
	t.Helper()
	eventually(t, func() string {
		got, err := out.Try("bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/%s/%d
			printf 'GET /index.html HTTP/1.0\r\n\r\n' >&3
			cat <&3`, testbed.NodeIP4, port))
		if err == nil && strings.HasSuffix(got, "\r\n\r\nhello\n") {
			return ""
		}
		return fmt.Sprint(got, err)
	})
}

// TestSeedMultusPortMappings: the host ports that a runtime gives to
// 00-multus.conf reach the portmap inside its delegate.
func TestSeedMultusPortMappings(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	out := n.Outside()
	n.Agent().WaitReady()
	awaitGateways(t, n)
	plain := strings.TrimSpace(seed(t, "00-multus.conf"))
	conf := strings.TrimSuffix(plain, "}") +
		`,"runtimeConfig":{"portMappings":[{"hostPort":8081,"containerPort":80,"protocol":"tcp","hostIP":""}]}}`
	p := n.NewPod("web")
	p.CNI("ADD", conf).Must() // portmap's own chains become part of the base line
	p.CNI("DEL", conf).Must()
	before := n.Inventory()
	p.CNI("ADD", conf).Must()
	serveHello(t, p)
	requireHello(t, out, 8081)
	p.CNI("DEL", plain).Must() // the record knows the ports
	n.RequireNoLeaks(before)
}

// TestSeedVLANQoS is pod-vlan-qos.yaml: annotations as a controller leaves
// them, for a subnet that no object here declares.
func TestSeedVLANQoS(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"pod.yaml": seed(t, "pod-vlan-qos.yaml")})
	p := n.NewPod("ns1/starter-backend-69459d76f5-ktrwn")
	before := n.Inventory()
	conf := `{"cniVersion":"0.3.1","name":"kube-ovn","type":"kube-ovn"}`
	answer := p.CNI("ADD", conf).Must()
	require.Equal(t, []string{"100.100.0.3/16"}, answer.IPs())

	host := p.ContainerID[:12] + "_h"
	require.Contains(t, strings.Fields(n.OVS.Vsctl("list-ports", "br-int")), host)
	for key, want := range map[string]string{
		"iface-id":      "starter-backend-69459d76f5-ktrwn.ns1",
		"pod_name":      "starter-backend-69459d76f5-ktrwn",
		"pod_namespace": "ns1",
		"pod_netns":     p.Netns(),
		"ip":            "100.100.0.3",
		"vendor":        "kube-ovn",
	} {
		require.Equal(t, want, column(n, "Interface", host, "external_ids:"+key), key)
	}
	require.Equal(t, "1000", column(n, "Port", host, "tag"))
	require.Equal(t, "1000", column(n, "Interface", host, "ingress_policing_rate"))
	require.Equal(t, "800", column(n, "Interface", host, "ingress_policing_burst"))

	qos := column(n, "Port", host, "qos")
	require.Equal(t, "linux-htb", column(n, "QoS", qos, "type"))
	queue := column(n, "QoS", qos, "queues:0")
	for table, row := range map[string]string{"QoS": qos, "Queue": queue} {
		require.Equal(t, "3000000", column(n, table, row, "other_config:max-rate"), table)
		require.Equal(t, "starter-backend-69459d76f5-ktrwn.ns1", column(n, table, row, "external_ids:iface-id"), table)
		require.Equal(t, "ns1/starter-backend-69459d76f5-ktrwn", column(n, table, row, "external_ids:pod"), table)
	}
	n.OVS.Barrier()
	class := n.Run("tc", "class", "show", "dev", host)
	require.Contains(t, class, "ceil 3Mbit", "the rate that the kernel enforces")
	require.Contains(t, class, "burst 300000b", "0.8 of a second's rate, which OVSDB holds in bits")

	eth0 := linkOf(t, p, "eth0")
	require.Equal(t, []string{"100.100.0.3/16"}, addresses(t, p, "eth0"))
	require.Equal(t, "00:00:00:b8:58:ab", eth0["address"])
	require.InDelta(t, 1400, eth0["mtu"], 0)
	require.Equal(t, []string{"default via 100.100.0.1 dev eth0"}, trimProto(defaultRoutes(p, "-4")))

	p.CNI("DEL", conf).Must()
	n.RequireNoLeaks(before)
}

// trimProto cuts the attributes behind the device off routes.
func trimProto(routes []string) []string {
	for i, r := range routes {
		f := strings.Fields(r)
		if at := indexOf(f, "dev"); at >= 0 && at+2 <= len(f) {
			routes[i] = strings.Join(f[:at+2], " ")
		}
	}
	return routes
}

func indexOf(list []string, s string) int {
	for i, e := range list {
		if e == s {
			return i
		}
	}
	return -1
}

// TestSeedRequest posts the recorded request of Kube-OVN's plugin to the
// compatibility socket; only the namespace is a real one.
func TestSeedRequest(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, "--compat-socket", kubeOVNSocket)
	p := n.NewPod("nginx-57dd86f5cc-9btkq")
	var recorded map[string]any
	require.NoError(t, json.Unmarshal([]byte(seed(t, "cni-request-add.json")), &recorded))
	recorded["net_ns"] = p.Netns()
	before := n.Inventory()

	status, body := post(t, n, cni.PathKubeOVNAdd, recorded)
	require.Equal(t, http.StatusOK, status, body)
	var answer cni.KubeOVNResponse
	strictly(t, body, &answer)
	require.Empty(t, answer.Err)
	require.Len(t, answer.IPs, 1)
	require.Equal(t, "IPv4", answer.IPs[0].Protocol)
	require.Equal(t, "10.16.0.0/16", answer.IPs[0].CIDR)
	require.Equal(t, "10.16.0.1", answer.IPs[0].Gateway)
	require.Equal(t, "eth0", answer.PodNicName)
	require.Equal(t, 1400, answer.Mtu)
	require.Equal(t, []cni.KubeOVNRoute{{Destination: "0.0.0.0/0", Gateway: "10.16.0.1"}}, answer.Routes)
	require.Equal(t, []string{answer.IPs[0].IP + "/16"}, addresses(t, p, "eth0"))
	require.Equal(t, linkOf(t, p, "eth0")["address"], answer.MacAddress)
	require.Equal(t, "nginx-57dd86f5cc-9btkq.default",
		column(n, "Interface", "532bed4f476d_h", "external_ids:iface-id"))

	status, body = post(t, n, cni.PathKubeOVNDel, recorded)
	require.Equal(t, http.StatusNoContent, status)
	require.Empty(t, body)
	n.RequireNoLeaks(before)
	status, _ = post(t, n, cni.PathKubeOVNDel, recorded)
	require.Equal(t, http.StatusNoContent, status, "a second del")
}

// TestSeedRequestRefused: an error is a status and {"error": ...}.
func TestSeedRequestRefused(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, "--compat-socket", kubeOVNSocket)
	p := n.NewPod("p")
	good := map[string]any{
		"cni_type": "kube-ovn", "pod_name": "p", "pod_namespace": "default",
		"container_id": p.ContainerID, "net_ns": p.Netns(), "if_name": "eth0", "provider": "ovn",
	}
	before := n.Inventory()
	for _, c := range []struct {
		key    string
		value  any
		status int
		names  string
	}{
		{"pod_name", "", 400, "pod_name"},
		{"provider", "nowhere.default.ovn", 400, "nowhere.default.ovn"},
		{"container_id", "../x", 400, "CONTAINERID"},
		{"net_ns", "/run/netns/none", 500, "/run/netns/none"},
		{"pod_namespace", 7, 400, "pod_namespace"},
		{"routes", []map[string]string{{"dst": "x"}}, 400, "routes"},
	} {
		bad := map[string]any{}
		for k, v := range good {
			bad[k] = v
		}
		bad[c.key] = c.value
		status, body := post(t, n, cni.PathKubeOVNAdd, bad)
		require.Equal(t, c.status, status, "%s: %s", c.key, body)
		var answer struct {
			Error string `json:"error"`
		}
		require.NoError(t, json.Unmarshal(body, &answer), "%s: %s", c.key, body)
		require.Contains(t, answer.Error, c.names)
	}
	n.RequireNoLeaks(before)
}

func strictly(t *testing.T, body []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(v), "%s", body)
}

// post sends JSON to the compatibility socket, as Kube-OVN's plugin does.
func post(t *testing.T, n *testbed.Node, path string, v any) (int, []byte) {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.Path(kubeOVNSocket))
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://dummy"+path, bytes.NewReader(b))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, body
}
