package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestDatabasesLost: both databases of OVN are lost as a whole, once without a backup,
// while no controller reaches them, and once with one. They are made again with the
// same ports, addresses and MACs, what talks goes on, a pod goes meanwhile, and one that
// comes is told to try again, and is served by itself.
func TestDatabasesLost(t *testing.T) {
	t.Parallel()
	o := newOVNCluster(t)
	one, two := o.nodes[0], o.nodes[1]
	controller := o.controller("a", "127.0.0.1:10666")
	for _, n := range o.nodes {
		n.joined()
		n.unavailable("False", "answers")
	}
	a, b, c := one.run("web/a"), two.run("web/b"), two.run("data/c")
	a.reaches(b)
	a.reaches(c)
	o.serves(b, a)
	const pace = 20 * time.Millisecond
	pinged := func() []*testbed.Pinger {
		return []*testbed.Pinger{a.StartPing(b.ips[0], pace), b.StartPing(a.ips[1], pace), c.StartPing(a.ips[0], pace)}
	}

	want, pings := o.ports(), pinged()
	ends := two.run("web/ends")
	controller.Stop()
	o.startSigner()
	o.loseDatabases()
	ends.call("DEL").Must()
	ends.gone()
	comes, answer := one.pod("web/comes"), make(chan testbed.Answer, 1)
	go func() { answer <- comes.add() }()
	one.waiting()
	o.runCentral("--empty")
	pings[0].Answers(int(10 * time.Second / pace)) // nodes try again each eight seconds at most
	eventually(t, func() string {
		if comes.again.Load() == 0 {
			return "an ADD without a controller is not told to try again"
		}
		return ""
	})
	o.signer.Stop()
	o.controller("b", "127.0.0.1:10667")
	o.whole(want)
	for _, g := range pings {
		g.Answers(10)
		answered, lost := g.Stop()
		t.Logf("databases lost without a backup: %d pings lost, %d answered, one each %s", lost, answered, pace)
	}
	comes.added(<-answer).reaches(c)
	require.NotContains(t, strings.Join(o.ports(), ""), ends.port())
	o.agrees()

	backup := filepath.Join(o.site.Dir, "backup.tar")
	o.site.Fairlead("ovn", "backup", "--central-run-dir", o.central.RunDir(), backup)
	want, pings = o.ports(), pinged()
	o.loseDatabases()
	o.runCentral(backup)
	o.whole(want)
	for _, g := range pings {
		g.Answers(10)
		answered, lost := g.Stop()
		require.Zero(t, lost, "pings lost with a backup, %d answered", answered)
	}
	one.run("web/again").reaches(c)
	o.agrees()
}

// ports are the logical ports, with what makes them what they are.
func (o *ovnCluster) ports() []string {
	o.t.Helper()
	return slices.Sorted(strings.Lines(o.central.Nbctl("--format=csv", "--no-headings", "--columns=name,addresses,port_security", "list", "logical_switch_port") + "\n"))
}

// whole waits until the databases have these ports, and all nodes as chassis which have
// carried them out.
func (o *ovnCluster) whole(ports []string) {
	o.t.Helper()
	eventually(o.t, func() string {
		now := o.ports()
		for _, p := range ports {
			if !slices.Contains(now, p) {
				return fmt.Sprintf("ports: %q; before, and not now: %q", now, p)
			}
		}
		if all := o.central.Sbctl("--bare", "--columns=name", "list", "chassis"); len(strings.Fields(all)) != len(o.nodes) {
			return "chassis: " + all
		}
		return ""
	})
	o.central.Sync()
}
