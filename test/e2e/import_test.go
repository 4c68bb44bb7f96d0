package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// takeover is a node that Multus' own plugin serves, with plugins of its own.
// cnitool is the runtime: upstream's library, which keeps its own cache.
type takeover struct {
	*testbed.Node

	t *testing.T
}

// takeoverConf has a bridge that pods of the node reach each other on, and a
// second network.
const takeoverConf = `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus","logLevel":"error","delegates":[
	{"cniVersion":"1.0.0","name":"main","plugins":[{"type":"bridge","bridge":"br1","ipam":{"type":"host-local","subnet":"10.61.0.0/24"}},{"type":"tuning","mtu":1400}]},
	{"cniVersion":"0.4.0","name":"mac","type":"macvlan","master":"bond0","mode":"bridge","ipam":{"type":"host-local","subnet":"10.62.0.0/24"}}]}`

func newTakeover(t *testing.T, conf string) takeover {
	t.Helper()
	program, err := multusProgram()
	require.NoError(t, err)
	n := testbed.New(t)
	bond(n)
	n.Run("ip", "link", "add", "br1", "address", "02:00:00:00:11:11", "type", "bridge")
	n.Run("ip", "link", "set", "br1", "up")
	bin := filepath.Join(n.Dir, "plugins")
	n.Run("sh", "-c", "mkdir "+bin+" && cp /opt/cni/bin/* "+bin+" && rm "+bin+"/multus && cp "+bin+"/fairlead "+n.Dir+
		"/fairlead-cni && rm "+bin+"/fairlead && mount --bind "+bin+" /opt/cni/bin")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "multus"), program, 0o755))
	writeConf(n, "00-multus.conf", conf)
	return takeover{n, t}
}

// runtime makes a call of a runtime for a pod, by the configuration that wins.
func (o takeover) runtime(op string, p *testbed.Pod) testbed.Answer {
	o.t.Helper()
	return o.CNITool("/etc/cni/net.d", []string{"CNI_ARGS=" + p.Args()}, op, "multus-cni-network", p.Netns())
}

