package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// quiet is a testing.TB for nodes that a test ends itself, to see what their
// end says.
type quiet struct {
	testing.TB
	errors []string
}

func (q *quiet) Errorf(format string, args ...any) { q.errors = append(q.errors, format) }
func (q *quiet) Cleanup(func())                    {}

// failing makes a node whose cleanup is the test's affair; it ends with the
// test in any case.
func failing(t *testing.T) *Node {
	t.Helper()
	n := Bare(&quiet{TB: t})
	t.Cleanup(func() { n.shut() })
	return n
}

// wire joins two pods of a node through a bridge of its Open vSwitch.
func wire(n *Node, pods ...*Pod) {
	n.OVS.AddBridge("br-int")
	for i, p := range pods {
		host, addr := "h"+string(rune('0'+i)), "10.9.0."+string(rune('1'+i))+"/24"
		n.Run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", p.netns)
		n.Run("ip", "link", "set", host, "up")
		n.OVS.Vsctl("add-port", "br-int", host)
		p.Run("ip", "addr", "add", addr, "dev", "eth0")
		p.Run("ip", "link", "set", "eth0", "up")
	}
	n.OVS.Barrier()
}

func TestNodesShareNothing(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	for _, n := range []*Node{a, b} {
		p, q := n.NewPod("p"), n.NewPod("ns/q")
		wire(n, p, q)
		require.NoError(t, p.Ping("10.9.0.2"))
		require.Error(t, p.Ping("10.9.0.9"))
	}
	require.NotEqual(t, a.BootID(), b.BootID())
	a.Run("sh", "-c", "echo a | tee /run/x /etc/x /opt/x /var/lib/x /var/lib/cni/x /etc/cni/net.d/x >/dev/null")
	for _, dir := range []string{"/run", "/etc", "/opt", "/var/lib", "/var/lib/cni", "/etc/cni/net.d"} {
		require.Equal(t, "a\n", a.Run("cat", dir+"/x"))
		_, err := b.Try("cat", dir+"/x")
		require.Error(t, err)
		require.NoFileExists(t, dir+"/x", "the machine's own folder was written")
	}
	require.Contains(t, a.Run("ls", "/sys/class/net"), "br-int")
	require.NotContains(t, a.Run("ls", "/sys/class/net"), "eth0")
	require.NotEmpty(t, a.Run("ls", "/sys/fs/cgroup"))
	require.NotContains(t, Bare(t).Run("cat", "/proc/self/mountinfo"), " /run/netns ", "the machine's mount")
}

// TestOutputComesLate: a busy machine delivers the end of an output seconds after
// that of its command.
func TestOutputComesLate(t *testing.T) {
	t.Parallel()
	require.Equal(t, "first\nlast\n", Bare(t).Run("sh", "-c", "(sleep 2; echo last) & echo first"))
}

func TestOVSRestarts(t *testing.T) {
	t.Parallel()
	n := New(t)
	p, q := n.NewPod("p"), n.NewPod("q")
	wire(n, p, q)
	require.NoError(t, p.Ping("10.9.0.2"))
	before := n.Inventory()

	g := p.StartPing("10.9.0.2", 10*time.Millisecond)
	n.OVS.KillServer()
	require.False(t, n.OVS.Running())
	n.OVS.StartServer()
	g.Answers(50)
	answered, lost := g.Stop()
	require.Greater(t, answered, 50)
	require.Zero(t, lost)

	n.OVS.KillVswitchd()
	require.Error(t, p.Ping("10.9.0.2"))
	n.OVS.StartVswitchd()
	require.NoError(t, p.Ping("10.9.0.2"))
	n.RequireNoLeaks(before)

	// A fault of its own ends it, and it is started again.
	first := n.OVS.switchd.Watched()
	require.NoError(t, syscall.Kill(first, syscall.SIGABRT))
	require.NoError(t, until("another ovs-vswitchd", func() error {
		if b, err := os.ReadFile(n.OVS.switchd.Log); err != nil || !strings.Contains(string(b), "restarting") {
			return fmt.Errorf("not started again: %w: %s", err, b)
		}
		return nil
	}))
	n.OVS.Barrier()
	require.NotEqual(t, first, n.OVS.switchd.Watched())
	require.NoError(t, p.Ping("10.9.0.2"))
	n.RequireNoLeaks(before)

	// So soon after, who watches over it waits before the next start; it ends too.
	require.NoError(t, syscall.Kill(n.OVS.switchd.Watched(), syscall.SIGABRT))
	require.NoError(t, until("ovs-vswitchd to end", func() error {
		if pid := n.OVS.switchd.Watched(); pid != 0 {
			return fmt.Errorf("%d runs", pid)
		}
		return nil
	}))
	n.OVS.KillVswitchd()
	require.False(t, n.OVS.Running())
	n.OVS.StartVswitchd()
	require.NoError(t, p.Ping("10.9.0.2"))

	n.OVS.LoseConfDB()
	require.Empty(t, n.OVS.Vsctl("list-br"))
}

