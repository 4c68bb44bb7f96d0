package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/testbed"
)

// underlayMTU is what the nodes' label says of provider network net1, in bytes.
const underlayMTU = 1450

// physical is a machine on the nodes' underlay that is no node: a gateway with a port on
// each of some VLANs, and a switch before it that knows tags.
type physical struct {
	*testbed.Node
	o *ovnCluster
}

// newPhysical makes the machine, and provider network net1 of the nodes: a bridge that
// has the NIC by which they are on the underlay.
func (o *ovnCluster) newPhysical() physical {
	o.t.Helper()
	m := physical{testbed.New(o.t), o}
	o.under.Join(m.Node)
	for i, n := range o.nodes {
		n.OVS.Vsctl("--timeout=20", "set", "open_vswitch", ".", "external_ids:ovn-bridge-mappings=net1:"+testbed.PhyBridge,
			fmt.Sprintf(`external_ids:ovn-chassis-mac-mappings="net1:02:00:00:00:01:%02x"`, i))
		_, err := o.c.Client().CoreV1().Nodes().Patch(o.t.Context(), n.name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"net1.provider-network.kubernetes.io/mtu":"%d"}}}`, underlayMTU), metav1.PatchOptions{})
		require.NoError(o.t, err)
	}
	o.c.Apply(object("kubeovn.io/v1", "ProviderNetwork", "net1", nil, map[string]any{"defaultInterface": "eth1"}))
	return m
}

// vlan adds a VLAN with a gateway, and a Subnet of namespace NAME on it.
func (m physical) vlan(name string, id int, spec map[string]any) {
	m.o.t.Helper()
	m.OVS.Vsctl("--timeout=20", "add-port", testbed.PhyBridge, name, fmt.Sprint("tag=", id), "--", "set", "interface", name, "type=internal")
	m.Run("ip", "link", "set", name, "up")
	spec["cidrBlock"] = fmt.Sprintf("10.%[1]d.0.0/24,fd00:10:%[1]d::/64", id)
	spec["vlan"], spec["namespaces"] = name, []string{name}
	m.o.c.Apply(together(
		object("v1", "Namespace", name, nil, nil),
		object("kubeovn.io/v1", "Vlan", name, nil, map[string]any{"id": id, "provider": "net1"}),
		subnetObject(name, spec),
	))
}

// answers gives the gateway of a VLAN addresses with these ends.
func (m physical) answers(name string, id int, end string) {
	m.o.t.Helper()
	m.Run("ip", "addr", "add", fmt.Sprintf("10.%d.0.%s/24", id, end), "dev", name)
	m.Run("ip", "addr", "add", fmt.Sprintf("fd00:10:%d::%s/64", id, end), "dev", name, "nodad")
}

// TestUnderlay: pods of two nodes are on VLANs of a provider network: they reach each other
// and the gateway there in both families, wait for it, are kept apart from another VLAN,
// and are told of another who has their address.
func TestUnderlay(t *testing.T) {
	t.Parallel()
	o := newOVNCluster(t)
	o.controller("a", "127.0.0.1:10666")
	m := o.newPhysical()
	m.vlan("v10", 10, map[string]any{})
	m.vlan("v20", 20, map[string]any{"disableGatewayCheck": true, "u2oInterconnection": true})
	one, two := o.nodes[0], o.nodes[1]

	// The first pod waits until its gateway answers.
	a := one.pod("v10/a")
	answer := make(chan testbed.Answer, 1)
	go func() { answer <- a.add() }()
	eventually(t, func() string {
		if ports := one.OVS.Vsctl("--timeout=20", "list-ports", testbed.PhyBridge); !strings.Contains(ports, "patch-localnet.v10-to-br-int") {
			return "br-int is not joined: " + ports
		}
		return ""
	})
	select {
	case got := <-answer:
		require.Fail(t, "the pod did not wait for its gateway", "%v", got)
	default:
	}
	m.answers("v10", 10, "1")
	a.added(<-answer)
	b, other := two.run("v10/b"), two.run("v20/other")

	require.Equal(t, float64(underlayMTU), linkOf(t, a.Pod, "eth0")["mtu"])
	require.Equal(t, "10", o.central.Get("Logical_Switch_Port", "localnet.v10", "tag"))
	o.has("pods", "{.metadata.name}: {.metadata.annotations.ovn\\.kubernetes\\.io/vlan_id} {.metadata.annotations.ovn\\.kubernetes\\.io/provider_network}", "a: 10 net1")
	for _, pair := range [][2]*ovnPod{{a, b}, {b, a}} {
		pair[0].reaches(pair[1])
	}
	for _, p := range []*ovnPod{a, b} {
		for _, gw := range []string{"10.10.0.1", "fd00:10:10::1"} {
			require.NoError(t, p.Ping(gw), "%s to its gateway", p.Name)
		}
	}
	// No router leads there.
	require.NotContains(t, o.central.Nbctl("lrp-list", "ovn-cluster"), "v10")

	// Another VLAN hears nothing, whatever a pod takes for its neighbour.
	other.Run("ip", "route", "add", "10.10.0.0/24", "dev", "eth0")
	m.answers("v20", 20, "1")
	require.NoError(t, other.Ping("10.20.0.1"))
	require.Error(t, other.Ping(a.ips[0]), "VLAN 20 reaches VLAN 10")

	// An interconnected Subnet is on the router beside its gateway, by which its pods leave.
	web := two.run("web/web")
	other.reaches(web)
	web.reaches(other)
	m.Run("ip", "addr", "add", "10.99.0.9/32", "dev", "lo")
	eventually(t, func() string {
		if err := other.Ping("10.99.0.9"); err != nil {
			return err.Error()
		}
		return ""
	})

	// With a logical gateway pods of a VLAN are on the cluster's router too.
	m.vlan("v30", 30, map[string]any{"logicalGateway": true})
	near, far := one.run("v30/near"), two.run("v30/far")
	for _, pair := range [][2]*ovnPod{{near, far}, {near, web}, {web, near}, {far, web}} {
		pair[0].reaches(pair[1])
	}

	m.conflicts(one)
	two.carries(one)
	for _, p := range []*ovnPod{a, b, other, near, far, web} {
		p.end()
	}
}

// carries proves that the NIC of a provider network, which other nodes lack, goes on carrying the
// VLAN of a pod whose Vlan is deleted, for as long as the pod lives.
func (n *ovnNode) carries(other *ovnNode) {
	t := n.o.t
	t.Helper()
	far := n.NewPod("far/gateway")
	n.Run("sh", "-ec", "ip link add nic2 type veth peer name wire2; ip link set wire2 up; ip link set nic2 up")
	n.OVS.AddBridge("br-far")
	n.OVS.Vsctl("--timeout=20", "add-port", "br-far", "wire2", "--", "add-port", "br-far", "far40", "tag=40", "--", "set", "interface", "far40", "type=internal")
	n.Run("ip", "link", "set", "far40", "netns", filepath.Base(far.Netns()))
	far.Run("sh", "-ec", "ip link set far40 up; ip addr add 10.40.0.1/24 dev far40; ip addr add fd00:10:40::1/64 dev far40 nodad")
	vlan := func(name string, id int) {
		n.o.c.Apply(object("kubeovn.io/v1", "Vlan", name, nil, map[string]any{"id": id, "provider": "net2"}) + "\n")
	}
	trunks := func(want string) {
		t.Helper()
		eventually(t, func() string {
			if got := strings.TrimSpace(n.OVS.Vsctl("--timeout=20", "get", "port", "nic2", "trunks")); got != want {
				return "nic2 carries " + got + ", not " + want
			}
			return ""
		})
	}
	n.o.c.Apply(object("kubeovn.io/v1", "ProviderNetwork", "net2", nil, map[string]any{"defaultInterface": "nic2", "excludeNodes": []string{other.name}}) + "\n")
	vlan("v40", 40)
	n.o.c.Apply(together(
		object("v1", "Namespace", "v40", nil, nil),
		subnetObject("v40", map[string]any{"cidrBlock": "10.40.0.0/24,fd00:10:40::/64", "vlan": "v40", "namespaces": []string{"v40"}}),
	))
	p := n.run("v40/p")
	n.o.c.Kubectl("delete", "vlan", "v40")
	vlan("later", 50) // the agent has seen that the Vlan is gone when it has seen this
	trunks("[0, 40, 50]")
	n.agent.Kill()
	n.agent = n.Agent(n.args...)
	n.agent.WaitReady()
	vlan("later", 51)
	trunks("[0, 40, 51]")
	for _, gw := range []string{"10.40.0.1", "fd00:10:40::1"} {
		require.NoError(t, p.Ping(gw))
	}
	p.end()
	trunks("[0, 51]")
}

// conflicts proves that a pod whose address another machine has too runs, and is told.
func (m physical) conflicts(n *ovnNode) {
	t := m.o.t
	t.Helper()
	far := m.NewPod("far/stranger")
	m.OVS.Vsctl("--timeout=20", "add-port", testbed.PhyBridge, "far0", "tag=10", "--", "set", "interface", "far0", "type=internal")
	m.Run("ip", "link", "set", "far0", "netns", filepath.Base(far.Netns()))
	far.Run("ip", "link", "set", "far0", "up")
	far.Run("ip", "addr", "add", "10.10.0.77/24", "dev", "far0")
	far.Run("ip", "addr", "add", "fd00:10:10::77/64", "dev", "far0", "nodad")
	m.o.c.Apply(object("v1", "Pod", "v10/double", map[string]string{"ovn.kubernetes.io/ip_address": "10.10.0.77,fd00:10:10::77"}, map[string]any{
		"nodeName": n.name, "containers": []map[string]any{{"name": "c", "image": "none"}},
	}))
	uid := m.o.c.Lines("pods", "{.metadata.name} {.metadata.uid}")
	p := &ovnPod{Pod: n.NewPod("v10/double"), n: n}
	for _, line := range uid {
		if name, id, _ := strings.Cut(line, " "); name == "double" {
			p.uid = id
		}
	}
	p.added(p.add())
	mac := fmt.Sprint(linkOf(t, far, "far0")["address"])
	for _, ip := range p.ips {
		want := fmt.Sprintf("%s of eth0 is also that of MAC %s, which is reached by port %s of bridge %s", ip, mac, testbed.NIC, testbed.PhyBridge)
		eventually(t, func() string {
			events, err := m.o.c.Client().EventsV1().Events("v10").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			for _, e := range events.Items {
				if e.Reason == "AddressConflict" && e.Regarding.Name == "double" && strings.HasPrefix(e.Note, want) {
					return ""
				}
			}
			return "no event says " + want
		})
	}
	m.o.has("pods", `{.metadata.name}: {.status.conditions[?(@.type=="fairlead.io/AddressConflict")].status}`, "double: True")
	p.end()
}
