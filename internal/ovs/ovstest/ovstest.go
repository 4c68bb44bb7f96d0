// Package ovstest starts a private Open vSwitch for a test: an ovsdb-server
// and an ovs-vswitchd in a network namespace and a folder of their own
// (spec/testbed.md, 1). It knows nothing of package ovs, and reads what is true
// with ovs-vsctl.
package ovstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

const (
	schema  = "/usr/share/openvswitch/vswitch.ovsschema"
	patient = 20 * time.Second // for a daemon to come up on a loaded machine
)

// Userspace is the datapath type of bridges on a kernel without Open vSwitch.
const Userspace = "netdev"

// Datapath is the type that a bridge has on this machine, as the agent chooses
// it: the kernel's ("system") where the kernel has one, else Userspace.
func Datapath(t testing.TB) string {
	t.Helper()
	has, err := sysfs.HasOpenvswitch()
	require.NoError(t, err)
	if has {
		return "system"
	}
	return Userspace
}

// Switch is a private Open vSwitch.
type Switch struct {
	NS     *netns.Handle // where its devices are
	Socket string        // of its database
	dir    string
	t      testing.TB
	server *exec.Cmd
	vswd   *exec.Cmd
}

// New starts a Switch that ends with the test. Its database has not even a
// root row: `ovs-vsctl init` was not run.
func New(t testing.TB) *Switch {
	t.Helper()
	s := newSwitch(t)
	s.CreateDB()
	s.StartServer()
	s.StartSwitchd()
	return s
}

// NewServer starts only the database: nothing will ever answer with an ofport.
func NewServer(t testing.TB) *Switch {
	t.Helper()
	s := newSwitch(t)
	s.CreateDB()
	s.StartServer()
	return s
}

func newSwitch(t testing.TB) *Switch {
	// Not t.TempDir: a socket's path must stay below 108 bytes.
	dir, err := os.MkdirTemp("", "ovs")
	require.NoError(t, err)
	s := &Switch{NS: netnstest.New(t), Socket: filepath.Join(dir, "db.sock"), dir: dir, t: t}
	t.Cleanup(func() {
		s.KillSwitchd()
		s.KillServer()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "ovs-vswitchd.log"))
			t.Logf("ovs-vswitchd.log:\n%s", tail(string(log), 40))
		}
		_ = os.RemoveAll(dir)
	})
	return s
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Endpoint is the database in OVSDB's notation.
func (s *Switch) Endpoint() string { return "unix:" + s.Socket }

// CreateDB makes an empty conf.db, in place of one that is there.
func (s *Switch) CreateDB() {
	s.t.Helper()
	db := filepath.Join(s.dir, "conf.db")
	require.NoError(s.t, os.RemoveAll(db))
	out, err := s.command("ovsdb-tool", "create", db, schema).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

// StartServer starts ovsdb-server on conf.db and waits until it answers.
func (s *Switch) StartServer() {
	s.t.Helper()
	s.server = s.start("ovsdb-server", filepath.Join(s.dir, "conf.db"), "--remote=punix:"+s.Socket)
	s.eventually("ovsdb-server answers", func() bool {
		return s.command("ovsdb-client", "list-dbs", s.Endpoint()).Run() == nil
	})
}

// StartSwitchd starts ovs-vswitchd; it takes the bridges in its own time.
func (s *Switch) StartSwitchd() {
	s.t.Helper()
	s.vswd = s.start("ovs-vswitchd", s.Endpoint())
}

// KillServer kills ovsdb-server (SIGKILL). The database file stays.
func (s *Switch) KillServer() { kill(&s.server) }

// KillSwitchd ends ovs-vswitchd (SIGKILL). Its devices stay: its taps are
// persistent.
func (s *Switch) KillSwitchd() { kill(&s.vswd) }

// ExitSwitchd ends ovs-vswitchd as for an upgrade of the machine: it deletes
// its devices.
func (s *Switch) ExitSwitchd() {
	s.t.Helper()
	out, err := s.command("ovs-appctl", "-t", filepath.Join(s.dir, "ovs-vswitchd.ctl"), "exit", "--cleanup").CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	_ = s.vswd.Wait() // its status is of no interest
	s.vswd = nil
}

// Reboot ends the Switch with all its devices, but for conf.db, has the machine come up, and
// starts it as a machine with our drop-in for ovs-vswitchd does.
func (s *Switch) Reboot(up func()) {
	s.t.Helper()
	bridges := strings.Fields(s.Vsctl("list-br"))
	s.KillSwitchd()
	s.KillServer()
	if Datapath(s.t) != Userspace {
		s.In("ovs-dpctl", "del-dp", "ovs-system")
	}
	for _, b := range bridges {
		_, _ = Run(s.NS, "ip", "link", "del", b) // a tap; most are gone
	}
	up()
	s.StartServer()
	s.PreStart()
	s.StartSwitchd()
}

// PreStart runs what a machine with our drop-in runs before it starts ovs-vswitchd.
func (s *Switch) PreStart() {
	s.t.Helper()
	// sysfs shows the network of the namespace in which it was mounted.
	c := s.command("unshare", "--mount", "sh", "-ec", "mount -t sysfs none /sys; "+PreStart(s.t))
	require.NoError(s.t, s.NS.Do(c.Run))
}

// PreStart is what a machine runs when ovsdb-server is there and ovs-vswitchd not yet, for a
// shell: that of the drop-in in deploy/systemd.
func PreStart(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	const dropIn = "deploy/systemd/ovs-vswitchd.service.d/fairlead.conf"
	for ; dir != "/"; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, dropIn))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		_, script, ok := strings.Cut(string(text), "\nExecStartPre=-/bin/sh -c '")
		script, _, closed := strings.Cut(script, "'\n")
		require.True(t, ok && closed, "%s: %s", dropIn, text)
		return strings.ReplaceAll(script, "$$", "$")
	}
	require.Fail(t, "the test does not run inside the repository")
	return ""
}

