package icmp_test

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/icmp"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

func TestEcho(t *testing.T) {
	ns, far := netnstest.New(t), netnstest.New(t)
	ask := func(ctx context.Context, to string, limit time.Duration) (err error) {
		require.NoError(t, ns.Do(func() error { err = icmp.Echo(ctx, "here", netip.MustParseAddr(to), limit); return nil }))
		return err
	}
	run := func(t *testing.T, h *netns.Handle, line string) {
		t.Helper()
		f := strings.Fields(line)
		netnstest.Do(t, h, func() error {
			out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
			require.NoError(t, err, "%s: %s", line, out)
			return nil
		})
	}
	path := netnstest.Path(far)
	run(t, ns, "ip link add here type veth peer name there netns "+path)
	run(t, ns, "ip addr add 10.0.0.1/24 dev here")
	run(t, ns, "ip addr add fd00::1/64 dev here nodad")
	run(t, far, "ip addr add 10.0.0.2/24 dev there")
	run(t, far, "ip addr add fd00::2/64 dev there nodad")
	run(t, ns, "ip link set here up")
	run(t, far, "ip link set there up")
	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		require.Eventually(t, func() bool { return ask(t.Context(), to, time.Second) == nil }, 20*time.Second, time.Millisecond)
	}
	for _, to := range []string{"10.0.0.3", "fd00::3"} {
		require.ErrorIs(t, ask(t.Context(), to, 50*time.Millisecond), core.ErrUnavailable)
	}
	ended, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	require.Error(t, ask(ended, "10.0.0.3", time.Hour))
	run(t, ns, "ip link del here")
	require.Error(t, ask(t.Context(), "10.0.0.2", time.Second))
}

// TestMany: one value asks addresses of both families, and hears who answers.
func TestMany(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	run := func(line string) {
		netnstest.Do(t, ns, func() error {
			f := strings.Fields(line)
			out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
			require.NoError(t, err, "%s: %s", line, out)
			return nil
		})
	}
	run("ip link set lo up")
	run("ip addr add 10.0.0.1/32 dev lo")
	run("ip addr add fd00::1/128 dev lo nodad")
	heard := make(chan string, 1024)
	var m *icmp.Many
	netnstest.Do(t, ns, func() (err error) {
		m, err = icmp.OpenMany(t.Context(), func(ip netip.Addr) { heard <- ip.String() })
		return err
	})
	for _, ip := range []string{"10.0.0.1", "fd00::1"} {
		for got := ""; got != ip; { // a request may be lost: of a new address the kernel has the local route a moment later
			require.NoError(t, m.Ask(netip.MustParseAddr(ip)))
			select {
			case got = <-heard:
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	require.Error(t, m.Ask(netip.MustParseAddr("10.0.0.2")), "no route leads there")
	m.Close()
	answers := len(heard)
	require.Error(t, m.Ask(netip.MustParseAddr("10.0.0.1")))
	require.Len(t, heard, answers)
}
