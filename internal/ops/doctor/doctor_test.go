package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// start is a Runner for tests: the command line has its own, with a safe PATH.
func start(ctx context.Context, c Command) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.Env...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%s: %w", c.Argv[0], fs.ErrNotExist)
	}
	return out, err
}

// answering is a running agent's side: what it would answer.
type answering struct {
	status  agent.Status
	nets    agent.NetList
	subnets agent.SubnetList
	outward agent.Outward
	err     error
}

func (a answering) Status(ctx context.Context) (agent.Status, error) {
	return a.status, cmp.Or(ctx.Err(), a.err)
}
func (a answering) Subnets(context.Context) (agent.SubnetList, error) {
	return a.subnets, a.err
}
func (a answering) Outward(context.Context) (agent.Outward, error) {
	return a.outward, a.err
}
func (a answering) Nets(context.Context) (agent.NetList, error) { return a.nets, a.err }

// bare is a Config of a machine on which nothing is installed.
func bare(t *testing.T) Config {
	dir := t.TempDir()
	return Config{
		Run: start, Socket: dir + "/run/agent.sock", StateDir: dir + "/state", OVSDB: "unix:" + dir + "/db.sock",
		Bridge: "br-int", ConfDir: dir + "/net.d", BinDirs: []string{dir + "/bin"},
	}
}

// find picks a finding out of a report.
func find(t *testing.T, r Report, name string) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Name == name {
			return f
		}
	}
	require.Fail(t, "no finding", name)
	return Finding{}
}

// inPrivate runs fn in a network namespace of the test's own.
func inPrivate(t *testing.T, fn func()) {
	t.Helper()
	require.NoError(t, netnstest.New(t).Do(func() error { fn(); return nil }))
}

// open counts this process's open namespace files.
func open(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(target, "net:[") {
			n++
		}
	}
	return n
}

func links(t *testing.T) []rtnl.Link {
	t.Helper()
	c, err := rtnl.Open(nil)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	l, err := c.Links()
	require.NoError(t, err)
	return l
}

func TestBareMachine(t *testing.T) {
	inPrivate(t, func() {
		before, namespaces := links(t), open(t)
		cfg := bare(t)
		cfg.OVN, cfg.Objects, cfg.NB = true, t.TempDir(), "unix:/nowhere"
		r, err := Run(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, before, links(t), "a probe was left behind")
		require.Equal(t, namespaces, open(t), "a namespace is still held")
		require.False(t, r.OK)
		require.Len(t, r.Findings, len(checks()))
		for _, f := range r.Findings {
			require.NotEmpty(t, f.Reason, f.Name)
			if f.Verdict != OK {
				require.NotEmpty(t, f.Next, "%s: what to do?", f.Name)
			}
		}
		// What every kernel that Fairlead supports has.
		for _, name := range []string{"privileges", "network namespaces", "netns cookie", "veth", "rate to pods (htb)", "nftables"} {
			require.Equal(t, OK, find(t, r, name).Verdict, "%+v", find(t, r, name))
		}
		require.NotEqual(t, Failed, find(t, r, "datapath").Verdict)
		require.Equal(t, Failed, find(t, r, "OVSDB").Verdict)
		require.Equal(t, Failed, find(t, r, "plugin").Verdict)
		require.Equal(t, Failed, find(t, r, "northbound database").Verdict)
		require.Equal(t, Warning, find(t, r, "agent").Verdict)
	})
}

// TestProbesTellTheTruth asks the kernel the same with its own tools.
func TestProbesTellTheTruth(t *testing.T) {
	ns := netnstest.New(t)
	tool := func(args ...string) error {
		return ns.Do(func() error { return exec.Command(args[0], args[1:]...).Run() })
	}
	require.NoError(t, tool("ip", "link", "add", "name", "va", "type", "veth", "peer", "name", "vb"))
	police := errors.Join(tool("tc", "qdisc", "add", "dev", "va", "ingress"), tool("tc", "filter", "add", "dev", "va", "ingress", "matchall", "action", "police", "rate", "1mbit", "burst", "100k", "drop"))

	netem := tool("tc", "qdisc", "add", "dev", "va", "root", "netem", "delay", "1ms")

	r, err := Run(t.Context(), bare(t))
	require.NoError(t, err)
	for name, err := range map[string]error{"rate from pods (police)": police, "delay of pods (netem)": netem} {
		want := Warning
		if err == nil {
			want = OK
		}
		require.Equal(t, want, find(t, r, name).Verdict, name)
	}
}

