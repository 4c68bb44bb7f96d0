package chart

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what is generated instead of comparing it")

const (
	root    = "../.." // of the product
	crdsDir = root + "/deploy/charts/fairlead/crds"
)

// TestCRDsAreGenerated proves that the CRDs of kubeovn.io follow the types of
// api/v1: whoever adds a field runs this with -update.
func TestCRDsAreGenerated(t *testing.T) {
	gen := filepath.Join(t.TempDir(), "controller-gen")
	command(t, ".", "go", "build", "-o", gen, "sigs.k8s.io/controller-tools/cmd/controller-gen")
	out := t.TempDir()
	command(t, root, gen, "crd", "paths=./api/v1", "output:crd:dir="+out)

	made, err := filepath.Glob(filepath.Join(out, "kubeovn.io_*.yaml"))
	require.NoError(t, err)
	kept, err := filepath.Glob(filepath.Join(crdsDir, "kubeovn.io_*.yaml"))
	require.NoError(t, err)
	require.Len(t, made, 3)
	for _, name := range made {
		want, err := os.ReadFile(name)
		require.NoError(t, err)
		file := filepath.Join(crdsDir, filepath.Base(name))
		if *update {
			require.NoError(t, os.WriteFile(file, want, 0o644))
			continue
		}
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), "%s is not what api/v1 says: go -C test/chart test ./... -update", file)
	}
	require.Len(t, kept, len(made), "a CRD without a type")
}

// command runs a program in dir and gives its standard output.
func command(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v", name, args)
	return out
}
