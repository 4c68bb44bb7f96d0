package tcp_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/tcp"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// TestListeners: whatever form a listener has, it takes connections to exactly the
// addresses at which the kernel lets one in, and one that is closed to none.
func TestListeners(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	inside.Sh(t, ns, "ip link set lo up; ip addr add 10.0.0.5/32 dev lo; ip addr add fd00::5/128 dev lo nodad")
	all, err := tcp.Listeners(ns)
	require.NoError(t, err)
	require.Empty(t, all)
	for _, at := range []struct{ network, addr string }{
		{"tcp4", "0.0.0.0:80"}, {"tcp", "[::]:80"}, {"tcp6", "[::]:80"}, {"tcp4", "10.0.0.5:80"}, {"tcp6", "[fd00::5]:80"}, {"tcp4", "127.0.0.1:80"}, {"tcp4", "0.0.0.0:81"},
	} {
		var l net.Listener
		require.NoError(t, ns.Do(func() (err error) {
			l, err = (&net.ListenConfig{}).Listen(t.Context(), at.network, at.addr)
			return err
		}))
		all, err := tcp.Listeners(ns)
		require.NoError(t, err)
		require.Len(t, all, 1)
		for _, to := range []string{"10.0.0.5:80", "[fd00::5]:80"} {
			to := netip.MustParseAddrPort(to)
			c, err := tcp.Dial(t.Context(), ns, to)
			takes := slices.ContainsFunc(all, func(l tcp.Listener) bool { return l.Takes(to) })
			require.Equal(t, err == nil, takes, "%v at %s: %v", at, to, all)
			if err == nil {
				require.NoError(t, c.Close())
			}
		}
		require.NoError(t, l.Close())
	}
	all, err = tcp.Listeners(ns)
	require.NoError(t, err)
	require.Empty(t, all)
	ended, stop := context.WithCancel(t.Context())
	stop()
	_, err = tcp.Dial(ended, ns, netip.MustParseAddrPort("10.0.0.5:80"))
	require.ErrorIs(t, err, context.Canceled)
}