// multus runs `fairlead import multus`.
func (o takeover) multus(args ...string) (stdout, stderr string, code int) {
	o.t.Helper()
	root, err := testbed.Repository()
	require.NoError(o.t, err)
	bin := os.Getenv("FAIRLEAD_BIN")
	if bin == "" {
		bin = filepath.Join(root, ".cache/failpoint")
	}
	argv := append([]string{bin + "/fairlead", "import", "multus", "--from", o.Dir + "/fairlead-cni", "--import-dir", o.Dir + "/import"}, args...)
	cmd := o.Cmd(context.Background(), argv...)
	cmd.Env = append(os.Environ(), "FAIRLEAD_FAIL_DIR="+filepath.Join(o.Dir, "fail"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(o.t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs it and wants success.
func (o takeover) must(args ...string) string {
	o.t.Helper()
	out, errs, code := o.multus(args...)
	require.Zero(o.t, code, "%s%s", out, errs)
	return out
}

// planned is what --plan says, as far as the tests look.
type planned struct {
	Phase   string
	Runtime struct{ Winner, Whose string }
	Keys    []struct {
		Name   string
		Effect bool
	}
	Binaries []struct{ Type, Is, Then string }
	Multus   struct{ Listening bool }
	Records  []struct {
		Pod, Why         string
		Alive, Adoptable bool
	}
	Blocks        []struct{ What, Next string }
	Verdict, Next string
}

func (o takeover) plan(code int) (p planned) {
	o.t.Helper()
	out, errs, got := o.multus("--plan", "-o", "json")
	require.Equal(o.t, code, got, "%s%s", out, errs)
	require.NoError(o.t, json.Unmarshal([]byte(out), &p))
	return p
}

// interfaces are a pod's by the agent: "eth0 10.61.0.2/24".
func (o takeover) interfaces(pod string) (out []string) {
	o.t.Helper()
	for _, i := range attachment(o.t, o.Node, pod).Interfaces {
		out = append(out, i.Name+" "+i.Addresses[0].String())
	}
	return out
}

func (o takeover) pods() (out []string) {
	o.t.Helper()
	var list agent.PodList
	require.NoError(o.t, json.Unmarshal([]byte(o.Fairlead("get", "pods", "--node-local", "-o", "json")), &list))
	for _, p := range list.Items {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

// held are the files of host-local and Multus about a pod.
func (o takeover) held(p *testbed.Pod) string {
	return o.Run("sh", "-c", "grep -rls "+p.Netns()+" /var/lib/cni/multus/results || true; grep -rls cnitool /var/lib/cni/networks /var/lib/cni/multus | sort")
}

// TestImportMultus: a node changes hands under running pods, and back.
func TestImportMultus(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	warm := o.NewPod("warm")
	o.runtime("add", warm).Must()
	a, b := o.NewPod("a"), o.NewPod("b")
	added := map[*testbed.Pod][]string{}
	for _, p := range []*testbed.Pod{a, b} {
		added[p] = o.runtime("add", p).Must().IPs()
		require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	}

	p := o.plan(1)
	require.Contains(t, p.Blocks[0].What, "no agent")
	require.Contains(t, p.Next, "systemctl start fairlead")
	o.Agent().WaitReady()
	o.runtime("del", warm).Must()
	require.Empty(t, o.pods())
	before := o.Run("sh", "-c", "sha256sum /opt/cni/bin/* /etc/cni/net.d/*; find /var/lib/cni -type f | sort")
	p = o.plan(0)
	require.Equal(t, "00-multus.conf", p.Runtime.Winner)
	require.Equal(t, "multus", p.Runtime.Whose)
	require.Len(t, p.Records, 2)
	require.Equal(t, "it can be done: 2 of 2 containers become Fairlead's", p.Verdict)
	require.Equal(t, "fairlead import multus --apply", p.Next)
	require.Contains(t, o.must(), "default/a")
	require.Equal(t, before, o.Run("sh", "-c", "sha256sum /opt/cni/bin/* /etc/cni/net.d/*; find /var/lib/cni -type f | sort"), "a plan changes nothing")

	ip := func(p *testbed.Pod, ifName string) string { return strings.Split(addresses(t, p, ifName)[0], "/")[0] }
	pings := []*testbed.Pinger{a.StartPing(ip(b, "eth0"), 10*time.Millisecond), a.StartPing(ip(b, "net1"), 10*time.Millisecond)}
	out := o.must("--apply")
	require.Contains(t, out, "as Multus made it")
	require.Equal(t, []string{"default/a", "default/b"}, o.pods())
	require.Equal(t, []string{"eth0 " + added[b][0], "net1 " + addresses(t, b, "net1")[0]}, o.interfaces("default/b"))
	for _, p := range []*testbed.Pod{a, b} {
		o.runtime("check", p).Must()
		o.Fairlead("check", "default/"+p.Name)
	}
	require.Contains(t, o.must("--apply"), "as Multus made it", "and again")

	c := o.NewPod("c")
	o.runtime("add", c).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, c))
	require.NoError(t, c.Ping(ip(b, "eth0")))
	for _, g := range pings {
		g.Answers(20)
		answered, lost := g.Stop()
		require.Zero(t, lost, "of %d", answered)
	}
	p = o.plan(0)
	require.Equal(t, "fairlead", p.Runtime.Whose)
	require.Equal(t, "Fairlead has the node", p.Verdict)

	a.Run("ip", "addr", "flush", "dev", "net1")
	require.NotNil(t, o.runtime("check", a).Err(), "CHECK looks")
	o.runtime("del", a).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, a))
	require.NotContains(t, o.held(a), a.Netns())
	require.Equal(t, []string{"default/b", "default/c"}, o.pods())

	o.must("--rollback")
	require.Contains(t, o.must("--rollback"), "nothing was left to do")
	require.Empty(t, o.pods())
	require.Equal(t, "00-multus.conf", o.plan(0).Runtime.Winner)
	program, err := multusProgram()
	require.NoError(t, err)
	now, err := os.ReadFile(filepath.Join(o.Dir, "plugins", "multus"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(program, now), "Multus' own plugin")
	o.Run("rm", "/opt/cni/bin/fairlead") // nobody calls it any more
	for _, p := range []*testbed.Pod{b, c} {
		o.runtime("del", p).Must()
		require.Equal(t, []string{"lo"}, linkNames(t, p), p.Name)
	}
	require.Empty(t, o.held(b), "Multus removed everything")
	require.Empty(t, o.pods())
}

// TestImportSurvivesKills: at the instants at which an import or a rollback can end
// (see sample), the runtime's calls work, and it goes on where it was.
func TestImportSurvivesKills(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	host := o.Agent()
	host.WaitReady()
	a := o.NewPod("a")
	o.runtime("add", a).Must()
	o.CrashTrace()
	points := map[string][]string{}
	for _, way := range []string{"--apply", "--rollback"} {
		o.must(way)
		points[way] = passed(o.CrashTrace(), "import.", "rollback.")
	}
	require.Contains(t, points["--apply"], "import.conf")
	require.Contains(t, points["--apply"], "import.recorded", "the agent's")
	require.Contains(t, points["--rollback"], "rollback.released")

	works := func(point string) {
		t.Helper()
		p := o.NewPod("p")
		e := o.runtime("add", p).Err()
		require.Nil(t, e, "ADD after a kill at %s: %v", point, e)
		require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p), point)
		e = o.runtime("del", p).Err()
		require.Nil(t, e, "DEL after a kill at %s: %v", point, e)
		require.Equal(t, []string{"lo"}, linkNames(t, p), point)
		p.Delete()
	}
	crash := func(way, point string) {
		t.Helper()
		o.Crash(point)
		_, _, code := o.multus(way)
		require.NotZero(t, code, point)
		require.False(t, o.CrashPending(), point)
		if point == "import.recorded" {
			require.Error(t, host.Wait())
			host = o.Agent()
			host.WaitReady()
		}
		works(point)
		o.must(way)
		works(point)
	}
	for _, point := range sample(points["--apply"]) {
		crash("--apply", point)
		require.Equal(t, []string{"default/a"}, o.pods(), point)
		o.runtime("check", a).Must()
		o.must("--rollback")
		require.Empty(t, o.pods(), point)
		o.runtime("check", a).Must()
	}
	for _, point := range sample(points["--rollback"]) {
		o.must("--apply")
		crash("--rollback", point)
		require.Empty(t, o.pods(), point)
	}
	o.runtime("del", a).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, a))
	require.Empty(t, o.held(a))
}

