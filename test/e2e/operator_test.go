package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/testbed"
)

// asked runs one of our commands with -o json and decodes what it printed.
func asked[T any](t *testing.T, n *testbed.Node, words ...string) (v T) {
	t.Helper()
	out := n.Fairlead(append(words, "-o", "json")...)
	require.NoError(t, json.Unmarshal([]byte(out), &v), out)
	return v
}

// exitsWith runs a command that must end with this status and gives all that
// it printed.
func exitsWith(t *testing.T, n *testbed.Node, status int, words ...string) string {
	t.Helper()
	out, err := n.TryFairlead(words...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
		out = err.Error()
	}
	require.Equal(t, status, code, "%v: %v\n%s", words, err, out)
	return out
}

// table gives the words of a table's head and those of its lines.
func table(text string) (head []string, rows [][]string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows[0], rows[1:]
}

// cell is the value of a column in the first row that has this word.
func cell(t *testing.T, text, row, name string) string {
	t.Helper()
	head, rows := table(text)
	for _, r := range rows {
		require.Len(t, r, len(head), text)
		for i := range r {
			if r[i] != row {
				continue
			}
			for j, h := range head {
				if h == name {
					return r[j]
				}
			}
		}
	}
	require.Fail(t, "no cell", "%s of %s in\n%s", name, row, text)
	return ""
}

