package packetfilter_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/agent/packetfilter"
	"github.com/fairlead/fairlead/internal/gateway/encap"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// TestOwn: of the interface's addresses the node's own come first, whatever others somebody
// added, and what the kernel is about to drop is none.
func TestOwn(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	by := chassis.Choice{Iface: "eth1", Tunnel: func() string { return "" }, Given: func() ([]encap.Given, error) { return nil, nil }}
	netnstest.Do(t, ns, func() error {
		for _, c := range []string{
			"link add eth1 type veth peer name e1", "link set e1 up", "link set eth1 up", "addr add 192.0.2.20/24 dev eth1",
			"addr add 192.0.2.5/24 dev eth1", "addr add 192.0.2.4/32 dev eth1", "addr add 2001:db8::20/64 dev eth1 nodad",
			"addr add 2001:db8::30/64 dev eth1 nodad", "addr add 2001:db8::3/64 dev eth1 nodad preferred_lft 0", "addr add 2001:db8::4/128 dev eth1 nodad",
		} {
			out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput()
			require.NoError(t, err, "ip %s: %s", c, out)
		}
		look := func(node ...string) string {
			w := standalone.Wanted{Join: &standalone.Join{}}
			for _, a := range node {
				w.Join.Own = append(w.Join.Own, netip.MustParseAddr(a))
			}
			require.NoError(t, packetfilter.Flags{}.Outward(&w, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, by))
			return fmt.Sprint(w.Own)
		}
		require.Equal(t, "[192.0.2.20 2001:db8::20 2001:db8::30 192.0.2.4 192.0.2.5 2001:db8::4]", look())
		require.Equal(t, "[192.0.2.5 2001:db8::30 192.0.2.20 2001:db8::20 192.0.2.4 2001:db8::4]", look("192.0.2.5", "2001:db8::30", "198.51.100.7"))
		return nil
	})
}

// TestOutward: rules about the node's own way out follow its addresses to the bridge of a
// provider network that has got the NIC, and the Node's choice of another.
func TestOutward(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	services := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	on := ""
	by := chassis.Choice{Iface: "eth1", Tunnel: func() string { return on }, Given: func() ([]encap.Given, error) {
		return []encap.Given{{Names: []string{"eth1", "eth1"}, Now: "eth1", Bridge: "br-net1"}}, nil
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
