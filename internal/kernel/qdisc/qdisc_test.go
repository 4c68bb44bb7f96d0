//go:build vm

package qdisc_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/qdisc"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// TestNetem: a class gets a delay, another one and none, and what tc put there is read.
func TestNetem(t *testing.T) {
	ns := netnstest.New(t)
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer c.Close()
	l, err := c.NewVeth(rtnl.Veth{Name: "p0", Peer: ns, PeerName: "p1"})
	require.NoError(t, err)
	const class = 0x1_0001
	want := qdisc.Netem{Latency: 50 * time.Millisecond, Jitter: 2 * time.Millisecond, Limit: 1000, Loss: 3}
	require.ErrorIs(t, qdisc.Set(ns, l.Index, class, want), unix.ENOENT, "there is no class yet")
	require.NoError(t, qdisc.Set(ns, l.Index, class, qdisc.Netem{}), "there is nothing to remove")
	tc := func(args ...string) (said string) {
		t.Helper()
		netnstest.Do(t, ns, func() error {
			out, err := exec.Command("tc", args...).CombinedOutput()
			said = string(out)
			return err
		})
		return said
	}
	tc("qdisc", "add", "dev", "p0", "root", "handle", "1:", "htb", "default", "1")
	tc("class", "add", "dev", "p0", "parent", "1:", "classid", "1:1", "htb", "rate", "5mbit")
	for _, now := range []qdisc.Netem{{}, want, {Latency: time.Hour, Limit: 7}, {}, {Limit: 5, Loss: 100}} {
		require.NoError(t, qdisc.Set(ns, l.Index, class, now))
		have, err := qdisc.Of(ns, l.Index, class)
		require.NoError(t, err)
		require.Equal(t, now, have)
		require.Equal(t, now != qdisc.Netem{}, strings.Contains(tc("qdisc", "show", "dev", "p0"), "netem"))
	}
	tc("qdisc", "replace", "dev", "p0", "parent", "1:1", "netem", "delay", "20ms", "loss", "10%", "limit", "9")
	have, err := qdisc.Of(ns, l.Index, class)
	require.NoError(t, err)
	require.Equal(t, qdisc.Netem{Latency: 20 * time.Millisecond, Loss: 10, Limit: 9}, have)
	tc("qdisc", "replace", "dev", "p0", "parent", "1:1", "pfifo", "limit", "9")
	have, err = qdisc.Of(ns, l.Index, class)
	require.NoError(t, err)
	require.Zero(t, have, "it is another kind")
}
