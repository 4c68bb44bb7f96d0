package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// lan is a Subnet that lends its addresses to other plugins: its provider has
// no suffix "ovn", so that its gateway is not ours.
func lan() string {
	return subnetObject("lan", map[string]any{
		"cidrBlock": "10.62.0.0/24,fd00:62::/112", "gateway": "10.62.0.254,fd00:62::fe", "provider": "lan.default",
	})
}

// lanConf is a network of macvlan's with our addresses.
const lanConf = `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","master":"bond0",
	"ipam":{"type":"fairlead","provider":"lan.default","routes":[{"dst":"10.99.0.0/16"}]}}`

// lentNode is a node with the Subnet lan, the network lan and more objects.
func lentNode(t *testing.T, objects ...string) *testbed.Node {
	t.Helper()
	n := testbed.New(t)
	bond(n)
	n.WriteObjects("objects.yaml", together(append(objects, lan(), nadObject("lan", lanConf))...))
	n.Agent().WaitReady()
	return n
}

// heldBy lists the addresses of one interface of a pod, as the operator sees
// them.
func heldBy(t *testing.T, n *testbed.Node, p *testbed.Pod, ifName string) []string {
	t.Helper()
	var list agent.IPList
	require.NoError(t, json.Unmarshal([]byte(n.Fairlead("get", "ips", "-A", "-o", "json")), &list))
	var out []string
	for _, ip := range list.Items {
		if ip.Container == p.ContainerID && ip.IfName == ifName {
			out = append(out, ip.Address.String())
		}
	}
	return out
}

// TestDelegateWithOurAddresses: macvlan and bridge as a pod's networks get their
// addresses from us by provider, annotation and element; CHECK asks us too, DEL
// frees everything, and the record has it all in between.
func TestDelegateWithOurAddresses(t *testing.T) {
	t.Parallel()
	bridged := `{"cniVersion":"0.3.1","name":"bridged","type":"bridge","bridge":"br1","isGateway":true,
		"ipam":{"type":"kube-ovn","server_socket":"/nowhere","provider":"lan.default"}}`
	n := lentNode(t, nadObject("bridged", bridged),
		podObject("p", map[string]string{
			networksKey: `[{"name":"lan"},{"name":"lan","ips":["10.62.0.77"]},{"name":"bridged","interface":"br"}]`,
			"lan.default.net1.kubernetes.io/ip_address":  "10.62.0.9",
			"lan.default.net1.kubernetes.io/mac_address": "02:00:00:00:00:09",
		}))
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must() // br1 stays for good
	p.CNI("DEL", ownConf).Must()
	before := n.Inventory()

	added := p.CNI("ADD", ownConf).Must()
	require.Equal(t, "10.62.0.9/24", addresses(t, p, "net1")[0])
	require.Equal(t, "10.62.0.77/24", addresses(t, p, "net2")[0])
	require.Len(t, addresses(t, p, "net2"), 2, "both families")
	require.Contains(t, p.Run("ip", "route", "show", "10.99.0.0/16"), "via 10.62.0.254 dev net1")
	require.Equal(t, []string{"default via 10.16.0.1 dev eth0"}, trimProto(defaultRoutes(p, "-4")))
	require.Contains(t, n.Run("ip", "addr", "show", "br1"), "10.62.0.254/24", "the bridge learns the gateway")
	for _, ifName := range []string{"net1", "net2", "br"} {
		var have []string
		for _, a := range addresses(t, p, ifName) {
			have = append(have, bare(a))
		}
		require.ElementsMatch(t, have, heldBy(t, n, p, ifName), ifName)
	}
	p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
	p.CNI("ADD", ownConf).MustCode(105)
	p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()

	p.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	require.NotContains(t, n.Fairlead("get", "ips", "-A"), p.ContainerID[:12])
	n.RequireNoLeaks(before)
}

