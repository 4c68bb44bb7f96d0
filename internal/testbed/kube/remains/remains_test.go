package remains

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
)

// TestClear: what a killed process has left is found by its mounts and cgroups.
func TestClear(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "flk")
	require.NoError(t, err)
	node := dir + "/" + filepath.Base(dir) // a name that no other test has
	require.NoError(t, os.Mkdir(node, 0o755))
	group, err := cgroup.New(cgroup.Of(node))
	require.NoError(t, err)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `echo $$ >"$1"/cgroup.procs; mkdir "$2"/upper; mount -t tmpfs none "$2"/upper; echo up; exec sleep 1000000`,
		"sh", group.Paths[0], node)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 3))
	require.NoError(t, err)
	other := exec.Command("sleep", "1000000")
	require.NoError(t, other.Start())

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // a parent that reaps, as a machine's first process does
	require.NoError(t, Clear(t.Context(), dir))
	require.ErrorContains(t, <-ended, "killed")
	require.NoDirExists(t, dir)
	for _, p := range group.Paths {
		require.NoDirExists(t, p)
	}
	require.NoError(t, group.Remove())
	require.NoError(t, other.Process.Signal(syscall.Signal(0)), "others are left alone")
	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
	require.NoError(t, Clear(t.Context(), dir), "again")
}
