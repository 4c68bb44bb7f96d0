package deploy

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
)

var update = flag.Bool("update", false, "write what is rendered instead of comparing it")

// TestLaterKindsAreRendered proves that the CRDs of kinds that are not carried
// out follow the list in api/v1: whoever adds one runs this with -update.
func TestLaterKindsAreRendered(t *testing.T) {
	tmpl, err := template.ParseFiles("later.yaml.tmpl")
	require.NoError(t, err)
	for _, k := range v1.Later() {
		var want bytes.Buffer
		require.NoError(t, tmpl.Execute(&want, k))
		file := filepath.Join("cluster", "kubeovn.io_"+k.Plural+".yaml")
		if *update {
			require.NoError(t, os.WriteFile(file, want.Bytes(), 0o644))
			continue
		}
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want.String(), string(have), "%s is not what later.yaml.tmpl gives: go test ./deploy -run Later -update", file)
	}
	require.Len(t, v1.Later(), 16, "Kube-OVN's 25 kinds less those with types here")
}
