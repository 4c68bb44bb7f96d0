package ovn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// Cluster is a northbound database of several members (raft) on one node,
// without anybody who reads it. Members are numbered from 0.
type Cluster struct {
	Node *testbed.Node

	t       testing.TB
	members []*testbed.Process
}

// NewCluster starts a cluster and waits until all members are in it.
func NewCluster(t testing.TB, n *testbed.Node, members int) *Cluster {
	t.Helper()
	c := &Cluster{Node: n, t: t, members: make([]*testbed.Process, members)}
	for _, d := range []string{c.dir("run/ovn"), c.dir("disk/ovn")} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	for i := range members {
		if i == 0 {
			n.Run("ovsdb-tool", "create-cluster", c.file(i), filepath.Join(schemas, "ovn-nb.ovsschema"), raft(i))
		} else {
			n.Run("ovsdb-tool", "join-cluster", c.file(i), north.name, raft(i), raft(0))
		}
		c.Start(i)
	}
	return c
}

func (c *Cluster) dir(name string) string { return filepath.Join(c.Node.Dir, name) }

func (c *Cluster) file(i int) string { return c.dir(fmt.Sprintf("disk/ovn/nb%d.db", i)) }

func (c *Cluster) socket(i int) string { return "unix:" + c.dir(fmt.Sprintf("run/ovn/nb%d.sock", i)) }

// raft is where a member listens to the others.
func raft(i int) string { return fmt.Sprintf("tcp:127.0.0.1:%d", 16431+i) }

// Endpoint is all members', with commas between.
func (c *Cluster) Endpoint() string {
	var all []string
	for i := range c.members {
		all = append(all, c.socket(i))
	}
	return strings.Join(all, ",")
}

// Start starts a member on its file and waits until it is one of the cluster.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	name := fmt.Sprintf("nb%d", i)
	p := c.Node.Start("ovsdb-"+name, "ovsdb-server", c.file(i), "--remote=p"+c.socket(i),
		"--unixctl="+ctl(name), "--verbose=console:warn")
	c.members[i] = p
	eventually(c.t, name+" is in the cluster", func() error {
		require.True(c.t, p.Running(), "%s ended", p.Name)
		_, err := c.Node.Try("ovsdb-client", "--timeout=1", "wait", c.socket(i), north.name, "connected")
		return err
	})
}

// Leader is the number of the member that leads; it waits for one.
func (c *Cluster) Leader() (leader int) {
	c.t.Helper()
	eventually(c.t, "a leader", func() error {
		for i, p := range c.members {
			if !p.Running() {
				continue
			}
			status, err := c.Node.Try("ovs-appctl", "-t", ctl(fmt.Sprintf("nb%d", i)), "cluster/status", north.name)
			if err == nil && strings.Contains(status, "\nRole: leader") {
				leader = i
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(c.members))
	})
	return leader
}

// Kill ends a member with SIGKILL; its file stays.
func (c *Cluster) Kill(i int) { c.members[i].Kill() }

// Depose makes the leader hand over to another member and go on as one that
// follows, as a server does before it compacts its file.
func (c *Cluster) Depose() {
	c.t.Helper()
	was := c.Leader()
	eventually(c.t, fmt.Sprintf("nb%d leads no longer", was), func() error {
		// One that is behind in its log does not get it: so once more.
		c.Node.Run("ovs-appctl", "-t", ctl(fmt.Sprintf("nb%d", was)), "cluster/failure-test", "transfer-leadership")
		if c.Leader() == was {
			return errors.New("it still leads")
		}
		return nil
	})
}

// Nbctl runs ovn-nbctl against the leader, as Central.Nbctl does.
func (c *Cluster) Nbctl(args ...string) string {
	c.t.Helper()
	argv := append([]string{"ovn-nbctl", "--timeout=60", "--db=" + c.Endpoint()}, args...)
	return strings.TrimSpace(c.Node.Run(argv...))
}
