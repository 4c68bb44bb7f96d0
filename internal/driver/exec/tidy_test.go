package exec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
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
		func() error { return d.Detach(t.Context(), driver.Run{}, s) },
		func() error {
			return d.Driver.GC(t.Context(), driver.Run{}, *x, []core.Key{s.Key})
		},
	} {
		_, err := d.Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(hollow, nil, 0o600))
		require.NoError(t, op())
		require.NoFileExists(t, hollow)
	}
	require.Equal(t, []string{"10.88.0.3"}, leases(t, dataDir), "GC leaves what is in use")
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
	require.Empty(t, leases(t, dataDir))
}
