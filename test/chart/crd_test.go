package chart

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what is generated instead of comparing it")

const (
	root       = "../.." // of the product
	crdsDir    = root + "/deploy/charts/fairlead/crds"
	clusterDir = root + "/deploy/cluster"
)

// inChart are the kinds of which one machine alone makes use; the CRDs of the
// others are for a cluster with a controller.
var inChart = []string{"kubeovn.io_provider-networks.yaml", "kubeovn.io_subnets.yaml", "kubeovn.io_vlans.yaml", "net.fairlead.io_addressleases.yaml", "net.fairlead.io_nodevfpolicies.yaml", "net.fairlead.io_podnetworks.yaml"}

// TestCRDsAreGenerated proves that the CRDs follow the types of api: whoever adds
// a field runs this with -update.
func TestCRDsAreGenerated(t *testing.T) {
	out := t.TempDir()
	command(t, root, generator(t), "crd", "paths=./api/...", "output:crd:dir="+out)

	made, err := filepath.Glob(filepath.Join(out, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, made, 13)
	chart, cluster := 0, 0
	for _, name := range made {
		dir, count := clusterDir, &cluster
		if slices.Contains(inChart, filepath.Base(name)) {
			dir, count = crdsDir, &chart
		}
		*count++
		same(t, name, filepath.Join(dir, filepath.Base(name)))
	}
	kept, err := filepath.Glob(filepath.Join(crdsDir, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, kept, chart+1, "a CRD without a type; the one of NetworkAttachmentDefinitions is not ours")
	kept, err = filepath.Glob(filepath.Join(clusterDir, "*.yaml"))
	require.NoError(t, err)
	rendered := 0 // of deploy/later.yaml.tmpl
	for _, name := range kept {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if bytes.Contains(text, []byte("later.yaml.tmpl")) {
			rendered++
		}
	}
	require.Len(t, kept, cluster+rendered, "a CRD without a type")
}

// TestDeepCopiesAreGenerated is the same for what clients need to copy objects.
func TestDeepCopiesAreGenerated(t *testing.T) {
	gen := generator(t)
	for _, dir := range []string{"api/v1", "api/fairlead/v1", "api/net/v1alpha1"} {
		out := t.TempDir()
		command(t, root, gen, "object", "paths=./"+dir, "output:object:dir="+out)
		const name = "zz_generated.deepcopy.go"
		same(t, filepath.Join(out, name), filepath.Join(root, dir, name))
	}
}

// generator builds controller-gen.
func generator(t *testing.T) string {
	t.Helper()
	gen := filepath.Join(t.TempDir(), "controller-gen")
	command(t, ".", "go", "build", "-o", gen, "sigs.k8s.io/controller-tools/cmd/controller-gen")
	return gen
}

// same wants a file to be what was made, or makes it so.
func same(t *testing.T, made, file string) {
	t.Helper()
	want, err := os.ReadFile(made)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
		return
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "%s is not what api says: go -C test/chart test ./... -update", file)
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
