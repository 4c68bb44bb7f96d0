package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// What users of Multus suffer from (spec/multinet.md) and what we owe them;
// ruleTests has those that are elsewhere.

// replica is a pod of a StatefulSet.
func replica(name string, notes map[string]string) string {
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
		"name": name, "annotations": notes,
		"ownerReferences": []map[string]any{{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}},
	}})
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// TestComplaint_FixedAddressPerReplicaStays: each replica has its own element
// of ip_pool on both networks, in whatever order they come, and has it again.
func TestComplaint_FixedAddressPerReplicaStays(t *testing.T) {
	t.Parallel()
	notes := map[string]string{
		networksKey:                                 "storage",
		"ovn.kubernetes.io/ip_pool":                 "10.16.0.50,fd00:10:16::50;10.16.0.51,fd00:10:16::51;10.16.0.52,fd00:10:16::52",
		"storage.default.ovn.kubernetes.io/ip_pool": "10.20.0.50,10.20.0.51,10.20.0.52",
	}
	objects := []string{
		subnetObject("dual", map[string]any{"default": true, "protocol": "Dual", "cidrBlock": "10.16.0.0/16,fd00:10:16::/112"}),
		ownNetwork("storage", "10.20.0.0/24"),
	}
	for i := range 4 {
		objects = append(objects, replica(fmt.Sprintf("web-%d", i), notes))
	}
	deployed := map[string]string{"ovn.kubernetes.io/ip_pool": "10.16.0.50;10.16.0.60;10.16.0.61"}
	objects = append(objects, podObject("d-x1", deployed), podObject("d-x2", deployed), podObject("d-x3", deployed))
	n := startNode(t, map[string]string{"all.yaml": together(objects...)})
	before := n.Inventory()
	for range 2 {
		var pods []*testbed.Pod
		for _, i := range []int{2, 0, 1} {
			p := n.NewPod(fmt.Sprintf("web-%d", i))
			p.CNI("ADD", ownConf).Must()
			require.Equal(t, []string{fmt.Sprintf("10.16.0.5%d/16", i), fmt.Sprintf("fd00:10:16::5%d/112", i)}, addresses(t, p, "eth0"))
			require.Equal(t, []string{fmt.Sprintf("10.20.0.5%d/24", i)}, addresses(t, p, "net1"))
			pods = append(pods, p)
		}
		fourth := n.NewPod("web-3")
		require.Contains(t, fourth.CNI("ADD", ownConf).MustCode(103).Msg, "none for replica 3")
		for i, want := range []string{"10.16.0.60/16", "10.16.0.61/16"} {
			p := n.NewPod(fmt.Sprintf("d-x%d", i+1))
			p.CNI("ADD", ownConf).Must()
			require.Equal(t, want, addresses(t, p, "eth0")[0], "the first of the list that is free")
			pods = append(pods, p)
		}
		last := n.NewPod("d-x3")
		e := last.CNI("ADD", ownConf).MustCode(103)
		require.Contains(t, e.Msg+e.Details, "all 3 of the addresses")
		for _, p := range append(pods, fourth, last) {
			p.CNI("DEL", ownConf).Must()
			p.Delete()
		}
	}
	n.RequireNoLeaks(before)
}

// TestComplaint_DelegateEatsTheMemory: plugins share the agent's memory group;
// the one that eats it is killed, its pod gets an error, the agent serves on.
func TestComplaint_DelegateEatsTheMemory(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	r := installRecorders(t, n, "rec")
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "glutton"), []byte(`#!/bin/sh
conf=$(cat)
[ "$CNI_COMMAND" = ADD ] || exit 0
set -e
cat /proc/self/oom_score_adj > "${0%/*}/score"
head -c 1G /dev/zero | tail -c 1G > /dev/null
echo '{"cniVersion":"1.0.0"}'
`), 0o755))
	n.WriteObjects("all.yaml", together(nadObject("glutton", `{"cniVersion":"1.0.0","type":"glutton"}`), asking("p", "glutton"), podObject("q", nil)))
	agent := n.Agent(r.args()...)
	agent.WaitReady()
	awaitGateways(t, n)
	confine(t, agent.PID(), 256<<20)
	before := n.Inventory()
	p, q := n.NewPod("p"), n.NewPod("q")
	e := p.CNI("ADD", ownConf).Err()
	require.NotNil(t, e)
	require.Contains(t, e.Msg+e.Details, "glutton")
	score, err := os.ReadFile(filepath.Join(r.dir, "score"))
	require.NoError(t, err)
	require.Equal(t, "1000", strings.TrimSpace(string(score)))
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	q.CNI("ADD", ownConf).Must()
	q.CNI("DEL", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	p.Delete()
	q.Delete()
	n.RequireNoLeaks(before)
}

