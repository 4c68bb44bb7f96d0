package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/testbed"
)

// documented are the objects of docs/fixed-addresses.md that a folder has.
func documented(t *testing.T) string {
	t.Helper()
	blocks := documentedBlocks(t)
	return blocks[0] + "\n---\n" + blocks[1] + "\n"
}

// documentedBlocks are all its examples: the last is an IPAMClaim with a pod.
func documentedBlocks(t *testing.T) (out []string) {
	t.Helper()
	root, err := testbed.Repository()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/fixed-addresses.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		out = append(out, b[1])
	}
	return out
}

const badConfigMap = `apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: bad, labels: {net.fairlead.io/pod-network: "true"}}
data:
  mysql-2: |
    {"interface":"net1","network":"bank/db-vlan","vlan":4095}
`

// twins are declared to have what pg-1 has: one its address, one its MAC.
const twins = `apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: bank, name: twin}
spec: {interfaces: [{name: net1, network: bank/db-macvlan, ips: [10.7.0.17/24]}]}
---
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: bank, name: double}
spec: {interfaces: [{name: net1, network: bank/db-macvlan, ips: [10.7.0.99/24], mac: "02:0a:09:00:01:01"}]}
`

// TestDeclaredByName: what is declared of pods by their names, in PodNetworks and in a
// labelled ConfigMap, is what they get, though they ask for nothing, on a port of the
// switch as on macvlan; it is the same after they were made anew, and nobody else gets
// one of the addresses.
func TestDeclaredByName(t *testing.T) {
	t.Parallel()
	const networks = "k8s.v1.cni.cncf.io/networks"
	further := map[string]string{networks: "db-vlan"}
	n := testbed.New(t)
	n.WriteObjects("documented.yaml", documented(t))
	n.WriteObjects("bad.yaml", badConfigMap)
	n.WriteObjects("twins.yaml", twins)
	n.WriteObjects("others.yaml", together(
		podObject("bank/a", further), podObject("bank/b", further), podObject("bank/c", further),
		podObject("bank/thief", map[string]string{networks: `[{"name":"db-vlan","ips":["10.9.0.4"]}]`}),
	))
	a := n.Agent("--pod-metrics")
	a.WaitReady()
	n.Run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	t.Cleanup(func() { n.Run("ip", "link", "del", "up0") })
	problemIn(t, n, "bad.yaml", 5, "InvalidVLAN: ConfigMap bank/bad, key mysql-2")
	before := n.Inventory()
	explained(t, n)

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
	a = declaredAnew(t, a, n, second)
	second.CNI("DEL", ownConf).Must()
	second.Delete()

	pg := n.NewPod("bank/pg-1")
	pg.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"10.7.0.17/24"}, addresses(t, pg, "net1"))
	require.Equal(t, "02:0a:09:00:01:01", linkOf(t, pg, "net1")["address"])
	require.Contains(t, n.Fairlead("get", "podnetworks", "bank/pg"), "pg-1")
	require.Contains(t, n.Fairlead("describe", "podnetwork", "bank/pg"), "Applied")
	_, metrics, err := a.Get("/metrics")
	require.NoError(t, err)
	for _, of := range []string{`address="10.16.0.`, `address="10.7.0.17",direction="transmit",interface="net1",namespace="bank",pod="pg-1"`} {
		require.Contains(t, metrics, `fairlead_pod_network_packets_total{`+of)
	}

	refused := func(pod string, code uint) string {
		p := n.NewPod(pod)
		defer p.Delete()
		e := p.CNI("ADD", ownConf).MustCode(code)
		return e.Msg + e.Details
	}
	require.Contains(t, refused("bank/twin", 11), "AddressHeld: address 10.7.0.17 in bank.db-macvlan is held by pod bank/pg-1")
	require.Contains(t, refused("bank/double", 103), "MACInUse: MAC 02:0a:09:00:01:01 in bank.db-macvlan is held by pod bank/pg-1")
	pg.CNI("DEL", ownConf).Must()
	pg.Delete()
	_, metrics, err = a.Get("/metrics")
	require.NoError(t, err)
	require.NotContains(t, metrics, `pod="pg-1"`)
	twin := n.NewPod("bank/twin")
	twin.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"10.7.0.17/24"}, addresses(t, twin, "net1"))
	twin.CNI("DEL", ownConf).Must()
	twin.Delete()

	require.Contains(t, refused("bank/pg-2", 103), "OrdinalOutOfRange: PodNetwork bank/pg: interface net1: ipRange 10.7.0.16-10.7.0.17/24 has no address for replica 2")
	require.Contains(t, refused("bank/mysql-2", 102), "InvalidVLAN: ConfigMap bank/bad, key mysql-2: vlan id 4095")
	_, metrics, err = a.Get("/metrics")
	require.NoError(t, err)
	require.Contains(t, metrics, `fairlead_refused_adds_total{reason="OrdinalOutOfRange"} 1`)
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

