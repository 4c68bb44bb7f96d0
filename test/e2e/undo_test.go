package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestDelegateThatNoDELEnds: a plugin that refuses its DEL keeps nothing of the
// pod's own network, is shown, and goes by force.
func TestDelegateThatNoDELEnds(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("bad", `{"cniVersion":"1.0.0","name":"bad","type":"bad"}`),
		podObject("p", map[string]string{networksKey: "bad"})), "bad")
	p := n.NewPod("p")
	before := n.Inventory()
	r.order("bad", "ADD", "fail 142 not this one")
	r.order("bad", "DEL", "fail 5 nor that")
	for range 3 {
		p.CNI("ADD", ownConf).MustCode(142)
		require.Equal(t, []string{"lo"}, linkNames(t, p))
		require.NotContains(t, n.Fairlead("get", "ips", "-o", "json"), p.ContainerID)
		p.CNI("DEL", ownConf).Must()
		require.Contains(t, n.Fairlead("status"), "nor that", "an orphan is shown")
		out := n.Fairlead("detach", "--force", "--container-id", p.ContainerID)
		require.Contains(t, out, "nor that")
		require.Contains(t, out, "1 part left")
	}
	require.NotContains(t, n.Fairlead("status"), "nor that")
	n.RequireNoLeaks(before)
}

// limit leaves a process so many free descriptors.
func limit(t *testing.T, a *testbed.Agent, free int) (restore func()) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.PID()))
	require.NoError(t, err)
	used := map[string]bool{}
	for _, e := range entries {
		used[e.Name()] = true
	}
	low := unix.Rlimit{} // the limit is on the number, not on how many there are
	for ; free > 0; low.Cur++ {
		if !used[strconv.FormatUint(low.Cur, 10)] {
			free--
		}
	}
	var old unix.Rlimit
	require.NoError(t, unix.Prlimit(a.PID(), unix.RLIMIT_NOFILE, nil, &old))
	low.Max = old.Max
	require.NoError(t, unix.Prlimit(a.PID(), unix.RLIMIT_NOFILE, &low, nil))
	return func() { require.NoError(t, unix.Prlimit(a.PID(), unix.RLIMIT_NOFILE, &old, nil)) }
}

// TestTooManyOpenFiles: an agent that can look at nothing takes nothing for
// gone: neither `gc` nor a second ADD touches the networks of live pods.
func TestTooManyOpenFiles(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	var pods []*testbed.Pod
	for i := range 12 {
		p := n.NewPod(fmt.Sprintf("p%d", i))
		p.CNI("ADD", ownConf).Must()
		pods = append(pods, p)
	}
	before := n.Inventory()
	for free := 1; free < 7; free++ {
		restore := limit(t, a, free)
		_, err := n.TryFairlead("gc")
		again := pods[0].CNI("ADD", ownConf)
		restore()
		require.NotNil(t, again.Err(), "with %d free descriptors", free)
		t.Logf("%d free: gc %v; ADD %v", free, err, again.Err())
		n.RequireNoLeaks(before)
	}
	for _, p := range pods {
		p.CNI("CHECK", ownConf).Must()
		p.CNI("DEL", ownConf).Must()
	}
}