// TestRefusedAddressesTouchNothing: what we cannot give is refused before any
// plugin runs; what another pod holds is told with our own code, and undone.
func TestRefusedAddressesTouchNothing(t *testing.T) {
	t.Parallel()
	fixed := map[string]string{networksKey: `[{"name":"lan","ips":["10.62.0.9"]}]`}
	n := lentNode(t, podObject("holder", fixed), podObject("second", fixed),
		podObject("outside", map[string]string{networksKey: `[{"name":"lan","ips":["10.63.0.9"]}]`}))
	holder, second, outside := n.NewPod("holder"), n.NewPod("second"), n.NewPod("outside")
	holder.CNI("ADD", ownConf).Must()
	before := n.Inventory()
	require.Contains(t, outside.CNI("ADD", ownConf).MustCode(103).Msg, "lan")
	e := second.CNI("ADD", ownConf).MustCode(103)
	require.Contains(t, e.Msg+e.Details, "default/holder")
	requireBare(t, second)
	n.RequireNoLeaks(before)
	holder.CNI("DEL", ownConf).Must()
	second.CNI("ADD", ownConf).Must()
	require.Equal(t, "10.62.0.9/24", addresses(t, second, "net1")[0])
}

// TestManyPodsWithOurAddresses: the calls of delegates wait for no place that
// the ADDs hold which run them, and no address is given twice.
func TestManyPodsWithOurAddresses(t *testing.T) {
	t.Parallel()
	const pods = 24
	objects := []string{}
	for i := range pods {
		objects = append(objects, podObject(fmt.Sprintf("p%d", i), map[string]string{networksKey: "lan,lan"}))
	}
	n := lentNode(t, objects...)
	all := make([]*testbed.Pod, pods)
	for i := range all {
		all[i] = n.NewPod(fmt.Sprintf("p%d", i))
	}
	before := n.Inventory()
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() { p.CNI("ADD", ownConf).Must() })
	}
	wg.Wait()
	seen := map[string]string{}
	for _, p := range all {
		for _, ifName := range []string{"net1", "net2"} {
			for _, a := range addresses(t, p, ifName) {
				require.Empty(t, seen[a], "%s of %s", a, p.Name)
				seen[a] = p.Name
			}
		}
	}
	require.Len(t, seen, 4*pods)
	for _, p := range all {
		wg.Go(func() { p.CNI("DEL", ownConf).Must() })
	}
	wg.Wait()
	n.RequireNoLeaks(before)
}

// lentBridge is a network that the runtime runs itself.
const lentBridge = `{"cniVersion":"1.1.0","name":"direct","type":"bridge","bridge":"br1","isGateway":true,"isDefaultGateway":true,
	"ipam":{"type":"kube-ovn","provider":"lan.default"}}`

// TestAddressesForTheRuntimesPlugin: a runtime runs bridge, and bridge asks us.
// The record is of addresses alone; duplicates, CHECK, GC and DEL are as ever.
func TestAddressesForTheRuntimesPlugin(t *testing.T) {
	t.Parallel()
	n := lentNode(t)
	p, q := n.NewPod("p"), n.NewPod("q")
	p.CNI("ADD", lentBridge).Must()
	p.CNI("DEL", lentBridge).Must()
	before := n.Inventory()

	added := p.CNI("ADD", lentBridge).Must()
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	require.Equal(t, []string{"default via 10.62.0.254 dev eth0"}, trimProto(defaultRoutes(p, "-4")))
	require.Len(t, heldBy(t, n, p, "eth0"), 2)
	p.CNI("CHECK", withPrev(lentBridge, added.Stdout)).Must()
	q.CNI("ADD", lentBridge).Must()
	require.NoError(t, p.Ping(bare(addresses(t, q, "eth0")[0])))

	// Ourselves as IPAM, asked again for a live interface.
	again := request(p, "ADD", lentBridge)
	require.Equal(t, uint(105), n.CNIType("kube-ovn", again).Err().Code)
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	n.CNIType("kube-ovn", request(p, "STATUS", lentBridge)).Must()

	// GC of the network as a plugin would pass it on: q is not valid any more.
	gc := strings.Replace(lentBridge, `"name"`, fmt.Sprintf(
		`"cni.dev/valid-attachments":[{"containerID":%q,"ifname":"eth0"}],"name"`, p.ContainerID), 1)
	n.CNIType("kube-ovn", cni.Request{Command: "GC", Config: []byte(gc)}).Must()
	require.Empty(t, heldBy(t, n, q, "eth0"))
	require.Len(t, heldBy(t, n, p, "eth0"), 2)
	q.CNI("DEL", lentBridge).Must()

	p.CNI("DEL", lentBridge).Must()
	p.CNI("DEL", lentBridge).Must()
	n.RequireNoLeaks(before)
}

