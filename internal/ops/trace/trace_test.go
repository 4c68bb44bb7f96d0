package trace_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ops/trace"
)

// read reads a text of OVN 23.03's ovn-trace.
func read(t *testing.T, name string) []*trace.Pass {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return trace.Read(string(text))
}

// TestRead: each half of a switch or router, the flows that were met, and the rule
// that ended the packet.
func TestRead(t *testing.T) {
	passes := read(t, "dropped.txt")
	require.Len(t, passes, 6)
	require.Equal(t, "web", passes[0].Datapath)
	require.Equal(t, []any{"web-ovn-cluster", "patch"}, []any{passes[1].Output, passes[1].Type})
	end := trace.Dropped(passes)
	require.NotNil(t, end)
	require.True(t, end.Rule() && end.Egress)
	require.Equal(t, "reg0[9] == 1 && (outport == @np.abc && ip)", end.Match)
	require.Equal(t, []*trace.Flow{end}, trace.Rules(passes))
	routed := ""
	for _, f := range passes[2].Flows {
		routed += f.Route()
	}
	require.Equal(t, "ip4.dst == 10.17.0.0/16", routed)

	passes = read(t, "service.txt")
	require.Nil(t, trace.Dropped(passes))
	require.Empty(t, trace.Rules(passes))
	balanced := ""
	for _, f := range passes[0].Flows {
		balanced += f.Balanced()
	}
	require.Equal(t, "10.96.0.10", balanced)
	require.Equal(t, []any{"peer.web", ""}, []any{passes[5].Output, passes[5].Type})
}

// TestPackets: the packet as each program takes it.
func TestPackets(t *testing.T) {
	p := trace.Packet{InPort: "a.b", SrcMAC: "0a:00:00:00:00:01", DstMAC: "0a:00:00:00:00:02", Src: "10.0.0.1", Dst: "10.0.0.2", Protocol: "tcp", Port: 80, SourcePort: 40000}
	require.Equal(t, `inport == "a.b" && eth.src == 0a:00:00:00:00:01 && eth.dst == 0a:00:00:00:00:02 && ip4.src == 10.0.0.1 && ip4.dst == 10.0.0.2 && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == 80`, p.Microflow())
	require.Equal(t, "in_port=7,tcp,dl_src=0a:00:00:00:00:01,dl_dst=0a:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tcp_src=40000,tcp_dst=80", p.Flow(7))
	p.Src, p.Dst, p.Protocol = "fd00::1", "fd00::2", "icmp"
	require.Contains(t, p.Microflow(), "ip6.src == fd00::1 && ip6.dst == fd00::2 && ip.ttl == 64 && icmp6.type == 128")
	require.Equal(t, "in_port=7,icmp6,dl_src=0a:00:00:00:00:01,dl_dst=0a:00:00:00:00:02,ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,icmpv6_type=128,icmpv6_code=0", p.Flow(7))
}

// TestReadSwitched: the last word of a switch counts, after connection tracking.
func TestReadSwitched(t *testing.T) {
	s, is := trace.ReadSwitched("bridge(\"br-int\")\n---\n 0. in_port=3, priority 100, cookie 0x1\n    ct(table=9)\n\nDatapath actions: ct(zone=1),recirc(0x1)\n" +
		"recirc(0x1) - resume conntrack\n 9. ip, priority 2000, cookie 0xed64d01d\n    drop\n\nDatapath actions: drop\n")
	require.True(t, is)
	require.True(t, s.Drops)
	require.Equal(t, "ip, priority 2000, cookie 0xed64d01d", s.Rule)
	s, is = trace.ReadSwitched("Datapath actions: set(tunnel(tun_id=0x1,dst=172.18.0.3)),2\n")
	require.Equal(t, []bool{true, false, true}, []bool{is, s.Drops, s.Tunnel})
	_, is = trace.ReadSwitched("no such bridge")
	require.False(t, is)
}
