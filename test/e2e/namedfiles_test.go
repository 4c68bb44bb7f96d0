package e2e

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestFilesThatAConfigurationNames: a pipe, a device, a large file in the place
// of a network's configuration is refused at once, holds no turn of its
// container and no SIGTERM.
func TestFilesThatAConfigurationNames(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	n.Run("mkdir", "-p", "/etc/cni/odd")
	require.NoError(t, syscall.Mkfifo(n.Path("/etc/cni/odd/10-pipe.conf"), 0o600))
	n.Run("mkdir", "-p", "/etc/cni/large")
	require.NoError(t, os.WriteFile(n.Path("/etc/cni/large/10-large.conf"), make([]byte, 2<<20), 0o600))
	p := n.NewPod("p")
	for path, why := range map[string]string{
		"/etc/cni/odd/10-pipe.conf":    "named pipe",
		"/etc/cni/odd":                 "named pipe",
		"/etc/cni/large/10-large.conf": "too large",
		"/dev/zero":                    "a device",
	} {
		e := p.CNI("ADD", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"odd","type":"fairlead","clusterNetwork":%q}`, path)).MustCode(7)
		require.Contains(t, e.Msg+e.Details, path)
		require.Contains(t, e.Msg+e.Details, why)
	}
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	a.Stop()
}
