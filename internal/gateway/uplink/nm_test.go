package uplink_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// nm is a NetworkManager of a test's own, in the node's network and below its /run.
type nm struct {
	b    *bed
	home string // of the program, as scripts/nm unpacks it
	etc  string // where its profiles are
	lib  string // its /var/lib/NetworkManager
	cmd  *exec.Cmd
	bus  *exec.Cmd // the system bus
	log  *os.File
}

// static is a profile of an administrator's, for the addresses by which the world pings.
const static = `[connection]
id=lan
uuid=6f6e6c79-0001-4000-8000-6661697279aa
type=ethernet
interface-name=eth1
[ipv4]
method=manual
address1=192.0.2.1/24,192.0.2.254
[ipv6]
method=manual
address1=2001:db8::1/64
gateway=2001:db8::fe
`

// networkManager makes and starts one that has a profile.
func (b *bed) networkManager(profile string) *nm {
	b.t.Helper()
	root, err := testbed.Repository()
	require.NoError(b.t, err)
	n := &nm{b: b, home: filepath.Join(root, ".cache/nm"), etc: b.t.TempDir(), lib: b.t.TempDir()}
	_, err = os.Stat(filepath.Join(n.home, "usr/sbin/NetworkManager"))
	require.NoError(b.t, err, "run: make networkmanager")
	require.NoError(b.t, os.WriteFile(filepath.Join(n.etc, "lan.nmconnection"), []byte(profile), 0o600))
	// Of the machine only the links are its business.
	require.NoError(b.t, os.WriteFile(filepath.Join(b.run, "NetworkManager.conf"), []byte(
		"[main]\nplugins=keyfile\ndhcp=internal\ndns=none\nrc-manager=unmanaged\nhostname-mode=none\nno-auto-default=*\n[keyfile]\npath="+n.etc+"\n"), 0o644))
	n.log, err = os.Create(filepath.Join(b.t.TempDir(), "log"))
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		n.end(syscall.SIGKILL)
		if b.t.Failed() {
			text, _ := os.ReadFile(n.log.Name())
			b.t.Logf("NetworkManager:\n%s", text)
		}
		require.NoError(b.t, n.log.Close())
	})
	n.start()
	return n
}

// start starts it, and a system bus, as after a boot or anew. It needs neither systemd nor,
// where /sys cannot be written, udev.
func (n *nm) start() {
	n.b.t.Helper()
	require.NoError(n.b.t, os.RemoveAll(filepath.Join(n.b.run, "dbus")))
	n.bus = n.begin(`
		mount -t tmpfs none /etc/dbus-1/system.d
		cp "$home"/usr/share/dbus-1/system.d/org.freedesktop.NetworkManager.conf /etc/dbus-1/system.d/
		mkdir -p /run/dbus
		exec dbus-daemon --system --nofork --nopidfile`)
	n.b.until("a system bus", func() bool { _, err := os.Stat(filepath.Join(n.b.run, "dbus/system_bus_socket")); return err == nil })
	n.cmd = n.begin(`
		mount -t sysfs -o ro sysfs /sys
		mount -t tmpfs none /var/lib
		mkdir -p /run/NetworkManager /var/lib/NetworkManager
		mount --bind "$lib" /var/lib/NetworkManager
		exec "$home"/usr/sbin/NetworkManager --no-daemon --config=/run/NetworkManager.conf`)
	n.b.until("NetworkManager serves", func() bool { return n.says("running") == "running" })
}

// begin starts a script's program, which does not outlive the test.
func (n *nm) begin(script string) *exec.Cmd {
	n.b.t.Helper()
	cmd := n.within(script, "--uts", "--fork", "--kill-child")
	cmd.Stdout, cmd.Stderr = n.log, n.log
	require.NoError(n.b.t, n.b.sw.NS.Do(cmd.Start))
	return cmd
}

// within is a shell's script with the node's /run and the unpacked libraries.
func (n *nm) within(script string, unshare ...string) *exec.Cmd {
	return exec.Command("unshare", append(unshare, "--mount", "sh", "-euc", `
		run=$1 home=$2 lib=$3
		shift 3
		mount --bind "$run" /run
		export LD_LIBRARY_PATH="$(echo "$home"/lib/*-linux-gnu "$home"/usr/lib/*-linux-gnu | tr ' ' :)"
		`+script, "sh", n.b.run, n.home, n.lib)...)
}

// end kills it, as a machine's crash does, or asks it to end, as systemd does.
func (n *nm) end(how syscall.Signal) {
	n.b.t.Helper()
	if n.cmd != nil {
		n.signal(n.cmd, how)
	}
	if n.bus != nil {
		n.signal(n.bus, syscall.SIGKILL) // itself: who becomes another user does not die with unshare
	}
	n.cmd, n.bus = nil, nil
}

