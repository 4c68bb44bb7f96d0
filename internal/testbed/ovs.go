package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

const schema = "/usr/share/openvswitch/vswitch.ovsschema"

// OVS is a node's Open vSwitch: ovsdb-server and ovs-vswitchd with the
// userspace datapath's devices in the node's network namespace. Its sockets
// are where Debian has them, so ovs-vsctl needs no option inside the node.
type OVS struct {
	n       *Node
	server  *Process
	switchd *Process
}

func newOVS(n *Node) *OVS { return &OVS{n: n} }

// dir holds the sockets, at the same path inside and outside the node.
func (o *OVS) dir() string { return filepath.Join(o.n.Dir, "run/openvswitch") }

func (o *OVS) conf() string { return filepath.Join(o.n.Dir, "disk/ovs/conf.db") }

// Endpoint is the OVSDB endpoint for processes inside and outside the node.
// Inside, unix:/run/openvswitch/db.sock is the same socket.
func (o *OVS) Endpoint() string { return "unix:" + o.socket() }

func (o *OVS) socket() string { return filepath.Join(o.dir(), "db.sock") }

// start brings both daemons up as a machine with our drop-in does, on the conf.db that is
// there or on a new one.
func (o *OVS) start() {
	o.n.t.Helper()
	require.NoError(o.n.t, os.MkdirAll(o.dir(), 0o755))
	o.StartServer()
	o.n.Run("sh", "-ec", ovstest.PreStart(o.n.t))
	o.StartVswitchd()
}

// StartServer starts ovsdb-server and waits until it accepts connections. A
// missing conf.db is made.
func (o *OVS) StartServer() {
	o.n.t.Helper()
	fresh := false
	if _, err := os.Stat(o.conf()); errors.Is(err, os.ErrNotExist) {
		o.n.Run("ovsdb-tool", "create", o.conf(), schema)
		fresh = true
	}
	o.server = o.n.Start("ovsdb-server", "ovsdb-server", o.conf(),
		"--remote=punix:/run/openvswitch/db.sock", "--unixctl=/run/openvswitch/ovsdb-server.ctl", "--verbose=console:warn")
	require.NoError(o.n.t, until("ovsdb-server", func() error { return o.serves(o.server) }))
	if fresh {
		// One thread of each kind: the machines that this must suit have two cores.
		o.Vsctl("--no-wait", "--", "init", "--", "set", "open_vswitch", ".",
			"other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1")
	}
}

// serves dials the database; an ended server is told with its log.
func (o *OVS) serves(p *Process) error {
	if !p.Running() {
		require.FailNow(o.n.t, "ovsdb-server ended", p.tail())
	}
	c, err := net.Dial("unix", o.socket())
	if err != nil {
		return err
	}
	return c.Close()
}

// StartVswitchd starts ovs-vswitchd and waits until it has made what the
// database says. As on a node, another process watches over it and starts it
// again when it ended by a fault of its own (docs/cluster.md tells of one).
func (o *OVS) StartVswitchd() {
	o.n.t.Helper()
	o.switchd = o.n.Start("ovs-vswitchd", "ovs-vswitchd", "unix:/run/openvswitch/db.sock",
		"--unixctl=/run/openvswitch/ovs-vswitchd.ctl", "--verbose=console:warn", "--monitor")
	o.Barrier()
}

// Barrier returns when ovs-vswitchd has done all that was committed before.
func (o *OVS) Barrier() {
	o.n.t.Helper()
	// ovs-vsctl waits for the switch only when it changed something.
	o.Vsctl("--timeout=20", "set", "open_vswitch", ".", fmt.Sprintf("external_ids:barrier=%d", time.Now().UnixNano()))
}

// KillServer ends ovsdb-server with SIGKILL. The userspace datapath (3.1) then
// holds all packets until ovs-vswitchd is connected again, at most a few
// seconds after StartServer: the thread that forwards waits for its lock in
// the database. Nothing is lost but what overflows the sockets (some 200
// packets for each port).
func (o *OVS) KillServer() { o.server.Kill() }

// KillVswitchd ends ovs-vswitchd with SIGKILL; its devices go with it. Who watches
// over it ends then too.
func (o *OVS) KillVswitchd() {
	o.n.t.Helper()
	o.switchd.KillWatched()
}

// LoseConfDB restarts ovsdb-server on an empty database and waits until
// ovs-vswitchd, which goes on running, follows it.
func (o *OVS) LoseConfDB() {
	o.n.t.Helper()
	o.KillServer()
	require.NoError(o.n.t, os.Remove(o.conf()))
	o.StartServer()
	o.Barrier()
}

// Running tells that both daemons are alive.
func (o *OVS) Running() bool {
	return o.server != nil && o.server.Running() && o.switchd != nil && o.switchd.Running()
}

// Vsctl runs ovs-vsctl in the node and returns its output without the last
// line end.
func (o *OVS) Vsctl(args ...string) string {
	o.n.t.Helper()
	return strings.TrimSuffix(o.n.Run(append([]string{"ovs-vsctl"}, args...)...), "\n")
}

// AddBridge makes a bridge with the userspace datapath.
func (o *OVS) AddBridge(name string) {
	o.n.t.Helper()
	o.Vsctl("--timeout=20", "--may-exist", "add-br", name, "--", "set", "bridge", name,
		"datapath_type=netdev", "fail_mode=standalone")
}
