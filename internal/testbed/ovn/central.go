package ovn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

const (
	schemas = "/usr/share/ovn"
	rundir  = "/run/ovn" // in the node
	// patience bounds every wait. It decides how late a failure is seen, never
	// whether a test passes.
	patience = time.Minute
	tick     = 10 * time.Millisecond
)

// db is one of central's databases.
type db struct {
	short, name string // nb, OVN_Northbound
	port        int
}

var (
	north = db{"nb", "OVN_Northbound", 6641}
	south = db{"sb", "OVN_Southbound", 6642}
)

// Central is OVN's central part on one node: both databases, each of one
// member, and northd. The databases listen on a unix socket and, at all of the
// node's addresses, on TCP.
type Central struct {
	Node *testbed.Node

	t      testing.TB
	addr   string
	beside []string         // addresses of the other members, where there are several
	secure bool             // over TLS, by the product's own program
	by     *testbed.Process // that program
	raft   *Cluster         // the northbound database, where it has several members
	nb, sb *testbed.Process
	northd *testbed.Process
}

// New starts central on a node, which needs no Open vSwitch. addr is the
// node's address, at which chassis find it.
func New(t testing.TB, n *testbed.Node, addr string) *Central {
	t.Helper()
	c := &Central{Node: n, t: t, addr: addr}
	for _, d := range []string{c.run(), c.disk()} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	c.StartNB()
	c.StartSB()
	c.StartNorthd()
	return c
}

// Clustered is New with a northbound database of three members, which are Members.
func Clustered(t testing.TB, n *testbed.Node, addr string) *Central {
	t.Helper()
	c := &Central{Node: n, t: t, addr: addr, raft: NewCluster(t, n, 3)}
	c.StartSB()
	c.StartNorthd()
	return c
}

// Members are those of the northbound database of Clustered.
func (c *Central) Members() *Cluster { return c.raft }

// NewNB starts a northbound database without anybody who reads it.
func NewNB(t testing.TB, n *testbed.Node) *Central {
	t.Helper()
	c := &Central{Node: n, t: t}
	for _, d := range []string{c.run(), c.disk()} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	c.StartNB()
	return c
}

// run is the node's rundir, at a path that is good inside and outside.
func (c *Central) run() string { return filepath.Join(c.Node.Dir, rundir) }

func (c *Central) disk() string { return filepath.Join(c.Node.Dir, "disk/ovn") }

func (c *Central) socket(d db) string { return filepath.Join(c.run(), d.short+".sock") }

// NB is the northbound database's endpoint for this process and for the node's.
func (c *Central) NB() string {
	if c.raft != nil {
		return c.raft.Endpoint()
	}
	return "unix:" + c.socket(north)
}

// SB is the southbound database's endpoint for this process and for the node's.
func (c *Central) SB() string { return "unix:" + c.socket(south) }

// Remote is the southbound database's endpoint for chassis.
func (c *Central) Remote() string {
	if c.secure {
		return c.over("ssl", south)
	}
	return c.over("tcp", south)
}

// over is a database's endpoint at the addresses of all members.
func (c *Central) over(scheme string, d db) string {
	all := []string{fmt.Sprintf("%s:%s:%d", scheme, bracketed(c.addr), d.port)}
	for _, addr := range c.beside {
		all = append(all, fmt.Sprintf("%s:%s:%d", scheme, bracketed(addr), d.port))
	}
	return strings.Join(all, ",")
}

func bracketed(addr string) string {
	if strings.Contains(addr, ":") {
		return "[" + addr + "]"
	}
	return addr
}

// StartNB starts the northbound database's server on the file that is there,
// or on a new one, and waits until it accepts connections.
func (c *Central) StartNB() {
	c.t.Helper()
	if c.secure {
		c.thaw(north)
		return
	}
	c.nb = c.serve(north)
}

// StartSB starts the southbound database's server, as StartNB does.
func (c *Central) StartSB() {
	c.t.Helper()
	if c.secure {
		c.thaw(south)
		return
	}
	c.sb = c.serve(south)
}

