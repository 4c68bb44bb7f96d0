package hostport_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

func (b *bed) refused(p pod, words ...string) {
	b.t.Helper()
	_, err := b.table.Attach(b.t.Context(), driver.Run{}, p.spec)
	require.Error(b.t, err)
	require.Equal(b.t, core.CodeConflict, core.CodeOf(err))
	for _, w := range words {
		require.ErrorContains(b.t, err, w)
	}
}

// TestConflicts: a port that a pod has is refused to another, by name; the same
// number of another protocol, address or family is another port.
func TestConflicts(t *testing.T) {
	b := newBed(t)
	b.attach(b.pod("web", tcp(8080, 80), on(node4, tcp(9000, 80))))
	before := b.ruleset()
	b.refused(b.pod("a", tcp(1, 80), tcp(8080, 81)), "host port 8080/tcp is taken by pod default/web")
	b.refused(b.pod("b", on(node4, tcp(8080, 80))), "default/web")
	b.refused(b.pod("c", tcp(9000, 80)), "9000/tcp", "default/web")
	b.refused(b.pod("d", tcp(7, 80), tcp(7, 81)), "asked for twice")
	require.Equal(t, before, b.ruleset())
	fine := b.pod("e", udp(8080, 80), on(node4b, tcp(9000, 80)), on(node6, tcp(9000, 80)))
	b.attach(fine)
	require.Equal(t, "e sees "+world4, b.ask(b.world, "udp", node4, 8080))
	require.Equal(t, "e sees "+world4, b.ask(b.world, "tcp", node4b, 9000))
	b.attach(fine) // again: its own ports are in nobody's way
}

// TestTakenOver: the next sandbox of a pod, and whoever comes after a namespace
// that is gone, get the port; the late DEL takes it from nobody.
func TestTakenOver(t *testing.T) {
	b := newBed(t)
	old, late := b.pod("web", tcp(8080, 80), tcp(8081, 80)), b.pod("web", tcp(8080, 80))
	b.attach(old)
	b.attach(late)
	require.Equal(t, "web sees "+world4, b.ask(b.world, "tcp", node4, 8080))
	require.Equal(t, "web sees "+world4, b.ask(b.world, "tcp", node4, 8081))
	require.ErrorIs(t, b.table.Check(t.Context(), driver.Run{}, old.spec, core.Link{}), core.ErrDrift)
	require.Contains(t, b.ruleset(), "10.9.0.11 . 80")
	b.detach(old)
	require.Equal(t, "web sees "+world4, b.ask(b.world, "tcp", node4, 8080))
	require.NoError(t, b.table.Check(t.Context(), driver.Run{}, late.spec, core.Link{}))

	netnstest.Unbind(t, late.spec.Netns.Path)
	other := b.pod("other", tcp(8080, 80))
	b.attach(other)
	require.Equal(t, "other sees "+world4, b.ask(b.world, "tcp", node4, 8080))
}

// TestRestart: a new process has the table hold what it is told and no more,
// without a gap for connections that are there.
func TestRestart(t *testing.T) {
	b := newBed(t)
	kept, leaked := b.pod("kept", tcp(8080, 80)), b.pod("leaked", tcp(8081, 80))
	b.attach(kept)
	b.attach(leaked)
	b.restart()
	require.NoError(t, b.table.Restore(t.Context(), []core.Spec{kept.spec, {Driver: "ovs", Key: leaked.spec.Key}}))
	require.NoError(t, b.table.Check(t.Context(), driver.Run{}, kept.spec, core.Link{}))
	require.Equal(t, "kept sees "+world4, b.ask(b.world, "tcp", node4, 8080))
	require.NotContains(t, b.ruleset(), "8081")
	b.refused(b.pod("x", tcp(8080, 80)), "default/kept")
	b.detach(kept)
	require.Empty(t, b.ruleset())
	b.attach(leaked)
	b.restart()
	require.NoError(t, b.table.Restore(t.Context(), nil))
	require.Empty(t, b.ruleset())
	b.detach(leaked)
}