// passed are the crash points with one of the prefixes, each once.
func passed(trace []string, prefixes ...string) (out []string) {
	for _, point := range trace {
		for _, prefix := range prefixes {
			if strings.HasPrefix(point, prefix) && !slices.Contains(out, point) {
				out = append(out, point)
			}
		}
	}
	return out
}

// TestImportKilledBetweenHands: a pod that goes while the import is half done is
// removed by whoever is called, and is not adopted afterwards.
func TestImportKilledBetweenHands(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	o.Agent().WaitReady()
	a, b := o.NewPod("a"), o.NewPod("b")
	o.runtime("add", a).Must()
	o.runtime("add", b).Must()
	o.Crash("import.files") // all but the journal
	_, _, code := o.multus("--apply")
	require.NotZero(t, code)
	require.Empty(t, o.pods())
	o.runtime("del", a).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, a))
	require.NotContains(t, o.held(a), a.Netns())
	o.must("--apply")
	require.Equal(t, []string{"default/b"}, o.pods())
	o.Run("rm", "/etc/cni/net.d/00-multus.conf") // as Multus' daemon does when it ends
	o.Run("sh", "-c", "rm -r /var/lib/cni/multus/*")
	require.Equal(t, "Fairlead has the node", o.plan(0).Verdict)
	o.must("--rollback")
	require.Equal(t, "00-multus.conf", o.plan(0).Runtime.Winner)
	o.runtime("del", b).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, b), "by what the backup had")
	require.Empty(t, o.held(b))
}

