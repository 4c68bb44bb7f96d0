package match_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/match"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// readable is how ovn-trace speaks of an expression that it has read and that fits more
// than one packet, or has a port group, of which it does not know the names.
var readable = regexp.MustCompile(`error parsing flow: (Constraints are |.*expecting port group name)`)

// TestFault: OVN's own parser and this one agree about each expression.
func TestFault(t *testing.T) {
	t.Parallel()
	central := bed.New(t, testbed.Bare(t), "127.0.0.1")
	central.Nbctl("--wait=sb", "ls-add", "sw", "--", "create", "Address_Set", "name=as.1_ip4", "addresses=10.0.0.1")
	for text, good := range map[string]bool{
		"ip4.src == 10.0.0.1": true, "ip4.src==10.0.0.0/8&&tcp.dst=={80,443}": true, "ip4.src == 10.0.0.0/255.0.0.0": true,
		"(ip4.src == $as.1_ip4 || ip6.src == fe80::/10) && udp.dst == 0x35": true, "1 < tcp.dst < 100": true, "10.0.0.1 == ip4.src": true,
		"tcp.dst >= 1000 && tcp.dst <= 2000": true, "!(ip4.src == 10.0.0.1)": true, "outport == @pg && ip4": true, `inport == "a-b" && ip4`: true,
		`"a" == inport`: true, "ip": true, "tcp": true, "1": true, "0": true, "ct.new && !ct.est": true, "ct_state == 1": true, "reg0[3] == 1": true, "flags.loopback": true,
		"ip4.src[0..3] == 1": true, "ip4 == 1": true, "eth.src == 00:00:00:00:00:01/ff:ff:ff:00:00:00": true, "ip4.src == {10.0.0.1 10.0.0.2,}": true,
		"{80} == tcp.dst": true, "((ip4) && tcp)": true, "/* a */ ip4 // b": true, `is_chassis_resident("x")`: true, "icmp4.type == 8 && icmp4.code == 0": true,
		"arp.spa == 10.0.0.1 && arp.op == 1": true, "nd.target == fe80::1": true, "nd_ns": true, "vlan.vid == 3": true, "pkt.mark == 1": true, "ip.proto == 6": true,
		"ip4.mcast": true, "ip6.mcast": true, "eth.mcast": true, "igmp": true, "icmp": true, "sctp.dst == 1": true, "tcp.flags == 2": true, "ip.ttl == 3": true,

		"": false, "ip4.scr == 10.0.0.1": false, "ip4 && (tcp || udp": false, "ip4 && tcp || udp": false, "ip4.src = 10.0.0.1": false,
		"ip4.src == 10.0.0.1/33": false, "ip4.src == 10.0.0.999": false, "ip.src == 10.0.0.1": false, "inport == x": false, "tcp.dst == 80 tcp": false,
		"ip4 and tcp": false, "ip4.src == {}": false, "ip4.src == {10.0.0.1": false, "ip4.src == ip4.dst": false, "10 == 10": false, "0 < 2 < tcp.dst": false,
		"ip4.src == 10.0.0.1,": false, "tcp.sport == 1": false, "ip4 &&": false, "&& ip4": false, "ip4)": false, "()": false, "ip4.src ==": false, `inport == "a`: false,
		"eth": false, "ip4.": false, "ip4.src == $": false, "80": false, "ip4 ; tcp": false, "is_chassis_resident(x)": false, "ip4.src == 10.0.0.0/8/8": false,
	} {
		out, _ := exec.CommandContext(t.Context(), "ovn-trace", "--db="+central.SB(), "sw", text).CombinedOutput() // it exits 1 for both
		wrong := strings.Contains(string(out), "error parsing flow: ")
		assert.Equal(t, good, !wrong || readable.Match(out), "ovn-trace of %q: %s", text, out)
		fault := match.Fault(text)
		assert.Equal(t, good, fault == "", "%q: %s", text, fault)
	}
	require.Equal(t, `"ip4.scr" stands where a field or a constant should`, match.Fault("ip4.scr == 10.0.0.1"))
	require.Equal(t, `it ends where ")" should stand`, match.Fault("ip4 && (tcp || udp"))
	require.Equal(t, `"= 10.0.0.1" means nothing`, match.Fault("ip4.src = 10.0.0.1"))
}

// TestReadOnce: an expression that was read once costs nothing more.
func TestReadOnce(t *testing.T) {
	const text = "ip4.src == 10.20.0.0/24 && tcp.dst == {80, 443"
	want := match.Fault(text)
	require.NotEmpty(t, want)
	same := true
	require.Zero(t, testing.AllocsPerRun(10, func() { same = same && match.Fault(text) == want }))
	require.True(t, same)
}
