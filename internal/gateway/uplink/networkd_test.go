package uplink_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// networkd starts systemd-networkd, and a system bus, for a namespace, with a /run of their
// own; dead ends them. It needs no systemd, and no udev where /sys cannot be written.
func (b *bed) networkd(ns *netns.Handle, run string, files map[string]string) (dead func()) {
	b.t.Helper()
	for name, text := range files {
		require.NoError(b.t, os.MkdirAll(filepath.Dir(filepath.Join(run, name)), 0o755))
		require.NoError(b.t, os.WriteFile(filepath.Join(run, name), []byte(text), 0o644))
	}
	require.NoError(b.t, os.RemoveAll(filepath.Join(run, "dbus")))
	log, err := os.Create(filepath.Join(b.t.TempDir(), "log"))
	require.NoError(b.t, err)
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", `
		mount -t proc proc /proc
		mount -t sysfs -o ro sysfs /sys
		mount --bind `+run+` /run
		mount -t tmpfs none /etc/systemd/network
		mkdir -p /run/dbus /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
		chown -R systemd-network:systemd-network /run/systemd/netif
		dbus-daemon --system --fork
		/lib/systemd/systemd-networkd; exit $?`) // the shell stays: a process 1 logs elsewhere
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(b.t, ns.Do(cmd.Start))
	ended := false
	dead = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	b.t.Cleanup(func() {
		dead()
		if b.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.t.Logf("systemd-networkd of %s:\n%s", run, text)
		}
		require.NoError(b.t, log.Close())
	})
	b.until("a system bus", func() bool { _, err := os.Stat(filepath.Join(run, "dbus/system_bus_socket")); return err == nil })
	return dead
}

// lease is how long an address is good for in TestLeaseIsRenewedOnTheBridge, in seconds.
func lease() int {
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		return 60
	}
	return 4
}

// leased has the world give the NIC addresses by DHCP and router advertisements.
func (b *bed) leased() {
	b.t.Helper()
	b.out("ip", "addr", "flush", "dev", "far", "scope", "global")
	run := b.t.TempDir()
	b.networkd(b.world, run, map[string]string{"systemd/network/10-far.network": fmt.Sprintf(`
[Match]
Name=far
[Network]
Address=192.0.2.254/24
Address=2001:db8::fe/64
DHCPServer=yes
IPv6SendRA=yes
IPv6AcceptRA=no
[DHCPServer]
DefaultLeaseTimeSec=%[1]d
MaxLeaseTimeSec=%[1]d
[IPv6SendRA]
RouterLifetimeSec=1800
[IPv6Prefix]
Prefix=2001:db8::/64
`, lease())})
	b.sw.In("sysctl", "-q", "-w", "net.ipv6.conf.eth1.accept_ra=0") // networkd's, not the kernel's
	b.sw.In("ip", "link", "set", "eth1", "up")
	b.until("a router that answers", func() bool {
		text, _ := exec.Command("sh", "-c", "cat "+run+"/systemd/netif/links/*").Output()
		return strings.Contains(string(text), "ADMIN_STATE=configured") && strings.Contains(b.out("ip", "-6", "addr", "show", "dev", "far", "scope", "link"), "fe80")
	})
}

// global are a link's addresses by which others reach the node.
func (b *bed) global(link string) []string {
	b.t.Helper()
	return strings.Fields(b.sw.In("sh", "-c", "ip -o addr show dev "+link+" scope global | awk '{print $4}'"))
}

// hasLeased tells that a link has the node's leased addresses, and the routes that came with them.
func (b *bed) hasLeased(link string) bool {
	four, six := b.sw.In("ip", "route", "show", "dev", link), b.sw.In("ip", "-6", "route", "show", "dev", link)
	return len(b.global(link)) == 2 &&
		strings.Contains(four, "default via 192.0.2.254 proto dhcp") && strings.Contains(six, "default via fe80") && strings.Contains(six, "proto ra")
}

// asked is how often the node asked the world for a lease, and for an advertisement.
func (b *bed) asked() (leases, routers int) {
	b.t.Helper()
	m := regexp.MustCompile(`packets (\d+)`).FindAllStringSubmatch(b.out("nft", "list", "table", "inet", "asked"), -1)
	require.Len(b.t, m, 2)
	leases, _ = strconv.Atoi(m[0][1])
	routers, _ = strconv.Atoi(m[1][1])
	return leases, routers
}

// TestLeaseIsRenewedOnTheBridge: systemd-networkd, which has the NIC's addresses by DHCP and
// by router advertisements, goes on renewing them on the bridge, also when it starts anew;
// and on the NIC when that is given back. No packet is lost.
func TestLeaseIsRenewedOnTheBridge(t *testing.T) {
	t.Parallel()
	var dead func()
	nic := map[string]string{"systemd/network/10-eth.network": "[Match]\nName=eth*\n[Network]\nDHCP=ipv4\n# from DHCP\n"}
	b := newBedOf(t, bedOf{wire: (*bed).wire, address: func(b *bed) {
		b.leased()
		b.out("nft", "add table inet asked; add chain inet asked in { type filter hook input priority 0; }; add rule inet asked in udp dport 67 counter; add rule inet asked in icmpv6 type nd-router-solicit counter")
		dead = b.networkd(b.sw.NS, b.run, nic)
		b.until("addresses of both families", func() bool { return b.hasLeased("eth1") })
	}})
	had := b.global("eth1")
	var pings []*ping
	for _, addr := range had {
		pings = append(pings, b.ping(b.world, strings.Split(addr, "/")[0]))
	}
	want := uplink.Want{Network: "net1", NIC: "eth1"}
	take := func() {
		t.Helper()
		_, err := b.node.Take(t.Context(), want)
		require.NoError(t, err)
	}
	// renewed: on a link, and not on the other, three times and for longer than a lease lasts.
	renewed := func(link, other string) {
		t.Helper()
		began := time.Now()
		before, _ := b.asked()
		b.until("leases are renewed on "+link, func() bool {
			require.True(t, b.hasLeased(link), b.sw.In("sh", "-c", "ip addr; ip route; ip -6 route"))
			now, _ := b.asked()
			return now >= before+3 && time.Since(began) > time.Duration(lease()+1)*time.Second
		})
		require.Empty(t, b.sw.In("sh", "-c", "ip -o addr show scope global dev "+other+" 2>/dev/null || true"))
	}
	take()
	_, routers := b.asked()
	renewed("br-net1", "eth1")
	took := b.j.Uplinks()
	take()
	require.Equal(t, took, b.j.Uplinks(), "what is renewed is no news")

	dead()
	dead = b.networkd(b.sw.NS, b.run, nil)
	b.start() // the agent too
	take()
	renewed("br-net1", "eth1")
	_, again := b.asked()
	require.Greater(t, again, routers, "routers are asked on the bridge")

	back := func() {
		t.Helper()
		require.NoError(t, b.node.Return(t.Context(), "net1"))
		b.until("the NIC serves again", func() bool { return b.hasLeased("eth1") })
	}
	back()
	b.until("it is taken once more, as soon as networkd has heard a router", func() bool {
		_, err := b.node.Take(t.Context(), want)
		return err == nil
	})
	b.until("the bridge serves again", func() bool { return b.hasLeased("br-net1") })
	back()
	renewed("eth1", "br-net1")
	for _, p := range pings {
		p.none()
	}
	require.Equal(t, had, b.global("eth1"))
	require.NoFileExists(t, filepath.Join(b.run, "systemd/network/05-fairlead-br-net1.network"))
	dead()
}