// TestImportLeavesAloneWhatItCannotTake: what is wrong is told, costs nothing
// else, and can be removed as before.
func TestImportLeavesAloneWhatItCannotTake(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	o.Agent().WaitReady()
	pods := map[string]*testbed.Pod{}
	for _, name := range []string{"fine", "gone", "reused", "torn"} {
		pods[name] = o.NewPod(name)
		o.runtime("add", pods[name]).Must()
	}
	record := func(name string) string {
		return strings.TrimSpace(o.Run("sh", "-c", "grep -l "+pods[name].Netns()+" /var/lib/cni/multus/results/main-* | sed 's,.*/main-\\(.*\\)-eth0,/var/lib/cni/multus/\\1,'"))
	}
	torn := record("torn")
	o.Run("sh", "-c", ": > "+torn)
	pods["gone"].Delete()
	// Another container has the path by now.
	pods["reused"].Run("ip", "link", "del", "net1")
	pods["reused"].Run("ip", "link", "add", "net1", "type", "veth", "peer", "name", "other")

	p := o.plan(0)
	require.Equal(t, "it can be done: 1 of 4 containers become Fairlead's", p.Verdict)
	why := map[string]string{}
	for _, r := range p.Records {
		why[r.Pod] = r.Why
	}
	require.Contains(t, why["gone"], "its namespace is gone")
	require.Contains(t, why["reused"], "interface net1 has MAC")
	require.Contains(t, why[""], "its DEL goes by configuration and annotations")

	var done struct{ Containers []agent.Adopted }
	require.NoError(t, json.Unmarshal([]byte(o.must("--apply", "-o", "json")), &done))
	states := map[string]string{}
	for _, c := range done.Containers {
		states[c.Pod] = c.State
	}
	require.Equal(t, map[string]string{"fine": "adopted", "gone": "gone", "reused": "files", "": "files"}, states)
	require.Equal(t, []string{"default/fine"}, o.pods())
	for _, name := range []string{"fine", "reused", "torn"} {
		o.runtime("del", pods[name]).Must()
		require.Equal(t, []string{"lo"}, linkNames(t, pods[name]), name)
	}
	require.Equal(t, "1", strings.TrimSpace(o.Run("sh", "-c", "ls /var/lib/cni/networks/main | grep -c ^10.")), "the one that waits for its DEL")
}

// TestImportTellsOfWhomItLeft: a pod that Multus attached and that was not taken
// over says that its networks do not follow its annotation.
func TestImportTellsOfWhomItLeft(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	o.Agent().WaitReady()
	fine, left := o.NewPod("fine"), o.NewPod("left")
	o.runtime("add", fine).Must()
	o.runtime("add", left).Must()
	record := strings.TrimSpace(o.Run("sh", "-c", "grep -l "+left.Netns()+" /var/lib/cni/multus/results/main-* | sed 's,.*/main-\\(.*\\)-eth0,/var/lib/cni/multus/\\1,'"))
	o.Run("mv", record, "/run/kept")
	o.must("--apply")
	o.Run("mv", "/run/kept", record)
	require.Equal(t, []string{"default/fine"}, o.pods())

	o.WriteObjects("all.yaml", together(podObject("default/left", map[string]string{"k8s.v1.cni.cncf.io/networks": "storage"}),
		nadObject("default/storage", `{"cniVersion":"1.0.0","type":"macvlan","master":"bond0"}`)))
	eventually(t, func() string {
		said, err := o.TryFairlead("describe", "pod", "default/left")
		if err != nil {
			return err.Error()
		}
		return lacks(said, "asks for default/storage as net2; `fairlead import multus --apply` takes it over")
	})
	require.NotContains(t, linkNames(t, left), "net2")
	o.must("--apply")
	require.ElementsMatch(t, []string{"default/fine", "default/left"}, o.pods())
	for _, p := range []*testbed.Pod{fine, left} {
		o.runtime("del", p).Must()
		requireBare(t, p)
	}
}

