package nodeup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/up"
)

// parse gives what a command line says.
func parse(t *testing.T, args ...string) up.Config {
	t.Helper()
	c := up.Config{}
	cmd := &cobra.Command{}
	flags(cmd.Flags(), &c)
	cmd.Flags().String("socket", "", "")
	cmd.Flags().Bool("detach", false, "")
	cmd.Flags().Duration("timeout", 0, "")
	require.NoError(t, cmd.ParseFlags(args))
	require.NoError(t, complete(cmd, &c))
	return c
}

// TestSameFlags: what is recorded, and what another process is told, is what
// was said, and not how.
func TestSameFlags(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///d.sock")
	c := parse(t, "--dir=pods", "--node-name=Blue", "--cni-bin-dir=/a b", "--cni-bin-dir=/c", "--detach", "--timeout=3s", "--socket=/s/agent.sock")
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := filepath.Join(here, "pods")
	require.Equal(t, map[string][]string{
		"cni-bin-dir": {"/a b", "/c"}, "dir": {dir}, "docker-host": {"unix:///d.sock"}, "node-name": {"Blue"}, "socket": {"/s/agent.sock"},
	}, c.Given)

	back, err := recorded(up.Parts{}, &up.Record{Dir: dir, Runtime: up.Docker, Flags: c.Given})
	require.NoError(t, err)
	c.Runtime = up.Docker // what it was found to be
	require.Equal(t, c, back)
	require.Equal(t, "blue", back.NodeName)
}
