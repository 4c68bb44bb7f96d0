package kubenet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/netplugin/kubenet"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// TestMTU: the least of the links that are up, apart from loopback,
// point-to-point links, and the bridge with its ports.
func TestMTU(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	for _, c := range []struct {
		change string
		want   int
	}{
		{"ip link set lo up", 1460}, // lo has 65536, and nothing else is up
		{"ip link add nic0 mtu 9000 type veth peer name far0", 1460},
		{"ip link set nic0 up", 9000},
		{"ip link add nic1 mtu 1400 up type veth peer name far1", 1400},
		{"ip link set nic1 down", 9000},
		{"ip tuntap add tun0 mode tun && ip link set tun0 mtu 1300 up", 9000},
		{"ip link add cbr0 mtu 1200 up type bridge", 9000},
		{"ip link add pod0 mtu 1100 up type veth peer name far2 && ip link set pod0 master cbr0", 9000},
		{"ip link set nic1 mtu 576 up", 576},
		{"ip link set nic1 mtu 575", 1460},
	} {
		inside.Sh(t, ns, c.change)
		got, err := kubenet.LeastMTU(ns)
		require.NoError(t, err)
		require.Equal(t, c.want, got, c.change)
	}
}
