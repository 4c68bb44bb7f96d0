package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

const networksKey = "k8s.v1.cni.cncf.io/networks"

// recorder builds testdata/recorder once.
var recorder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "recorder")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-o", dir+"/recorder", "./testdata/recorder")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	b, err := os.ReadFile(dir + "/recorder")
	return string(b), err
})

// recorded is one call of a recorder.
type recorded struct {
	Type  string            `json:"type"`
	Env   map[string]string `json:"env"`
	Stdin json.RawMessage   `json:"stdin"`
	PID   int               `json:"pid"`
	Child int               `json:"child"`
}

func (r recorded) String() string { return r.Env["CNI_COMMAND"] + " " + r.Type }

// recorders are plugins of the test's in a folder of the node.
type recorders struct {
	t   *testing.T
	dir string
}

// installRecorders puts the recorder under several types into the node's own
// folder, which the agent must be told (args).
func installRecorders(t *testing.T, n *testbed.Node, types ...string) *recorders {
	t.Helper()
	binary, err := recorder()
	require.NoError(t, err)
	r := &recorders{t, filepath.Join(n.Dir, "plugins")}
	require.NoError(t, os.MkdirAll(r.dir, 0o755))
	for _, name := range types {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, name), []byte(binary), 0o755))
	}
	return r
}

// args are the agent's flags.
func (r *recorders) args() []string {
	return []string{"--cni-bin-dir", testbed.PluginDir, "--cni-bin-dir", r.dir}
}

// order has a type behave on one verb.
func (r *recorders) order(name, command, what string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, name+"."+command), []byte(what), 0o600))
}

// take returns the calls since the last take.
func (r *recorders) take() []recorded {
	r.t.Helper()
	out := r.peek()
	if out != nil {
		require.NoError(r.t, os.Remove(filepath.Join(r.dir, "calls.jsonl")))
	}
	return out
}

// peek is take that leaves the calls where they are.
func (r *recorders) peek() []recorded {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, "calls.jsonl"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(r.t, err)
	var out []recorded
	for line := range strings.Lines(string(b)) {
		var c recorded
		require.NoError(r.t, json.Unmarshal([]byte(line), &c))
		out = append(out, c)
	}
	return out
}

func verbs(calls []recorded) []string {
	var out []string
	for _, c := range calls {
		out = append(out, c.String())
	}
	return out
}

// recorderNode is a node with recorders and objects, its agent running.
func recorderNode(t *testing.T, objects string, types ...string) (*testbed.Node, *recorders) {
	t.Helper()
	n := testbed.New(t)
	r := installRecorders(t, n, types...)
	n.WriteObjects("objects.yaml", objects)
	n.Agent(r.args()...).WaitReady()
	awaitGateways(t, n)
	return n, r
}

// upstreamNetworks are delegates of every shape that users have. bond0 and the
// bridges are there before, because plugins leave what they make for all pods.
var upstreamNetworks = []struct{ name, config, address string }{
	{"bridged", `{"cniVersion":"1.0.0","name":"bridged","type":"bridge","bridge":"br1",
		"ipam":{"type":"host-local","subnet":"10.61.0.0/24"}}`, "10.61.0.2/24"},
	{"mac", `{"cniVersion":"1.1.0","name":"mac","plugins":[{"type":"macvlan","master":"bond0",
		"ipam":{"type":"static","addresses":[{"address":"10.62.0.7/24"}]}},{"type":"tuning","sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}}]}`, "10.62.0.7/24"},
	{"routed", `{"cniVersion":"0.4.0","name":"routed","plugins":[{"type":"ptp",
		"ipam":{"type":"host-local","subnet":"10.63.0.0/24"}},{"type":"portmap","capabilities":{"portMappings":true}}]}`, "10.63.0.2/24"},
	{"old", `{"cniVersion":"0.2.0","name":"old","type":"bridge","bridge":"br2",
		"ipam":{"type":"host-local","subnet":"10.64.0.0/24"}}`, "10.64.0.2/24"},
	{"versionless", `{"name":"versionless","type":"bridge","bridge":"br2",
		"ipam":{"type":"host-local","subnet":"10.65.0.0/24"}}`, "10.65.0.2/24"},
	{"elderly", `{"cniVersion":"0.3.1","type":"bridge","bridge":"br1",
		"ipam":{"type":"host-local","subnet":"10.66.0.0/24"}}`, "10.66.0.2/24"},
}

