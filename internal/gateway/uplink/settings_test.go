package uplink_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sysctl is a link's, of a family.
func (b *bed) sysctl(family, link, name string) string {
	b.t.Helper()
	return strings.TrimSpace(b.sw.In("cat", "/proc/sys/net/"+family+"/conf/"+link+"/"+name))
}

// TestSysctls: the bridge's device is set as the NIC is where that is not set as any link is;
// what somebody sets on it later stays, and the NIC has its own when it comes back.
func TestSysctls(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	own := []struct{ family, name, value string }{
		{"ipv4", "proxy_arp", "1"}, {"ipv4", "rp_filter", "2"}, {"ipv4", "arp_ignore", "1"},
		{"ipv6", "accept_redirects", "0"}, {"ipv6", "disable_ipv6", "0"},
	}
	b.sw.In("sysctl", "-w", "net.ipv6.conf.default.disable_ipv6=1")
	for _, s := range own {
		b.sw.In("sysctl", "-w", "net."+s.family+".conf.eth1."+s.name+"="+s.value)
	}
	before := b.has("eth1")
	_, err := b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	require.Equal(t, before, b.has("br-net1"))
	for _, s := range own {
		require.Equal(t, s.value, b.sysctl(s.family, "br-net1", s.name), s.name)
	}

	b.sw.In("sysctl", "-w", "net.ipv4.conf.br-net1.rp_filter=0")
	b.start()
	_, err = b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	require.Equal(t, "0", b.sysctl("ipv4", "br-net1", "rp_filter"))

	require.NoError(t, b.node.Return(t.Context(), "net1"))
	require.Equal(t, before, b.has("eth1"))
	for _, s := range own {
		require.Equal(t, s.value, b.sysctl(s.family, "eth1", s.name), s.name)
	}
}