func TestReboot(t *testing.T) {
	t.Parallel()
	n := New(t)
	out := n.Outside()
	require.NoError(t, out.Ping(NodeIP4))
	fresh := n.Inventory()
	p := n.NewPod("p")
	wire(n, p)
	n.Run("sh", "-c", "echo kept | tee /var/lib/fairlead/x /var/lib/cni/x >/run/x; nft add table ip t")
	before := n.BootID()

	n.Reboot()
	require.NotEqual(t, before, n.BootID())
	require.Empty(t, n.NetnsNames())
	_, err := n.Try("cat", "/run/x")
	require.Error(t, err)
	require.Equal(t, "kept\n", n.Run("cat", "/var/lib/fairlead/x"))
	require.Equal(t, "h0", n.OVS.Vsctl("list-ports", "br-int"), "conf.db is on the disk")
	require.NoError(t, out.Ping(NodeIP4))
	require.NoError(t, out.Ping(NodeIP6))
	_, err = n.Try("ip", "link", "show", "h0")
	require.Error(t, err)

	n.Run("rm", "/var/lib/fairlead/x", "/var/lib/cni/x")
	n.OVS.Vsctl("del-br", "br-int")
	// The userspace datapath's own device comes with the first bridge.
	require.Empty(t, n.Leaks(fresh))
}

// TestLeaksAreFound plants one thing of each kind and wants each to be told.
func TestLeaksAreFound(t *testing.T) {
	t.Parallel()
	n := New(t)
	p := n.NewPod("p")
	wire(n, p)
	plants := []struct {
		kind         string
		plant, clear []string
	}{
		{"links", []string{"ip", "link", "add", "x", "type", "veth", "peer", "name", "y"}, []string{"ip", "link", "del", "x"}},
		{"links", []string{"ip", "link", "set", "h0", "mtu", "1300"}, []string{"ip", "link", "set", "h0", "mtu", "1500"}},
		{"addresses", []string{"ip", "addr", "add", "10.1.1.1/32", "dev", "lo"}, []string{"ip", "addr", "del", "10.1.1.1/32", "dev", "lo"}},
		{"routes", []string{"ip", "route", "add", "10.7.0.0/16", "dev", "lo"}, []string{"ip", "route", "del", "10.7.0.0/16"}},
		{"routes", []string{"ip", "-6", "route", "add", "2001:db8:7::/64", "dev", "lo"}, []string{"ip", "-6", "route", "del", "2001:db8:7::/64"}},
		{"rules", []string{"ip", "rule", "add", "from", "10.7.0.1", "table", "77"}, []string{"ip", "rule", "del", "from", "10.7.0.1"}},
		{"nft", []string{"nft", "add", "table", "inet", "x"}, []string{"nft", "delete", "table", "inet", "x"}},
		{"tc", []string{"tc", "qdisc", "add", "dev", "h0", "root", "tbf", "rate", "1mbit", "burst", "10k", "latency", "1ms"}, []string{"tc", "qdisc", "del", "dev", "h0", "root"}},
		{"netns", []string{"ip", "netns", "add", "x"}, []string{"ip", "netns", "del", "x"}},
		{"ovs Port", []string{"ovs-vsctl", "add-port", "br-int", "x", "--", "set", "interface", "x", "type=internal"}, []string{"ovs-vsctl", "del-port", "x"}},
		{"ovs Port", []string{"ovs-vsctl", "set", "port", "h0", "tag=7"}, []string{"ovs-vsctl", "clear", "port", "h0", "tag"}},
		{"ovs Interface", []string{"ovs-vsctl", "set", "interface", "h0", "external_ids:iface-id=x"}, []string{"ovs-vsctl", "clear", "interface", "h0", "external_ids"}},
		{"ovs QoS", []string{"ovs-vsctl", "set", "port", "h0", "qos=@q", "--", "--id=@q", "create", "qos", "type=linux-htb"}, []string{"ovs-vsctl", "--", "clear", "port", "h0", "qos", "--", "--all", "destroy", "qos"}},
		{"ovs Queue", []string{"ovs-vsctl", "create", "queue", "external_ids:a=b"}, []string{"ovs-vsctl", "--all", "destroy", "queue"}},
		{"ovs Mirror", []string{"ovs-vsctl", "set", "bridge", "br-int", "mirrors=@m", "--", "--id=@m", "create", "mirror", "name=m"}, []string{"ovs-vsctl", "clear", "bridge", "br-int", "mirrors"}},
		{"files", []string{"touch", "/var/lib/cni/10.9.0.1"}, []string{"rm", "/var/lib/cni/10.9.0.1"}},
		{"files", []string{"sh", "-c", "mkdir -p /run/fairlead/intents; touch /run/fairlead/intents/x"}, []string{"rm", "-r", "/run/fairlead"}},
	}
	before := n.Inventory()
	for _, c := range plants {
		n.Run(c.plant...)
		diff := strings.Join(before.Diff(n.Inventory()), "\n")
		require.Contains(t, diff, c.kind, "%v", c.plant)
		n.Run(c.clear...)
		n.RequireNoLeaks(before)
	}
	p.Run("ip", "route", "add", "10.8.0.0/16", "dev", "eth0")
	require.Contains(t, strings.Join(before.Diff(n.Inventory()), "\n"), "netns "+p.netns+" routes")
}