// TestImportIsRefused: what stands in the way is said, with the next command,
// and nothing is changed.
func TestImportIsRefused(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	before := o.Run("sh", "-c", "sha256sum /opt/cni/bin/*; ls /etc/cni/net.d")
	_, errs, code := o.multus("--apply")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no agent")
	require.Contains(t, errs, "next: start it")
	o.Agent().WaitReady()

	writeConf(o.Node, "00-calico.conflist", `{"cniVersion":"1.0.0","name":"calico","plugins":[{"type":"calico"}]}`)
	_, errs, code = o.multus("--apply")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "00-calico.conflist (calico) wins over 00-multus.conf")
	require.Contains(t, errs, "next: mv /etc/cni/net.d/00-calico.conflist /etc/cni/")
	require.Len(t, o.plan(1).Blocks, 1)
	o.Run("rm", "/etc/cni/net.d/00-calico.conflist")

	writeConf(o.Node, "00-multus.conf", strings.Replace(takeoverConf, `"logLevel":"error"`, `"confDir":7`, 1))
	_, errs, code = o.multus("--apply")
	require.Equal(t, 1, code)
	require.Contains(t, errs, `confDir`)
	o.Run("rm", "/etc/cni/net.d/00-multus.conf")
	_, errs, code = o.multus("--apply")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no file in /etc/cni/net.d calls Multus")
	require.Contains(t, o.must("--rollback"), "nothing was left to do")
	_, _, code = o.multus("--apply", "--rollback")
	require.Equal(t, 2, code)
	_, _, code = o.multus("--apply", "--force")
	require.Equal(t, 2, code)
	writeConf(o.Node, "00-multus.conf", takeoverConf)
	require.Equal(t, before, o.Run("sh", "-c", "sha256sum /opt/cni/bin/*; ls /etc/cni/net.d"))
}

// TestImportRollbackSparesOwnInterfaces: Multus cannot detach what Fairlead's
// own driver made; those pods are named, and keep the agent when forced.
func TestImportRollbackSparesOwnInterfaces(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	o.WriteObjects("net.yaml", together(
		subnetObject("extra", map[string]any{"cidrBlock": "10.88.0.0/24", "provider": "extra.default.ovn"}),
		nadObject("extra", `{"cniVersion":"1.0.0","type":"fairlead","provider":"extra.default.ovn"}`),
		podObject("default/own", map[string]string{"k8s.v1.cni.cncf.io/networks": "extra@net7"})))
	o.Agent().WaitReady()
	old := o.NewPod("old")
	o.runtime("add", old).Must()
	o.must("--apply")
	own := o.NewPod("own")
	o.runtime("add", own).Must()
	require.Equal(t, []string{"eth0", "lo", "net1", "net7"}, linkNames(t, own))

	_, errs, code := o.multus("--rollback")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "default/own")
	require.Contains(t, errs, "next: delete these pods first, or --force")
	require.Equal(t, []string{"default/old", "default/own"}, o.pods())
	require.Equal(t, "Fairlead has the node", o.plan(0).Verdict, "nothing was done")

	require.Contains(t, o.must("--rollback", "--force"), "fairlead gc")
	require.Equal(t, []string{"default/own"}, o.pods())
	o.runtime("del", old).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, old))
	own.Delete()
	o.Fairlead("gc")
	require.Empty(t, o.pods())
}

