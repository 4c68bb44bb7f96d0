//go:build vm

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// TestKernelDeclaredOnEveryNetwork is TestDeclaredOnEveryNetwork on the kinds of networks
// that this kernel has beside.
func TestKernelDeclaredOnEveryNetwork(t *testing.T) {
	t.Parallel()
	declaredOnNode(t, []declaredOn{
		{"ipvlan", nadObject("ipvlan/db", `{"cniVersion":"1.0.0","type":"ipvlan","master":"up0",`+rangeOf+`}`)},
		{"vlan", nadObject("vlan/db", `{"cniVersion":"1.0.0","type":"vlan","master":"up0","vlanId":7,`+rangeOf+`}`)},
	})
}

// TestKernelDeclaredOnAVF is TestDeclaredOnEveryNetwork on a virtual function, whose card is
// in the VM's first namespace.
func TestKernelDeclaredOnAVF(t *testing.T) {
	var vf declaredOn
	c := cardWith(t, func(pci []string) string {
		vf = declaredOn{"bank", nadObject("bank/db", `{"cniVersion":"1.0.0","type":"sriov","deviceID":"`+pci[0]+`",`+rangeOf+`}`)}
		return vf.all()
	})
	before := c.state(0)
	var made []string
	vf.tryAll(t, func(pod string) (addrs []string, code uint, text string) {
		name := strings.TrimPrefix(pod, "bank/")
		if !slices.Contains(made, name) {
			made = append(made, name)
			c.pod(name)
		}
		out, err := c.cni("ADD", name)
		if err == nil {
			c.must("CHECK", name)
			addrs = strings.Fields(c.run("ip", "-n", name, "-br", "-4", "addr", "show", "dev", "net1"))[2:]
		} else {
			e := cni.Error{}
			require.NoError(t, json.Unmarshal([]byte(out), &e), out)
			code, text = e.Code, e.Msg+e.Details
		}
		c.must("DEL", name)
		require.Equal(t, before, c.state(0))
		return addrs, code, text
	})
}

const seedByName = `
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: default, name: ipvlanpod22}
spec: {interfaces: [{name: net1, ips: [192.168.133.77]}]}
`

// TestKernelSeedByPodNetwork is the seed's pod with its ipvlan, both as they stand: a
// PodNetwork gives it an address, in the place of the network's range. It is the same after
// the pod was made anew, and on another node; others have addresses of the range.
func TestKernelSeedByPodNetwork(t *testing.T) {
	t.Parallel()
	conf := strings.TrimSpace(seed(t, "00-multus.conf"))
	for range 2 { // nodes
		n := testbed.New(t)
		realBond(n, "192.168.133.1/24")
		n.WriteObjects("nad.yaml", seed(t, "nad-ipvlan-net2.yaml"))
		n.WriteObjects("pod.yaml", seed(t, "pod-ipvlanpod22.yaml"))
		n.WriteObjects("declared.yaml", seedByName)
		n.WriteObjects("second.yaml", podObject("default/second", map[string]string{networksKey: "ipvlan-net2"}))
		n.Agent().WaitReady()
		second := n.NewPod("second")
		second.CNI("ADD", conf).Must()
		require.Equal(t, []string{"192.168.133.190/24"}, addresses(t, second, "net1"))
		for range 2 {
			p := n.NewPod("ipvlanpod22")
			p.CNI("ADD", conf).Must()
			require.Equal(t, []string{"192.168.133.77/24"}, addresses(t, p, "net1"))
			require.Equal(t, "ipvlan", kind(linkOf(t, p, "net1")))
			require.Contains(t, p.Run("ip", "rule", "show"), "from 192.168.133.77 lookup 100")
			reaches(t, bound{p, "192.168.133.77"}, "192.168.133.190", "192.168.133.1")
			p.CNI("DEL", conf).Must()
			p.Delete()
		}
	}
}

const taggedPods = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: db-net, labels: {net.fairlead.io/pod-network: "true"}}
data:
  a: '{"interface":"net1","network":"bank/db","ip":"10.9.0.3/29","vlan":1200}'
  b: '{"interface":"net1","network":"bank/db","ip":"10.9.0.4/29","vlan":1200}'
`

// TestKernelVLANOfAMasterSurvives: a declared VLAN stands on a link of the master that is
// there as long as a pod needs it, wherever the agent was killed.
func TestKernelVLANOfAMasterSurvives(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("declared.yaml", taggedPods)
	n.WriteObjects("nad.yaml", nadObject("bank/db", `{"cniVersion":"1.0.0","type":"macvlan","master":"up0"}`))
	agent := n.Agent()
	agent.WaitReady()
	n.Run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	n.Run("ip", "link", "set", "up0", "up")
	n.Run("ip", "link", "set", "up1", "up")
	a, b := n.NewPod("bank/a"), n.NewPod("bank/b")
	before := n.Inventory()
	for _, k := range []kill{
		{"ADD", "vlanparent.marked"}, {"ADD", "vlanparent.made"}, {"ADD", "vlanparent.taken"}, {"ADD", "macvlan.configured"},
		{"DEL", "macvlan.unlinked"}, {"DEL", "vlanparent.removed"},
	} {
		agent = killedAt(t, agent, n, a, k)
		b.CNI("ADD", ownConf).Must()
		a.CNI("DEL", ownConf).Must()
		require.Contains(t, n.Run("ip", "-d", "link", "show", "up0.1200"), "id 1200", "b needs it")
		b.CNI("DEL", ownConf).Must()
		n.RequireNoLeaks(before)
	}
}

// TestKernelHostDevice: a virtual function's network device is the pod's own, by its PCI
// address, and comes back as it was: whatever the pod has made of it, and also when the
// pod's namespace went first and the kernel brought it back under another name.
func TestKernelHostDevice(t *testing.T) {
	c := cardWith(t, func(pci []string) string {
		return nadObject("bank/db", `{"cniVersion":"1.0.0","type":"host-device","pciBusID":"`+pci[0]+`"}`) + `
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: db-net, labels: {net.fairlead.io/pod-network: "true"}}
data: {own: '{"interface":"net1","network":"bank/db","ip":"10.9.0.3/29","mac":"02:0a:09:00:00:11"}'}
`
	})
	before := c.state(0)
	spoil := func() {
		c.run("ip", "-n", "own", "link", "set", "net1", "down")
		c.run("ip", "-n", "own", "link", "set", "net1", "address", "02:0a:09:00:00:66", "mtu", "1300", "alias", "mine")
	}
	for _, gone := range []bool{false, true} {
		c.pod("own")
		c.must("ADD", "own")
		require.Contains(t, c.run("ip", "-n", "own", "-o", "addr", "show", "dev", "net1"), "10.9.0.3/29")
		require.Contains(t, c.run("ip", "-n", "own", "link", "show", "dev", "net1"), "02:0a:09:00:00:11")
		c.must("CHECK", "own")
		spoil()
		if gone {
			c.run("ip", "netns", "del", "own")
		}
		c.must("DEL", "own")
		require.Equal(t, before, c.state(0))
		require.Contains(t, c.run("ip", "-o", "link", "show"), " mtu 1500 ")
		if !gone {
			c.run("ip", "netns", "del", "own")
		}
	}
}
