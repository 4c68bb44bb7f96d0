package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// multusProgram builds Multus v4.3.0's own plugin once.
var multusProgram = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "multus")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-C", "../../bench/peers/multus", "-mod=mod", "-o", dir+"/multus",
		"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(dir + "/multus")
})

// formerly is a node on which Multus attached the pods.
type formerly struct {
	*testbed.Node

	t      *testing.T
	multus string // the real one
	rec    *recorders
}

func withMultus(t *testing.T) *formerly {
	t.Helper()
	program, err := multusProgram()
	require.NoError(t, err)
	f := &formerly{Node: testbed.New(t), t: t}
	bond(f.Node)
	f.Run("ip", "link", "add", "br1", "address", "02:00:00:00:11:11", "type", "bridge") // else ports change its MAC
	f.Run("ip", "link", "set", "br1", "up")
	f.rec = installRecorders(t, f.Node, "rec")
	f.multus = filepath.Join(f.Dir, "multus")
	require.NoError(t, os.WriteFile(f.multus, program, 0o755))
	return f
}

// formerConf has networks of every shape: a list with an IPAM and a capability,
// a single configuration, and one whose calls the test can see.
const formerConf = `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus","capabilities":{"portMappings":true},"delegates":[
	{"cniVersion":"1.0.0","name":"main","plugins":[{"type":"bridge","bridge":"br1","ipam":{"type":"host-local","subnet":"10.61.0.0/24","routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}}]},
	{"cniVersion":"0.3.1","name":"mac","type":"macvlan","master":"bond0","ipam":{"type":"host-local","subnet":"10.62.0.0/24"}},
	{"cniVersion":"1.1.0","name":"rec","type":"rec"}]}`

// withGC is a configuration in the version that has GC: the runtime's own is
// what it says of all verbs.
func withGC(conf string) string {
	return strings.Replace(conf, `"cniVersion":"1.0.0"`, `"cniVersion":"1.1.0"`, 1)
}

// attach has the real Multus add a pod.
func (f *formerly) attach(p *testbed.Pod, port int) []byte {
	f.t.Helper()
	return f.real("ADD", p, strings.TrimSuffix(formerConf, "}")+
		fmt.Sprintf(`,"runtimeConfig":{"portMappings":[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]}}`, port))
}

// real runs the real Multus.
func (f *formerly) real(op string, p *testbed.Pod, conf string) []byte {
	f.t.Helper()
	ctx, stop := context.WithCancel(f.t.Context())
	defer stop()
	cmd := f.Cmd(ctx, f.multus)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &stdout, &stderr
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+op, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns(),
		"CNI_IFNAME=eth0", "CNI_ARGS="+p.Args(), "CNI_PATH="+testbed.PluginDir+":"+f.rec.dir)
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		require.NoError(f.t, err, "%s%s", stdout.String(), stderr.String())
	}
	require.NoError(f.t, err)
	return stdout.Bytes()
}

// leases are the addresses that host-local has given out.
func (f *formerly) leases(network string) []string {
	var out []string
	for name := range strings.FieldsSeq(f.Run("sh", "-c", "ls /var/lib/cni/networks/"+network+" || true")) {
		if strings.HasPrefix(name, "10.") {
			out = append(out, name)
		}
	}
	return out
}

func (f *formerly) records() string {
	return f.Run("sh", "-c", "find /var/lib/cni/multus -type f || true")
}

