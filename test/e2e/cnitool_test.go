package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

const toolList = `{"cniVersion":"1.1.0","name":"tool","plugins":[
	{"type":"fairlead"},
	{"type":"portmap","capabilities":{"portMappings":true}}]}`

// writeConf puts a file into the runtime's configuration folder.
func writeConf(n *testbed.Node, name, conf string) {
	n.Run("sh", "-c", "cat > /etc/cni/net.d/"+name+" <<'END'\n"+conf+"\nEND")
}

// TestCNITool drives the plugin with upstream's client through every verb, in
// a list with portmap.
func TestCNITool(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	writeConf(n, "10-tool.conflist", toolList)
	env := []string{`CAP_ARGS={"portMappings":[{"hostPort":9090,"containerPort":90,"protocol":"udp"}]}`}
	p := n.NewPod("p")
	tool := func(op string) testbed.Answer { return n.CNITool("/etc/cni/net.d", env, op, "tool", p.Netns()) }
	tool("add").Must() // portmap's chains become part of the base line
	tool("del").Must()
	before := n.Inventory()

	tool("status").Must()
	added := tool("add").Must()
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	require.Contains(t, n.Run("nft", "list", "ruleset"), "dport 9090")
	tool("check").Must()

	p.Run("ip", "addr", "flush", "dev", "eth0")
	require.NotNil(t, tool("check").Err(), "CHECK after the address is gone")

	tool("del").Must()
	tool("del").Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	n.RequireNoLeaks(before)

	// The tool's GC has DEL called for all that it cached and then GC without
	// the list that the spec demands, which must not mean "remove every pod".
	other := n.NewPod("other")
	other.CNI("ADD", `{"cniVersion":"1.1.0","name":"tool","type":"fairlead"}`).Must()
	tool("add").Must()
	require.Contains(t, tool("gc").Stderr, "cni.dev/valid-attachments is missing")
	null := n.CNI(cni.Request{Command: "GC", Config: []byte(`{"cniVersion":"1.1.0","name":"tool","type":"fairlead","cni.dev/valid-attachments":null,"cni.dev/attachments":null}`)})
	require.Contains(t, null.MustCode(7).Details, "fairlead gc")
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, other))
	other.CNI("DEL", ownConf).Must()
	other.Delete()
	n.RequireNoLeaks(before)
}

// TestCNIToolStatus: without Open vSwitch the node cannot serve ADD, and says
// so.
func TestCNIToolStatus(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	writeConf(n, "10-tool.conflist", toolList)
	p := n.NewPod("p")
	tool := func(op string) testbed.Answer { return n.CNITool("/etc/cni/net.d", nil, op, "tool", p.Netns()) }
	tool("status").Must()
	n.OVS.KillServer()
	eventually(t, func() string {
		if tool("status").Err() == nil {
			return "STATUS says that all is well"
		}
		return ""
	})
	n.CNI(cni.Request{Command: "STATUS", Config: []byte(ownConf)}).MustCode(50)
	n.OVS.StartServer()
	eventually(t, func() string {
		if e := tool("status").Err(); e != nil {
			return e.Msg + e.Details
		}
		return ""
	})
}

// nodeExec has libcni run plugins inside a node.
type nodeExec struct {
	invoke.RawExec
	version.PluginDecoder
	n *testbed.Node
}

func (e *nodeExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	cmd := e.n.Cmd(ctx, path)
	cmd.Env, cmd.Stdin = env, bytes.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return out, err
}

func (e *nodeExec) FindInPath(plugin string, _ []string) (string, error) {
	return testbed.PluginDir + "/" + plugin, nil
}

// TestLibCNIGC is what a runtime does that calls GC as the spec says: it lists
// what is valid, also what its own cache does not know.
func TestLibCNIGC(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	client := libcni.NewCNIConfigWithCacheDir([]string{testbed.PluginDir}, t.TempDir(), &nodeExec{n: n})
	forgetful := libcni.NewCNIConfigWithCacheDir([]string{testbed.PluginDir}, t.TempDir(), &nodeExec{n: n})
	list, err := libcni.NetworkConfFromBytes([]byte(toolList))
	require.NoError(t, err)
	ports := map[string]any{"portMappings": []map[string]any{{"hostPort": 9191, "containerPort": 91, "protocol": "tcp"}}}
	conf := func(p *testbed.Pod) *libcni.RuntimeConf {
		return &libcni.RuntimeConf{ContainerID: p.ContainerID, NetNS: p.Netns(), IfName: "eth0", CapabilityArgs: ports}
	}
	kept, lost := n.NewPod("kept"), n.NewPod("lost")
	for _, p := range []*testbed.Pod{kept, lost} {
		_, err = client.AddNetworkList(t.Context(), list, conf(p))
		require.NoError(t, err)
	}
	require.NoError(t, client.CheckNetworkList(t.Context(), list, conf(kept)))
	require.NoError(t, client.GetStatusNetworkList(t.Context(), list))

	valid := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: kept.ContainerID, IfName: "eth0"}}}
	require.NoError(t, forgetful.GCNetworkList(t.Context(), list, valid))
	require.Equal(t, []string{"lo"}, linkNames(t, lost))
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, kept))
	require.NoError(t, client.CheckNetworkList(t.Context(), list, conf(kept)))
	require.NoError(t, client.DelNetworkList(t.Context(), list, conf(kept)))
	require.NoError(t, client.DelNetworkList(t.Context(), list, conf(lost)))
	require.Equal(t, []string{"lo"}, linkNames(t, kept))
}

// TestGCRemovesWhatIsNotValid: of its own network, by container and interface,
// and nothing else.
func TestGCRemovesWhatIsNotValid(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	const (
		blue = `{"cniVersion":"1.1.0","name":"blue","type":"fairlead"}`
		red  = `{"cniVersion":"1.1.0","name":"red","type":"fairlead"}`
	)
	empty := n.Inventory()
	kept, stale, other, twice := n.NewPod("kept"), n.NewPod("stale"), n.NewPod("other"), n.NewPod("twice")
	for _, p := range []*testbed.Pod{kept, stale, twice} {
		p.CNI("ADD", blue).Must()
	}
	other.CNI("ADD", red).Must()
	twice.CNIInterface("ADD", "eth1", blue).Must()
	type attachment struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	}
	gc := func(key string, valid any) testbed.Answer {
		conf, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "blue", "type": "fairlead", key: valid})
		require.NoError(t, err)
		return n.CNI(cni.Request{Command: "GC", Config: conf})
	}
	all := n.Inventory()
	n.CNI(cni.Request{Command: "GC", Config: []byte(blue)}).MustCode(7) // no list is not an empty list
	gc("cni.dev/valid-attachments", "x").MustCode(7)
	n.RequireNoLeaks(all)

	gc("cni.dev/valid-attachments", []attachment{{kept.ContainerID, "eth0"}, {twice.ContainerID, "eth1"}}).Must()
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, kept))
	require.Equal(t, []string{"lo"}, linkNames(t, stale))
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, other))
	require.Equal(t, []string{"eth1", "lo"}, linkNames(t, twice))
	kept.CNI("CHECK", blue).Must()
	other.CNI("CHECK", red).Must()
	twice.CNIInterface("CHECK", "eth1", blue).Must()

	gc("cni.dev/attachments", []attachment{}).Must()
	for _, p := range []*testbed.Pod{kept, stale, twice} {
		require.Equal(t, []string{"lo"}, linkNames(t, p))
		p.CNI("DEL", blue).Must()
		p.Delete()
	}
	other.CNI("DEL", red).Must()
	other.Delete()
	n.RequireNoLeaks(empty)
}
