package packetfilter_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/agent/packetfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// TestOutward: rules about the node's own way out follow its addresses to the bridge of a
// provider network that has got the NIC, and the Node's choice of another.
func TestOutward(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	services := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	on := ""
	by := chassis.Choice{Iface: "eth1", Tunnel: func() string { return on }, Given: func() []chassis.Given {
		return []chassis.Given{{Names: []string{"eth1", "eth1"}, Now: "eth1", Bridge: "br-net1"}}
	}}
	netnstest.Do(t, ns, func() error {
		sh := func(commands ...string) {
			for _, c := range commands {
				out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput()
				require.NoError(t, err, "ip %s: %s", c, out)
			}
		}
		look := func() (w standalone.Wanted) {
			require.NoError(t, packetfilter.Flags{MSS: "1300"}.Outward(&w, services, by))
			return w
		}
		sh("link add eth1 type veth peer name e1", "link add br-net1 type veth peer name b1", "link add eth2 type veth peer name e2", "link set e1 up", "link set b1 up",
			"link set eth1 up", "link set br-net1 up", "addr add 192.0.2.1/24 dev eth1", "addr add 198.51.100.1/24 dev eth2")
		require.Equal(t, standalone.Wanted{Services: services, Out: "eth1", Own: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Clamp: &rules.Clamp{Device: "eth1", Size: 1300}}, look())
		sh("addr del 192.0.2.1/24 dev eth1", "addr add 192.0.2.1/24 dev br-net1")
		require.Equal(t, standalone.Wanted{Services: services, Out: "br-net1", Own: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Clamp: &rules.Clamp{Device: "br-net1", Size: 1300}}, look())
		on = "eth2"
		require.Equal(t, "eth2", look().Clamp.Device)
		return nil
	})
}
