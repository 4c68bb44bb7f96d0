//go:build vm

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// card is an agent beside the VM's card, whose functions the kernel makes in its first
// namespace: there is no node of the test's own around it.
type card struct {
	*testing.T
	dir   string
	agent *exec.Cmd
	log   bytes.Buffer
	pci   []string // of the VFs
}

// vmPatience is how long something may take in a VM without hardware virtualization, on a
// machine that others use.
const vmPatience = 4 * time.Minute

const cardConf = `{"cniVersion":"1.0.0","name":"cluster","type":"fairlead","socket":"%s/agent.sock","delegates":[
	{"cniVersion":"1.0.0","name":"main","type":"macvlan","master":"up0","ipam":{"type":"static","addresses":[{"address":"10.1.0.9/24"}]}}]}`

const cardPods = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: bank, name: vf-a}
spec: {config: '{"cniVersion":"1.0.0","type":"sriov","deviceID":"%[1]s"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: bank, name: vf-b}
spec: {config: '{"cniVersion":"1.0.0","type":"sriov","deviceID":"%[2]s"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: bank, name: pool-a}
spec: {config: '{"cniVersion":"1.0.0","type":"sriov","deviceID":"%[1]s","vlan":1200,"ipam":{"type":"whereabouts","range":"10.9.1.0/24","range_start":"10.9.1.10","range_end":"10.9.1.11"}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: bank, name: pool-b}
spec: {config: '{"cniVersion":"1.0.0","type":"sriov","deviceID":"%[2]s","vlan":1200,"ipam":{"type":"whereabouts","range":"10.9.1.0/24","range_start":"10.9.1.10","range_end":"10.9.1.11"}}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: db-net, labels: {net.fairlead.io/pod-network: "true"}}
data:
  mysql-0: '{"interface":"net1","network":"bank/vf-a","ip":"10.9.0.17/24","mac":"02:0a:09:00:00:11","vlan":1200,"max_tx_rate":500,"trust":"on"}'
  mysql-1: '{"interface":"net1","network":"bank/vf-b","ip":"10.9.0.18/24","mac":"02:0a:09:00:00:12","vlan":1200}'
  pool-0: '{"interface":"net1","network":"bank/pool-a"}'
  pool-1: '{"interface":"net1","network":"bank/pool-b"}'
`

func newCard(t *testing.T) *card {
	return cardWith(t, func(pci []string) string { return fmt.Sprintf(cardPods, pci[0], pci[1]) })
}

// cardWith is a card whose agent has these objects.
func cardWith(t *testing.T, objects func(pci []string) string) *card {
	c := &card{T: t, dir: t.TempDir()}
	for n := range 2 {
		to, err := os.Readlink(fmt.Sprintf("/sys/class/net/pf0/device/virtfn%d", n))
		require.NoError(t, err, "the VM has a card")
		c.pci = append(c.pci, filepath.Base(to))
	}
	for _, d := range []string{"objects", "state", "fail"} {
		require.NoError(t, os.Mkdir(filepath.Join(c.dir, d), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "objects/pods.yaml"), []byte(objects(c.pci)), 0o600))
	c.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	c.run("ip", "link", "set", "up0", "up")
	t.Cleanup(func() { c.run("ip", "link", "del", "up0") })
	t.Cleanup(c.stop)
	c.start()
	return c
}

func (c *card) run(argv ...string) string {
	c.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	require.NoError(c, err, "%v: %s", argv, out)
	return string(out)
}

func (c *card) start() {
	const http = "127.0.0.1:10461"
	c.agent = exec.Command(testbed.Program(c), "agent", "--node-name", "n1", "--objects", c.dir+"/objects", "--state-dir", c.dir+"/state",
		"--socket", c.dir+"/agent.sock", "--ovsdb", "unix:"+c.dir+"/none.sock", "--cni-bin-dir", c.dir+"/none", "--http", http)
	c.agent.Env = append(os.Environ(), "FAIRLEAD_FAIL_DIR="+c.dir+"/fail")
	c.agent.Stdout, c.agent.Stderr = &c.log, &c.log
	require.NoError(c, c.agent.Start())
	require.Eventually(c, func() bool { return alive("http://" + http + "/livez") }, vmPatience, 20*time.Millisecond, "the agent serves")
}

func alive(url string) bool {
	r, err := http.Get(url) //nolint:gosec,noctx // of the test's own
	if err != nil {
		return false
	}
	defer func() { _ = r.Body.Close() }()
	return r.StatusCode == http.StatusOK
}

func (c *card) stop() {
	_ = c.agent.Process.Kill()
	_ = c.agent.Wait()
	if c.Failed() {
		c.Log(c.log.String())
	}
}

// state is the VF's, on the machine.
func (c *card) state(n int) string {
	c.Helper()
	var links []struct {
		VFs []map[string]any `json:"vfinfo_list"`
	}
	require.NoError(c, json.Unmarshal([]byte(c.run("ip", "-j", "link", "show", "dev", "pf0")), &links))
	names, err := os.ReadDir("/sys/bus/pci/devices/" + c.pci[n] + "/net")
	require.NoError(c, err)
	require.Len(c, names, 1)
	link := c.run("ip", "-o", "link", "show", "dev", names[0].Name())
	_, mac, _ := strings.Cut(link, "link/ether ")
	vf := links[0].VFs[n]
	if vf["address"] == mac[:17] {
		vf["address"] = "00:00:00:00:00:00" // the VF's own, once it has told it
	}
	return fmt.Sprint(vf, names[0].Name(), mac[:17])
}

// cni calls the plugin for a pod of a namespace; after a minute it is a failure.
func (c *card) cni(op, pod string) (string, error) {
	cmd := exec.Command(filepath.Join(filepath.Dir(testbed.Program(c)), "fairlead-cni"))
	cmd.Stdin = strings.NewReader(fmt.Sprintf(cardConf, c.dir))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+op, "CNI_CONTAINERID="+strings.Repeat("0", 60)+pod, "CNI_NETNS=/run/netns/"+pod,
		"CNI_IFNAME=eth0", "CNI_PATH="+c.dir+"/none", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=bank;K8S_POD_NAME="+pod)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *card) must(op, pod string) {
	c.Helper()
	out, err := c.cni(op, pod)
	require.NoError(c, err, "%s of %s: %s", op, pod, out)
}

func (c *card) pod(name string) {
	c.Helper()
	c.run("ip", "netns", "add", name)
	c.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
}

// TestKernelSRIOV: a pod that a ConfigMap names gets a VF with address, MAC, VLAN and
// switches, though it asks for nothing; two in one VLAN reach each other, and what leaves
// has the tag. So do two whose network has a range of whereabouts. After DEL each VF is what it was: also when the agent was killed at any
// step, when it is asked again, and when the pod's namespace went first.
func TestKernelSRIOV(t *testing.T) {
	c := newCard(t)
	before := []string{c.state(0), c.state(1)}
	for _, name := range []string{"mysql-0", "mysql-1"} {
		c.pod(name)
		c.must("ADD", name)
		c.must("CHECK", name)
	}
	link := c.run("ip", "-n", "mysql-0", "-o", "addr", "show", "dev", "net1")
	require.Contains(t, link, "10.9.0.17/24")
	require.Contains(t, c.run("ip", "-n", "mysql-0", "link", "show", "dev", "net1"), "02:0a:09:00:00:11")
	require.Regexp(t, `vf 0 .*02:0a:09:00:00:11.* vlan 1200, tx rate 500 \(Mbps\), max_tx_rate 500Mbps, spoof checking on, link-state auto, trust on`, c.run("ip", "link", "show", "dev", "pf0"))
	ping := func() bool {
		return exec.Command("ip", "netns", "exec", "mysql-0", "ping", "-n", "-c", "1", "-w", "3", "10.9.0.18").Run() == nil
	}
	require.Eventually(t, ping, 30*time.Second, 100*time.Millisecond)
	c.changes(ping)
	c.run("ip", "link", "set", "pf0", "vf", "0", "trust", "off")
	out, err := c.cni("CHECK", "mysql-0")
	require.Error(t, err)
	require.Contains(t, out, "trust is off, not on")
	for n, name := range []string{"mysql-0", "mysql-1"} {
		c.must("DEL", name)
		c.must("DEL", name)
		require.Equal(t, before[n], c.state(n))
	}
	t.Run("addresses of a range", func(t *testing.T) {
		for n, name := range []string{"pool-0", "pool-1"} {
			c.pod(name)
			c.must("ADD", name)
			c.must("CHECK", name)
			require.Contains(t, c.run("ip", "-n", name, "-o", "addr", "show", "dev", "net1"), fmt.Sprintf("10.9.1.1%d/24", n))
		}
		require.Eventually(t, func() bool {
			return exec.Command("ip", "netns", "exec", "pool-0", "ping", "-n", "-c", "1", "-w", "3", "10.9.1.11").Run() == nil
		}, 30*time.Second, 100*time.Millisecond)
		for n, name := range []string{"pool-0", "pool-1"} {
			c.must("DEL", name)
			require.Equal(t, before[n], c.state(n))
		}
	})
	t.Run("the namespace went first", func(t *testing.T) {
		c.must("ADD", "mysql-0")
		c.run("ip", "netns", "del", "mysql-0")
		c.must("DEL", "mysql-0")
		require.Equal(t, before[0], c.state(0))
		c.pod("mysql-0")
	})
	for _, kill := range []struct{ op, point string }{
		{"ADD", "sriov.marked"}, {"ADD", "sriov.attributes"}, {"ADD", "sriov.moved"}, {"ADD", "sriov.leased"}, {"ADD", "sriov.configured"},
		{"DEL", "sriov.back"}, {"DEL", "sriov.baseline"}, {"DEL", "sriov.unbound"}, {"DEL", "sriov.clean"}, {"DEL", "sriov.restored"},
	} {
		t.Run(kill.op+" killed at "+kill.point, func(t *testing.T) {
			if kill.op == "DEL" {
				c.must("ADD", "mysql-0")
			}
			c.killed(kill.point, func() {
				go func() { _, _ = c.cni(kill.op, "mysql-0") }() // it is told that there is no answer
			})
			c.start()
			c.must("DEL", "mysql-0")
			require.Equal(t, before[0], c.state(0))
			c.must("ADD", "mysql-0")
			c.must("CHECK", "mysql-0")
			c.must("DEL", "mysql-0")
			require.Equal(t, before[0], c.state(0))
		})
	}
}

// changes: a running pod gets the VLAN, the rate and the switches that are declared of it
// now, without a restart and also when the agent is killed at any step of it; CHECK goes by
// them. Of what the driver refuses nothing is set, and it is told; so is what only a new pod
// can have.
func (c *card) changes(ping func() bool) {
	c.Helper()
	const was = `"vlan":1200,"max_tx_rate":500,"trust":"on"}`
	file := c.dir + "/objects/pods.yaml"
	text, err := os.ReadFile(file)
	require.NoError(c, err)
	declare := func(now string) {
		c.Helper()
		next := file + ".new" // not read: it is no YAML file yet
		require.NoError(c, os.WriteFile(next, bytes.Replace(text, []byte(was), []byte(now), 1), 0o600))
		require.NoError(c, os.Rename(next, file))
	}
	becomes := func(want string) {
		c.Helper()
		require.Eventually(c, func() bool {
			out := c.run("ip", "link", "show", "dev", "pf0")
			_, err := c.cni("CHECK", "mysql-0")
			return strings.Contains(out, want) && err == nil
		}, vmPatience, 100*time.Millisecond, "%s; %s", want, c.run("ip", "link", "show", "dev", "pf0"))
	}
	told := func(what string) {
		c.Helper()
		require.Eventually(c, func() bool {
			return strings.Contains(c.run(testbed.Program(c), "describe", "pod", "bank/mysql-0", "--socket", c.dir+"/agent.sock"), what)
		}, vmPatience, 100*time.Millisecond, what)
	}
	for n, point := range []string{"tune.bound", "tune.recorded", "sriov.changed"} {
		c.killed(point, func() { declare(fmt.Sprintf(`"vlan":%d,"vlanQoS":2,"max_tx_rate":400,"spoofchk":"off"}`, 1300+n)) })
		c.start()
		becomes(fmt.Sprintf("vlan %d, qos 2, tx rate 400 (Mbps), max_tx_rate 400Mbps, spoof checking off, link-state auto, trust off", 1300+n))
	}
	require.False(c, ping(), "it is in another VLAN")
	declare(`"vlan":1200,"max_tx_rate":500,"trust":"on","min_tx_rate":5}`)
	told("DriverCannot: virtual function 0 of pf0: the driver refuses rate")
	becomes("vlan 1302, qos 2, tx rate 400 (Mbps), max_tx_rate 400Mbps, spoof checking off, link-state auto, trust off")
	declare(strings.Replace(was, "}", `,"gateway":"10.9.0.1"}`, 1))
	told("RestartNeeded: gateway of interface net1")
	declare(was)
	becomes("vlan 1200, tx rate 500 (Mbps), max_tx_rate 500Mbps, spoof checking on, link-state auto, trust on")
	require.Eventually(c, ping, 30*time.Second, 100*time.Millisecond)
}

// killed has the agent die at a crash point, which it comes to by what do begins.
func (c *card) killed(point string, do func()) {
	c.Helper()
	require.NoError(c, os.WriteFile(c.dir+"/fail/crash", []byte(point), 0o600))
	ended := make(chan error, 1)
	go func() { ended <- c.agent.Wait() }()
	do()
	select {
	case <-ended:
	case <-time.After(vmPatience):
		require.Fail(c, "it never came there", point)
	}
}