// TestRule9_UpstreamDelegates attaches one pod to networks of upstream's plugins in
// CNI versions from none to 1.1.0, under a runtime that speaks 1.1.0.
func TestRule9_UpstreamDelegates(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	bond(n)
	for _, br := range []string{"br1", "br2"} {
		n.Run("ip", "link", "add", br, "address", "02:00:00:00:11:11", "type", "bridge")
		n.Run("ip", "link", "set", br, "up")
	}
	var names, objects []string
	for _, u := range upstreamNetworks {
		names, objects = append(names, u.name), append(objects, nadObject(u.name, u.config))
	}
	objects = append(objects, podObject("p", map[string]string{networksKey: strings.Join(names, ",")}))
	n.WriteObjects("all.yaml", together(objects...))
	n.Agent().WaitReady()
	awaitGateways(t, n)
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must() // what plugins leave for good becomes the base line
	p.CNI("DEL", ownConf).Must()
	requireBare(t, p)
	before := n.Inventory()

	added := p.CNI("ADD", ownConf).Must()
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	for i, u := range upstreamNetworks {
		got := addresses(t, p, fmt.Sprintf("net%d", i+1))
		require.Len(t, got, 1, u.name)
		require.Equal(t, prefix24(u.address), prefix24(got[0]), u.name)
	}
	require.Equal(t, "1", strings.TrimSpace(p.Run("cat", "/proc/sys/net/ipv4/conf/net2/arp_filter")))
	p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
	p.Run("ip", "link", "set", "net2", "down")
	p.CNI("CHECK", withPrev(ownConf, added.Stdout)).MustCode(106)

	p.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	n.RequireNoLeaks(before)
}

func prefix24(addr string) string { return addr[:strings.LastIndex(addr, ".")] }

// TestDelegateAsDefault: a foreign plugin may be the pod's default network, and
// its result is the runtime's, converted.
func TestDelegateAsDefault(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.Run("ip", "link", "add", "br1", "address", "02:00:00:00:11:11", "type", "bridge")
	n.Run("ip", "link", "set", "br1", "up")
	conf := `{"cniVersion":"1.1.0","name":"meta","type":"multus","delegates":[
		{"cniVersion":"0.3.1","name":"bridged","type":"bridge","bridge":"br1","ipam":{"type":"host-local","subnet":"10.61.0.0/24"}}]}`
	p := n.NewPod("p")
	p.CNI("ADD", conf).Must()
	p.CNI("DEL", conf).Must()
	before := n.Inventory()
	added := p.CNI("ADD", conf).Must()
	var head struct {
		CNIVersion string `json:"cniVersion"`
	}
	added.Decode(&head)
	require.Equal(t, "1.1.0", head.CNIVersion)
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	p.CNI("CHECK", withPrev(conf, added.Stdout)).Must()
	n.CNI(cni.Request{Command: "STATUS", Config: []byte(conf)}).Must()
	p.CNI("DEL", conf).Must()
	n.RequireNoLeaks(before)
}

