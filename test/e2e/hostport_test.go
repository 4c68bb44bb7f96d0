package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// portsConf is a runtime's call of our plugin alone, which declares host ports
// and rates itself.
func portsConf(runtimeConfig string) string {
	return `{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"fairlead",
		"capabilities":{"portMappings":true,"bandwidth":true},"runtimeConfig":` + runtimeConfig + `}`
}

func mapping(host, container int, more ...string) string {
	return fmt.Sprintf(`{"portMappings":[{"hostPort":%d,"containerPort":%d,"protocol":"tcp"%s}]}`, host, container, strings.Join(more, ""))
}

// page is what a web server on port answers to from, "" for nothing.
func page(from interface {
	Try(argv ...string) (string, error)
}, addr string, port int) string {
	got, _ := from.Try("timeout", "3", "bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/%s/%d
		printf 'GET /index.html HTTP/1.0\r\n\r\n' >&3
		cat <&3`, addr, port))
	if _, body, ok := strings.Cut(got, "\r\n\r\n"); ok {
		return strings.TrimSpace(body)
	}
	return ""
}

func hostPortNode(t *testing.T, pods ...string) (*testbed.Node, *testbed.Outside, *testbed.Agent) {
	t.Helper()
	n := testbed.New(t)
	out := n.Outside()
	n.WriteObjects("pods.yaml", together(pods...))
	n.WriteObjects("subnets.yaml", subnetObject("ovn-default", map[string]any{
		"default": true, "cidrBlock": "10.16.0.0/16,fd00:10:16::/112", "natOutgoing": true,
	}))
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	return n, out, a
}

// TestHostPorts: our own entry's capability opens a port of the node, on Open
// vSwitch, from everywhere and in both families, without any plugin behind us.
// It outlives the agent, and a table that somebody has deleted comes back.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	n, out, a := hostPortNode(t)
	before := n.Inventory()
	conf := portsConf(mapping(8080, 80))
	web, other := n.NewPod("web"), n.NewPod("other")
	answer := web.CNI("ADD", conf).Must()
	other.CNI("ADD", ownConf).Must()
	serveHello(t, web)

	everywhere := func() {
		t.Helper()
		for name, from := range map[string]interface {
			Try(argv ...string) (string, error)
		}{"outside": out, "node": n, "another pod": other, "itself": web} {
			for _, addr := range []string{testbed.NodeIP4, testbed.NodeIP6} {
				eventually(t, func() string {
					if page(from, addr, 8080) == "hello" {
						return ""
					}
					return name + " gets nothing from " + addr
				})
			}
		}
		require.Equal(t, "hello", page(n, "127.0.0.1", 8080), "the node at its loopback address")
	}
	everywhere()
	check := func() testbed.Answer { return web.CNI("CHECK", withPrev(conf, answer.Stdout)) }
	check().Must()

	rival := n.NewPod("rival")
	taken := rival.CNI("ADD", conf).MustCode(105)
	require.Contains(t, taken.Msg+taken.Details, "host port 8080/tcp is taken by pod default/web")

	ruleset := func() []string { return testbed.RulesByTable(n.Run("nft", "-s", "list", "ruleset")) }
	was := ruleset()
	a.Kill()
	require.Equal(t, "hello", page(out, testbed.NodeIP4, 8080), "without an agent")
	n.Agent().WaitReady()
	require.Equal(t, was, ruleset())
	check().Must()
	rival.CNI("ADD", conf).MustCode(105)

	n.Run("nft", "delete", "table", "inet", "fairlead-hostports")
	drift := check().MustCode(106)
	require.Contains(t, drift.Msg+drift.Details, "nft table fairlead-hostports is missing")
	eventually(t, func() string {
		if e := check().Err(); e != nil {
			return e.Details
		}
		return ""
	})
	everywhere()

	web.CNI("DEL", conf).Must()
	other.CNI("DEL", ownConf).Must()
	require.Empty(t, page(out, testbed.NodeIP4, 8080))
	for _, p := range []*testbed.Pod{web, other, rival} {
		p.Delete()
	}
	n.RequireNoLeaks(before)
	require.Equal(t, "0", strings.TrimSpace(n.Run("sh", "-c", "cat /proc/sys/net/ipv4/conf/ovn-defa-*/route_localnet")))
}

// TestHostPortsOfEverySort: bound addresses, protocols, and what is refused.
func TestHostPortsOfEverySort(t *testing.T) {
	t.Parallel()
	n, out, _ := hostPortNode(t)
	second := "198.51.100.3"
	n.Run("ip", "addr", "add", second+"/24", "dev", testbed.OutsideIf)
	before := n.Inventory()
	one, two := n.NewPod("one"), n.NewPod("two")
	confs := []string{portsConf(mapping(8080, 80, `,"hostIP":"`+testbed.NodeIP4+`"`)), portsConf(mapping(8080, 81, `,"hostIP":"`+second+`"`))}
	one.CNI("ADD", confs[0]).Must()
	two.CNI("ADD", confs[1]).Must()
	serveHello(t, one)
	eventually(t, func() string {
		if page(out, testbed.NodeIP4, 8080) == "hello" {
			return ""
		}
		return "no page"
	})
	require.Empty(t, page(out, second, 8080), "the other pod has no server")
	for name, p := range map[string]string{
		"protocol": `{"portMappings":[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]}`,
		"hostPort": `{"portMappings":[{"hostPort":70000,"containerPort":1}]}`,
		"hostIP":   `{"portMappings":[{"hostPort":1,"containerPort":1,"hostIP":"eth0"}]}`,
		"is not a": `{"portMappings":"8080"}`,
		"::1":      `{"portMappings":[{"hostPort":1,"containerPort":1,"hostIP":"::1"}]}`,
	} {
		bad := n.NewPod("bad")
		e := bad.CNI("ADD", portsConf(p)).MustCode(102)
		require.Contains(t, e.Msg+e.Details, name)
		bad.Delete()
	}
	all := portsConf(`{"portMappings":[{"hostPort":53,"containerPort":53,"protocol":"UDP"},{"hostPort":53,"containerPort":53,"protocol":"tcp"},
		{"hostPort":132,"containerPort":132,"protocol":"sctp"},{"hostPort":0,"containerPort":9,"protocol":"tcp"}]}`)
	three := n.NewPod("three")
	three.CNI("ADD", all).Must()
	text := n.Run("nft", "-s", "list", "ruleset")
	for _, el := range []string{"udp . 53", "tcp . 53", "sctp . 132"} {
		require.Contains(t, text, el)
	}
	three.CNI("DEL", all).Must()
	one.CNI("DEL", confs[0]).Must()
	two.CNI("DEL", confs[1]).Must()
	for _, p := range []*testbed.Pod{one, two, three} {
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestCapabilityBandwidth: the runtime's rates go into the port's own QoS; the
// pod's annotation of ours counts more.
func TestCapabilityBandwidth(t *testing.T) {
	t.Parallel()
	n, _, _ := hostPortNode(t, podObject("default/noted", map[string]string{"ovn.kubernetes.io/ingress_rate": "30"}))
	conf := portsConf(`{"bandwidth":{"ingressRate":5000000,"ingressBurst":2000000,"egressRate":7000000,"egressBurst":1000000}}`)
	rates := func(p *testbed.Pod) (out struct{ IngressMbps, EgressMbps int }) {
		p.CNI("ADD", conf).Must()
		if q := attachment(t, n, p.Namespace+"/"+p.Name).Interfaces[0].QoS; q != nil {
			out.IngressMbps, out.EgressMbps = q.IngressMbps, q.EgressMbps
		}
		return out
	}
	plain := n.NewPod("plain")
	require.Equal(t, struct{ IngressMbps, EgressMbps int }{5, 7}, rates(plain))
	require.Equal(t, "7000", column(n, "Interface", hostIf(plain, "eth0"), "ingress_policing_rate"), "Open vSwitch's ingress is what the pod sends, in kbit/s")
	require.Equal(t, struct{ IngressMbps, EgressMbps int }{30, 0}, rates(n.NewPod("noted")))
}

// TestConnectionsOfAPodThatIsGone: no connection of its address is remembered,
// not by an agent that was killed behind the DEL either; and the same pod, which
// gets its address back at once, has a clean one.
func TestConnectionsOfAPodThatIsGone(t *testing.T) {
	t.Parallel()
	n, _, a := hostPortNode(t)
	tracked := func(addr string) string {
		out, err := n.Try("conntrack", "-L", "-s", addr)
		require.NoError(t, err)
		return out
	}
	talk := func() (*testbed.Pod, string) {
		p := n.NewPod("talker")
		addr := bare(p.CNI("ADD", ownConf).Must().IPs()[0])
		require.Empty(t, tracked(addr))
		require.NoError(t, p.Ping(testbed.WorldIP4))
		require.Contains(t, tracked(addr), addr)
		return p, addr
	}
	p, addr := talk()
	p.CNI("DEL", ownConf).Must()
	eventually(t, func() string { return tracked(addr) })

	p, addr = talk()
	p.CNI("DEL", ownConf).Must()
	p, again := talk()
	require.Equal(t, addr, again)

	p.CNI("DEL", ownConf).Must()
	a.Kill()
	n.Agent().WaitReady()
	eventually(t, func() string { return tracked(addr) })
}
