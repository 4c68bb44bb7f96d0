package e2e

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const declaredNetworks = `
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: db}
spec: {cidrBlock: 10.9.0.0/29, provider: db-vlan.bank.ovn}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: bank, name: db-vlan}
spec: {config: '{"cniVersion":"1.0.0","type":"fairlead","provider":"db-vlan.bank.ovn"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: bank, name: db-macvlan}
spec: {config: '{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge","capabilities":{"ips":true,"mac":true},"ipam":{"type":"static"}}'}
`

const declaredPods = `
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: bank, name: mysql-0}
spec:
  interfaces:
  - {name: eth0, ips: [10.16.0.50]}
  - name: net1
    network: bank/db-vlan
    ips: [10.9.0.3/29]
    mac: "02:0a:09:00:00:11"
    vlan: {id: 1200}
    bandwidth: {maxMbps: 50}
---
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: bank, name: pg}
spec:
  statefulSet: pg
  interfaces:
  - {name: net1, network: bank/db-macvlan, ipRange: 10.7.0.16-10.7.0.17/24, macBase: "02:0a:09:00:01:00"}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: db-net, labels: {net.fairlead.io/pod-network: "true"}}
data:
  mysql-1: |
    {"interface":"net1","network":"bank/db-vlan","ip":"10.9.0.4/29","gateway":"10.9.0.1","vlan":1200,"max_tx_rate":50}
  mysql-2: |
    {"interface":"net1","network":"bank/db-vlan","vlan":4095}
`

// TestDeclaredByName: what is declared of pods by their names, in PodNetworks and in a
// labelled ConfigMap, is what they get, though they ask for nothing, on a port of the
// switch as on macvlan; it is the same after they were made anew, and nobody else gets
// one of the addresses.
func TestDeclaredByName(t *testing.T) {
	t.Parallel()
	const networks = "k8s.v1.cni.cncf.io/networks"
	further := map[string]string{networks: "db-vlan"}
	n := startNode(t, map[string]string{"networks.yaml": declaredNetworks, "pods.yaml": declaredPods, "others.yaml": together(
		podObject("bank/a", further), podObject("bank/b", further), podObject("bank/c", further),
		podObject("bank/thief", map[string]string{networks: `[{"name":"db-vlan","ips":["10.9.0.4"]}]`}),
	)})
	n.Run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	t.Cleanup(func() { n.Run("ip", "link", "del", "up0") })
	problemIn(t, n, "pods.yaml", 29, "InvalidVLAN: ConfigMap bank/db-net, key mysql-2")
	before := n.Inventory()

	for range 2 { // the second time made anew
		p := n.NewPod("bank/mysql-0")
		p.CNI("ADD", ownConf).Must()
		require.Contains(t, addresses(t, p, "eth0"), "10.16.0.50/16")
		require.Equal(t, []string{"10.9.0.3/29"}, addresses(t, p, "net1"))
		require.Equal(t, "02:0a:09:00:00:11", linkOf(t, p, "net1")["address"])
		require.Equal(t, "1200", column(n, "Port", hostIf(p, "net1"), "tag"))
		require.Equal(t, "50000", column(n, "Interface", hostIf(p, "net1"), "ingress_policing_rate"))
		p.CNI("CHECK", ownConf).Must()
		p.CNI("DEL", ownConf).Must()
		p.Delete()
	}
	second := n.NewPod("bank/mysql-1")
	second.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"10.9.0.4/29"}, addresses(t, second, "net1"))
	require.Equal(t, "1200", column(n, "Port", hostIf(second, "net1"), "tag"))
	second.CNI("DEL", ownConf).Must()
	second.Delete()

	pg := n.NewPod("bank/pg-1")
	pg.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"10.7.0.17/24"}, addresses(t, pg, "net1"))
	require.Equal(t, "02:0a:09:00:01:01", linkOf(t, pg, "net1")["address"])
	pg.CNI("DEL", ownConf).Must()
	pg.Delete()

	refused := func(pod string, code uint) string {
		p := n.NewPod(pod)
		defer p.Delete()
		e := p.CNI("ADD", ownConf).MustCode(code)
		return e.Msg + e.Details
	}
	require.Contains(t, refused("bank/pg-2", 103), "OrdinalOutOfRange: PodNetwork bank/pg: interface net1: ipRange 10.7.0.16-10.7.0.17/24 has no address for replica 2")
	require.Contains(t, refused("bank/mysql-2", 102), "InvalidVLAN: ConfigMap bank/db-net, key mysql-2: vlan id 4095")
	n.RequireNoLeaks(before)

	// The Subnet has five addresses for pods, of which three are nobody's.
	require.Contains(t, refused("bank/thief", 11), "AddressHeld: address 10.9.0.4 of subnet db is kept for another pod: ConfigMap bank/db-net, key mysql-1 declares it")
	var given []string
	for _, name := range []string{"bank/a", "bank/b", "bank/c"} {
		p := n.NewPod(name)
		p.CNI("ADD", ownConf).Must()
		given = append(given, addresses(t, p, "net1")...)
	}
	slices.Sort(given)
	require.Equal(t, []string{"10.9.0.2/29", "10.9.0.5/29", "10.9.0.6/29"}, given)
}