// TestRule4_MultusRecordsAreAdopted: pods that Multus attached are checked,
// collected and removed by its records, with the arguments of their ADD, when
// Multus has gone.
func TestRule4_MultusRecordsAreAdopted(t *testing.T) {
	t.Parallel()
	f := withMultus(t)
	warm := f.NewPod("warm") // what plugins leave for good becomes the base line
	f.attach(warm, 9000)
	f.Agent(f.rec.args()...).WaitReady()
	awaitGateways(t, f.Node)
	warm.CNI("DEL", formerConf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, warm))
	require.Empty(t, f.records())
	before := f.Inventory()

	a, b, c := f.NewPod("a"), f.NewPod("b"), f.NewPod("c")
	results := map[*testbed.Pod][]byte{}
	for i, p := range []*testbed.Pod{a, b, c} {
		results[p] = f.attach(p, 8080+i)
		require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	}
	f.rec.take()

	a.CNI("CHECK", withPrev(formerConf, results[a])).Must()
	require.Equal(t, []string{"CHECK rec"}, verbs(f.rec.take()))
	a.Run("ip", "addr", "flush", "dev", "net1")
	e := a.CNI("CHECK", withPrev(formerConf, results[a])).MustCode(106)
	require.Contains(t, e.Msg+e.Details, "net1: address 10.62.0.")
	f.rec.take()

	b.Delete() // its DEL never came; c's namespace lives, and the runtime has forgotten it
	f.CNI(cni.Request{Command: "GC", Config: []byte(strings.TrimSuffix(withGC(formerConf), "}") +
		fmt.Sprintf(`,"cni.dev/valid-attachments":[{"containerID":%q,"ifname":"eth0"}]}`, a.ContainerID))}).Must()
	calls := f.rec.take()
	require.Equal(t, []string{"DEL rec", "GC rec"}, verbs(calls))
	require.Contains(t, string(calls[1].Stdin), a.ContainerID, "what Multus attached is in use")
	require.Contains(t, string(calls[1].Stdin), c.ContainerID)
	require.NotContains(t, string(calls[1].Stdin), b.ContainerID)
	require.Len(t, f.leases("main"), 2)
	require.Len(t, f.leases("mac"), 2)
	require.NotContains(t, f.Run("nft", "list", "ruleset"), "dport 8081")
	require.Contains(t, f.Run("nft", "list", "ruleset"), "dport 8080")
	require.NotContains(t, f.records(), b.ContainerID)

	f.rec.order("rec", "DEL", "fail 999 not today")
	require.Equal(t, uint(999), a.CNI("DEL", formerConf).MustCode(999).Code)
	require.Contains(t, f.records(), a.ContainerID, "what may be needed once more stays")
	f.rec.take()
	f.rec.order("rec", "DEL", "")
	for _, p := range []*testbed.Pod{a, c} {
		p.CNI("DEL", formerConf).Must()
		require.Equal(t, []string{"lo"}, linkNames(t, p))
		calls = f.rec.take()
		want := []string{"DEL rec"}
		if p == a { // the agent, which goes on with a failed DEL by itself, came first
			want = slices.Repeat(want, max(1, len(calls)))
		}
		require.Equal(t, want, verbs(calls))
		require.Contains(t, calls[0].Env["CNI_ARGS"], "K8S_POD_NAME="+p.Name)
		require.Contains(t, string(calls[0].Stdin), `"prevResult"`)
		p.CNI("DEL", formerConf).Must() // never seen by now: by the configuration
		f.rec.take()
		p.Delete()
	}
	require.Empty(t, f.leases("main"))
	require.Empty(t, f.records())
	f.RequireNoLeaks(before)
}

// TestRule4_MultusHadUsAsDelegate: while Multus works it sees to its other
// delegates itself; once it has gone, our record and its own are one.
func TestRule4_MultusHadUsAsDelegate(t *testing.T) {
	t.Parallel()
	f := withMultus(t)
	f.Agent(f.rec.args()...).WaitReady()
	awaitGateways(t, f.Node)
	conf := `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus","delegates":[
		{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"fairlead"}]},
		{"cniVersion":"1.0.0","name":"mac","plugins":[{"type":"macvlan","master":"bond0","ipam":{"type":"host-local","subnet":"10.62.0.0/24"}},{"type":"rec"}]}]}`
	warm := f.NewPod("warm")
	f.real("ADD", warm, conf)
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, warm))
	f.rec.take()
	f.real("DEL", warm, conf)
	require.Equal(t, []string{"DEL rec"}, verbs(f.rec.take()), "by Multus alone")
	require.Equal(t, []string{"lo"}, linkNames(t, warm))
	require.Empty(t, f.records())
	before := f.Inventory()

	p := f.NewPod("p")
	result := f.real("ADD", p, conf)
	f.rec.take()
	p.CNI("CHECK", withPrev(conf, result)).Must()
	require.Equal(t, []string{"CHECK rec"}, verbs(f.rec.take()))
	p.Run("ip", "addr", "flush", "dev", "net1")
	p.CNI("CHECK", withPrev(conf, result)).MustCode(106)
	f.rec.take()
	f.CNI(cni.Request{Command: "GC", Config: []byte(strings.TrimSuffix(withGC(conf), "}") + `,"cni.dev/valid-attachments":[]}`)}).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p), "its namespace lives")
	f.rec.take()
	p.CNI("DEL", conf).Must()
	require.Equal(t, []string{"DEL rec"}, verbs(f.rec.take()))
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	require.Empty(t, f.leases("mac"))
	require.Empty(t, f.records())
	p.Delete()
	f.RequireNoLeaks(before)
}

// TestComplaint_TornCacheOfMultus: a record that a power loss left empty costs
// its pod nothing but what only the record knew.
func TestComplaint_TornCacheOfMultus(t *testing.T) {
	t.Parallel()
	f := withMultus(t)
	p := f.NewPod("p")
	f.attach(p, 8080)
	f.Agent(f.rec.args()...).WaitReady()
	f.Run("sh", "-c", ": > /var/lib/cni/multus/"+p.ContainerID)
	p.CNI("CHECK", formerConf).MustCode(3)
	p.CNI("DEL", formerConf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	require.Empty(t, f.leases("main"), "by the configuration")
	require.NotContains(t, f.Run("sh", "-c", "ls /var/lib/cni/multus"), p.ContainerID)
}
