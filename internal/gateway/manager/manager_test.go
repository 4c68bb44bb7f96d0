package manager

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// lay makes files below a folder.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// read is a file's text, "" for none.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return string(text)
}

// TestKept: what systemd-networkd renews on a link is what it says of it; how its DHCP
// clients are known stands with the lease. A link that it serves by our word is not its own.
func TestKept(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	lay(t, run, map[string]string{"systemd/netif/leases/7": "# This is private data. Do not parse.\nADDRESS=192.0.2.43\nCLIENTID=ff597c652500020000ab110033bdebf95e192c\n"})
	m := New(run)
	k, err := m.kept(`{"NetworkFile":"/etc/systemd/network/10.network","Addresses":[
		{"Address":[192,0,2,43],"ConfigSource":"DHCPv4"},{"Address":[192,0,2,44],"ConfigSource":"static"},{"Address":[254,128,0,0,0,0,0,0,0,0,0,0,0,0,0,1],"ConfigSource":"foreign"},
		{"Address":[32,1,13,184,0,0,0,0,0,0,0,0,0,0,0,1],"ConfigSource":"NDisc"}]}`, 7)
	require.NoError(t, err)
	require.Equal(t, Kept{File: "/etc/systemd/network/10.network", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.43"), netip.MustParseAddr("2001:db8::1")}, IAID: 0x597c6525}, k)
	for _, none := range []string{`{"Addresses":[]}`, `{"NetworkFile":"/run/systemd/network/05-fairlead-eth1.network","Addresses":[{"Address":[192,0,2,43],"ConfigSource":"DHCPv4"}]}`} {
		k, err := m.kept(none, 8)
		require.NoError(t, err)
		require.Zero(t, k)
	}
	// A NIC that was given back goes on to be served by the settings that it had.
	lay(t, run, map[string]string{"systemd/network/05-fairlead-eth2.network": "[Match]\n" + keptLine + `{"File":"/etc/systemd/network/10.network","Addrs":["192.0.2.9"],"IAID":7}` + "\n"})
	k, err = m.kept(`{"NetworkFile":"/run/systemd/network/05-fairlead-eth2.network","Addresses":[{"Address":[192,0,2,43],"ConfigSource":"DHCPv4"}]}`, 8)
	require.NoError(t, err)
	require.Equal(t, Kept{File: "/etc/systemd/network/10.network", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.43")}, IAID: 7}, k)
	_, err = m.kept("no JSON", 7)
	require.Error(t, err)
}

// TestFiles: what a link's manager is told, from the first word to the last; without a
// manager nothing is written.
func TestFiles(t *testing.T) {
	t.Parallel()
	run, ctx := t.TempDir(), t.Context()
	m := New(run)
	links := Links{Port: "eth1", Device: "br-net1"}
	k := Kept{File: "/run/systemd/network/10-all.network", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.43")}, IAID: 9}
	_, err := m.Give(ctx, links, 1, Kept{})
	require.NoError(t, err)
	list, err := os.ReadDir(run)
	require.NoError(t, err)
	require.Empty(t, list)

	lay(t, run, map[string]string{
		"systemd/network/10-all.network":                 "# of all\n[Match]\nName=eth*\n\n[Network]\nDHCP=yes\n[DHCPv4]\n; no\nUseMTU=yes\n",
		"systemd/network/10-all.network.d/20-b.conf":     "[Match]\nType=ether\n[DHCPv4]\nRouteMetric=7\n",
		"systemd/network/10-all.network.d/10-a.conf":     "[Network]\nDomains=a\n",
		"systemd/network/10-all.network.d/10-a.conf.off": "[Network]\nDomains=no\n",
		"NetworkManager/conf.d/other.conf":               "",
	})
	of := func(link string) string { return filepath.Join(run, "systemd/network/05-fairlead-"+link+".network") }
	nm := func(link string) string {
		return read(t, filepath.Join(run, "NetworkManager/conf.d/fairlead-"+link+".conf"))
	}
	const unmanaged = "\n\n[Link]\nUnmanaged=yes\n"
	require.NoError(t, m.Hold(ctx, "br-net1"))
	require.Contains(t, read(t, of("br-net1")), "[Match]\nName=br-net1"+unmanaged)
	require.Contains(t, nm("br-net1"), "[keyfile]\nunmanaged-devices+=interface-name:br-net1\n")

	kept, err := m.Give(ctx, links, 1, k) // no bus: what was known before counts
	require.NoError(t, err)
	require.Equal(t, k, kept)
	require.Contains(t, read(t, of("eth1")), "[Match]\nName=eth1"+unmanaged)
	const head = "# Of provider networks (fairlead agent): br-net1 has what /run/systemd/network/10-all.network says.\n" +
		"# Without this file that one counts again, after a reboot or networkctl reload.\n" +
		"# Kept: {\"File\":\"/run/systemd/network/10-all.network\",\"Addrs\":[\"192.0.2.43\"],\"IAID\":9}\n"
	const rest = "\n[Network]\nDHCP=yes\n[DHCPv4]\nUseMTU=yes\n\n[Network]\nDomains=a\n\n[DHCPv4]\nRouteMetric=7\n\n[Network]\nKeepConfiguration=yes\n\n[DHCPv4]\nIAID=9\n\n[DHCPv6]\nIAID=9\n"
	require.Equal(t, head+"[Match]\nName=br-net1\n"+rest, read(t, of("br-net1")))
	require.NoError(t, m.Hold(ctx, "br-net1"))
	require.Equal(t, head+"[Match]\nName=br-net1\n"+rest, read(t, of("br-net1")), "Hold takes nothing back")

	kept, err = New(run).Give(ctx, links, 1, Kept{}) // another process that has lost its journal
	require.NoError(t, err)
	require.Equal(t, k, kept)
	require.Equal(t, head+"[Match]\nName=br-net1\n"+rest, read(t, of("br-net1")))

	require.NoError(t, New(run).Return(ctx, links, "eth1"))
	require.Empty(t, read(t, of("br-net1"))+nm("eth1")+nm("br-net1"))
	require.Contains(t, read(t, of("eth1")), "[Match]\nName=eth1\n"+rest)

	// The administrator has taken the settings away meanwhile.
	m = New(run)
	_, err = m.Give(ctx, links, 1, k)
	require.NoError(t, err)
	require.Contains(t, read(t, of("br-net1")), rest)
	require.NoError(t, os.Remove(filepath.Join(run, "systemd/network/10-all.network")))
	_, err = New(run).Give(ctx, links, 1, k)
	require.NoError(t, err, "of a NIC that was given the settings may go")
	require.Contains(t, read(t, of("br-net1")), rest)
	require.NoError(t, m.Return(ctx, links, "eth1"))
	require.Empty(t, read(t, of("br-net1"))+read(t, of("eth1")))
}

// TestSettingsElsewhere: systemd-networkd is told where nobody has put a file of its own below
// /run yet.
func TestSettingsElsewhere(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	lay(t, run, map[string]string{"systemd/netif/state": "", "all.network": "[Match]\nName=eth*\n[Network]\nDHCP=yes\n"})
	k := Kept{File: filepath.Join(run, "all.network"), Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.43")}}
	_, err := New(run).Give(t.Context(), Links{Port: "eth1", Device: "br-net1"}, 1, k)
	require.NoError(t, err)
	require.Contains(t, read(t, filepath.Join(run, "systemd/network/05-fairlead-eth1.network")), "Unmanaged=yes")
	require.Contains(t, read(t, filepath.Join(run, "systemd/network/05-fairlead-br-net1.network")), "DHCP=yes")
}