// signal ends the program that begin started.
func (n *nm) signal(cmd *exec.Cmd, how syscall.Signal) {
	n.b.t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
	require.NoError(n.b.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(list)))
	require.NoError(n.b.t, err)
	require.NoError(n.b.t, syscall.Kill(pid, how))
	_ = cmd.Wait()
}

// says is how it calls its own state, a link's with the profile by which it serves it, "" while
// it says nothing.
func (n *nm) says(of string) string {
	ask := []string{"-t", "-g", "RUNNING", "general", "status"}
	if of != "running" {
		ask = []string{"-t", "-g", "GENERAL.STATE,GENERAL.CONNECTION", "device", "show", of}
	}
	out, err := n.nmcli(ask...)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(out), " ")
}

func (n *nm) nmcli(args ...string) (string, error) {
	cmd := n.within(`exec "$home"/usr/bin/nmcli "$@"`)
	cmd.Args = append(cmd.Args, args...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tell has nmcli tell it something.
func (n *nm) tell(args ...string) {
	n.b.t.Helper()
	out, err := n.nmcli(args...)
	require.NoError(n.b.t, err, out)
}

// TestNetworkManagerLeavesItAlone: a NIC with a profile of NetworkManager's goes to a bridge
// and comes back, and nobody loses a packet, also when NetworkManager ends and starts
// meanwhile: it wants its address back, and must leave both links alone. After the return it
// touches nothing on the NIC by itself, and serves it again when it is told to.
func TestNetworkManagerLeavesItAlone(t *testing.T) {
	t.Parallel()
	var m *nm
	b := newBedOf(t, bedOf{wire: (*bed).wire, address: func(b *bed) {
		m = b.networkManager(static)
		b.until("addresses of both families", func() bool { return len(b.global("eth1")) == 2 })
	}})
	says := func(link, what string) {
		t.Helper()
		b.until(link+": "+what, func() bool { return m.says(link) == what })
	}
	const serves, alone, external = "100 (connected) lan", "10 (unmanaged)", "100 (connected (externally)) eth1"
	says("eth1", serves)
	before := b.has("eth1")
	pings := []*ping{b.ping(b.world, "192.0.2.1"), b.ping(b.world, "2001:db8::1")}
	take := func() {
		t.Helper()
		_, err := b.node.Take(t.Context(), net1)
		require.NoError(t, err)
		require.Equal(t, before, b.has("br-net1"))
		require.Empty(t, b.global("eth1"))
	}
	back := func() {
		t.Helper()
		require.NoError(t, b.node.Return(t.Context(), "net1"))
		require.Equal(t, before, b.has("eth1"))
	}
	take()
	back() // NetworkManager has heard of nothing
	says("eth1", serves)
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		take()
		m.end(how)
		take()
		m.start()
		says("eth1", alone)
		says("br-net1", alone)
		take()
		back()
		m.end(how)
		m.start()
		says("eth1", external)
		require.Equal(t, before, b.has("eth1"))
	}
	for _, p := range pings {
		p.none()
	}
	m.tell("connection", "up", "lan")
	says("eth1", serves)
	b.until("all is as before", func() bool { return b.has("eth1") == before })

	// It is told of the NIC while it runs, and takes it down.
	take()
	m.tell("general", "reload", "conf")
	says("eth1", alone)
	_, err := b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	b.out("ping", "-n", "-c", "3", "-i", "0.1", "-w", "10", "192.0.2.1")
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	m.tell("general", "reload", "conf")
	says("eth1", serves)
	b.until("addresses of both families", func() bool { return len(b.global("eth1")) == 2 })
}

// TestLeaseOfNetworkManager: what NetworkManager renews it would not renew on the bridge.
func TestLeaseOfNetworkManager(t *testing.T) {
	t.Parallel()
	b := newBedOf(t, bedOf{wire: (*bed).wire, address: func(b *bed) {
		b.leased()
		b.networkManager("[connection]\nid=lan\nuuid=6f6e6c79-0001-4000-8000-6661697279aa\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=auto\n[ipv6]\nmethod=disabled\n")
		b.until("a leased address", func() bool { return len(b.global("eth1")) == 1 })
	}})
	before := b.has("eth1")
	_, err := b.node.Take(t.Context(), net1)
	require.ErrorContains(t, err, "of eth1 ends unless it is renewed, by DHCP or router advertisements")
	require.Equal(t, regexp.MustCompile(`valid_lft.*`).ReplaceAllString(before, ""), regexp.MustCompile(`valid_lft.*`).ReplaceAllString(b.has("eth1"), ""))
	require.Equal(t, 1, b.sw.Count("Bridge"))
	require.Empty(t, b.node.All())
}
