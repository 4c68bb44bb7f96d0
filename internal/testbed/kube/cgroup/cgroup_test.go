package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What runtimes make below the group goes with it, in every hierarchy: also in
// that of v2 beside v1, in which New makes nothing.
func TestRemoveLeavesNothing(t *testing.T) {
	g, err := New(fmt.Sprintf("flg-%d", os.Getpid()))
	require.NoError(t, err)
	folders := append([]string{}, g.Paths...)
	if _, err := os.Stat(filepath.Join(root, "unified")); err == nil {
		folders = append(folders, filepath.Join(root, "unified", g.Name))
	}
	for _, f := range folders {
		require.NoError(t, os.MkdirAll(filepath.Join(f, "pod", "container"), 0o755))
	}
	last := folders[len(folders)-1]
	cmd := exec.Command("sh", "-c", `echo $$ >"$0" && exec sleep 1000`, filepath.Join(last, "pod", "cgroup.procs"))
	require.NoError(t, cmd.Start())
	require.NoError(t, g.Remove())
	for _, f := range folders {
		require.NoDirExists(t, f)
	}
	require.Error(t, cmd.Wait(), "what ran there was killed")
}
