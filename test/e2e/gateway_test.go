package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// gatewayObjects: a dual-stack default subnet that translates addresses, one in
// a VLAN that does not, and pods that ask for the latter.
func gatewayObjects() map[string]string {
	tagged := map[string]string{"ovn.kubernetes.io/logical_switch": "tagged"}
	return map[string]string{
		"default.yaml": subnetObject("ovn-default", map[string]any{
			"default": true, "protocol": "Dual", "natOutgoing": true, "cidrBlock": "10.16.0.0/16,fd00:10:16::/112",
		}),
		"tagged.yaml": together(
			object("kubeovn.io/v1", "Vlan", "vlan100", nil, map[string]any{"id": 100}),
			subnetObject("tagged", map[string]any{
				"protocol": "Dual", "cidrBlock": "10.100.0.0/24,fd00:10:100::/112", "vlan": "vlan100",
			}),
			podObject("default/t1", tagged), podObject("default/t2", tagged),
		),
	}
}

// attached is a pod with eth0 and its addresses without lengths, IPv4 first.
func attached(n *testbed.Node, name string) (p *testbed.Pod, addrs []string) {
	p = n.NewPod(name)
	for _, ip := range p.CNI("ADD", ownConf).Must().IPs() {
		addrs = append(addrs, bare(ip))
	}
	return p, addrs
}

// pinger is who can ask for an answer.
type asker interface{ Ping(addr string) error }

// nodeAsker pings from the node itself.
type nodeAsker struct{ *testbed.Node }

func (n nodeAsker) Ping(addr string) error {
	_, err := n.Try("ping", "-n", "-c", "1", "-w", "3", addr)
	return err
}

