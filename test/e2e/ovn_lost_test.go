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

// TestDatabasesLost: both databases of OVN are lost as a whole, once without a backup
// and once with one. They are made again with the same ports, addresses and MACs, what
// talks goes on, and new pods are served.
func TestDatabasesLost(t *testing.T) {
	t.Parallel()
	o := newOVNCluster(t)
	one, two := o.nodes[0], o.nodes[1]
	o.controller("a", "127.0.0.1:10666")
	for _, n := range o.nodes {
		n.joined()
		n.unavailable("False", "answers")
	}
	a, b, c := one.run("web/a"), two.run("web/b"), two.run("data/c")
	a.reaches(b)
	a.reaches(c)
	o.serves(b, a)
	ports := func() []string {
		return slices.Sorted(strings.Lines(o.central.Nbctl("--format=csv", "--no-headings", "--columns=name,addresses,port_security", "list", "logical_switch_port") + "\n"))
	}
	require.Contains(t, strings.Join(ports(), ""), a.ips[0])

	const pace = 20 * time.Millisecond
	lose := func(name string, restore ...string) (lost int) {
		t.Helper()
		want := ports()
		pings := []*testbed.Pinger{a.StartPing(b.ips[0], pace), b.StartPing(a.ips[1], pace), c.StartPing(a.ips[0], pace)}
		o.loseDatabases()
		o.runCentral(restore...)
		eventually(t, func() string {
			if now := ports(); !slices.Equal(now, want) {
				return fmt.Sprintf("ports: %q\nbefore: %q", now, want)
			}
			if all := o.central.Sbctl("--bare", "--columns=name", "list", "chassis"); len(strings.Fields(all)) != len(o.nodes) {
				return "chassis: " + all
			}
			return ""
		})
		o.central.Sync()
		for _, g := range pings {
			g.Answers(10)
			answered, missed := g.Stop()
			t.Logf("%s: %d pings lost, %d answered, one each %s", name, missed, answered, pace)
			lost += missed
		}
		one.run("web/after-" + name).reaches(c)
		return lost
	}
	lose("nothing", "--empty")
	backup := filepath.Join(o.site.Dir, "backup.tar")
	o.site.Fairlead("ovn", "backup", "--central-run-dir", o.central.RunDir(), backup)
	require.Zero(t, lose("backup", backup))
}