// operatorObjects: the two pods of CHECK's tests, and one with a second network.
func operatorObjects() map[string]string {
	files := checkObjects()
	files["storage.yaml"] = together(
		subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/24", "provider": "storage.default.ovn", "excludeIps": []string{"10.20.0.2..10.20.0.9"}}),
		nadObject("default/storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"storage.default.ovn"}`),
		nadObject("default/dangling", `{"cniVersion":"1.0.0","type":"fairlead"}`),
		podObject("team/web", map[string]string{"k8s.v1.cni.cncf.io/networks": "default/storage"}),
	)
	return files
}

// TestGetCommands reads pods, networks, subnets and addresses in all forms.
func TestGetCommands(t *testing.T) {
	t.Parallel()
	n := startNode(t, operatorObjects())
	vlan, va := attached(n, "vlan")
	_, da := attached(n, "dual")
	web, _ := attached(n, "team/web")

	text := n.Fairlead("get", "pods")
	head, rows := table(text)
	require.Equal(t, []string{"NAMESPACE", "POD", "INTERFACE", "NETWORK", "IP", "MAC", "VLAN", "RATE(in/out)", "PORT", "STATE", "AGE"}, head)
	require.Len(t, rows, 4)
	rates := "30/10Mbit"
	if doctor.Police() != nil {
		rates = "30/10*Mbit"
	}
	for name, want := range map[string]string{
		"NAMESPACE": "default", "INTERFACE": "eth0", "NETWORK": "fairlead", "IP": va[0], "VLAN": "100",
		"RATE(in/out)": rates, "PORT": hostIf(vlan, "eth0"), "STATE": "added",
	} {
		require.Equal(t, want, cell(t, text, "vlan", name), name)
	}
	require.Equal(t, strings.Join(da, ","), cell(t, text, "dual", "IP"))
	require.Equal(t, "default/storage", cell(t, text, "net1", "NETWORK"))
	require.Equal(t, "10.20.0.10", cell(t, text, "net1", "IP"))
	wide := n.Fairlead("get", "pods", "-o", "wide")
	require.Equal(t, column(n, "Interface", hostIf(vlan, "eth0"), "ofport"), cell(t, wide, "vlan", "OFPORT"))
	require.Equal(t, vlan.ContainerID[:12], cell(t, wide, "vlan", "CONTAINER"))
	require.Equal(t, vlan.Netns(), cell(t, wide, "vlan", "NETNS"))

	pods := asked[agent.PodList](t, n, "get", "pods", "-n", "team")
	require.Len(t, pods.Items, 1)
	require.Equal(t, "web", pods.Items[0].Name)
	require.Len(t, pods.Items[0].Attachments, 1)
	ifs := pods.Items[0].Attachments[0].Interfaces
	require.Equal(t, []string{"eth0", "net1"}, []string{ifs[0].Name, ifs[1].Name})
	require.Equal(t, hostIf(web, "net1"), ifs[1].HostIf)
	require.Contains(t, n.Fairlead("get", "pods", "-o", "yaml"), "hostInterface: "+hostIf(vlan, "eth0"))

	nets := n.Fairlead("get", "nets")
	require.Equal(t, "3", cell(t, nets, "fairlead", "INTERFACES"), "whatever the runtime calls it")
	require.Equal(t, "ovn-default", cell(t, nets, "fairlead", "SUBNET"))
	require.Equal(t, "1", cell(t, nets, "default/storage", "INTERFACES"))
	require.Equal(t, "storage", cell(t, nets, "default/storage", "SUBNET"))
	require.Equal(t, "unusable", cell(t, nets, "default/dangling", "STATE"))
	for _, net := range asked[agent.NetList](t, n, "get", "nets").Items {
		require.Equal(t, net.Name == "default/dangling", net.Problem != "", "%+v", net)
	}

	subnets := n.Fairlead("get", "subnets", "-o", "wide")
	require.Equal(t, "100", cell(t, subnets, "tagged", "VLAN"))
	require.Equal(t, "10.20.0.2..10.20.0.9", cell(t, subnets, "storage", "EXCLUDE"))
	for _, s := range asked[agent.SubnetList](t, n, "get", "subnets").Items {
		require.Len(t, s.Usage, len(s.CIDRs))
		for _, u := range s.Usage {
			require.Equal(t, u.Total, u.Used+u.Free+u.Excluded, "%s: %+v", s.Name, u)
		}
	}
	ips := n.Fairlead("get", "ips")
	require.Equal(t, "vlan", cell(t, ips, va[0], "POD"))
	require.Len(t, asked[agent.IPList](t, n, "get", "ips").Items, 6)

	require.Contains(t, n.Fairlead("ip", "who", va[0]), "is eth0 of pod default/vlan (subnet tagged)")
	require.Contains(t, n.Fairlead("ip", "who", va[0]), hostIf(vlan, "eth0"))
	require.Equal(t, agent.IPGateway, asked[agent.Who](t, n, "ip", "who", "10.20.0.1").Items[0].State)
	require.Equal(t, agent.IPExcluded, asked[agent.Who](t, n, "ip", "who", "10.20.0.5").Items[0].State)
	require.Equal(t, agent.IPFree, asked[agent.Who](t, n, "ip", "who", "10.20.0.77").Items[0].State)
	require.Contains(t, exitsWith(t, n, 3, "ip", "who", "192.0.2.1"), "in no subnet")
	exitsWith(t, n, 2, "ip", "who", "x")
	vlan.CNI("DEL", ownConf).Must()
	released := asked[agent.Who](t, n, "ip", "who", va[0]).Items[0]
	require.Equal(t, agent.IPReleased, released.State)
	require.Equal(t, "vlan", released.Pod)
	exitsWith(t, n, 3, "describe", "pod", "default/nobody")
}

// TestDescribeShowsTheFailedStep: the timeline of a good ADD, and step and
// cause of one that failed, also after a restart of the agent.
func TestDescribeShowsTheFailedStep(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	_, _ = attached(n, "good")
	good := asked[agent.Pod](t, n, "describe", "pod", "default/good")
	require.Nil(t, good.LastFailure)
	var steps []string
	for _, s := range good.Attachments[0].Timeline {
		steps = append(steps, s.Name)
		require.Empty(t, s.Error)
		require.GreaterOrEqual(t, s.TookMs, 0.0)
	}
	require.Subset(t, steps, []string{"resolve", "ipam", "journal.begin", "eth0 ovs.veth", "eth0 ovs.txn", "eth0 ovs.pod", "eth0 attach.ovs", "journal.commit"})
	require.Contains(t, n.Fairlead("describe", "pod", "good"), "Timeline of the ADD")

	clash := n.NewPod("clash")
	clash.Run("ip", "link", "add", "eth0", "type", "bridge")
	clash.CNI("ADD", ownConf).MustCode(105)
	seen := func() {
		t.Helper()
		pod := asked[agent.Pod](t, n, "describe", "pod", "default/clash")
		require.Empty(t, pod.Attachments)
		f := pod.LastFailure
		require.NotNil(t, f)
		require.Equal(t, "ADD", f.Op)
		require.Equal(t, uint(105), f.Code)
		require.Equal(t, clash.ContainerID, f.Container)
		require.Contains(t, f.Cause, "already exists")
		require.NotEmpty(t, f.Hint)
		failed := map[string]string{}
		for _, s := range f.Timeline {
			if s.Error != "" {
				failed[s.Name] = s.Error
			}
		}
		require.Contains(t, failed["eth0 ovs.veth"], "already exists", "%+v", f.Timeline)
		text := n.Fairlead("describe", "pod", "clash")
		require.Regexp(t, `eth0 ovs\.veth .*failed: .*already exists`, text)
		require.Contains(t, text, "Last failure: ADD of "+clash.ContainerID[:12]+"/eth0")
		require.Contains(t, text, "Next:")
	}
	eventually(t, func() string { // it is kept beside the answer
		_, err := n.TryFairlead("describe", "pod", "clash")
		if err != nil {
			return err.Error()
		}
		return ""
	})
	seen()
	a.Stop()
	n.Agent().WaitReady()
	seen()

	n.WriteObjects("late.yaml", podObject("default/late", map[string]string{"k8s.v1.cni.cncf.io/networks": "nothing"}))
	late := n.NewPod("late")
	eventually(t, func() string {
		if late.CNI("ADD", ownConf).Err() == nil {
			late.CNI("DEL", ownConf).Must()
			return "the folder was not read"
		}
		return ""
	})
	eventually(t, func() string { return lacks(n.Fairlead("describe", "pod", "late"), "resolve") })
	require.Regexp(t, `resolve .*failed: .*nothing`, n.Fairlead("describe", "pod", "late"))
}

// TestAttachByHand needs no runtime, and GC of a runtime does not touch it.
func TestAttachByHand(t *testing.T) {
	t.Parallel()
	n := startNode(t, operatorObjects())
	p := n.NewPod("team/web")
	before := n.Inventory()
	hand := []string{"--netns", p.Netns(), "--pod", "team/web"}
	text := n.Fairlead(append([]string{"attach"}, hand...)...)
	require.Equal(t, strings.Join(addresses(t, p, "eth0"), ","), cell(t, text, "eth0", "IP"))
	require.Equal(t, []string{"10.20.0.10/24"}, addresses(t, p, "net1"))
	require.Equal(t, "10.20.0.10/24", cell(t, text, "net1", "IP"))
	require.Contains(t, exitsWith(t, n, 1, append([]string{"attach"}, hand...)...), "already has eth0")
	require.Contains(t, exitsWith(t, n, 1, append([]string{"attach"}, hand...)...), "fairlead detach --netns "+p.Netns())
	n.CNI(cni.Request{Command: "GC", Config: []byte(strings.TrimSuffix(ownConf, "}") + `,"cni.dev/valid-attachments":[]}`)}).Must()
	require.Contains(t, n.Fairlead("check", "--netns", p.Netns()), "✓ team/web ")
	n.Fairlead("check", "team/web")
	p.Run("ip", "link", "set", "net1", "down")
	require.Contains(t, exitsWith(t, n, 1, "check", "team/web"), "net1: link in the pod is down")
	require.Contains(t, exitsWith(t, n, 1, "check", "--netns", p.Netns()), "net1: link in the pod is down")
	n.Fairlead("detach", "--netns", p.Netns())
	n.Fairlead("detach", "--netns", p.Netns())
	n.RequireNoLeaks(before)
	exitsWith(t, n, 3, "check", "team/web")
	exitsWith(t, n, 2, "attach")
	require.Contains(t, exitsWith(t, n, 1, "attach", "--netns", "/run/netns/none", "--pod", "a/b"), "/run/netns/none does not exist")

	var result struct {
		CNIVersion string
		IPs        []struct{ Address string }
	}
	out := n.Fairlead(append([]string{"attach", "-o", "json"}, hand...)...)
	require.NoError(t, json.Unmarshal([]byte(out), &result), out)
	require.NotEmpty(t, result.IPs)
	n.Fairlead("detach", "--netns", p.Netns())
	n.RequireNoLeaks(before)
}

// TestGCCommand removes what belongs to namespaces that are gone, no more.
func TestGCCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t, operatorObjects())
	before := n.Inventory()
	stays, _ := attached(n, "stays")
	gone, ga := attached(n, "team/web")
	require.Contains(t, n.Fairlead("gc"), "0 removed")
	gone.Delete()
	require.Equal(t, "netns-gone", cell(t, n.Fairlead("get", "pods"), "web", "STATE"))
	r := asked[agent.GCResult](t, n, "gc")
	require.Len(t, r.Removed, 1)
	require.Equal(t, agent.AttachmentRef{Namespace: "team", Pod: "web", Container: gone.ContainerID, IfName: "eth0"}, r.Removed[0].AttachmentRef)
	require.Equal(t, 1, r.Kept)
	require.Empty(t, r.Failed)
	require.Equal(t, agent.IPReleased, asked[agent.Who](t, n, "ip", "who", ga[0]).Items[0].State)
	stays.CNI("CHECK", ownConf).Must()
	stays.CNI("DEL", ownConf).Must()
	stays.Delete()
	n.RequireNoLeaks(before)
}