func TestOpenVSwitch(t *testing.T) {
	sw := ovstest.New(t)
	cfg := bare(t)
	cfg.OVSDB = sw.Endpoint()
	r, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Warning, find(t, r, "ovs-vswitchd").Verdict, "a new database")
	require.Equal(t, "ovs-vsctl --db="+sw.Endpoint()+" init", find(t, r, "ovs-vswitchd").Next)
	require.Equal(t, "ovs-vsctl show", Config{OVSDB: defaultOVSDB}.vsctl("show"))

	sw.Vsctl("init")
	require.Eventually(t, func() bool { return sw.Get("Open_vSwitch", ".", "datapath_types") != "[]" }, 20*time.Second, 5*time.Millisecond)
	r, err = Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, OK, find(t, r, "OVSDB").Verdict)
	require.Equal(t, OK, find(t, r, "ovs-vswitchd").Verdict, "%+v", find(t, r, "ovs-vswitchd"))
	require.Contains(t, find(t, r, "ovs-vswitchd").Reason, "netdev")
	require.Equal(t, OK, find(t, r, "bridge").Verdict, "the agent makes it")

	cfg.Agent = answering{status: agent.Status{Ready: true}}
	r, err = Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Failed, find(t, r, "bridge").Verdict, "an agent without its bridge")

	sw.Vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
	sw.Vsctl("--no-wait", "add-port", "br-int", "ghost_h")
	require.Eventually(t, func() bool { return sw.Get("Interface", "ghost_h", "error") != "[]" }, 20*time.Second, 5*time.Millisecond)
	r, err = Run(t.Context(), cfg)
	require.NoError(t, err)
	bridge := find(t, r, "bridge")
	require.Equal(t, Warning, bridge.Verdict, "%+v", bridge)
	require.Contains(t, strings.Join(bridge.Details, "\n"), "ghost_h: could not open network device ghost_h")
	require.Contains(t, bridge.Next, "--db="+sw.Endpoint())

	sw.KillSwitchd()
	r, err = Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Failed, find(t, r, "ovs-vswitchd").Verdict, "%+v", find(t, r, "ovs-vswitchd"))
	require.Contains(t, find(t, r, "ovs-vswitchd").Reason, "does not answer")

	sw.Vsctl("--no-wait", "set", "Open_vSwitch", ".", "next_cfg=1000000") // a change that waits for vswitchd
	r, err = Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Failed, find(t, r, "ovs-vswitchd").Verdict, "%+v", find(t, r, "ovs-vswitchd"))
}

// TestInAContainer: what a container cannot see of the machine is no finding where
// the switch and the agent know better.
func TestInAContainer(t *testing.T) {
	blind := datapaths{kernel: fs.ErrNotExist, tun: fs.ErrNotExist}
	made := ovsFacts{bridge: &bridgeFacts{datapath: "netdev", ports: []portFacts{{name: "br-int", ofport: 65534}}}}
	failed := ovsFacts{bridge: &bridgeFacts{datapath: "netdev", ports: []portFacts{{name: "br-int", ofport: -1}}}}
	for _, tc := range []struct {
		ovs  ovsFacts
		want Verdict
	}{{made, Warning}, {failed, Failed}, {ovsFacts{}, Failed}} {
		m := &machine{cfg: Config{Bridge: "br-int"}, datapaths: blind, ovs: tc.ovs}
		require.Equal(t, tc.want, checkDatapath(t.Context(), m).verdict, "%+v", tc.ovs.bridge)
	}
	status := agent.Status{Conditions: []agent.Condition{{Name: agent.CheckAPI, OK: true}}}
	require.Equal(t, "of the Kubernetes API", checkObjects(t.Context(), &machine{agentUp: true, status: status}).reason)
	require.Contains(t, checkObjects(t.Context(), &machine{agentUp: true}).reason, "no --objects")
	status.Problems = make([]agent.Problem, 1)
	require.Contains(t, checkObjects(t.Context(), &machine{agentUp: true, status: status}).reason, "not all of what the Kubernetes API has is in force")
}