// Signal sends sig to ovsdb-server: SIGSTOP makes a server that never answers.
func (s *Switch) Signal(sig syscall.Signal) {
	s.t.Helper()
	send(s.t, s.server, sig)
}

// SignalSwitchd sends sig to ovs-vswitchd.
func (s *Switch) SignalSwitchd(sig syscall.Signal) {
	s.t.Helper()
	send(s.t, s.vswd, sig)
}

// send waits until a SIGSTOP has taken effect on all threads.
func send(t testing.TB, c *exec.Cmd, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, c.Process.Signal(sig))
	if sig == syscall.SIGSTOP {
		require.NoError(t, unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
	}
}

func kill(c **exec.Cmd) {
	if *c != nil {
		_ = (*c).Process.Kill()
		_ = (*c).Wait() // its error is the signal
		*c = nil
	}
}

// Vsctl runs ovs-vsctl (without waiting for ovs-vswitchd) and gives its output.
func (s *Switch) Vsctl(args ...string) string {
	s.t.Helper()
	out, err := s.command("ovs-vsctl", append([]string{"--db=" + s.Endpoint(), "--no-wait", "--timeout=10"}, args...)...).CombinedOutput()
	require.NoError(s.t, err, "ovs-vsctl %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// Get is one column of one row, bare: empty without the row or the key, which
// a condition that is asked until it holds may find.
func (s *Switch) Get(table, record, column string) string {
	s.t.Helper()
	return strings.Trim(s.Vsctl("--if-exists", "get", table, record, column), `"`)
}

// Count is the number of rows of a table.
func (s *Switch) Count(table string) int {
	s.t.Helper()
	out := s.Vsctl("--bare", "--columns=_uuid", "list", table)
	return len(strings.Fields(out))
}

// In runs a program inside the Switch's namespace and gives its output.
func (s *Switch) In(name string, args ...string) string {
	s.t.Helper()
	out, err := Run(s.NS, name, args...)
	require.NoError(s.t, err, "%s %v: %s", name, args, out)
	return out
}

// Run runs a program inside ns and gives what it printed.
func Run(ns *netns.Handle, name string, args ...string) (string, error) {
	var out []byte
	err := ns.Do(func() (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	return strings.TrimSpace(string(out)), err
}

func (s *Switch) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_DBDIR="+s.dir, "OVS_LOGDIR="+s.dir)
	return c
}

func (s *Switch) start(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	c := s.command(name, append(args,
		"--unixctl="+filepath.Join(s.dir, name+".ctl"),
		"--log-file="+filepath.Join(s.dir, name+".log"), "-vconsole:off")...)
	// A group of its own: ^C on the test reaches the test, which then cleans up.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(s.t, s.NS.Do(c.Start), "start %s", name)
	return c
}

func (s *Switch) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patient); !ok(); time.Sleep(20 * time.Millisecond) {
		require.True(s.t, time.Now().Before(end), "%s", fmt.Sprintf("in vain: %s", what))
	}
}
