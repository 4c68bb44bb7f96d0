package hostport_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// crowd are pods of one network with three ports each.
func crowd(from, n int) (specs []core.Spec) {
	for i := from; i < from+n; i++ {
		port := uint16(1000 + 3*i) //nolint:gosec // bounded by the callers
		specs = append(specs, core.Spec{
			Driver: core.DriverHostport, Key: core.Key{Container: fmt.Sprintf("c%d", i), IfName: "eth0"},
			Pod: core.Pod{Namespace: "default", Name: fmt.Sprintf("pod%d", i)},
			HostPorts: &core.HostPorts{
				Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 16)}, //nolint:gosec // low bytes
				Ports: []core.PortMapping{tcp(port, 80), udp(port+1, 81), tcp(port+2, 82)},
			},
		})
	}
	return specs
}

// BenchmarkAttachDetach: three ports, with no other pod's beside the one that
// keeps the table, and with those of ten thousand.
func BenchmarkAttachDetach(b *testing.B) {
	for _, there := range []int{1, 10000} {
		b.Run(fmt.Sprintf("beside-%d", there), func(b *testing.B) {
			t := hostport.New(hostport.Config{Host: netnstest.New(b)})
			require.NoError(b, t.Restore(b.Context(), crowd(0, there)))
			one := crowd(there, 1)[0]
			for b.Loop() {
				_, err := t.Attach(b.Context(), driver.Run{}, one)
				require.NoError(b, err)
				require.NoError(b, t.Detach(b.Context(), driver.Run{}, one))
			}
		})
	}
}
