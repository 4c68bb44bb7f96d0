package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
)

// leaks is what `ip leaks` lists, with its exit code.
func leaks(t *testing.T, n *testbed.Node, status int) map[string]agent.Leak {
	t.Helper()
	out := exitsWith(t, n, status, "ip", "leaks", "-o", "json")
	var list agent.LeakList
	require.NoError(t, json.NewDecoder(strings.NewReader(out[strings.Index(out, "{"):])).Decode(&list), out)
	require.Empty(t, list.Failed)
	found := map[string]agent.Leak{}
	for _, l := range list.Items {
		found[l.Address.String()] = l
	}
	require.Len(t, found, len(list.Items))
	return found
}

// TestWhatIsLeftOver: `gc --dry-run` tells what `gc` does then, and removes
// nothing; `ip leaks` tells whose addresses nobody lives for, own and
// host-local's, each with the command that frees it.
func TestWhatIsLeftOver(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("bad", `{"cniVersion":"1.0.0","name":"bad","type":"bad"}`),
		nadObject("br", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brl","ipam":{"type":"host-local","subnet":"10.61.0.0/24"}}`),
		podObject("stays", map[string]string{networksKey: "br"}),
		podObject("gone", map[string]string{networksKey: "br"}),
		podObject("orphan", map[string]string{networksKey: "br,bad"})), "bad")
	warm := n.NewPod("stays") // the bridge and host-local's folder stay
	warm.CNI("ADD", ownConf).Must()
	warm.CNI("DEL", ownConf).Must()
	warm.Delete()
	before := n.Inventory()
	stays, _ := attached(n, "stays")
	require.Empty(t, leaks(t, n, 0), "living pods' addresses are no leaks")
	require.Empty(t, asked[agent.GCResult](t, n, "gc", "--dry-run").Removed)

	veths := func() string { return n.Run("sh", "-c", "ip -o link show type veth | cut -d: -f2 | sort") }
	living := veths()
	gone, addrs := attached(n, "gone")
	lan := bare(addresses(t, gone, "net1")[0])
	gone.Delete()
	orphan := n.NewPod("orphan")
	orphan.CNI("ADD", ownConf).Must()
	r.order("bad", "DEL", "fail 5 nor that")
	orphan.Delete()
	orphan.CNI("DEL", ownConf).Must()
	folder := "/var/lib/cni/networks/br/"
	n.Run("sh", "-c", "printf 'stranger\\r\\neth0' > "+folder+"10.61.0.200")

	eventually(t, func() string { // the kernel takes a namespace's links down after its name
		if now := veths(); now != living {
			return now
		}
		return ""
	})
	full := n.Inventory()
	would := asked[agent.GCResult](t, n, "gc", "--dry-run")
	require.True(t, would.DryRun)
	require.Empty(t, would.Failed)
	require.Equal(t, 1, would.Kept)
	require.Len(t, would.Removed, 2)
	text := n.Fairlead("gc", "--dry-run")
	for _, want := range []string{
		"would remove default/gone ", "is gone", "port " + hostIf(gone, "eth0"), "address " + addrs[0], "what bridge made",
		"would remove default/orphan ", "nor that", "2 to be removed, 0 failed, 1 kept",
	} {
		require.Contains(t, text, want)
	}
	found := leaks(t, n, 1)
	n.RequireNoLeaks(full) // both only looked
	require.Len(t, found, 3, "%v", found)
	require.Equal(t, "gone", found[addrs[0]].Pod)
	require.Equal(t, "fairlead gc", found[addrs[0]].Free)
	file := found[lan]
	require.Equal(t, folder+lan, file.File)
	require.Equal(t, []string{gone.ContainerID, "gone", "fairlead gc"}, []string{file.Container, file.Pod, file.Free})
	strange := found["10.61.0.200"]
	require.True(t, strange.Unproven, "who does not know an owner does not say that it is gone")
	require.Equal(t, "stranger", strange.Container)

	out := exitsWith(t, n, 1, "gc", "-o", "json") // the orphan's plugin goes on refusing
	var did agent.GCResult
	require.NoError(t, json.NewDecoder(strings.NewReader(out[strings.Index(out, "{"):])).Decode(&did), out)
	var tried []agent.AttachmentRef
	for _, x := range did.Removed {
		tried = append(tried, x.AttachmentRef)
	}
	for _, x := range did.Failed {
		tried = append(tried, x.AttachmentRef)
	}
	var told []agent.AttachmentRef
	for _, x := range would.Removed {
		told = append(told, x.AttachmentRef)
	}
	require.ElementsMatch(t, told, tried, "a dry run tells what a gc then tries")
	require.Len(t, did.Removed, 1)
	require.Equal(t, would.Kept, did.Kept)
	found = leaks(t, n, 1)
	require.Len(t, found, 1)
	n.Run(strings.Fields(found["10.61.0.200"].Free)...)
	require.Empty(t, leaks(t, n, 0))
	n.Fairlead("detach", "--force", "--container-id", orphan.ContainerID)
	stays.CNI("CHECK", ownConf).Must()
	stays.CNI("DEL", ownConf).Must()
	stays.Delete()
	n.RequireNoLeaks(before)
}