// TestImportThick: where Multus' daemon writes the configuration, with paths as
// it sees them, and puts its plugin back when it restarts. The containers are of
// the thin plugin: both keep the same records.
func TestImportThick(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, `{"capabilities":{"portMappings":true},"cniVersion":"1.0.0","name":"multus-cni-network","logToStderr":true,"type":"multus-shim",
		"clusterNetwork":"/host/etc/cni/net.d/10-main.conflist","cniConfigDir":"/host/etc/cni/net.d","multusAutoconfigDir":"/host/etc/cni/net.d","multusConfigFile":"auto"}`)
	o.Run("cp", "/opt/cni/bin/multus", "/opt/cni/bin/multus-shim")
	writeConf(o.Node, "10-main.conflist", `{"cniVersion":"1.0.0","name":"main","plugins":[{"type":"bridge","bridge":"br1","ipam":{"type":"host-local","subnet":"10.61.0.0/24"}}]}`)
	o.Run("mkdir", "/etc/cni/thin")
	o.Run("sh", "-c", `(echo '{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus","delegates":['; cat /etc/cni/net.d/10-main.conflist; echo ']}') > /etc/cni/thin/00.conf`)
	require.NoError(t, os.Mkdir(o.Path("/run/multus"), 0o700))
	daemon, err := net.Listen("unix", o.Path("/run/multus/multus.sock"))
	require.NoError(t, err)
	defer daemon.Close()
	host := o.Agent()
	host.WaitReady()
	a, b := o.NewPod("a"), o.NewPod("b")
	for _, p := range []*testbed.Pod{a, b} {
		o.CNITool("/etc/cni/thin", []string{"CNI_ARGS=" + p.Args()}, "add", "multus-cni-network", p.Netns()).Must()
	}

	p := o.plan(0)
	require.True(t, p.Multus.Listening)
	require.Equal(t, "it can be done: 2 of 2 containers become Fairlead's", p.Verdict)
	require.Contains(t, o.must("--apply"), "next: remove Multus' DaemonSet")
	require.Contains(t, o.Run("cat", "/etc/cni/net.d/00-fairlead.conflist"), `"clusterNetwork": "/etc/cni/net.d/10-main.conflist"`)
	require.Equal(t, "Fairlead has the node; Multus still runs", o.plan(0).Verdict)
	c := o.NewPod("c")
	o.runtime("add", c).Must()

	host.Stop()
	o.Agent().WaitReady()
	require.Equal(t, []string{"default/a", "default/b", "default/c"}, o.pods(), "in the journal")
	o.runtime("check", a).Must()

	o.Run("rm", "/opt/cni/bin/multus-shim")
	o.Run("cp", o.Dir+"/import/bin/multus", "/opt/cni/bin/multus-shim") // the DaemonSet's init container
	p = o.plan(0)
	require.Equal(t, "something of Multus came back after the import", p.Verdict)
	o.must(strings.Fields(p.Next)[3])
	require.Equal(t, "Fairlead has the node; Multus still runs", o.plan(0).Verdict)

	valid := attachment(t, o.Node, "default/a")
	o.CNI(cni.Request{Command: "GC", Config: []byte(`{"cniVersion":"1.1.0","name":"multus-cni-network","type":"fairlead","clusterNetwork":"/etc/cni/net.d/10-main.conflist",
		"cni.dev/valid-attachments":[{"containerID":"` + valid.Container + `","ifname":"eth0"}]}`)}).Must()
	require.Equal(t, []string{"default/a"}, o.pods())
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, a))
	require.Equal(t, []string{"lo"}, linkNames(t, b))
	require.Equal(t, "1", strings.TrimSpace(o.Run("sh", "-c", "ls /var/lib/cni/networks/main | grep -c ^10.")), "a's")
	o.runtime("del", a).Must()
	require.Empty(t, o.held(a))
}