// finding is one line of doctor's report.
type finding struct {
	Group, Name, Verdict, Reason, Next string
	Details                            []string
}

func examine(t *testing.T, n *testbed.Node, status int) map[string]finding {
	t.Helper()
	out, err := n.TryFairlead("doctor", "-o", "json")
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
		out = err.Error()[strings.Index(err.Error(), "{"):]
	}
	var report struct {
		OK       bool
		Findings []finding
	}
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&report), out)
	require.Equal(t, status, code, out)
	require.Equal(t, status == 0, report.OK)
	all := map[string]finding{}
	for _, f := range report.Findings {
		all[f.Name] = f
		if f.Verdict != "ok" {
			require.NotEmpty(t, f.Next, "%s: every ✗ has its next command", f.Name)
		}
	}
	return all
}

// TestDoctor: what is right, what is wrong, and that the commands it names
// repair it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.Outside()
	n.Agent().WaitReady()
	awaitGateways(t, n)
	p, _ := attached(n, "p")
	reaches(t, p, testbed.WorldIP4)
	fine := examine(t, n, 0)
	require.Equal(t, "ok", fine["forward filter"].Verdict, "%+v", fine)

	// As Docker does it.
	n.Run("iptables", "-P", "FORWARD", "DROP")
	cutOff(t, p, testbed.WorldIP4)
	found := examine(t, n, 0)["forward filter"]
	require.Equal(t, "warning", found.Verdict)
	require.Contains(t, found.Reason, "FORWARD")
	require.Contains(t, found.Next, "10.16.0.0/16")
	n.Run("sh", "-c", found.Next)
	reaches(t, p, testbed.WorldIP4)
	require.Equal(t, "ok", examine(t, n, 0)["forward filter"].Verdict)

	n.Run("nft", "add table inet fw; add chain inet fw gate { type filter hook forward priority 10; policy drop; }")
	cutOff(t, p, testbed.WorldIP4)
	found = examine(t, n, 0)["forward filter"]
	require.Contains(t, found.Reason, "inet fw")
	n.Run("sh", "-c", found.Next)
	reaches(t, p, testbed.WorldIP4)
	n.Run("nft", "delete table inet fw; flush ruleset ip")

	n.OVS.KillServer()
	broken := examine(t, n, 1)
	require.Equal(t, "failed", broken["OVSDB"].Verdict)
	require.Contains(t, exitsWith(t, n, 1, "doctor"), "✗ OVSDB")
	n.OVS.StartServer()
	eventually(t, func() string {
		if _, err := n.TryFairlead("doctor"); err != nil {
			return err.Error()
		}
		return ""
	})
}