// TestSilentDatabase: a socket that accepts and says nothing must not hang the
// examination, nor make an agent look silent that answers; and a bundle has what was
// found, which is what it is packed for.
func TestSilentDatabase(t *testing.T) {
	dir, err := os.MkdirTemp("", "doc")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/db.sock")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	cfg := bare(t)
	cfg.OVSDB, cfg.Patience = "unix:"+dir+"/db.sock", time.Second
	cfg.Agent = answering{status: agent.Status{Ready: true, Version: "v1", Pods: 3}}
	cfg.More = func(context.Context) []Finding {
		return []Finding{{Group: "Cluster", Name: "southbound raft", Verdict: OK}}
	}
	r, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Failed, find(t, r, "OVSDB").Verdict)
	require.Equal(t, "version v1, ready, 3 pods", find(t, r, "agent").Reason)

	packed := &bytes.Buffer{}
	raw := func(context.Context, string) ([]byte, error) { return []byte("{}"), nil }
	require.NoError(t, Bundle(t.Context(), BundleConfig{Config: cfg, Raw: raw}, packed))
	files := unpack(t, packed.Bytes())
	require.Contains(t, files["errors.txt"], "ovs.txt: ")
	require.NotContains(t, files["errors.txt"], "doctor.txt")
	for _, want := range []string{"✗ OVSDB ", "version v1, ready, 3 pods", "✓ southbound raft "} {
		require.Contains(t, files["doctor.txt"], want)
	}
}

// TestBrokenOff: an examination that its caller ends leaves what it had found.
func TestBrokenOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := bare(t)
	cfg.Run = func(context.Context, Command) ([]byte, error) { return nil, fs.ErrNotExist }
	cfg.LoadObjects = func(string, bool) ([]agent.Problem, []string, error) { cancel(); return nil, nil, nil }
	cfg.Objects = t.TempDir()
	r, err := Run(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, r.Findings)
}

func TestCancelledExamination(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, bare(t))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAgentFindings(t *testing.T) {
	dir, err := os.MkdirTemp("", "doc")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := dir + "/agent.sock"
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, os.Chmod(socket, 0o600))

	for _, tc := range []struct {
		name    string
		agent   Agent
		verdict Verdict
		text    string
	}{
		{"ready", answering{status: agent.Status{Ready: true, Version: "v1", Pods: 3}}, OK, "version v1, ready, 3 pods"},
		{"not ready", answering{status: agent.Status{Conditions: []agent.Condition{{Name: "ovsdb", Reason: "refused"}}}}, Failed, "ovsdb: refused"},
		{"orphans", answering{status: agent.Status{Ready: true, Orphans: make([]agent.OrphanedEntry, 2)}}, Warning, "2 orphans"},
		{"dead", answering{err: fmt.Errorf("nobody listens: %w", core.ErrUnavailable)}, Failed, "nobody listens"},
		{"broken", answering{err: errors.New("not JSON")}, Failed, "not JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := bare(t)
			cfg.Agent, cfg.Socket = tc.agent, socket
			m := examine(t.Context(), cfg)
			defer m.close()
			o := checkAgent(t.Context(), m)
			require.Equal(t, tc.verdict, o.verdict)
			require.Contains(t, o.reason+strings.Join(o.details, ""), tc.text)
			require.Equal(t, OK, checkSocket(t.Context(), m).verdict)
		})
	}

	m := &machine{cfg: Config{Socket: socket}}
	require.NoError(t, os.Chmod(socket, 0o666))
	require.Contains(t, checkSocket(t.Context(), m).next, "chmod 0600 "+socket)
	require.NoError(t, os.Chmod(socket, 0o600))
	require.NoError(t, os.Chmod(dir, 0o755))
	require.Contains(t, checkSocket(t.Context(), m).next, "chmod 0700 "+dir)
	m.cfg.Socket = dir + "/plain"
	require.NoError(t, os.WriteFile(m.cfg.Socket, nil, 0o600))
	require.Contains(t, checkSocket(t.Context(), m).reason, "is not a socket")
}