// confine puts a process into a memory group of its own, as a container has.
func confine(t *testing.T, pid int, limit int) {
	t.Helper()
	dir, limitFile := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(dir); err != nil {
		dir, limitFile = "/sys/fs/cgroup", "memory.max"
	}
	group := filepath.Join(dir, fmt.Sprintf("fairlead-test-%d", pid))
	require.NoError(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() {
		left, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		require.NoError(t, err)
		for p := range strings.FieldsSeq(string(left)) {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(p), 0o600) // it may have ended
		}
		require.NoError(t, syscall.Rmdir(group))
	})
	require.NoError(t, os.WriteFile(filepath.Join(group, limitFile), fmt.Append(nil, limit), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, pid), 0o600))
}

// TestComplaint_NoPodWithoutItsNetworks: while the agent is away, stopped well or
// not come up after a reboot, pods get an error and nothing else; there is no
// way round it to another network.
func TestComplaint_NoPodWithoutItsNetworks(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("all.yaml", together(ownNetwork("storage", "10.20.0.0/24"), asking("p", "storage")))
	writeConf(n, "00-multus.conf", `{"cniVersion":"1.0.0","name":"meta","type":"multus"}`)
	writeConf(n, "10-other.conf", `{"cniVersion":"1.0.0","name":"other","type":"ptp","ipam":{"type":"host-local","subnet":"10.99.0.0/24"}}`)
	files := n.Run("sh", "-c", "cd /etc/cni/net.d && sha256sum *")
	conf := `{"cniVersion":"1.0.0","name":"meta","type":"multus"}`
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	p := n.NewPod("p")
	p.CNI("ADD", conf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	a.Stop()
	require.Equal(t, files, n.Run("sh", "-c", "cd /etc/cni/net.d && sha256sum *"), "a clean stop leaves the configuration")
	late := n.NewPod("p")
	late.CNI("ADD", conf).MustCode(11)
	require.Equal(t, []string{"lo"}, linkNames(t, late))

	n.Reboot()
	early := n.NewPod("p")
	early.CNI("ADD", conf).MustCode(11)
	require.Equal(t, []string{"lo"}, linkNames(t, early))
	n.Agent().WaitReady()
	awaitGateways(t, n)
	early.CNI("ADD", conf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, early))
	early.CNI("DEL", conf).Must()
}

// TestComplaint_DelErrorsAreNotSwallowed: a DEL while the agent is down succeeds
// for the runtime and is done when the agent is back, with what ADD used though
// NAD and configuration have changed; a failing one is an error and is kept.
func TestComplaint_DelErrorsAreNotSwallowed(t *testing.T) {
	t.Parallel()
	nad := func(key string) string {
		return nadObject("a", `{"cniVersion":"1.0.0","type":"rec","secret":"`+key+`"}`)
	}
	n := testbed.New(t)
	r := installRecorders(t, n, "rec")
	n.WriteObjects("all.yaml", together(nad("old"), asking("p", "a")))
	agent := n.Agent(r.args()...)
	agent.WaitReady()
	awaitGateways(t, n)
	before := n.Inventory()
	p, q := n.NewPod("p"), n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	q.CNI("ADD", ownConf).Must()
	added := r.take()
	agent.Stop()
	p.CNI("DEL", ownConf).Must()
	require.Empty(t, r.take())
	n.WriteObjects("all.yaml", together(nad("new"), asking("p", "a")))
	n.Agent(r.args()...).WaitReady()
	eventually(t, func() string {
		if strings.Join(linkNames(t, p), " ") == "lo" {
			return ""
		}
		return "the intent was not replayed"
	})
	require.JSONEq(t, string(added[0].Stdin), without(t, r.await("DEL rec").Stdin, "prevResult"))

	r.order("rec", "DEL", "fail 5 not yet")
	q.CNI("DEL", ownConf).MustCode(5)
	q.CNI("DEL", ownConf).MustCode(5)
	r.take()
	r.order("rec", "DEL", "")
	q.CNI("DEL", `{"cniVersion":"0.3.1","name":"changed","type":"multus"}`).Must()
	first := r.take()[0] // by that DEL, or by the agent, which goes on with a failed one by itself
	require.Equal(t, "DEL rec", first.String())
	require.JSONEq(t, string(added[1].Stdin), without(t, first.Stdin, "prevResult"))
	p.Delete()
	q.Delete()
	n.RequireNoLeaks(before)
}

// TestComplaint_TextFileBusy: a plugin that is just being written is tried again.
func TestComplaint_TextFileBusy(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(nadObject("a", `{"cniVersion":"1.0.0","type":"rec"}`), asking("p", "a")), "rec")
	before := n.Inventory()
	p := n.NewPod("p")
	busy, err := os.OpenFile(filepath.Join(r.dir, "rec"), os.O_WRONLY, 0)
	require.NoError(t, err)
	done := make(chan testbed.Answer)
	go func() { done <- p.CNI("ADD", ownConf) }()
	eventually(t, func() string { // the ADD has come as far as its own interface
		if len(linkNames(t, p)) > 1 {
			return ""
		}
		return "no eth0 yet"
	})
	require.NoError(t, busy.Close())
	answer := <-done
	answer.Must()
	p.CNI("DEL", ownConf).Must()
	p.Delete()
	n.RequireNoLeaks(before)
}