// TestImportThickRestarts: Multus' daemon started anew beside our configuration
// takes that for its default network, since it is the first file not called
// 00-multus. The test writes what multus-daemon v4.3.0 was seen to write then.
func TestImportThickRestarts(t *testing.T) {
	t.Parallel()
	conf := func(master string) string {
		return `{"binDir":"/opt/cni/bin","capabilities":{"portMappings":true},"cniVersion":"1.0.0","name":"multus-cni-network","logToStderr":true,` +
			`"clusterNetwork":"/host/etc/cni/net.d/` + master + `","type":"multus-shim"}`
	}
	o := newTakeover(t, conf("10-main.conf"))
	o.Run("cp", "/opt/cni/bin/multus", "/opt/cni/bin/multus-shim")
	writeConf(o.Node, "10-main.conf", `{"cniVersion":"1.0.0","name":"main","type":"bridge","bridge":"br1","ipam":{"type":"host-local","subnet":"10.61.0.0/24"}}`)
	require.NoError(t, os.Mkdir(o.Path("/run/multus"), 0o700))
	daemon, err := net.Listen("unix", o.Path("/run/multus/multus.sock"))
	require.NoError(t, err)
	defer daemon.Close()
	o.Agent().WaitReady()
	o.must("--apply")
	wins := o.Run("cat", "/etc/cni/net.d/00-fairlead.conflist")
	o.Run("sh", "-c", "mkdir /run/former && mv /etc/cni/net.d/00-multus.conf /run/former/") // its end, and a runtime that did not hear yet
	p := o.NewPod("p")
	former := func(op string) testbed.Answer {
		return o.CNITool("/run/former", []string{"CNI_ARGS=" + p.Args()}, op, "multus-cni-network", p.Netns())
	}
	former("add").Must()
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, p))
	former("del").Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))

	writeConf(o.Node, "00-multus.conf", conf("00-fairlead.conflist"))
	require.Equal(t, "Fairlead has the node; Multus still runs", o.plan(0).Verdict)
	o.Run("sh", "-c", "rm /opt/cni/bin/multus-shim && cp "+o.Dir+"/import/bin/multus-shim /opt/cni/bin/") // its init container
	require.Equal(t, "something of Multus came back after the import", o.plan(0).Verdict)
	o.must("--apply")
	require.Equal(t, wins, o.Run("cat", "/etc/cni/net.d/00-fairlead.conflist"))
	require.Contains(t, o.Run("cat", o.Dir+"/import/conf/00-multus.conf"), "10-main.conf", "the backup is of what was there before")
	o.runtime("add", p).Must()
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, p))
	o.runtime("check", p).Must()

	require.Contains(t, o.must("--rollback"), "next: restart Multus' DaemonSet")
	require.JSONEq(t, conf("10-main.conf"), o.Run("cat", "/etc/cni/net.d/00-multus.conf"))
	require.NoFileExists(t, o.Path("/etc/cni/net.d/00-fairlead.conflist"))
	require.Equal(t, "it can be done: 1 of 1 containers become Fairlead's", o.plan(0).Verdict)
}

// TestImportRollbackAfterHotPlug: what a pod that came from Multus got since,
// Multus removes.
func TestImportRollbackAfterHotPlug(t *testing.T) {
	t.Parallel()
	o := newTakeover(t, takeoverConf)
	pod := func(networks string) string {
		return podObject("default/a", map[string]string{"k8s.v1.cni.cncf.io/networks": networks})
	}
	o.WriteObjects("net.yaml", nadObject("late", `{"cniVersion":"1.0.0","type":"macvlan","master":"bond0","mode":"bridge","ipam":{"type":"host-local","subnet":"10.63.0.0/24"}}`))
	o.WriteObjects("pod.yaml", pod(""))
	o.Agent().WaitReady()
	a := o.NewPod("a")
	o.runtime("add", a).Must()
	o.must("--apply")
	o.WriteObjects("pod.yaml", pod("late@data0"))
	eventually(t, func() string {
		if slices.Contains(linkNames(t, a), "data0") && len(addresses(t, a, "data0")) > 0 && len(attachment(t, o.Node, "default/a").HotPlugged) > 0 {
			return ""
		}
		return "no data0: " + o.Fairlead("describe", "pod", "default/a")
	})
	require.Equal(t, []string{"data0", "eth0", "lo", "net1"}, linkNames(t, a))
	o.must("--rollback")
	o.runtime("del", a).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, a))
	require.Empty(t, o.held(a))
}