func TestMTU(t *testing.T) {
	inPrivate(t, func() {
		c, err := rtnl.Open(nil)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = c.EnsureVeth(rtnl.Veth{Name: "under", MTU: 1500, Peer: netnstest.New(t), PeerName: "far", PeerMTU: 1500})
		require.NoError(t, err)
		under, err := c.LinkByName("under")
		require.NoError(t, err)
		require.NoError(t, c.AddAddr(under.Index, netip.MustParsePrefix("192.0.2.1/24"), false))
		require.NoError(t, c.AddAddr(under.Index, netip.MustParsePrefix("fd00::1/64"), true))
		vxlan := &agent.Underlay{Name: "br-net1", MTU: 1500, Encap: 50}
		for _, tc := range []struct {
			iface   string
			mtu     int
			verdict Verdict
			text    string
		}{
			{"", 0, OK, "no default route; pods get 1400 bytes"},
			{"under", 0, OK, "pods get 1400 bytes; under has 1500"},
			{"under", 1450, Warning, "no room for encapsulation"},
			{"under", 9000, Failed, "large packets are lost"},
			{"under", 600, Failed, "below the 1280"},
			{"gone", 0, Failed, "gone"},
			{"192.0.2.1", 1400, OK, "pods get 1400 bytes; under has 1500"},
			{"gone,^und.*", 1400, OK, "pods get 1400 bytes; under has 1500"},
			{"fd00::1", 1380, OK, "pods get 1380 bytes; under has 1500"},
			{"fd00::1", 1400, Warning, "no room for encapsulation"},
		} {
			o := checkMTU(t.Context(), &machine{cfg: Config{Iface: tc.iface, MTU: tc.mtu}})
			require.Equal(t, tc.verdict, o.verdict, "%+v", tc)
			require.Contains(t, o.reason, tc.text)
		}
		// The agent knows better, unless another interface is asked for.
		for _, tc := range []struct {
			given   string
			has     agent.Settings
			verdict Verdict
			text    string
		}{
			{"", agent.Settings{Iface: "gone", MTU: 1450, Underlay: vxlan}, OK, "pods get 1450 bytes; br-net1 has 1500"},
			{"", agent.Settings{MTU: 1400, Underlay: &agent.Underlay{MTU: 1500, Encap: 100}}, OK, "no default route; pods get 1400 bytes"},
			{"", agent.Settings{MTU: 1400, Underlay: &agent.Underlay{MTU: 1500, Encap: 100, Error: "--iface: none"}}, Failed, "--iface: none"},
			{"", agent.Settings{Iface: "under", MTU: 1400}, OK, "pods get 1400 bytes; under has 1500"},
			{"iface", agent.Settings{MTU: 1400, Underlay: vxlan}, OK, "pods get 1400 bytes; under has 1500"},
		} {
			cfg := Config{Iface: "under"}
			cfg.Adopt(tc.has, func(flag string) bool { return flag == tc.given })
			o := checkMTU(t.Context(), &machine{cfg: cfg})
			require.Equal(t, tc.verdict, o.verdict, "%+v", tc)
			require.Contains(t, o.reason, tc.text)
		}
	})
}

// TestPlace: what is wrong in a network namespace that is not the agent's is
// no failure of the agent, and the way leads to the agent's. That another one
// is noticed is proved by the command line's script, with real processes.
func TestPlace(t *testing.T) {
	next := "nsenter --net=/proc/7/ns/net fairlead doctor --socket /s"
	m := &machine{cfg: Config{Socket: "/s"}, place: place{pid: 7, away: true}}
	require.Equal(t, outcome{verdict: Warning, reason: "the agent (pid 7) lives in another one than this command", next: next}, checkPlace(t.Context(), m))
	o := m.here(bad("sysctl -w x=1", "off"))
	require.Equal(t, outcome{verdict: Warning, reason: "off (here, not in the agent's network namespace)", next: next}, o)
	require.Empty(t, m.here(good("on")).next)

	for _, p := range []place{{}, {pid: 7}, {pid: 7, err: fs.ErrPermission}} {
		m := &machine{place: p}
		require.Equal(t, bad("x", "y"), m.here(bad("x", "y")))
		require.Equal(t, p.err != nil, checkPlace(t.Context(), m).verdict == Warning)
	}
	require.Equal(t, place{}, placeOf(t.Context(), t.TempDir()+"/none"))
}

func TestStateDirectory(t *testing.T) {
	dir := t.TempDir()
	m := &machine{cfg: Config{StateDir: dir + "/not/yet"}}
	require.Equal(t, OK, checkState(t.Context(), m).verdict)

	m.cfg.StateDir = dir
	corrupt := filepath.Join(dir, "agent.db.corrupt-1700000000")
	require.NoError(t, os.WriteFile(corrupt, nil, 0o600))
	o := checkState(t.Context(), m)
	require.Equal(t, Warning, o.verdict)
	require.Equal(t, []string{corrupt}, o.details)

	// A file system of its own that is full, and then read-only.
	small := t.TempDir()
	require.NoError(t, exec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "small", small).Run())
	t.Cleanup(func() { require.NoError(t, exec.Command("umount", small).Run()) })
	m.cfg.StateDir = small
	require.Contains(t, checkState(t.Context(), m).reason, "ADD will fail")
	require.NoError(t, exec.Command("mount", "-o", "remount,ro", small).Run())
	require.Contains(t, checkState(t.Context(), m).reason, "read-only")
}

