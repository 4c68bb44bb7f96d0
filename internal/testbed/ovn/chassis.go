package ovn

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// Bridge is the integration bridge of a chassis.
const Bridge = "br-int"

// PodMTU is what is left of an underlay's 1500 bytes inside geneve.
const PodMTU = "1400"

// logged is the file of rules' log.
const logged = "acl.log"

// Chassis is ovn-controller on a node with Open vSwitch.
type Chassis struct {
	Node *testbed.Node
	Name string // system-id

	t          testing.TB
	args       []string
	controller *testbed.Process
	bound      int
}

// NewChassis makes a node, which is on an underlay, a chassis of central: with
// the integration bridge, tunnels by geneve from encap, and ovn-controller.
func NewChassis(t testing.TB, n *testbed.Node, c *Central, name, encap string) *Chassis {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(n.Dir, rundir), 0o755))
	n.OVS.Vsctl("--timeout=20", "set", "open_vswitch", ".", "external_ids:system-id="+name,
		"external_ids:ovn-remote="+quoted(c.Remote()), "external_ids:ovn-encap-type=geneve",
		"external_ids:ovn-encap-ip="+quoted(encap), "external_ids:ovn-bridge="+Bridge,
		"external_ids:ovn-bridge-datapath-type=netdev",
		"--", "--may-exist", "add-br", Bridge, "--", "set", "bridge", Bridge, "datapath_type=netdev", "fail_mode=secure")
	ch := &Chassis{Node: n, Name: name, t: t}
	ch.Start()
	return ch
}

// NewHost starts ovn-controller on a node as its package does, with args: what makes
// the node a chassis is the agent's.
func NewHost(t testing.TB, n *testbed.Node, args ...string) *Chassis {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(n.Dir, rundir), 0o755))
	ch := &Chassis{Node: n, t: t, args: args}
	ch.Start()
	return ch
}

// Keys are the flags for a key and certificates in a folder of the node.
func Keys(dir string) []string {
	return []string{"--private-key=" + filepath.Join(dir, "key.pem"), "--certificate=" + filepath.Join(dir, "cert.pem"), "--ca-cert=" + filepath.Join(dir, "ca.pem")}
}

// quoted is a value with colons as ovs-vsctl takes it.
func quoted(s string) string { return `"` + s + `"` }

// Start starts ovn-controller. As on a node, another process watches over it and starts it
// again when it ended by a fault of its own: that of 23.03 can die when Open vSwitch's
// database is emptied below it.
func (ch *Chassis) Start() {
	ch.t.Helper()
	argv := []string{"env", "OVN_RUNDIR=" + rundir, "ovn-controller", ch.Node.OVS.Endpoint(), "--verbose=console:info", "--monitor",
		"--log-file=" + filepath.Join(rundir, logged), "--verbose=file:off", "--verbose=acl_log:file:info"}
	ch.controller = ch.Node.Start("ovn-controller", append(argv, ch.args...)...)
}

// Logged is what ovn-controller has logged of rules that say so.
func (ch *Chassis) Logged() string {
	ch.t.Helper()
	text, err := os.ReadFile(filepath.Join(ch.Node.Dir, rundir, logged))
	require.NoError(ch.t, err)
	return string(text)
}

// Kill ends ovn-controller with SIGKILL: tunnels and flows stay.
func (ch *Chassis) Kill() { ch.controller.KillWatched() }

// PID is that of ovn-controller itself; 0 when it does not run.
func (ch *Chassis) PID() int { return ch.controller.Watched() }

// Stop ends ovn-controller as for good: the chassis leaves the southbound
// database.
func (ch *Chassis) Stop() {
	ch.t.Helper()
	// It takes no --unixctl (23.03): the socket has the process id in its name.
	exit(ch.t, ch.Node, ctl(fmt.Sprintf("ovn-controller.%d", ch.PID())), ch.controller)
}

// NIC is a pod's interface as its logical port has it.
type NIC struct {
	Port      string   // name of the logical port
	MAC       string   //
	Addresses []string // with prefix length
	Gateways  []string // one for each family, or none
}

// Bind gives a pod its eth0 and binds it to a logical port. It returns when
// ovn-controller says that the port's flows are there.
func (ch *Chassis) Bind(p *testbed.Pod, nic NIC) {
	ch.t.Helper()
	ch.bound++
	host := fmt.Sprintf("pod%d_h", ch.bound)
	n := ch.Node
	n.Run("ip", "link", "add", host, "mtu", PodMTU, "type", "veth",
		"peer", "name", "eth0", "mtu", PodMTU, "address", nic.MAC, "netns", filepath.Base(p.Netns()))
	n.Run("ip", "link", "set", host, "up")
	p.Run("ethtool", "-K", "eth0", "tx", "off")
	for _, a := range nic.Addresses {
		p.Run("ip", "addr", "add", a, "dev", "eth0", "nodad")
	}
	p.Run("ip", "link", "set", "eth0", "up")
	for _, g := range nic.Gateways {
		p.Run("ip", "route", "add", "default", "via", g)
	}
	n.OVS.Vsctl("--timeout=20", "add-port", Bridge, host, "--", "set", "interface", host, "external_ids:iface-id="+nic.Port)
	eventually(ch.t, "port "+nic.Port+" is installed on "+ch.Name, func() error {
		ids := n.OVS.Vsctl("--timeout=20", "get", "interface", host, "external_ids")
		if !installed.MatchString(ids) {
			return fmt.Errorf("external_ids %s", ids)
		}
		return nil
	})
}

var installed = regexp.MustCompile(`ovn-installed="?true`)