// TestBinDirOfTheConf: every verb finds a plugin where the configuration says.
func TestBinDirOfTheConf(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	r := installRecorders(t, n, "far")
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"meta","type":"multus","binDir":%q,"delegates":[
		{"cniVersion":"1.1.0","name":"inner","type":"far"}]}`, r.dir)
	p := n.NewPod("p")
	before := n.Inventory()
	gc := strings.Replace(conf, `"name"`, `"cni.dev/valid-attachments":[],"name"`, 1)
	n.CNI(cni.Request{Command: "STATUS", Config: []byte(conf)}).Must()
	n.CNI(cni.Request{Command: "GC", Config: []byte(gc)}).Must()
	p.CNI("ADD", conf).Must()
	p.CNI("CHECK", conf).Must()
	p.CNI("DEL", conf).Must()
	require.Equal(t, []string{"STATUS far", "GC far", "ADD far", "CHECK far", "DEL far"}, verbs(r.take()))

	r.order("far", "STATUS", "fail 51 tired")
	e := n.CNI(cni.Request{Command: "STATUS", Config: []byte(conf)}).MustCode(50)
	require.Contains(t, e.Details, "tired")
	n.RequireNoLeaks(before)
}

// TestOwnTypeInDelegateList: our NIC stands first in a list, in process, and
// the foreign plugin behind it gets its result.
func TestOwnTypeInDelegateList(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, "", "after")
	conf := `{"cniVersion":"1.1.0","name":"meta","type":"multus","delegates":[
		{"cniVersion":"0.4.0","name":"inner","plugins":[{"type":"kube-ovn","server_socket":"/nowhere"},{"type":"after","key":1e30}]}]}`
	p := n.NewPod("p")
	before := n.Inventory()
	added := p.CNI("ADD", conf).Must()
	calls := r.take()
	require.Equal(t, []string{"ADD after"}, verbs(calls))
	var got struct {
		CNIVersion string      `json:"cniVersion"`
		Name       string      `json:"name"`
		Key        json.Number `json:"key"`
		PrevResult struct {
			CNIVersion string `json:"cniVersion"`
			Interfaces []struct{ Name, Sandbox string }
			IPs        []struct{ Address string }
		} `json:"prevResult"`
	}
	require.NoError(t, json.Unmarshal(calls[0].Stdin, &got))
	require.Equal(t, "0.4.0 inner 1e30 0.4.0", strings.Join([]string{got.CNIVersion, got.Name, got.Key.String(), got.PrevResult.CNIVersion}, " "))
	require.Equal(t, addresses(t, p, "eth0")[0], got.PrevResult.IPs[0].Address)
	require.Equal(t, "eth0", got.PrevResult.Interfaces[1].Name)
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	p.CNI("DEL", conf).Must()
	require.Equal(t, []string{"DEL after"}, verbs(r.take()))
	n.RequireNoLeaks(before)
}

// TestRule3_RollbackReverseOrder: everything begun is undone in reverse, the
// failing plugin included, and its own code is the answer.
func TestRule3_RollbackReverseOrder(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("first", `{"cniVersion":"1.0.0","name":"first","type":"one"}`),
		nadObject("second", `{"cniVersion":"1.0.0","name":"second","plugins":[{"type":"two"},{"type":"three"},{"type":"four"}]}`),
		podObject("p", map[string]string{networksKey: "first,second"})), "one", "two", "three", "four")
	r.order("three", "ADD", "fail 142 no more of these")
	p := n.NewPod("p")
	before := n.Inventory()
	e := p.CNI("ADD", ownConf).MustCode(142)
	require.Contains(t, e.Msg, "no more of these")
	require.Contains(t, e.Msg, "three")
	require.Contains(t, e.Details, "as the test told it")
	require.Equal(t, []string{"ADD one", "ADD two", "ADD three", "DEL three", "DEL two", "DEL one"}, verbs(r.take()))
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	n.RequireNoLeaks(before)

	// A DEL that fails does not stop the others, and is tried again.
	r.order("three", "ADD", "")
	p.CNI("ADD", ownConf).Must()
	r.take()
	r.order("three", "DEL", "fail 143 not yet")
	require.Contains(t, p.CNI("DEL", ownConf).MustCode(143).Msg, "not yet")
	dels := verbs(r.take())
	require.Equal(t, []string{"DEL four", "DEL three", "DEL two", "DEL one"}, dels[:4])
	for _, more := range dels[4:] { // the agent goes on with a failed DEL by itself
		require.Equal(t, "DEL three", more)
	}
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	r.order("three", "DEL", "")
	p.CNI("DEL", ownConf).Must()
	require.Contains(t, verbs(r.take()), "DEL three")
	n.RequireNoLeaks(before)
}

// TestRule4_DelNeedsOnlyTheRecord: DEL gives each plugin what its ADD had, whatever
// became of NAD, pod and configuration, in reverse.
func TestRule4_DelNeedsOnlyTheRecord(t *testing.T) {
	t.Parallel()
	element := `[{"name":"list","cni-args":{"color":"blue"},"ips":["10.9.9.9/24"],"mac":"02:00:00:00:00:77"}]`
	n, r := recorderNode(t, together(
		nadObject("list", `{"cniVersion":"0.4.0","name":"list","plugins":[
			{"type":"one","capabilities":{"ips":true,"mac":true},"args":{"cni":{"color":"red","size":3}}},{"type":"two","big":12345678901234567890}]}`),
		podObject("p", map[string]string{networksKey: element})), "one", "two")
	p := n.NewPod("p")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	adds := r.take()
	require.Equal(t, []string{"ADD one", "ADD two"}, verbs(adds))
	var one struct {
		Args          struct{ CNI map[string]any }
		RuntimeConfig map[string]any
	}
	require.NoError(t, json.Unmarshal(adds[0].Stdin, &one))
	require.Equal(t, map[string]any{"color": "blue", "size": 3.0}, one.Args.CNI)
	require.Equal(t, map[string]any{"ips": []any{"10.9.9.9/24"}, "mac": "02:00:00:00:00:77"}, one.RuntimeConfig)
	require.Contains(t, string(adds[1].Stdin), `"big":12345678901234567890`)
	require.NotContains(t, string(adds[1].Stdin), "runtimeConfig")
	require.Contains(t, adds[0].Env["CNI_ARGS"], "MAC=02:00:00:00:00:77")
	require.Equal(t, "net1", adds[0].Env["CNI_IFNAME"])

	n.WriteObjects("objects.yaml", nadObject("list", `{"cniVersion":"1.0.0","name":"other","type":"three"}`))
	awaitNet(t, n, "default/list", "three")
	p.CNI("DEL", `{"cniVersion":"1.1.0","name":"renamed","type":"fairlead"}`).Must()
	dels := r.take()
	require.Equal(t, []string{"DEL two", "DEL one"}, verbs(dels))
	for i, add := range adds {
		del := dels[len(dels)-1-i]
		require.JSONEq(t, without(t, add.Stdin, "prevResult"), without(t, del.Stdin, "prevResult"), add.Type)
		require.JSONEq(t, `{"cniVersion":"0.4.0","dns":{}}`, prevResult(t, del.Stdin), "the final result of the chain")
		add.Env["CNI_COMMAND"] = "DEL"
		for _, env := range []map[string]string{add.Env, del.Env} {
			delete(env, "FAIRLEAD_TOKEN") // of each call alone
		}
		require.Equal(t, add.Env, del.Env)
	}
	n.RequireNoLeaks(before)
}

// awaitNet waits until the agent has read a NAD whose first plugin is kind.
func awaitNet(t *testing.T, n *testbed.Node, name, kind string) {
	t.Helper()
	eventually(t, func() string {
		for line := range strings.Lines(n.Fairlead("get", "nets")) {
			if strings.Contains(line, name) && strings.Contains(line, kind) {
				return ""
			}
		}
		return "no network " + name + " of " + kind
	})
}

func without(t *testing.T, conf json.RawMessage, key string) string {
	t.Helper()
	var keys map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(conf, &keys))
	delete(keys, key)
	b, err := json.Marshal(keys)
	require.NoError(t, err)
	return string(b)
}

func prevResult(t *testing.T, conf json.RawMessage) string {
	t.Helper()
	var keys map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(conf, &keys))
	return string(keys["prevResult"])
}

// TestHangingDelegate: when the caller goes away, or a DEL arrives, a plugin
// that hangs is killed with its children.
func TestHangingDelegate(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("slow", `{"cniVersion":"1.0.0","name":"slow","type":"slow"}`),
		podObject("p", map[string]string{networksKey: "slow"})), "slow")
	r.order("slow", "ADD", "hang")
	p := n.NewPod("p")
	before := n.Inventory()

	caller := startADD(t, n, p)
	hanging := r.await("ADD slow")
	requireGroupOf(t, hanging)
	require.NoError(t, caller.Process.Kill())
	_ = caller.Wait() // killed
	requireGone(t, hanging)
	n.RequireNoLeaks(before)
	require.Equal(t, []string{"DEL slow"}, verbs(r.take()), "the roll-back")

	caller = startADD(t, n, p)
	hanging = r.await("ADD slow")
	p.CNI("DEL", ownConf).Must()
	requireGone(t, hanging)
	require.Error(t, caller.Wait(), "ADD was given up")
	n.RequireNoLeaks(before)
}

// TestDelegateDeadline: a plugin that hangs ends with the ADD's own deadline,
// which is below every runtime's, and the answer says so.
func TestDelegateDeadline(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("slow", `{"cniVersion":"1.0.0","name":"slow","type":"slow"}`),
		podObject("p", map[string]string{networksKey: "slow"})), "slow")
	r.order("slow", "ADD", "hang")
	p := n.NewPod("p")
	before := n.Inventory()
	e := p.CNI("ADD", ownConf).MustCode(11)
	require.Contains(t, e.Msg+e.Details, "not finished within")
	calls := r.take()
	require.Equal(t, []string{"ADD slow", "DEL slow"}, verbs(calls))
	requireGone(t, calls[0])
	n.RequireNoLeaks(before)
}

// startADD begins an ADD whose end is not waited for.
func startADD(t *testing.T, n *testbed.Node, p *testbed.Pod) *exec.Cmd {
	t.Helper()
	return startCNI(t, n, p, "ADD", ownConf)
}

func startCNI(t *testing.T, n *testbed.Node, p *testbed.Pod, command, conf string) *exec.Cmd {
	t.Helper()
	cmd := n.Cmd(t.Context(), testbed.PluginDir+"/fairlead")
	cmd.Stdin = strings.NewReader(conf)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns(),
		"CNI_IFNAME=eth0", "CNI_ARGS="+p.Args(), "CNI_PATH="+testbed.PluginDir)
	require.NoError(t, cmd.Start())
	return cmd
}

// await waits for the next call.
func (r *recorders) await(what string) recorded {
	r.t.Helper()
	var calls []recorded
	eventually(r.t, func() string {
		if calls = r.take(); len(calls) == 0 {
			return "no call"
		}
		return ""
	})
	require.Equal(r.t, []string{what}, verbs(calls))
	return calls[0]
}

// requireGroupOf proves that the plugin leads a group of its own with its child
// in it.
func requireGroupOf(t *testing.T, c recorded) {
	t.Helper()
	for _, pid := range []int{c.PID, c.Child} {
		group, err := syscall.Getpgid(pid)
		require.NoError(t, err)
		require.Equal(t, c.PID, group)
	}
}

func requireGone(t *testing.T, c recorded) {
	t.Helper()
	eventually(t, func() string {
		for _, pid := range []int{c.PID, c.Child} {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
				return fmt.Sprintf("process %d lives", pid)
			}
		}
		return ""
	})
}

// TestUnsafePlugin: what others than root could have written is not run, and
// nothing was done before it was looked at.
func TestUnsafePlugin(t *testing.T) {
	t.Parallel()
	var objects []string
	for _, name := range []string{"writable", "link", "foreign", "none", "directory"} {
		objects = append(objects, nadObject(name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":%q}`, name)),
			podObject(name, map[string]string{networksKey: name}))
	}
	objects = append(objects, nadObject("path", `{"cniVersion":"1.0.0","name":"x","type":"../plugins/writable"}`),
		podObject("path", map[string]string{networksKey: "path"}))
	n, r := recorderNode(t, together(objects...), "writable", "foreign")
	require.NoError(t, os.Chmod(filepath.Join(r.dir, "writable"), 0o775))
	require.NoError(t, os.Chown(filepath.Join(r.dir, "foreign"), 1, 0))
	require.NoError(t, os.Symlink("writable", filepath.Join(r.dir, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(r.dir, "directory"), 0o755))
	for _, c := range []struct{ name, says string }{
		{"writable", "can be written by others"},
		{"link", "can be written by others"},
		{"foreign", "does not belong to root"},
		{"none", "none"},
		{"directory", "not an executable file"},
		{"path", "../plugins/writable"},
	} {
		p := n.NewPod(c.name)
		before := n.Inventory()
		e := p.CNI("ADD", ownConf).MustCode(7)
		require.Contains(t, e.Msg+e.Details, c.says, c.name)
		n.RequireNoLeaks(before)
	}
	require.Empty(t, r.take(), "a plugin ran")

	require.NoError(t, os.Chmod(r.dir, 0o777))
	require.NoError(t, os.Chmod(filepath.Join(r.dir, "writable"), 0o755))
	n.NewPod("writable").CNI("ADD", ownConf).MustCode(7)
	require.NoError(t, os.Chmod(r.dir, 0o755))
	n.NewPod("writable").CNI("ADD", ownConf).Must()
}