func TestObjects(t *testing.T) {
	bad := []agent.Problem{{File: "/o/a.yaml", Line: 3, Reason: "unknown kind"}, {File: "/o/b.yaml", Reason: "too large"}}
	load := func(p []agent.Problem, err error) func(string, bool) ([]agent.Problem, []string, error) {
		return func(string, bool) ([]agent.Problem, []string, error) { return p, nil, err }
	}
	for name, tc := range map[string]struct {
		m       machine
		verdict Verdict
		details []string
	}{
		"none":            {machine{}, OK, nil},
		"read here":       {machine{cfg: Config{Objects: "/o", LoadObjects: load(bad, nil)}}, Failed, []string{"/o/a.yaml:3: unknown kind", "/o/b.yaml: too large"}},
		"good":            {machine{cfg: Config{Objects: "/o", LoadObjects: load(nil, nil)}}, OK, nil},
		"no folder":       {machine{cfg: Config{Objects: "/o", LoadObjects: load(nil, fs.ErrNotExist)}}, Failed, nil},
		"nobody reads it": {machine{cfg: Config{Objects: "/o"}}, Warning, nil},
		"the agent knows": {machine{cfg: Config{Objects: "/o"}, agentUp: true, status: agent.Status{Problems: bad[:1]}}, Failed, []string{"/o/a.yaml:3: unknown kind"}},
		"agent, good":     {machine{cfg: Config{Objects: "/o"}, agentUp: true}, OK, nil},
	} {
		o := checkObjects(t.Context(), &tc.m)
		require.Equal(t, tc.verdict, o.verdict, name)
		require.Equal(t, tc.details, o.details, name)
	}
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Report{Findings: []Finding{
		{Group: "Kernel", Name: "veth", Verdict: OK, Reason: "a pair was made"},
		{Group: "Kernel", Name: "datapath", Verdict: Warning, Reason: "userspace", Next: "modprobe openvswitch"},
		{Group: "CNI", Name: "conf for containerd", Verdict: Warning, Reason: "none", Next: "write one"},
		{Group: "CNI", Name: "conf for CRI-O", Verdict: Warning, Reason: "none", Next: "write one"},
		{Group: "CNI", Name: "delegates", Verdict: Failed, Reason: "1 missing", Details: []string{"macvlan: not there"}, Next: "install it"},
	}}.Text(&out))
	require.Equal(t, `Kernel
  ✓ veth                     a pair was made
  ! datapath                 userspace
      next: modprobe openvswitch
CNI
  ! conf for containerd      none
      next: write one
  ! conf for CRI-O           the same
  ✗ delegates                1 missing
      macvlan: not there
      next: install it
1 ✓  3 !  1 ✗
`, out.String())
}

// TestWayOut: what the agent finds in the way is a line of its part, the worst first, each
// with what to do; without an agent nothing is claimed.
func TestWayOut(t *testing.T) {
	shadow := agent.OutwardFault{Part: agent.PartRules, What: "a rule of another program decides first", Next: "iptables -D it"}
	lost := agent.OutwardFault{Part: agent.PartRules, What: "set ovn40subnets is missing", Next: "fairlead status", Fatal: true}
	gone := agent.OutwardFault{Part: agent.PartNetworks, What: "NIC eth1 of provider network net1 is gone", Next: "put it back", Fatal: true}
	cfg := bare(t)
	cfg.Agent = answering{status: agent.Status{Ready: true}, outward: agent.Outward{
		Filter: "nftables", Faults: []agent.OutwardFault{shadow, lost, gone}, Subnets: make([]agent.OutwardSubnet, 2),
	}}
	r, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Finding{
		Group: "Way out", Name: "rules and sets", Verdict: Failed, Reason: lost.What, Next: lost.Next, Details: []string{shadow.What + "; next: " + shadow.Next},
	}, find(t, r, "rules and sets"))
	require.Equal(t, Failed, find(t, r, "provider networks").Verdict)
	require.Equal(t, "forwarding and rp_filter let the pods of 2 Subnets out", find(t, r, "sysctls").Reason)

	cfg.Agent = nil
	r, err = Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Warning, find(t, r, "sysctls").Verdict)
}