// explained: what counts of pods that are not there yet, and what refuses them.
func explained(t *testing.T, n *testbed.Node) {
	t.Helper()
	of := func(pod string) (s agent.PodSettings) {
		out, err := n.TryFairlead("explain", "pod", pod, "-o", "json")
		require.NoError(t, json.Unmarshal([]byte(out), &s), out)
		require.Equal(t, s.Refusal != nil, err != nil)
		return s
	}
	pg := of("bank/pg-1")
	require.Equal(t, agent.InterfaceSettings{Name: "net1", Network: "bank/db-macvlan", Fields: []agent.FieldSetting{
		{Field: "network", Value: "bank/db-macvlan", Source: "PodNetwork bank/pg"}, {Field: "ips", Value: "[10.7.0.17/24]", Source: "PodNetwork bank/pg"},
		{Field: "mac", Value: "02:0a:09:00:01:01", Source: "PodNetwork bank/pg"},
	}}, pg.Interfaces[0])
	require.Nil(t, pg.Refusal)
	require.Equal(t, core.ReasonOrdinalOutOfRange, of("bank/pg-2").Refusal.Reason)
	require.Equal(t, core.ReasonInvalidVLAN, of("bank/mysql-2").Refusal.Reason)
}

// declaredAnew: a running pod gets the VLAN and the rate that are declared of it now, also
// when the agent is killed in between and after it has been started anew; what only a new
// pod can have, and what the switch cannot do, is told and changes nothing.
func declaredAnew(t *testing.T, a *testbed.Agent, n *testbed.Node, p *testbed.Pod) *testbed.Agent {
	t.Helper()
	former := documented(t)
	const was = `"ip":"10.9.0.4/29","gateway":"10.9.0.1","vlan":1200,"max_tx_rate":50}`
	declare := func(now string) { n.WriteObjects("documented.yaml", strings.Replace(former, was, now, 1)) }
	host := hostIf(p, "net1")
	becomes := func(want string) {
		t.Helper()
		eventually(t, func() string {
			if got := column(n, "Port", host, "tag") + " " + column(n, "Interface", host, "ingress_policing_rate"); got != want {
				return got + ", not " + want
			}
			return ""
		})
		p.CNI("CHECK", ownConf).Must()
	}
	told := func(reason string) {
		t.Helper()
		eventually(t, func() string {
			if out := n.Fairlead("describe", "pod", "bank/mysql-1"); !strings.Contains(out, reason) {
				return reason + " is not in " + out
			}
			return ""
		})
	}
	a.Kill()
	a = n.Agent("--pod-metrics")
	becomes("1200 50000") // what is declared stays, over a restart too
	n.Crash("tune.recorded")
	declare(`"ip":"10.9.0.4/29","gateway":"10.9.0.1","vlan":1300,"max_tx_rate":60}`)
	require.Error(t, a.Wait())
	require.True(t, a.Killed())
	a = n.Agent("--pod-metrics")
	a.WaitReady()
	becomes("1300 60000")
	declare(`"ip":"10.9.0.4/29","gateway":"10.9.0.1","vlan":1300,"max_tx_rate":70,"trust":"on"}`)
	told("DriverCannot")
	becomes("1300 60000")
	declare(`"ip":"10.9.0.5/29","vlan":1400,"mac":"02:0a:09:00:00:77"}`)
	becomes("1400 0")
	told("RestartNeeded: gateway, ips, mac of interface net1: ConfigMap bank/db-net, key mysql-1 declares another value now")
	declare(`"ip":"10.9.0.4/29"}`)
	becomes("[] 0")
	declare(was)
	becomes("1200 50000")
	return a
}