// TestDelegateTalksNonsense: whatever a plugin prints, the answer is one CNI
// error and nothing stays.
func TestDelegateTalksNonsense(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("odd", `{"cniVersion":"1.0.0","name":"odd","type":"odd"}`),
		podObject("p", map[string]string{networksKey: "odd"})), "odd")
	p := n.NewPod("p")
	before := n.Inventory()
	for _, c := range []struct {
		order, says string
		code        uint
	}{
		{"huge", "1 MiB", 5},
		{"die out of ideas", "out of ideas", 5},
		{"print", "odd", 6},
		{"print this is no JSON", "odd", 6},
		{"print []", "odd", 6},
		{`print {"cniVersion":"9.9.9"}`, "odd", 6},
		{`print {"cniVersion":"1.0.0","ips":[null]}`, "odd", 6},
		{`print {"cniVersion":"1.0.0","ips":[{"address":"10.0.0.300/8"}]}`, "odd", 6},
		{`print {"cniVersion":"1.0.0","interfaces":[{"name":"net1"}],"ips":[{"interface":7,"address":"10.0.0.3/8"}]}`, "odd", 6},
		{`fail 0 zero`, "zero", 5},
		{`fail 999 \u001b[31mred`, "red", 999},
	} {
		r.order("odd", "ADD", c.order)
		e := p.CNI("ADD", ownConf).Err()
		require.NotNil(t, e, c.order)
		require.Equal(t, c.code, e.Code, "%s: %s: %s", c.order, e.Msg, e.Details)
		require.Contains(t, e.Msg+e.Details, c.says, c.order)
		require.Equal(t, []string{"ADD odd", "DEL odd"}, verbs(r.take()), c.order)
	}
	n.RequireNoLeaks(before)
}