func (c *Central) serve(d db) *testbed.Process {
	c.t.Helper()
	file := filepath.Join(c.disk(), d.short+".db")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		c.Node.Run("ovsdb-tool", "create", file, filepath.Join(schemas, "ovn-"+d.short+".ovsschema"))
	}
	p := c.Node.Start("ovsdb-"+d.short, "ovsdb-server", file,
		"--remote=punix:"+c.socket(d), fmt.Sprintf("--remote=ptcp:%d:[::]", d.port),
		"--unixctl="+ctl(d.short), "--verbose=console:warn")
	c.accepts(d, p)
	return p
}

// accepts waits until a database accepts connections; p is not to end meanwhile.
func (c *Central) accepts(d db, p *testbed.Process) {
	c.t.Helper()
	eventually(c.t, "ovsdb-server of "+d.name, func() error {
		require.True(c.t, p.Running(), "%s of %s ended", p.Name, d.name)
		conn, err := net.Dial("unix", c.socket(d))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// StartNorthd starts ovn-northd.
func (c *Central) StartNorthd() {
	c.t.Helper()
	if c.secure {
		c.thaw()
		return
	}
	c.northd = c.Node.Start("ovn-northd", "ovn-northd", "--ovnnb-db="+c.NB(), "--ovnsb-db="+c.SB(),
		"--unixctl="+ctl("northd"), "--verbose=console:warn")
}

// KillNB ends the northbound database's server with SIGKILL; its file stays.
func (c *Central) KillNB() { c.kill(c.nb, "nb") }

// KillSB ends the southbound database's server with SIGKILL; its file stays.
func (c *Central) KillSB() { c.kill(c.sb, "sb", "relay") }

// KillNorthd ends ovn-northd with SIGKILL.
func (c *Central) KillNorthd() { c.kill(c.northd, "northd") }

func (c *Central) kill(p *testbed.Process, secure ...string) {
	c.t.Helper()
	if c.secure {
		c.freeze(secure...)
		return
	}
	p.Kill()
}

// Stop ends all of central as its services do: each process says good-bye and
// ends with status 0.
func (c *Central) Stop() {
	c.t.Helper()
	for _, part := range []struct {
		name string
		p    *testbed.Process
	}{{"northd", c.northd}, {"sb", c.sb}, {"nb", c.nb}} {
		if part.p != nil {
			exit(c.t, c.Node, ctl(part.name), part.p)
		}
	}
}

func ctl(name string) string { return filepath.Join(rundir, name+".ctl") }

// exit ends a daemon through its control socket.
func exit(t testing.TB, n *testbed.Node, socket string, p *testbed.Process) {
	t.Helper()
	eventually(t, p.Name+" listens on its control socket", func() error {
		_, err := n.Try("ovs-appctl", "-t", socket, "exit")
		return err
	})
	require.NoError(t, p.Wait())
}

// Nbctl runs ovn-nbctl and returns its output without white space at its ends.
func (c *Central) Nbctl(args ...string) string {
	c.t.Helper()
	if c.raft != nil { // others than the leader may be behind
		return c.ctl("ovn-nbctl", c.raft.socket(c.raft.Leader()), args)
	}
	return c.ctl("ovn-nbctl", c.NB(), args)
}

// Sbctl runs ovn-sbctl, as Nbctl does.
func (c *Central) Sbctl(args ...string) string { return c.ctl("ovn-sbctl", c.SB(), args) }

func (c *Central) ctl(program, db string, args []string) string {
	c.t.Helper()
	argv := append([]string{program, "--no-leader-only", "--timeout=60", "--db=" + db}, args...)
	return strings.TrimSpace(c.Node.Run(argv...))
}

// Get is one column of one row, bare: empty without the row or the key.
func (c *Central) Get(table, record, column string) string {
	c.t.Helper()
	return strings.Trim(c.Nbctl("--if-exists", "get", table, record, column), `"`)
}

// Count is the number of rows of a northbound table.
func (c *Central) Count(table string) int {
	c.t.Helper()
	return len(strings.Fields(c.Nbctl("--bare", "--columns=_uuid", "list", table)))
}

// Sync returns when every chassis has what the northbound database says.
func (c *Central) Sync() {
	c.t.Helper()
	c.Nbctl("--wait=hv", "sync")
}

// eventually repeats look until it returns nil, at most for patience.
func eventually(t testing.TB, what string, look func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(tick) {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			require.FailNow(t, what, "in vain: %v", err)
		}
	}
}
