package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// notesCap is the capability by which a runtime tells a pod's annotations.
const notesCap = "io.kubernetes.cri.pod-annotations"

const tellingList = `{"cniVersion":"1.1.0","name":"tool","plugins":[{"type":"fairlead","capabilities":{"` + notesCap + `":true}}]}`

// telling is a runtime's call that tells annotations.
func telling(t *testing.T, notes any) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "fairlead",
		"capabilities": map[string]bool{notesCap: true}, "runtimeConfig": map[string]any{notesCap: notes}})
	require.NoError(t, err)
	return string(raw)
}

// tellingNode is a node whose folder knows networks and no pod.
func tellingNode(t *testing.T) *testbed.Node {
	t.Helper()
	return lentNode(t,
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
		subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/16", "provider": storageProvider}),
		nadObject("storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"`+storageProvider+`"}`))
}

// toldNotes ask for a fixed address and a VLAN on eth0, for our network on net1
// and for macvlan with a fixed address of ours on net2.
func toldNotes() map[string]string {
	return map[string]string{
		networksKey: "storage,lan", "ovn.kubernetes.io/ip_address": "10.16.0.77", "ovn.kubernetes.io/vlan_id": "100",
		"lan.default.net2.kubernetes.io/ip_address": "10.62.0.9", "unrelated.example/{\"key\"": `{"a":"b"}`,
	}
}

// TestToldAnnotations: a pod that no source knows has what its annotations ask
// for, by libcni and by cnitool; it keeps that whatever becomes of the folder.
func TestToldAnnotations(t *testing.T) {
	t.Parallel()
	n := tellingNode(t)
	writeConf(n, "10-tool.conflist", tellingList)
	p := n.NewPod("p")
	before := n.Inventory()
	client := libcni.NewCNIConfigWithCacheDir([]string{testbed.PluginDir}, t.TempDir(), &nodeExec{n: n})
	list, err := libcni.NetworkConfFromBytes([]byte(tellingList))
	require.NoError(t, err)
	rt := &libcni.RuntimeConf{ContainerID: p.ContainerID, NetNS: p.Netns(), IfName: "eth0",
		CapabilityArgs: map[string]any{notesCap: toldNotes()}}
	for pair := range strings.SplitSeq(p.Args()+";K8S_POD_UID=u1", ";") {
		k, v, _ := strings.Cut(pair, "=")
		rt.Args = append(rt.Args, [2]string{k, v})
	}
	_, err = client.AddNetworkList(t.Context(), list, rt)
	require.NoError(t, err)
	asTold := func() {
		t.Helper()
		require.Equal(t, []string{"10.16.0.77/16"}, addresses(t, p, "eth0"))
		require.Equal(t, "100", column(n, "Port", hostIf(p, "eth0"), "tag"))
		require.Contains(t, addresses(t, p, "net1")[0], "10.20.0.")
		require.Equal(t, "10.62.0.9/24", addresses(t, p, "net2")[0], "the plugin asked us, and was not told itself")
		require.NoError(t, client.CheckNetworkList(t.Context(), list, rt))
	}
	asTold()
	require.NotContains(t, n.Fairlead("describe", "pod", p.Namespace+"/"+p.Name, "-o", "json"), "unrelated.example")

	n.WriteObjects("other.yaml", podObject("other", map[string]string{"ovn.kubernetes.io/vlan_id": "many"}))
	problemIn(t, n, "other.yaml", 1, "vlan_id") // so the folder was read again
	asTold()
	require.NoError(t, client.DelNetworkList(t.Context(), list, rt))
	require.Equal(t, []string{"lo"}, linkNames(t, p))

	capArgs, err := json.Marshal(map[string]any{notesCap: toldNotes()})
	require.NoError(t, err)
	env := []string{"CAP_ARGS=" + string(capArgs), "CNI_ARGS=" + p.Args()}
	n.CNITool("/etc/cni/net.d", env, "add", "tool", p.Netns()).Must()
	require.Contains(t, linkNames(t, p), "net2")
	require.Equal(t, []string{"10.16.0.77/16"}, addresses(t, p, "eth0"))
	n.CNITool("/etc/cni/net.d", env, "del", "tool", p.Netns()).Must()
	n.RequireNoLeaks(before)
}

// TestToldAnnotationsRefused: by field, and nothing is touched.
func TestToldAnnotationsRefused(t *testing.T) {
	t.Parallel()
	n := tellingNode(t)
	p := n.NewPod("p")
	before := n.Inventory()
	for name, c := range map[string]struct {
		notes any
		code  uint
		says  string
	}{
		"text":    {"a=b", 7, "runtimeConfig." + notesCap},
		"number":  {map[string]any{"a": 1}, 7, notesCap + ".a"},
		"null":    {map[string]any{"a": nil}, 7, notesCap + ".a"},
		"large":   {map[string]any{"a": strings.Repeat("x", 300<<10)}, 7, "262144 bytes"},
		"address": {map[string]any{"ovn.kubernetes.io/ip_address": "10.16.0.256"}, 102, "ovn.kubernetes.io/ip_address"},
		"network": {map[string]any{networksKey: "a//b"}, 102, networksKey},
	} {
		e := p.CNI("ADD", telling(t, c.notes)).MustCode(c.code)
		require.Contains(t, e.Msg+e.Details, c.says, name)
		p.CNI("DEL", telling(t, c.notes)).Must()
	}
	n.RequireNoLeaks(before)
}

// tells is cni with annotations that the runtime tells.
func (p *kubePod) tells(op string, notes map[string]string) testbed.Answer {
	args := p.Args()
	if p.uid != "" {
		args += ";K8S_POD_UID=" + p.uid
	}
	return p.n.CNI(cni.Request{
		Command: op, ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0", Args: args, Config: []byte(telling(p.n.t, notes)),
	})
}

// testTold: the API server need not know a pod whose annotations are told. Once
// it does, its annotation is in force and its status is published.
func testTold(n *kubeNode) {
	before := n.Inventory()
	since := n.c.Mark()
	p := &kubePod{n: n, Pod: n.NewPod(n.name + "/told")}
	p.tells("ADD", twoNetworks("10.16.7.7")).Must()
	require.Len(n.t, p.ips(), 2)
	require.Equal(n.t, "10.16.7.7", p.ips()[0])
	require.Empty(n.t, n.requests(since, "pods", "get"), "nobody is asked for it")

	o, err := n.create("told", map[string]string{networksKey: "default/storage,default/storage"})
	require.NoError(n.t, err)
	eventually(n.t, func() string {
		if len(p.nics()) != 3 {
			return "the annotation of the API server is not in force"
		}
		return ""
	})
	p.awaitStatus()
	require.Equal(n.t, "10.16.7.7", p.ips()[0])
	p.cni("DEL").Must()
	p.uid = string(o.UID)
	p.tells("ADD", nil).Must()
	require.Len(n.t, p.ips(), 3, "what is known of this very pod is in force")
	p.cni("DEL").Must()
	p.uid = "8f6c2b1e-0000-4000-8000-000000000002"
	p.tells("ADD", twoNetworks()).Must()
	require.Len(n.t, p.ips(), 2, "what is known is of another pod of that name")
	p.end()
	require.NoError(n.t, n.c.Client().CoreV1().Pods(n.name).Delete(n.t.Context(), "told", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	n.RequireNoLeaks(before)
}
