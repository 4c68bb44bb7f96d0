package netplugin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// TestNoOp: the node's packet filter sees bridged packets where the kernel can,
// and the rest is left to the engine. A module that cannot be loaded is no error.
func TestNoOp(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	const filter = "net/bridge/bridge-nf-call-iptables"
	there := false
	netnstest.Do(t, ns, func() error {
		err := sysfs.WriteSysctl(filter, "0")
		there = err == nil
		if sysfs.SysctlMissing(err) {
			return nil
		}
		return err
	})
	var log bytes.Buffer
	var asked string
	p := netplugin.NewNoOp(netplugin.BridgeFilter{
		Load: func(_ context.Context, module string) error { asked = module; return errors.New("no such module") },
		Host: ns, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, p.Init(t.Context(), nil, netplugin.Settings{}))
	require.Equal(t, "br_netfilter", asked)
	require.Contains(t, log.String(), "no such module")
	if there {
		netnstest.Do(t, ns, func() error {
			v, err := sysfs.ReadSysctl(filter)
			require.Equal(t, "1", v)
			return err
		})
	}
	require.Equal(t, "kubernetes.io/no-op", p.Name())
	require.Empty(t, p.Capabilities())
	require.NoError(t, p.Event(t.Context(), netplugin.EventPodCIDR, nil))
	require.NoError(t, p.SetUpPod(t.Context(), netplugin.Pod{}))
	require.NoError(t, p.TearDownPod(t.Context(), netplugin.Pod{}))
	require.NoError(t, p.Status(t.Context()))
	st, err := p.GetPodNetworkStatus(t.Context(), netplugin.Pod{})
	require.NoError(t, err)
	require.Nil(t, st)
}