func TestCleanNodeLeavesNothing(t *testing.T) {
	t.Parallel()
	n := failing(t)
	n.NewPod("p")
	n.Outside()
	require.Empty(t, n.shut())
	require.NoDirExists(t, n.Dir)
}

func TestLeftOverProcessIsFound(t *testing.T) {
	t.Parallel()
	n := failing(t)
	// Detached from this process, as a daemon is.
	pid := strings.TrimSpace(n.Run("sh", "-c", "setsid sleep 3600 >/dev/null 2>&1 & echo $!"))
	p := n.NewPod("p")
	inPod := p.Cmd(context.Background(), "sleep", "3601")
	require.NoError(t, inPod.Start())
	left := n.shut()
	require.Error(t, inPod.Wait(), "it was killed")
	require.Len(t, left, 2, left)
	require.Contains(t, strings.Join(left, "\n"), "pid "+pid+": sleep 3600")
	require.Contains(t, strings.Join(left, "\n"), "sleep 3601")
	require.Empty(t, link("/proc/"+pid+"/ns/mnt"), "a zombie at most")
}

func TestLeftOverNetnsIsFound(t *testing.T) {
	t.Parallel()
	n := failing(t)
	n.NewPod("p").Delete()
	n.Run("ip", "netns", "add", "mine")
	require.Equal(t, []string{"network namespace mine"}, n.shut())
}

// TestDeadTestLeavesNothing closes the holder's lifeline, as the kernel does
// when the test process dies.
func TestDeadTestLeavesNothing(t *testing.T) {
	t.Parallel()
	n := failing(t)
	pid := strings.TrimSpace(n.Run("sh", "-c", "setsid sleep 3602 >/dev/null 2>&1 & echo $!"))
	require.NoError(t, n.holder.pipe.Close())
	require.NoError(t, until("the node's end", func() error {
		if link("/proc/"+pid+"/ns/mnt") == "" {
			return nil
		}
		return os.ErrExist
	}))
	require.NoError(t, n.holder.cmd.Wait(), "the holder ends by itself")
	require.Contains(t, strings.Join(n.shut(), "\n"), "the holder died")
}

func TestPingerCounts(t *testing.T) {
	t.Parallel()
	n := New(t)
	p, q := n.NewPod("p"), n.NewPod("q")
	wire(n, p, q)
	g := p.StartPing("10.9.0.2", 10*time.Millisecond)
	g.Answers(5)
	answered, lost := g.Stop()
	require.GreaterOrEqual(t, answered, 6)
	require.Zero(t, lost)

	g = p.StartPing("10.9.0.2", 10*time.Millisecond)
	n.Run("ip", "link", "set", "h1", "down")
	require.Error(t, q.Ping("10.9.0.1"))
	n.Run("ip", "link", "set", "h1", "up")
	g.Answers(1)
	_, lost = g.Stop()
	require.Positive(t, lost)
}

func TestCrashOrders(t *testing.T) {
	t.Parallel()
	n := Bare(t)
	require.Nil(t, n.CrashTrace())
	n.Crash("journal.begun")
	require.True(t, n.CrashPending())
	n.Crash("")
	require.False(t, n.CrashPending())
	require.NoError(t, os.WriteFile(filepath.Join(n.failDir(), "trace"), []byte("a\nb\n"), 0o600))
	require.Equal(t, []string{"a", "b"}, n.CrashTrace())
	require.Nil(t, n.CrashTrace())
}

func TestProcessTellsHowItEnded(t *testing.T) {
	t.Parallel()
	n := Bare(t)
	p := n.Start("sleeper", "sleep", "3603")
	require.True(t, p.Running())
	p.Kill()
	require.True(t, p.Killed())
	require.Error(t, p.Wait())
	q := n.Start("good", "true")
	require.NoError(t, q.Wait())
	require.False(t, q.Killed())
}
