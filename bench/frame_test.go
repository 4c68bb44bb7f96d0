package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The first thread never becomes a node's: it would keep the namespaces until
// the process ends, and /proc/self tells of it.
func init() { runtime.LockOSThread() }

// scratch is a bench of one short round, in a folder of the test's.
func scratch(t *testing.T) *bench {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	return &bench{root: root, dir: t.TempDir(), quick: true, rounds: 1}
}

// The floor stands in for Fairlead: the frame must drive a side with an agent
// and Open vSwitch as well as a plain plugin.
func TestContestOfRealSides(t *testing.T) {
	b := scratch(t)
	require.NoError(t, b.prepare())
	floor, err := b.floorSide(12, 2)
	require.NoError(t, err)
	defer func() { require.NoError(t, floor.node.close()) }()
	peer, err := b.bridgeSide(12)
	require.NoError(t, err)
	defer func() { require.NoError(t, peer.node.close()) }()

	started, err := b.processes(floor, peer, "bridge")
	require.NoError(t, err)
	require.Equal(t, "0 (forks 0)", started[0].ours, "the floor starts nothing")
	require.Equal(t, "2 (forks 4)", started[0].peer, "bridge starts host-local for ADD and for DEL")

	require.NoError(t, stand(floor, 2))
	c := contest{sides: []side{floor, peer, floor}, floor: 2, load: "4 par", pods: 8, par: 4, rounds: 2, metrics: switchMetrics()}
	lines, err := c.run()
	require.NoError(t, err)
	require.Len(t, lines, 5)
	for _, l := range lines {
		require.Positive(t, l.got)
		t.Logf("%+v", l)
	}
	ports, err := floor.node.ports()
	require.NoError(t, err)
	require.Equal(t, 2, ports, "only the standing pods are left")
}

func TestStepsOfAVLANPort(t *testing.T) {
	b := scratch(t)
	s, err := b.stepsSide(4)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.node.close()) }()
	pods := pick(s, 2)
	s.node.renew(pods)
	_, err = batch(s, "ADD", pods, 1) // the second gets 10.20.0.3
	require.NoError(t, err)
	out, err := s.node.output("ovs-vsctl", "get", "Port", "v"+pods[0].container[:12], "tag")
	require.NoError(t, err)
	require.Equal(t, "100\n", out)
	require.NoError(t, s.node.command("ip", "netns", "exec", pods[0].name, "ping", "-c1", "-w5", "10.20.0.3"), "pod to pod")
	_, err = batch(s, "DEL", pods, 2)
	require.NoError(t, err)
	ports, err := s.node.ports()
	require.NoError(t, err)
	require.Zero(t, ports)
}

func TestNodeLeavesNothing(t *testing.T) {
	b := scratch(t)
	n, err := b.newNode(3)
	require.NoError(t, err)
	d, err := n.start("sleep", "1000")
	require.NoError(t, err)
	require.NoError(t, n.close())
	<-d.ended
	require.NoDirExists(t, n.dir)
	unmounted(t, n)
}

// unmounted proves that a node's mounts were only its own. Others on the machine
// may mount and unmount meanwhile.
func unmounted(t *testing.T, n *node) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for l := range strings.Lines(string(mounts)) {
		require.False(t, strings.HasPrefix(l, "bench ") || strings.Contains(l, n.dir), l)
	}
}

func TestForksAreCountedExactly(t *testing.T) {
	f, err := listen()
	require.NoError(t, err)
	defer func() { require.NoError(t, f.close()) }()
	require.NoError(t, exec.Command("sh", "-c", "true & (/bin/true; true); wait").Run())
	found, err := f.count(nil)
	require.NoError(t, err)
	require.Equal(t, family{forks: 3, programs: 1}, found, "two subshells, and /bin/true in one of them")

	require.NoError(t, exec.Command("true").Run())
	found, err = f.count(nil)
	require.NoError(t, err)
	require.Equal(t, family{}, found, "what this process starts is not counted")
}

func TestProcessorClockOfAnotherProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		used, err := cpuOf(cmd.Process.Pid)
		return err == nil && used > 0
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	_, err := cpuOf(cmd.Process.Pid)
	require.Error(t, err)
}