const planted = "5up3rS3cr3t"

// TestSupportBundleHasNoSecrets plants one wherever something secret may stand.
func TestSupportBundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("pod.yaml", podObject("default/p", map[string]string{"example.org/password": planted}))
	n.WriteObjects("nad.yaml", nadObject("default/n", `{"cniVersion":"1.0.0","type":"bridge","token":"`+planted+`","ipam":{"password":"`+planted+`"}}`))
	n.WriteObjects("conf.yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"default"},"data":{"secret":"`+planted+`"}}`)
	n.Run("sh", "-c", `echo '{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"fairlead","token":"`+planted+`"}]}' > /etc/cni/net.d/10.conflist`)
	n.Agent().WaitReady()
	p := n.NewPod("p")
	a := n.CNI(cni.Request{
		Command: "ADD", ContainerID: p.ContainerID, IfName: "eth0", Netns: p.Netns(), Args: p.Args() + ";TOKEN=" + planted,
		Config: []byte(strings.TrimSuffix(ownConf, "}") + `,"token":"` + planted + `"}`),
	})
	a.Must()
	p.CNI("ADD", strings.TrimSuffix(ownConf, "}")+`,"token":"`+planted+`","routes":5}`).MustCode(7)

	fairlead := strings.Fields(n.Run("sh", "-c", "tr '\\0' ' ' < /proc/"+agentPID(t, n)+"/cmdline"))[0]
	n.Run("env", "API_TOKEN="+planted, fairlead, "support-bundle", "-o", n.Dir+"/bundle.tar.gz")
	data, err := os.ReadFile(n.Dir + "/bundle.tar.gz")
	require.NoError(t, err)
	zip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		body, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = string(body)
	}
	var all strings.Builder
	for name, body := range files {
		require.NotContains(t, body, planted, name)
		all.WriteString(name + "\n" + body)
	}
	for _, want := range []string{"status.json", "doctor.txt", "10.16.0.2", p.ContainerID[:12], "fairlead_build_info"} {
		require.Contains(t, all.String(), want)
	}
}

