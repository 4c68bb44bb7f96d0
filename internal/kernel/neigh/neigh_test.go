package neigh_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

var (
	farMAC  = core.MAC{0x02, 0, 0, 0, 0, 2}
	own     = map[bool]string{true: "192.0.2.1/24", false: "2001:db8::1/64"}
	far     = map[bool]string{true: "192.0.2.2/24", false: "2001:db8::2/64"}
	nowhere = map[bool]string{true: "192.0.2.3", false: "2001:db8::3"}
)

// wire is two namespaces that a veth joins, with an address of each family on both, and
// the MAC of the near one.
func wire(t *testing.T) (here *netns.Handle, mac core.MAC) {
	t.Helper()
	there := netnstest.New(t)
	here = netnstest.New(t)
	a, err := rtnl.Open(here)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	b, err := rtnl.Open(there)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	near, err := a.NewVeth(rtnl.Veth{Name: "eth0", Peer: there, PeerName: "eth0", PeerMAC: farMAC})
	require.NoError(t, err)
	for c, at := range map[*rtnl.Conn]struct {
		index int
		addrs map[bool]string
	}{a: {near.Index, own}, b: {near.PeerIndex, far}} {
		for _, p := range at.addrs {
			require.NoError(t, c.AddAddr(at.index, netip.MustParsePrefix(p), true))
		}
		require.NoError(t, c.SetUp(at.index))
	}
	near, err = a.LinkByIndex(near.Index)
	require.NoError(t, err)
	return here, near.MAC
}

// TestWho: a neighbour answers who asks by its own address, and who asks as nobody; what
// nobody has, and the link's own address, are nobody's.
func TestWho(t *testing.T) {
	t.Parallel()
	ns, ownMAC := wire(t)
	ask := func(limit time.Duration, from, of string) (core.MAC, error) {
		q := neigh.Question{IfName: "eth0", MAC: ownMAC, For: netip.MustParseAddr(of)}
		if from != "" {
			q.From = netip.MustParsePrefix(from).Addr()
		}
		ctx, stop := context.WithTimeout(t.Context(), limit)
		defer stop()
		return neigh.Who(ctx, ns, q, 100*time.Millisecond)
	}
	for _, four := range []bool{true, false} {
		for _, from := range []string{own[four], ""} {
			mac, err := ask(time.Minute, from, netip.MustParsePrefix(far[four]).Addr().String())
			require.NoError(t, err)
			require.Equal(t, farMAC, mac)
		}
		for _, of := range []string{nowhere[four], netip.MustParsePrefix(own[four]).Addr().String()} {
			_, err := ask(300*time.Millisecond, "", of)
			require.ErrorIs(t, err, core.ErrNotFound)
		}
	}
}

// TestWhoOnACrowdedLink: a link that drops questions is asked on, and one that dropped all has
// told nothing.
func TestWhoOnACrowdedLink(t *testing.T) {
	t.Parallel()
	ns, ownMAC := wire(t)
	q := neigh.Question{IfName: "eth0", MAC: ownMAC, For: netip.MustParsePrefix(far[true]).Addr()}
	tc := func(args ...string) {
		netnstest.Do(t, ns, func() error {
			out, err := exec.Command("tc", args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("tc %v: %w: %s", args, err, out)
			}
			return nil
		})
	}
	tc("qdisc", "add", "dev", "eth0", "root", "bfifo", "limit", "1") // bytes
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	_, err := neigh.Who(ctx, ns, q, 50*time.Millisecond)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.NotErrorIs(t, err, core.ErrNotFound)

	var mac core.MAC
	var wg sync.WaitGroup
	wg.Go(func() { mac, err = neigh.Who(t.Context(), ns, q, 50*time.Millisecond) })
	time.Sleep(200 * time.Millisecond) // for some questions that are dropped
	tc("qdisc", "del", "dev", "eth0", "root")
	wg.Wait()
	require.NoError(t, err)
	require.Equal(t, farMAC, mac)
}