// TestTamperingIsSeenAndRepaired: Check names what is missing, an Audit puts it
// right, and so does the next change.
func TestTamperingIsSeenAndRepaired(t *testing.T) {
	b := newBed(t)
	web, next := b.pod("web", tcp(8080, 80), on(node4, udp(53, 80))), b.pod("next", tcp(8082, 80))
	b.attach(web)
	whole := b.ruleset()
	for cut, says := range map[string]string{
		"nft flush ruleset": "is missing",
		"nft delete element inet fairlead-hostports any-ip '{ tcp . 8080 }'":                                                                                     "lacks tcp . 8080 to 10.9.0.10 . 80 in any-ip",
		"nft delete element inet fairlead-hostports any-ip '{ tcp . 8080 }' && nft add element inet fairlead-hostports any-ip '{ tcp . 8080 : 10.9.0.99 . 80 }'": "lacks tcp . 8080",
		"nft flush map inet fairlead-hostports bound-ip":                                                                                                         "lacks udp . 198.51.100.2 . 53",
		"nft flush set inet fairlead-hostports network-ip":                                                                                                       "lacks 10.9.0.0/24 . 10.9.0.0/24 in network-ip",
		"nft flush set inet fairlead-hostports target-ip6":                                                                                                       "target-ip6",
		"nft flush chain inet fairlead-hostports translate":                                                                                                      "rules are",
		"nft add rule inet fairlead-hostports guard accept":                                                                                                      "a foreign rule",
		`nft flush chain inet fairlead-hostports output && nft add rule inet fairlead-hostports output accept comment '"v1 loopback ip6"' && nft add rule inet fairlead-hostports output accept comment '"v1 own"'`: "rules do",
		"nft chain inet fairlead-hostports guard '{ policy drop; }'": "policy drop",
		"nft add chain inet fairlead-hostports x":                    "chains are",
		"sysctl -qw net.ipv4.conf.br0.route_localnet=0":              "route_localnet",
	} {
		b.sh(b.host, cut)
		err := b.table.Check(t.Context(), driver.Run{}, web.spec, core.Link{})
		require.ErrorIs(t, err, core.ErrDrift, cut)
		require.ErrorContains(t, err, says)
		<-b.table.Spoilt()
		require.NoError(t, b.table.Audit(t.Context()))
		require.Equal(t, whole, b.ruleset(), cut)
		require.NoError(t, b.table.Check(t.Context(), driver.Run{}, web.spec, core.Link{}), cut)
	}
	b.sh(b.host, "nft flush ruleset")
	b.attach(next)
	require.Equal(t, "web sees "+world4, b.ask(b.world, "tcp", node4, 8080))
	b.sh(b.host, "nft flush ruleset")
	b.detach(next)
	require.Equal(t, whole, b.ruleset())
}

// TestManyAtOnce: pods that come and go at the same time end in the right
// table, and in fewer transactions than there were changes.
func TestManyAtOnce(t *testing.T) {
	b := newBed(t)
	base := b.pod("base", tcp(1, 80))
	b.attach(base)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			s := base.spec
			s.Key.Container, s.Pod.Name = fmt.Sprintf("many%d", i), fmt.Sprintf("many%d", i)
			s.HostPorts = &core.HostPorts{Addrs: s.HostPorts.Addrs, Ports: []core.PortMapping{tcp(uint16(2000+i), 80), udp(uint16(2000+i), 80)}}
			_, err := b.table.Attach(t.Context(), driver.Run{}, s)
			if err == nil && i%2 == 0 {
				err = b.table.Detach(t.Context(), driver.Run{}, s)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text := b.ruleset()
	for i := range 40 {
		require.Equal(t, i%2 == 1, strings.Contains(text, fmt.Sprintf("tcp . %d ", 2000+i)), i)
	}
	require.NoError(t, b.table.Audit(t.Context()))
	require.Equal(t, text, b.ruleset())
}

// TestASmallChangeIsNoNewTable: a pod more or less changes elements and leaves
// the table alone, and what is written over netlink reads as what nft writes.
func TestASmallChangeIsNoNewTable(t *testing.T) {
	b := newBed(t)
	b.attach(b.pod("base", tcp(1, 80)))
	frame := func() string { return b.sh(b.host, "nft -a list table inet fairlead-hostports | grep handle") }
	before := frame()
	sctp := core.PortMapping{HostPort: 132, ContainerPort: 65535, Protocol: "sctp"}
	one := b.pod("one", tcp(8080, 80), udp(53, 5353), on(node6, sctp), on(node4b, tcp(65535, 256)))
	b.attach(one)
	require.Equal(t, before, frame())
	text := b.ruleset()
	require.Contains(t, text, "default/one")
	require.NoError(t, b.table.Rewrite(t.Context()))
	require.Equal(t, text, b.ruleset())
	before = frame()
	b.detach(one)
	require.Equal(t, before, frame())
}
