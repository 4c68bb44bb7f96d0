package sysfs_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

func TestSysctlIsPerNamespace(t *testing.T) {
	ns := netnstest.New(t)
	const name = "net.ipv4.ip_forward"
	outside, err := sysfs.ReadSysctl(name)
	require.NoError(t, err)
	netnstest.Do(t, ns, func() error {
		for _, value := range []string{"1", "1", "0"} {
			for _, set := range []func(string, string) error{sysfs.WriteSysctl, sysfs.SetSysctl} {
				require.NoError(t, set(name, value))
				got, err := sysfs.ReadSysctl("net/ipv4/ip_forward")
				require.NoError(t, err)
				require.Equal(t, value, got)
				require.NoError(t, sysfs.WriteSysctl(name, "1"))
			}
		}
		return sysfs.WriteSysctl(name, "1")
	})
	after, err := sysfs.ReadSysctl(name)
	require.NoError(t, err)
	require.Equal(t, outside, after)
}

func TestSysctlErrors(t *testing.T) {
	_, err := sysfs.ReadSysctl("net.ipv4.conf.nosuch.arp_notify")
	require.True(t, sysfs.SysctlMissing(err), err)
	err = sysfs.WriteSysctl("net.ipv4.conf.nosuch.arp_notify", "1")
	require.True(t, sysfs.SysctlMissing(err), err)
	for _, name := range []string{"", "/etc/passwd", "net/../../etc/passwd", "../sys/net"} {
		_, err := sysfs.ReadSysctl(name)
		require.Error(t, err, name)
		require.False(t, sysfs.SysctlMissing(err), name)
		require.Error(t, sysfs.WriteSysctl(name, "1"), name)
	}
	ns := netnstest.New(t)
	require.Error(t, ns.Do(func() error { return sysfs.WriteSysctl("net.ipv4.ip_default_ttl", "lots") }))
	require.True(t, sysfs.SysctlMissing(sysfs.SetSysctl("net.ipv4.conf.nosuch.arp_notify", "1")))
	// The kernel refuses every write, as a read-only /proc/sys does: what is
	// right already is no error.
	const readOnly = "kernel.ostype"
	require.NoError(t, sysfs.SetSysctl(readOnly, "Linux"))
	require.Error(t, sysfs.SetSysctl(readOnly, "Minix"))
}

func TestTxChecksumOff(t *testing.T) {
	ns, peer := netnstest.New(t), netnstest.New(t)
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.EnsureVeth(rtnl.Veth{Name: "v1", Peer: peer, PeerName: "eth0"})
	require.NoError(t, err)
	netnstest.Do(t, peer, func() error {
		out, err := exec.Command("ethtool", "-k", "eth0").Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "tx-checksumming: on")
		for range 2 {
			require.NoError(t, sysfs.TxChecksumOff("eth0"))
		}
		out, err = exec.Command("ethtool", "-k", "eth0").Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "tx-checksumming: off")
		require.Contains(t, string(out), "tx-tcp-segmentation: off")

		require.ErrorIs(t, sysfs.TxChecksumOff("v1"), core.ErrNotFound, "the other end's namespace")
		require.Error(t, sysfs.TxChecksumOff("a-name-too-long-for-linux"))
		return nil
	})
}

func TestGenlFamily(t *testing.T) {
	has, err := sysfs.GenlFamily("nlctrl")
	require.NoError(t, err)
	require.True(t, has)
	has, err = sysfs.GenlFamily("no_such_family")
	require.NoError(t, err)
	require.False(t, has)
	_, err = sysfs.HasOpenvswitch()
	require.NoError(t, err)
}