func reaches(t *testing.T, from asker, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		eventually(t, func() string {
			if err := from.Ping(addr); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

func cutOff(t *testing.T, from asker, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		require.Error(t, from.Ping(addr), addr)
	}
}

// TestGateway: host and pods see each other, pods reach the world where their
// subnet translates addresses and only there, in both families; a restart of
// the agent changes nothing of it.
func TestGateway(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	world := n.Outside()
	for name, yaml := range gatewayObjects() {
		n.WriteObjects(name, yaml)
	}
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	p, pa := attached(n, "p")
	q, qa := attached(n, "t1")

	reaches(t, p, "10.16.0.1", "fd00:10:16::1")
	reaches(t, q, "10.100.0.1", "fd00:10:100::1")
	reaches(t, nodeAsker{n}, append(pa, qa...)...)
	reaches(t, p, testbed.NodeIP4, testbed.NodeIP6)
	reaches(t, q, testbed.NodeIP4, testbed.NodeIP6)
	reaches(t, p, qa...) // by way of the node
	reaches(t, p, testbed.WorldIP4, testbed.WorldIP6)
	cutOff(t, q, testbed.WorldIP4, testbed.WorldIP6) // no way back to a pod's own address
	cutOff(t, world, pa...)

	// The operator is told so.
	require.Contains(t, n.Fairlead("explain", "p"), "natOutgoing is on: the world sees "+testbed.NodeIP4+"\n")
	require.Contains(t, n.Fairlead("explain", "t1"), "natOutgoing is off: the world sees "+qa[0]+",")
	said := n.Fairlead("describe", "node")
	require.Contains(t, said, "fairlead         ovn40subnets-nat networks with natOutgoing; Subnets ovn-default; 10.16.0.0/16\n")
	require.Contains(t, said, "fairlead         IPv6 nat OVN-POSTROUTING, from POSTROUTING\n")
	require.Contains(t, said, "In the way (0)\n")

	ruleset, ports := n.Run("nft", "-s", "list", "ruleset"), n.OVS.Vsctl("list-ports", "br-int")
	require.Contains(t, ruleset, "masquerade")
	flow := p.StartPing(testbed.WorldIP4, 20e6)
	a.Kill()
	a = n.Agent()
	a.WaitReady()
	reaches(t, q, "10.100.0.1")
	flow.Answers(5)
	_, lost := flow.Stop()
	require.Zero(t, lost, "a restart of the agent loses nothing")
	require.Equal(t, ruleset, n.Run("nft", "-s", "list", "ruleset"))
	require.Equal(t, ports, n.OVS.Vsctl("list-ports", "br-int"))
	a.Stop()
	reaches(t, p, testbed.WorldIP4, "10.16.0.1")
	require.Equal(t, ruleset, n.Run("nft", "-s", "list", "ruleset"), "a stop disturbs no pod")
}

// TestGatewayAnswersAlone: what asks for a gateway's address hears that gateway,
// not the kernel on the pod's own port nor the gateway of another subnet. Else a
// pod's traffic would leave the switch out, with its VLAN, rates and mirror.
func TestGatewayAnswersAlone(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"nets.yaml": together(
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
		subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/16"}))})
	awaitGateways(t, n)
	p, _ := attached(n, "p")
	device := strings.Fields(n.Run("ip", "-o", "addr", "show", "to", "10.16.0.1"))[1]
	mac := strings.Fields(n.Run("ip", "-br", "link", "show", "dev", device))[2]
	out := p.Run("arping", "-c", "3", "-I", "eth0", "10.16.0.1")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "reply") {
			require.Contains(t, line, strings.ToUpper(mac), "who answers instead of %s", device)
		}
	}
	require.Contains(t, out, strings.ToUpper(mac))
}

// notPastTheSwitch: a pod that addresses its port's end on the host by itself is
// answered by nobody; by its gateway it is.
func notPastTheSwitch(t *testing.T, n *testbed.Node, p *testbed.Pod, addrs ...string) {
	t.Helper()
	mac := strings.Fields(n.Run("ip", "-br", "link", "show", "dev", hostIf(p, "eth0")))[2]
	for _, addr := range addrs {
		hop := "192.0.2.1"
		if strings.Contains(addr, ":") {
			hop = "2001:db8:99::1"
		}
		p.Run("ip", "neigh", "replace", hop, "lladdr", mac, "dev", "eth0", "nud", "permanent")
		p.Run("ip", "route", "replace", addr, "via", hop, "dev", "eth0", "onlink")
	}
	out := p.Run(append([]string{"sh", "-c", `for a; do (ping -n -c 2 -w 3 "$a" && echo "answered: $a") & done; wait`, "sh"}, addrs...)...)
	require.NotContains(t, out, "answered")
	for _, addr := range addrs {
		p.Run("ip", "route", "del", addr)
	}
	reaches(t, p, addrs...)
}

// TestNoWayPastTheSwitch: what a pod sends is the switch's alone, also after
// somebody flushed the rule set and after the agent's end.
func TestNoWayPastTheSwitch(t *testing.T) {
	t.Parallel()
	n, out, a := hostPortNode(t)
	before := n.Inventory()
	p := n.NewPod("p")
	conf := portsConf(mapping(8080, 80))
	p.CNI("ADD", conf).Must()
	serveHello(t, p)
	served := func() {
		t.Helper()
		eventually(t, func() string { return lacks(page(out, testbed.NodeIP4, 8080), "hello") })
	}
	served()
	notPastTheSwitch(t, n, p, testbed.NodeIP4, testbed.NodeIP6, testbed.WorldIP4)

	ruleset := n.Run("nft", "-s", "list", "ruleset")
	for _, harm := range []string{"flush ruleset", "delete table inet fairlead-guard", "delete table inet fairlead"} {
		n.Run("nft", harm)
		eventually(t, func() string { // the order of tables follows from who was repaired first
			return lacks(sortedLines(n.Run("nft", "-s", "list", "ruleset")), sortedLines(ruleset))
		})
	}
	served()
	a.Stop()
	require.Equal(t, sortedLines(ruleset), sortedLines(n.Run("nft", "-s", "list", "ruleset")))
	notPastTheSwitch(t, n, p, testbed.NodeIP4, testbed.NodeIP6, testbed.WorldIP4)

	n.Agent().WaitReady()
	p.CNI("DEL", conf).Must()
	p.Delete()
	n.RequireNoLeaks(before)
}

func sortedLines(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

// TestGatewayFollowsTheFolder adds, changes and removes subnets while the agent
// runs.
func TestGatewayFollowsTheFolder(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.Outside()
	n.Agent().WaitReady()
	awaitGateways(t, n)
	before := n.Inventory()
	p, _ := attached(n, "p") // of the built-in subnet
	reaches(t, p, "10.16.0.1", testbed.WorldIP4)

	write := func(extra map[string]any) {
		spec := map[string]any{"cidrBlock": "10.77.0.0/24", "namespaces": []string{"team"}}
		for k, v := range extra {
			spec[k] = v
		}
		n.WriteObjects("team.yaml", together(subnetObject("team", spec), object("kubeovn.io/v1", "Vlan", "v7", nil, map[string]any{"id": 7})))
	}
	write(nil)
	eventually(t, func() string { return lacks(n.Fairlead("get", "subnets"), "team") })
	awaitGateways(t, n)
	q, qa := attached(n, "team/q")
	require.True(t, strings.HasPrefix(qa[0], "10.77.0."), qa)
	reaches(t, q, "10.77.0.1")
	reaches(t, nodeAsker{n}, qa...)
	cutOff(t, q, testbed.WorldIP4)

	write(map[string]any{"natOutgoing": true})
	reaches(t, q, testbed.WorldIP4)
	write(map[string]any{"natOutgoing": true, "gateway": "10.77.0.254"})
	reaches(t, q, "10.77.0.254")
	eventually(t, func() string { return holds(n.Run("ip", "addr"), "10.77.0.1/24") })
	write(map[string]any{"gateway": "10.77.0.254"})
	eventually(t, func() string {
		return holds(n.Run("nft", "list", "set", "inet", "fairlead", "ovn40subnets-nat"), "10.77.0.0/24")
	})

	q.CNI("DEL", ownConf).Must()
	write(map[string]any{"gateway": "10.77.0.254", "vlan": "v7"})
	eventually(t, func() string {
		return lacks(n.OVS.Vsctl("--columns=name,tag", "find", "Port", "tag=7"), "team")
	})
	r, _ := attached(n, "team/r")
	reaches(t, r, "10.77.0.254")
	require.Equal(t, "7", column(n, "Port", hostIf(r, "eth0"), "tag"))
	r.CNI("DEL", ownConf).Must()

	n.Run("rm", n.Objects()+"/team.yaml")
	eventually(t, func() string { return holds(n.OVS.Vsctl("list-ports", "br-int"), "team") })
	reaches(t, p, "10.16.0.1", testbed.WorldIP4)
	p.CNI("DEL", ownConf).Must()
	q.Delete()
	r.Delete()
	p.Delete()
	n.RequireNoLeaks(before)
}

// TestVLANsAreSeparate: pods of one VLAN hear each other; pods of another, even
// with an address of the first's network, hear nothing on layer 2.
func TestVLANsAreSeparate(t *testing.T) {
	t.Parallel()
	n := startNode(t, gatewayObjects())
	p, pa := attached(n, "p")
	t1, _ := attached(n, "t1")
	t2, ta := attached(n, "t2")
	reaches(t, t1, ta...)
	// The intruder takes an address of the VLAN's network for itself.
	p.Run("ip", "addr", "add", "10.100.0.200/24", "dev", "eth0")
	p.Run("ip", "-6", "addr", "add", "fd00:10:100::200/112", "dev", "eth0", "nodad")
	_, err := p.Try("ping", "-n", "-c", "2", "-w", "2", "-I", "eth0", "-r", ta[0])
	require.Error(t, err)
	neigh := p.Run("ip", "neigh", "show", ta[0])
	require.NotContains(t, neigh, "lladdr", "no ARP answer crosses")
	cutOff(t, t2, "10.100.0.200", "fd00:10:100::200")
	reaches(t, nodeAsker{n}, pa...)
}

func lacks(text, want string) string {
	if strings.Contains(text, want) {
		return ""
	}
	return "no " + want + " in: " + text
}

func holds(text, unwanted string) string {
	if !strings.Contains(text, unwanted) {
		return ""
	}
	return "still " + unwanted + " in: " + text
}

// TestBuiltinSubnetThatNobodyUses: behind a default network that is somebody
// else's the built-in Subnet has neither gateway nor masquerade, until a pod has
// an address of it, and again when the last one has gone.
func TestBuiltinSubnetThatNobodyUses(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.Outside()
	n.Run("sh", "-c", "cat > /etc/cni/net.d/10-other.conflist << 'END'\n"+otherConf+"\nEND")
	n.Agent("--cni-conf=auto", "--cni-master=auto").WaitReady()
	served := func() []bool { // table, gateway
		return []bool{
			strings.Contains(n.Run("nft", "list", "tables")+"\n", "table inet fairlead\n"),
			strings.Contains(n.Run("ip", "-o", "addr", "show", "up"), " 10.16.0.1/16 "),
		}
	}
	eventually(t, func() string {
		out, err := n.TryFairlead("status")
		if err != nil {
			return err.Error()
		}
		return lacks(out, "✓ gateways")
	})
	require.Equal(t, []bool{false, false}, served())
	before := n.Inventory()
	p := n.NewPod("p")
	ip := p.CNI("ADD", ownConf).Must().IPs()
	require.True(t, strings.HasPrefix(bare(ip[0]), "10.16."), ip)
	reaches(t, p, testbed.WorldIP4)
	require.Equal(t, []bool{true, true}, served())
	p.CNI("DEL", ownConf).Must()
	p.Delete()
	eventually(t, func() string {
		if strings.Contains(n.Run("nft", "list", "tables")+"\n", "table inet fairlead\n") {
			return "still masquerades"
		}
		return ""
	})
	n.RequireNoLeaks(before)
}

// TestSlowNft: a node whose nft takes longer than Open vSwitch may has its gateways
// and its tables, though late.
func TestSlowNft(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	nft, err := exec.LookPath("nft")
	require.NoError(t, err)
	n.Run("cp", nft, filepath.Join(n.Dir, "nft"))
	n.Run("mkfifo", filepath.Join(n.Dir, "never"))
	slow := filepath.Join(n.Dir, "slow")
	require.NoError(t, os.WriteFile(slow, []byte("#!/bin/bash\n"+ // without a child, which would outlive it
		"read -rt 5.2 <>"+filepath.Join(n.Dir, "never")+"\nexec "+filepath.Join(n.Dir, "nft")+` "$@"`), 0o700)) //nolint:gosec // a program
	n.Run("mount", "--bind", slow, nft)
	for name, yaml := range gatewayObjects() {
		n.WriteObjects(name, yaml)
	}
	a := n.Agent()
	awaitGateways(t, n)
	eventually(t, func() string {
		if rules := n.Run(filepath.Join(n.Dir, "nft"), "list", "ruleset"); !strings.Contains(rules, "masquerade") {
			return rules
		}
		return ""
	})
	a.Stop()
	eventually(t, func() string { // what it asked last goes on by itself
		if err := n.Cmd(t.Context(), "umount", nft).Run(); err != nil {
			return err.Error()
		}
		return ""
	})
}