// TestRetryAfterTheRuntimesPluginFailed: bridge was killed after it had its
// addresses and before it made an interface. The runtime's next ADD gets them
// anew, and nothing is left after the DEL.
func TestRetryAfterTheRuntimesPluginFailed(t *testing.T) {
	t.Parallel()
	n := lentNode(t)
	p := n.NewPod("p")
	p.CNI("ADD", lentBridge).Must()
	p.CNI("DEL", lentBridge).Must()
	before := n.Inventory()
	first := n.CNIType("kube-ovn", request(p, "ADD", lentBridge)).Must()
	require.Equal(t, first.IPs(), n.CNIType("kube-ovn", request(p, "ADD", lentBridge)).Must().IPs(), "the same pod, the same address")
	added := p.CNI("ADD", lentBridge).Must()
	require.Equal(t, first.IPs(), added.IPs())
	var result struct {
		Interfaces []any
		IPs        []struct {
			Gateway   string
			Interface *int
		}
	}
	first.Decode(&result)
	require.Empty(t, result.Interfaces)
	require.Equal(t, "10.62.0.254", result.IPs[0].Gateway)
	require.Nil(t, result.IPs[0].Interface)
	p.CNI("DEL", lentBridge).Must()
	n.RequireNoLeaks(before)

	// A reboot: nobody asks for the old sandbox any more.
	p.CNI("ADD", lentBridge).Must()
	n.Reboot()
	n.Agent().WaitReady()
	require.NotContains(t, n.Fairlead("get", "ips", "-A"), p.ContainerID[:12])
}

// TestTokenOfNoOperation: a call with a token is for the operation that gave
// it, and for nothing else.
func TestTokenOfNoOperation(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"lan.yaml": lan()}, "--compat-socket", kubeOVNSocket)
	p := n.NewPod("p")
	before := n.Inventory()
	for _, path := range []string{cni.PathJoin, cni.PathCNI} {
		call := map[string]any{"command": "ADD", "containerID": p.ContainerID, "netns": p.Netns(), "ifName": "eth0",
			"token": "stale", "config": []byte(lanConf)}
		var answer cni.Response
		status, body := post(t, n, path, call)
		require.Equal(t, http.StatusOK, status)
		require.NoError(t, json.Unmarshal(body, &answer))
		require.True(t, answer.Failed)
		require.Contains(t, string(answer.Output), `"code":11`)
		call["command"] = "DEL"
		_, body = post(t, n, path, call)
		require.NotContains(t, string(body), "failed")
	}
	n.RequireNoLeaks(before)
}

// nestedScript is a plugin that has another type of ours do its work, which is
// no IPAM call.
const nestedScript = `#!/bin/sh
conf=$(cat)
[ -n "$conf" ] || exit 1
[ "$CNI_COMMAND" = ADD ] || exit 0
printf %s '{"cniVersion":"1.0.0","name":"inner","type":"fairlead"}' | /opt/cni/bin/fairlead
`

