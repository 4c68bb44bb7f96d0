package openflow_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/openflow"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

const (
	ours    uint64 = 0x0fa1_0000_0000_0001
	theirs  uint64 = 0x0fa1_0000_0000_0002
	mark    uint64 = 0xffff_0000_0000_0000
	patient        = 20 * time.Second
)

var (
	mac = net.HardwareAddr{2, 0, 0, 0, 0, 7}
	ip4 = netip.MustParseAddr("10.0.0.7")
	ip6 = netip.MustParseAddr("fd00::7")
)

// all has a flow for each way to make a Match.
func all() []openflow.Flow {
	from := openflow.From(7)
	in := from.MAC(mac)
	var out []openflow.Flow
	for i, m := range []openflow.Match{
		from, in, from.Type(openflow.EthARP), in.ARP(mac, ip4), in.Source(ip4), in.Source(ip6), in.DHCPv4(),
		in.Source(ip6).ICMPv6(openflow.Solicitation), in.Source(ip6).Soliciting(mac), in.Source(ip6).Soliciting(nil),
		in.Advertising(mac).Target(ip6), in.Advertising(nil),
	} {
		out = append(out, openflow.Flow{Priority: uint16(100 + i), Match: m, Forward: i%2 == 1})
	}
	return out
}

type bed struct {
	testing.TB
	sw   *ovstest.Switch
	dir  string
	flow *openflow.Client
}

func newBed(t testing.TB) *bed {
	b := &bed{TB: t, sw: ovstest.New(t)}
	b.dir = filepath.Dir(b.sw.Socket)
	b.sw.Vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type="+ovstest.Datapath(t))
	b.flow = openflow.New(filepath.Join(b.dir, "br-int.mgmt"))
	t.Cleanup(b.flow.Close)
	b.answers()
	return b
}

// answers waits until the bridge answers.
func (b *bed) answers() {
	b.Helper()
	require.Eventually(b, func() bool {
		_, err := b.flow.Flows(b.Context(), 0, 0)
		return err == nil
	}, patient, 10*time.Millisecond)
}

