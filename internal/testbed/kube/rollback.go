package kube

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// Snapshot keeps the cluster's database as it is now; it restarts the servers for that.
// The function that it gives has the cluster go on from there: objects, and
// resourceVersions, are what they were. Not for a shared cluster.
func (c *Cluster) Snapshot() (rollBack func()) {
	c.t.Helper()
	kept := filepath.Join(c.t.TempDir(), "etcd")
	c.exchange(func() error { return exec.Command("cp", "-a", c.s.path("etcd"), kept).Run() })
	return func() {
		c.t.Helper()
		c.exchange(func() error {
			if err := os.RemoveAll(c.s.path("etcd")); err != nil {
				return err
			}
			return exec.Command("cp", "-a", kept, c.s.path("etcd")).Run()
		})
	}
}

// exchange has something done while neither server runs.
func (c *Cluster) exchange(do func() error) {
	c.t.Helper()
	c.s.stopAPI()
	require.NoError(c.t, c.s.etcd.stop()) // which removes its sockets
	require.NoError(c.t, do())
	require.NoError(c.t, c.s.startEtcd())
	c.Restart()
}