// TestOurTypeUnderADelegate: a delegate that calls us for an interface is told
// so at once, where it would wait for the ADD that waits for it.
func TestOurTypeUnderADelegate(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	dir := filepath.Join(n.Dir, "nested")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nested"), []byte(nestedScript), 0o755))
	n.WriteObjects("objects.yaml", together(nadObject("nested", `{"cniVersion":"1.0.0","name":"nested","type":"nested"}`),
		podObject("p", map[string]string{networksKey: "nested"})))
	n.Agent("--cni-bin-dir", testbed.PluginDir, "--cni-bin-dir", dir).WaitReady()
	p := n.NewPod("p")
	before := n.Inventory()
	e := p.CNI("ADD", ownConf).MustCode(7)
	require.Contains(t, e.Msg, "delegate of a delegate")
	requireBare(t, p)
	n.RequireNoLeaks(before)
}

// strippedScript is a plugin that asks us for addresses in an environment of its
// own, and in a session of its own: nothing of the token is left.
const strippedScript = `#!/bin/sh
conf=$(cat)
[ -n "$conf" ] || exit 1
printf %s "$conf" | setsid --wait env -i CNI_COMMAND="$CNI_COMMAND" CNI_CONTAINERID="$CNI_CONTAINERID" CNI_NETNS="$CNI_NETNS" \
	CNI_IFNAME="$CNI_IFNAME" CNI_ARGS="$CNI_ARGS" CNI_PATH=/opt/cni/bin /opt/cni/bin/fairlead
`

// TestStrippedEnvironment: a delegate whose call to us has no token joins the
// record of the operation that runs it all the same, where it would wait for the
// ADD that waits for it; CHECK and DEL likewise.
func TestStrippedEnvironment(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	dir := filepath.Join(n.Dir, "stripped")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stripped"), []byte(strippedScript), 0o755))
	conf := `{"cniVersion":"1.0.0","name":"stripped","type":"stripped","ipam":{"type":"fairlead","provider":"lan.default"}}`
	n.WriteObjects("objects.yaml", together(lan(), nadObject("stripped", conf), podObject("p", map[string]string{networksKey: "stripped"})))
	n.Agent("--cni-bin-dir", testbed.PluginDir, "--cni-bin-dir", dir).WaitReady()
	p := n.NewPod("p")
	before := n.Inventory()
	added := p.CNI("ADD", ownConf).Must()
	require.Len(t, heldBy(t, n, p, "net1"), 2)
	p.CNI("ADD", ownConf).MustCode(105)
	require.NotContains(t, p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Stderr, "is not leased")
	p.CNI("DEL", ownConf).Must()
	require.Empty(t, heldBy(t, n, p, "net1"))
	n.RequireNoLeaks(before)
}

// TestKubeOVNAddressesForOthers: Kube-OVN's plugin as the IPAM of macvlan posts
// macvlan's type and gets addresses (spec/sdn.md, section 2, step 8).
func TestKubeOVNAddressesForOthers(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", together(lan(), podObject("p", map[string]string{
		"lan.default.kubernetes.io/ip_address": "10.62.0.9", "lan.default.kubernetes.io/mac_address": "02:00:00:00:00:09"})))
	n.Agent("--compat-socket", kubeOVNSocket).WaitReady()
	p := n.NewPod("p")
	before := n.Inventory()
	req := kubeOVNRequest(p, map[string]any{"cni_type": "macvlan", "if_name": "net1", "provider": "lan.default"})
	answer := addKubeOVN(t, n, req)
	require.Equal(t, "10.62.0.9", answer.IPs[0].IP)
	require.Equal(t, "10.62.0.0/24", answer.IPs[0].CIDR)
	require.Equal(t, "02:00:00:00:00:09", answer.MacAddress)
	require.Empty(t, answer.PodNicName)
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	require.True(t, slices.Contains(heldBy(t, n, p, "net1"), "10.62.0.9"))
	status, body := post(t, n, cni.PathKubeOVNDel, req)
	require.Equal(t, http.StatusNoContent, status, "%s", body)
	n.RequireNoLeaks(before)
}