// ofctl is what ovs-ofctl says of the flows with a mark of ours, without counters.
func (b *bed) ofctl() []string {
	b.Helper()
	out := b.sw.In("ovs-ofctl", "-O", "OpenFlow14", "dump-flows", filepath.Join(b.dir, "br-int.mgmt"), "--no-stats", fmt.Sprintf("cookie=%#x/%#x", ours, mark))
	var lines []string
	for l := range strings.Lines(out) {
		if strings.Contains(l, "actions=") {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	return lines
}

func (b *bed) flows(cookie, mask uint64) map[uint64][]openflow.Flow {
	b.Helper()
	out, err := b.flow.Flows(b.Context(), cookie, mask)
	require.NoError(b, err)
	return out
}

func TestSet(t *testing.T) {
	b := newBed(t)
	before := b.flows(0, 0)
	require.Len(t, before, 1, "the bridge's own")

	require.NoError(t, b.flow.Set(t.Context(), ours, all()...))
	require.ElementsMatch(t, all(), b.flows(ours, ^uint64(0))[ours], "read as written")
	require.Len(t, b.ofctl(), len(all()))
	require.Contains(t, b.ofctl(), "cookie=0xfa1000000000001, priority=103,arp,in_port=7,dl_src=02:00:00:00:00:07,arp_spa=10.0.0.7,arp_sha=02:00:00:00:00:07 actions=NORMAL")
	require.Contains(t, b.ofctl(), "cookie=0xfa1000000000001, priority=100,in_port=7 actions=drop")

	other := openflow.Flow{Priority: 5, Match: openflow.From(8)}
	require.NoError(t, b.flow.Set(t.Context(), theirs, other))
	require.NoError(t, b.flow.Set(t.Context(), ours, all()[3]))
	require.Equal(t, map[uint64][]openflow.Flow{ours: {all()[3]}, theirs: {other}}, b.flows(ours, mark))

	require.NoError(t, b.flow.Set(t.Context(), ours))
	require.NoError(t, b.flow.Set(t.Context(), ours), "again")
	require.NoError(t, b.flow.Set(t.Context(), theirs))
	require.Equal(t, before, b.flows(0, 0))
}

// A flow that somebody changed is like none of ours.
func TestForeignActions(t *testing.T) {
	b := newBed(t)
	f := openflow.Flow{Priority: 9, Match: openflow.From(7)}
	for _, actions := range []string{"local", "normal,local", "mod_vlan_vid:5,normal"} {
		require.NoError(t, b.flow.Set(t.Context(), ours, f))
		b.sw.In("ovs-ofctl", "-O", "OpenFlow14", "mod-flows", filepath.Join(b.dir, "br-int.mgmt"), "in_port=7,actions="+actions)
		got := b.flows(ours, ^uint64(0))[ours]
		require.Len(t, got, 1)
		forward := f
		forward.Forward = true
		require.NotEqual(t, f, got[0], actions)
		require.NotEqual(t, forward, got[0], actions)
	}
}

// What the switch refuses is told, the rest is there, and the next call works.
func TestRefused(t *testing.T) {
	b := newBed(t)
	bad := openflow.Flow{Priority: 1, Match: openflow.Match("\x80\x00\xfe\x01\x00")}
	many := make([]openflow.Flow, 200)
	for i := range many {
		many[i] = bad
	}
	for _, flows := range [][]openflow.Flow{{bad}, {all()[3], bad}, many} {
		err := b.flow.Set(t.Context(), ours, flows...)
		require.ErrorContains(t, err, "OpenFlow error")
		require.Equal(t, core.CodeIO, core.CodeOf(err))
		good := slices.DeleteFunc(slices.Clone(flows), func(f openflow.Flow) bool { return f == bad })
		require.ElementsMatch(t, good, b.flows(ours, ^uint64(0))[ours])
	}
	b.sw.Vsctl("set", "bridge", "br-int", "protocols=OpenFlow13")
	require.Eventually(t, func() bool {
		again := openflow.New(filepath.Join(b.dir, "br-int.mgmt"))
		defer again.Close()
		err := again.Set(t.Context(), ours)
		return err != nil && strings.Contains(err.Error(), "OpenFlow 1.4")
	}, patient, 10*time.Millisecond)
}

// Many at once get their own answers, and an answer of many messages is whole.
func TestManyAtOnce(t *testing.T) {
	b := newBed(t)
	const ports = 200
	var wg sync.WaitGroup
	errs := make([]error, ports)
	for i := range ports {
		wg.Go(func() {
			cookie := ours&mark | uint64(i+1)
			flows := make([]openflow.Flow, 10)
			for p := range flows {
				flows[p] = openflow.Flow{Priority: uint16(p), Match: openflow.From(i + 1).MAC(mac), Forward: true}
			}
			if errs[i] = b.flow.Set(t.Context(), cookie, flows...); errs[i] != nil {
				return
			}
			var got map[uint64][]openflow.Flow
			got, errs[i] = b.flow.Flows(t.Context(), cookie, ^uint64(0))
			if errs[i] == nil && (len(got) != 1 || len(got[cookie]) != len(flows)) {
				errs[i] = fmt.Errorf("%d: %v", i, got)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	got := b.flows(ours, mark)
	require.Len(t, got, ports)
	require.Len(t, b.ofctl(), 10*ports)
}

// A switch that is away, hangs or comes back is told, and served again.
func TestRestart(t *testing.T) {
	b := newBed(t)
	require.NoError(t, b.flow.Set(t.Context(), ours, all()...))
	b.sw.KillSwitchd()
	require.ErrorIs(t, b.flow.Set(t.Context(), ours, all()...), core.ErrUnavailable)
	b.sw.StartSwitchd()
	b.answers()
	require.Empty(t, b.flows(ours, mark), "they went with ovs-vswitchd")
	require.NoError(t, b.flow.Set(t.Context(), ours, all()...))
	require.Len(t, b.flows(ours, mark)[ours], len(all()))

	b.sw.SignalSwitchd(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := b.flow.Set(ctx, ours)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorContains(t, err, "does not answer")
	b.sw.SignalSwitchd(syscall.SIGCONT)
	require.NoError(t, b.flow.Set(t.Context(), ours, all()...))
	require.Len(t, b.flows(ours, mark)[ours], len(all()))
}
