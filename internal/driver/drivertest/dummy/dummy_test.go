package dummy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/driver/drivertest/dummy"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

func spec(n int, ns core.Netns) core.Spec {
	return core.Spec{
		Key: core.Key{Container: fmt.Sprintf("c%d", n), IfName: "eth0"}, Driver: core.DriverDummy, Netns: ns,
		NIC: &core.NICSpec{
			Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.7.%d.2/24", n))},
			Settings: core.Settings{PodSide: core.PodSide{
				MTU: 1400, MAC: core.MAC{2, 0, 0, 0, 7, byte(n)},
				Routes: []core.Route{{Dst: netip.MustParsePrefix(fmt.Sprintf("10.77.%d.0/24", n)), GW: netip.MustParseAddr(fmt.Sprintf("10.7.%d.1", n))}},
			}},
		},
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) *drivertest.Machine {
		host := netnstest.New(t)
		return &drivertest.Machine{
			Driver: dummy.New(host), Spec: spec,
			Inventory: func() []string { return inside.Links(t, host) },
		}
	})
}

// TestCheckSeesTampering: each thing that Attach made.
func TestCheckSeesTampering(t *testing.T) {
	for harm, says := range map[string]string{
		"addr del 10.7.1.2/24 dev eth0": "address 10.7.1.2/24 is missing",
		"link set eth0 name other":      "link is missing in the pod",
		"link del eth0":                 "link is missing on the node",
	} {
		d, pod := dummy.New(netnstest.New(t)), netnstest.New(t)
		id, err := netns.Identify(netnstest.Path(pod))
		require.NoError(t, err)
		s := spec(1, id)
		l, err := d.Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err)
		require.NoError(t, d.Check(t.Context(), driver.Run{}, s, l))
		inside.Sh(t, pod, "ip "+harm)
		err = d.Check(t.Context(), driver.Run{}, s, l)
		require.ErrorIs(t, err, core.ErrDrift, harm)
		require.ErrorContains(t, err, says)
	}
}

// TestWhatItCannotCarryIsRefused: nothing is accepted and then not carried out.
func TestWhatItCannotCarryIsRefused(t *testing.T) {
	for _, n := range []core.NIC{
		{Type: "internal-port"},
		{Type: "veth-pair", Settings: core.Settings{VLAN: 7}},
		{Type: "veth-pair", Settings: core.Settings{Tuning: core.Tuning{Mirror: true}}},
		{Type: "veth-pair", Settings: core.Settings{Tuning: core.Tuning{QoS: core.QoS{EgressMbps: 1}}}},
	} {
		s := spec(1, core.Netns{})
		require.Equal(t, core.CodeValue, core.CodeOf(dummy.New(nil).Carry(&s, &n)))
	}
}