// TestComplaint_OldDefaultNetwork: a default network before CNI 0.4.0, which knows
// no CHECK, works under a configuration of 1.1.0, through every verb and a
// restart of the agent.
func TestComplaint_OldDefaultNetwork(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.Run("ip", "link", "add", "br1", "address", "02:00:00:00:11:11", "type", "bridge")
	n.Run("ip", "link", "set", "br1", "up")
	writeConf(n, "10-old.conf", `{"cniVersion":"0.2.0","name":"old","type":"bridge","bridge":"br1","ipam":{"type":"host-local","subnet":"10.64.0.0/24"}}`)
	conf := `{"cniVersion":"1.1.0","name":"meta","type":"multus","clusterNetwork":"/etc/cni/net.d/10-old.conf"}`
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	warm := n.NewPod("warm")
	warm.CNI("ADD", conf).Must()
	warm.CNI("DEL", conf).Must()
	warm.Delete()
	before := n.Inventory()
	p := n.NewPod("p")
	added := p.CNI("ADD", conf).Must()
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	a.Kill()
	n.Agent().WaitReady()
	status(n, conf).Must()
	p.CNI("CHECK", withPrev(conf, added.Stdout)).Must()
	p.Run("ip", "addr", "flush", "dev", "eth0")
	p.CNI("CHECK", withPrev(conf, added.Stdout)).MustCode(106)
	n.CNI(cni.Request{Command: "GC", Config: []byte(strings.TrimSuffix(conf, "}") + `,"cni.dev/valid-attachments":[]}`)}).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	p.Delete()
	n.RequireNoLeaks(before)
}

// TestComplaint_InterfaceAlreadyExists: after an ADD that was killed half-way, and
// on top of what it left, the retry is clean.
func TestComplaint_InterfaceAlreadyExists(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	bond(n)
	r := installRecorders(t, n, "rec")
	n.WriteObjects("all.yaml", together(
		nadObject("mac", `{"cniVersion":"1.0.0","name":"mac","plugins":[{"type":"macvlan","master":"bond0","ipam":{"type":"host-local","dataDir":"/run/ipam","subnet":"10.62.0.0/24"}},{"type":"rec"}]}`),
		ownNetwork("storage", "10.20.0.0/24"), asking("p", "storage,mac")))
	a := n.Agent(r.args()...)
	a.WaitReady()
	awaitGateways(t, n)
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	before := n.Inventory()

	r.order("rec", "ADD", "fail 5 broken")
	for range 2 {
		p.CNI("ADD", ownConf).MustCode(5)
		require.Equal(t, []string{"lo"}, linkNames(t, p))
	}
	r.order("rec", "ADD", "hang")
	r.take()
	done := make(chan testbed.Answer)
	go func() { done <- p.CNI("ADD", ownConf) }()
	eventually(t, func() string {
		if _, err := os.Stat(filepath.Join(r.dir, "calls.jsonl")); err != nil {
			return "the last plugin does not run yet"
		}
		return ""
	})
	a.Kill()
	<-done
	r.order("rec", "ADD", "")
	n.Agent(r.args()...).WaitReady()
	p.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1", "net2"}, linkNames(t, p))
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// TestComplaint_SelfNestingConfiguration: a configuration that names its own
// directory, or itself, is not called by itself.
func TestComplaint_SelfNestingConfiguration(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	conf := func(cluster string) string {
		return `{"cniVersion":"1.0.0","name":"meta","type":"multus","clusterNetwork":"` + cluster + `"}`
	}
	writeConf(n, "00-multus.conf", conf("/etc/cni/net.d"))
	before := n.Inventory()
	p := n.NewPod("p")
	p.CNI("ADD", conf("/etc/cni/net.d")).MustCode(11)
	p.CNI("ADD", conf("/etc/cni/net.d/00-multus.conf")).MustCode(7)
	p.CNI("ADD", `{"cniVersion":"1.0.0","name":"meta","type":"multus","delegates":[`+conf("x")+`]}`).MustCode(7)
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	writeConf(n, "10-own.conflist", `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"fairlead"}]}`)
	p.CNI("ADD", conf("/etc/cni/net.d")).Must()
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, p))
	p.CNI("DEL", conf("/etc/cni/net.d")).Must()
	n.Run("rm", "/etc/cni/net.d/10-own.conflist")
	p.Delete()
	n.RequireNoLeaks(before)
}
