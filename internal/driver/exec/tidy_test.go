package exec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/driver/exec"
)

// TestEmptyLeasesOfProgramsAreFreed: host-local as a program of a program passes
// over a file that says nothing; DEL and GC of that network free it.
func TestEmptyLeasesOfProgramsAreFreed(t *testing.T) {
	_, d := agentHost(t)
	dataDir := t.TempDir()
	x := call(t, `{"cniVersion":"1.1.0","name":"br","plugins":[{"type":"ptp",
		"ipam":{"type":"host-local","dataDir":"`+dataDir+`","subnet":"10.88.0.0/24"}}]}`, 0,
		drivertest.Programs(t, "main/ptp", "ipam/host-local"))
	_, id := pod(t)
	s := spec(id, x)
	hollow := filepath.Join(dataDir, "br", "10.88.0.77")
	for _, op := range []func() error{
		func() error { return d.Detach(t.Context(), s) },
		func() error {
			return exec.Of(map[string]driver.Driver{exec.Name: d.Driver}).GC(t.Context(), *x, []core.Key{s.Key})
		},
	} {
		_, err := d.Attach(t.Context(), s)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(hollow, nil, 0o600))
		require.NoError(t, op())
		require.NoFileExists(t, hollow)
	}
	require.Equal(t, []string{"10.88.0.3"}, leases(t, dataDir), "GC leaves what is in use")
	require.NoError(t, d.Detach(t.Context(), s))
	require.Empty(t, leases(t, dataDir))
}
