package podruntime

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
)

// TestStrayProcess: what an interrupted start left in a pod's cgroup, and the
// runtime knows nothing of, does not keep the pod from its end.
func TestStrayProcess(t *testing.T) {
	group, err := cgroup.New("fln-stray-" + strconv.Itoa(os.Getpid()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, group.Remove()) })
	stray := exec.Command("sleep", "1000")
	require.NoError(t, stray.Start())
	done := make(chan error, 1)
	go func() { done <- stray.Wait() }()
	t.Cleanup(func() { _ = stray.Process.Kill() })
	for _, dir := range group.Paths {
		if filepath.Base(filepath.Dir(dir)) == "cpuset" {
			continue // one of v1 admits nobody before it has processors
		}
		below := filepath.Join(dir, "podu", "container")
		require.NoError(t, os.MkdirAll(below, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(stray.Process.Pid)), 0o600))
	}
	r := New(Config{CgroupParent: group.Name, PodDir: t.TempDir(), LogDir: t.TempDir()})
	require.Eventually(t, func() bool { return r.Remove(t.Context(), &Status{UID: "u"}) == nil }, time.Minute, time.Millisecond)
	require.ErrorContains(t, <-done, "killed")
	for _, dir := range group.Paths {
		require.NoDirExists(t, filepath.Join(dir, "podu"))
	}
}
