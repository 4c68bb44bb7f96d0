package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead/fairlead/internal/testbed"
)

// Bounds on memory, in bytes. Some 38 MB of what is resident of the agent are pages of
// its program, of which the kernel maps as many as it has at hand; what it allocated is
// bounded by itself.
const (
	agentMemory    = 64e6
	agentAllocated = 26e6
	pluginMemory   = 8e6
)

// testMemory: an agent with many pods in a cluster with many networks, and the
// plugin that brings one more, are as small as they must be.
func testMemory(n *kubeNode) {
	const pods, networks = 250, 1000
	before := n.Inventory()
	n.makeNADs(networks)
	list := n.makePods(pods, func(int) map[string]string { return twoNetworks() })
	n.all("ADD", list)
	for _, p := range list[pods-8:] { // the agent has seen all the objects by then
		p.awaitStatus()
	}
	require.Len(n.t, list[0].ips(), 2)
	eventually(n.t, func() string { // what a burst took Go gives back when it comes to it
		resident, allocated := memoryOf(n.t, n.agent.PID(), "VmRSS"), memoryOf(n.t, n.agent.PID(), "RssAnon")
		told := fmt.Sprintf("agent with %d pods and %d networks: %.1f MB, %.1f MB of them allocated", pods, networks, resident/1e6, allocated/1e6)
		if resident > agentMemory || allocated > agentAllocated {
			return told
		}
		n.t.Log(told)
		return ""
	})

	one := n.makePod("one-more", twoNetworks())
	for _, op := range []string{"ADD", "CHECK", "DEL"} {
		used := one.pluginMemory(op)
		n.t.Logf("plugin, %s: %.1f MB", op, used/1e6)
		require.Less(n.t, used, pluginMemory)
	}
	one.end()
	n.all("DEL", list)
	for _, p := range list {
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// makeNADs makes networks of a usual size, which no pod uses.
func (n *kubeNode) makeNADs(count int) {
	n.t.Helper()
	nads := n.c.Dynamic().Resource(nadKind).Namespace(n.name)
	failed := make(chan error, count)
	atOnce(8, count, func(i int) {
		conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net-%d","plugins":[{"type":"macvlan","master":"bond0.%d","mode":"bridge","mtu":9000,
			"ipam":{"type":"whereabouts","range":"192.168.%d.0/24","exclude":["192.168.%d.0/28"],"gateway":"192.168.%d.1"}},
			{"type":"tuning","capabilities":{"mac":true},"sysctl":{"net.ipv4.conf.all.arp_filter":"1"}}]}`, i, i, i%256, i%256, i%256)
		_, err := nads.Create(n.t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
			"metadata": map[string]any{"name": fmt.Sprintf("net-%d", i)}, "spec": map[string]any{"config": conf},
		}}, metav1.CreateOptions{})
		if err != nil {
			failed <- err
		}
	})
	close(failed)
	require.NoError(n.t, <-failed)
}

// memoryOf is a line of /proc/PID/status, in bytes: VmRSS, VmHWM.
func memoryOf(t require.TestingT, pid int, key string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			require.NoError(t, err)
			return float64(kib) * 1024
		}
	}
	require.Fail(t, "no "+key)
	return 0
}

// pluginMemory calls the plugin and gives the most that it had resident, in
// bytes. A small program starts it and asks the kernel: of a child of this
// process the kernel would count what this process has.
func (p *kubePod) pluginMemory(op string) float64 {
	p.n.t.Helper()
	ctx, cancel := context.WithTimeout(p.n.t.Context(), time.Minute)
	defer cancel()
	report := filepath.Join(p.n.Dir, "rss")
	cmd := p.n.Cmd(ctx, "env", "CNI_COMMAND="+op, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns(), "CNI_IFNAME=eth0",
		"CNI_ARGS="+p.Args()+";K8S_POD_UID="+p.uid, "CNI_PATH="+testbed.PluginDir,
		"time", "--format=%M", "--output="+report, testbed.PluginDir+"/fairlead")
	cmd.Stdin = strings.NewReader(ownConf)
	out, err := cmd.CombinedOutput()
	require.NoError(p.n.t, err, "%s: %s", op, out)
	text, err := os.ReadFile(report)
	require.NoError(p.n.t, err)
	kib, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(p.n.t, err)
	return float64(kib) * 1024
}