// agentPID is the process that serves the node's socket.
func agentPID(t *testing.T, n *testbed.Node) string {
	t.Helper()
	out := n.Run("ss", "-xlpH", "src", cni.DefaultSocket)
	pid := regexp.MustCompile(`pid=(\d+)`).FindStringSubmatch(out)
	require.NotNil(t, pid, out)
	return pid[1]
}

// TestMetrics: the names are an interface, and no label grows with the pods.
func TestMetrics(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	p, addrs := attached(n, "a-pod-with-a-name")
	p.CNI("CHECK", ownConf).Must()
	p.CNI("ADD", ownConf).MustCode(105)
	status, body, err := a.Get("/metrics")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	for _, want := range []string{
		`fairlead_cni_operation_duration_seconds_count\{driver="ovs",op="ADD",result="success"\} 1`,
		`fairlead_cni_operation_duration_seconds_count\{driver="ovs",op="CHECK",result="success"\} 1`,
		`fairlead_cni_operation_duration_seconds_count\{driver="[a-z]+",op="ADD",result="error"\} 1`,
		`fairlead_cni_step_duration_seconds_count\{step="journal.begin"\} 1`,
		`fairlead_ipam_addresses\{[^}]*state="used"[^}]*subnet="ovn-default"[^}]*\} 1`,
		`fairlead_ipam_addresses\{[^}]*state="free"`,
		`fairlead_build_info\{.*version="`,
	} {
		require.Regexp(t, want, body)
	}
	for _, label := range []string{"pod=", "pod_name", "namespace=", "container", "a-pod-with-a-name", p.ContainerID[:12], addrs[0]} {
		require.NotContains(t, body, label)
	}
	p.CNI("DEL", ownConf).Must()
	_, body, err = a.Get("/metrics")
	require.NoError(t, err)
	require.Regexp(t, `fairlead_cni_operation_duration_seconds_count\{driver="ovs",op="DEL",result="success"\} 1`, body)
	require.Regexp(t, `fairlead_ipam_addresses\{[^}]*state="used"[^}]*subnet="ovn-default"[^}]*\} 0`, body)
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/none": 404} {
		status, _, err := a.Get(path)
		require.NoError(t, err)
		require.Equal(t, want, status, path)
	}
}
