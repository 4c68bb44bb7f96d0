package defroute_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/defroute"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

func ip(t testing.TB, ns *netns.Handle, line string) string {
	t.Helper()
	return inside.Run(t, ns, "ip", strings.Fields(line)...)
}

func gateways(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// pod has eth0 with both default routes and net1 beside it.
func pod(t testing.TB) (*netns.Handle, core.Netns) {
	ns := netnstest.New(t)
	for i, name := range []string{"eth0", "net1"} {
		for _, line := range []string{
			"link add %[1]s type veth peer name p%[1]s", "link set p%[1]s up",
			"addr add 10.%[2]d.0.2/24 dev %[1]s", "addr add fd00:%[2]d::2/64 dev %[1]s nodad", "link set %[1]s up",
		} {
			line = strings.ReplaceAll(strings.ReplaceAll(line, "%[1]s", name), "%[2]d", fmt.Sprint(i))
			ip(t, ns, line)
		}
	}
	ip(t, ns, "route add default via 10.0.0.1 dev eth0")
	ip(t, ns, "-6 route add default via fd00:0::1 dev eth0")
	id, err := netns.Identify(netnstest.Bind(t, ns))
	require.NoError(t, err)
	return ns, id
}

func spec(id core.Netns, gws ...string) core.Spec {
	return core.Spec{Driver: "defroute", Key: core.Key{Container: "c", IfName: "net1"}, Netns: id, DefaultRoute: &core.DefaultRoute{Gateways: gateways(gws...)}}
}

// defaults is what iproute2 shows, one line per route or hop.
func defaults(t testing.TB, ns *netns.Handle, family string) []string {
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(ip(t, ns, family+" route show default table main")), "\n") {
		f := strings.Fields(line)
		for i, w := range f {
			if w == "via" && f[i+2] == "dev" {
				out = append(out, f[i+1]+" "+f[i+3])
			}
		}
	}
	return out
}

func TestAttachMovesTheDefaultRoute(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string
		gws    []string
		v4, v6 []string
	}{
		{"one family", nil, []string{"10.1.0.1"}, []string{"10.1.0.1 net1"}, []string{"fd00::1 eth0"}},
		{"the other", nil, []string{"fd00:1::1"}, []string{"10.0.0.1 eth0"}, []string{"fd00:1::1 net1"}},
		{"both", nil, []string{"10.1.0.1", "fd00:1::1"}, []string{"10.1.0.1 net1"}, []string{"fd00:1::1 net1"}},
		{"ECMP", nil, []string{"10.1.0.9", "10.1.0.1", "fd00:1::9", "fd00:1::1"}, []string{"10.1.0.1 net1", "10.1.0.9 net1"}, []string{"fd00:1::1 net1", "fd00:1::9 net1"}},
		{"twice the same", nil, []string{"10.1.0.1", "10.1.0.1"}, []string{"10.1.0.1 net1"}, []string{"fd00::1 eth0"}},
		{"other metrics", []string{
			"route add default via 10.0.0.7 dev eth0 metric 50", "route add default via 10.1.0.8 dev net1 metric 60",
			"-6 route add default via fd00:0::7 dev eth0 metric 50", "-6 route add default via fd00:1::8 dev net1 metric 2000",
		}, []string{"10.1.0.1", "fd00:1::1"}, []string{"10.1.0.1 net1"}, []string{"fd00:1::1 net1"}},
		{"others of several hops", []string{
			"route replace default nexthop via 10.0.0.1 dev eth0 weight 3 nexthop via 10.1.0.5 dev net1",
			"route append default via 10.0.0.6 dev eth0", "route add default dev eth0 metric 9",
			"-6 route append default via fd00:0::5 dev eth0", "-6 route add default dev eth0 metric 9",
		}, []string{"10.1.0.1", "fd00:1::1"}, []string{"10.1.0.1 net1"}, []string{"fd00:1::1 net1"}},
		{"none before", []string{"route del default", "-6 route del default"}, []string{"10.1.0.1"}, []string{"10.1.0.1 net1"}, nil},
		{"a blackhole", []string{"route add blackhole default metric 7", "-6 route add unreachable default metric 7"},
			[]string{"10.1.0.1", "fd00:1::1"}, []string{"10.1.0.1 net1"}, []string{"fd00:1::1 net1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns, id := pod(t)
			for _, line := range c.before {
				ip(t, ns, line)
			}
			s, d := spec(id, c.gws...), defroute.New()
			for range 2 {
				l, err := d.Attach(t.Context(), driver.Run{}, s)
				require.NoError(t, err)
				require.Equal(t, "net1", l.IfName)
				require.Equal(t, s.DefaultRoute.Gateways, l.Gateways)
				require.Len(t, l.Routes, len(c.gws))
				require.ElementsMatch(t, c.v4, defaults(t, ns, "-4"))
				require.ElementsMatch(t, c.v6, defaults(t, ns, "-6"))
				require.NoError(t, d.Check(t.Context(), driver.Run{}, s, l))
			}
			require.NotContains(t, ip(t, ns, "route show table main"), "blackhole")
			for range 2 {
				require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
				require.NotContains(t, strings.Join(defaults(t, ns, "-4"), ","), "net1")
				require.NotContains(t, strings.Join(defaults(t, ns, "-6"), ","), "net1")
			}
		})
	}
}

func TestCheckFindsEveryTampering(t *testing.T) {
	for _, line := range []string{
		"route del default", "-6 route del default", "route replace default via 10.1.0.9", "route replace default via 10.0.0.1 dev eth0",
		"route add default via 10.0.0.1 dev eth0 metric 5", "-6 route add default via fd00:0::1 dev eth0 metric 5",
		"-6 route append default via fd00:1::9 dev net1", "route replace default dev net1", "link set net1 down", "link del net1",
	} {
		ns, id := pod(t)
		s, d := spec(id, "10.1.0.1", "fd00:1::1"), defroute.New()
		l, err := d.Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err)
		ip(t, ns, line)
		require.ErrorIs(t, d.Check(t.Context(), driver.Run{}, s, l), core.ErrDrift, line)
		require.NoError(t, d.Detach(t.Context(), driver.Run{}, s), line)
	}
}

func TestDetachLeavesForeignRoutes(t *testing.T) {
	ns, id := pod(t)
	s, d := spec(id, "10.1.0.1"), defroute.New()
	_, err := d.Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	ip(t, ns, "route replace default via 10.0.0.1 dev eth0")
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, s))
	require.Equal(t, []string{"10.0.0.1 eth0"}, defaults(t, ns, "-4"))
}

func TestAttachRefuses(t *testing.T) {
	ns, id := pod(t)
	for _, gw := range []string{"192.0.2.1", "2001:db8::1"} { // not on net1's networks
		_, err := defroute.New().Attach(t.Context(), driver.Run{}, spec(id, gw))
		require.ErrorContains(t, err, gw)
		require.Equal(t, core.CodeValue, core.CodeOf(err), "%v", err)
	}
	require.Equal(t, []string{"10.0.0.1 eth0"}, defaults(t, ns, "-4"), "a refusal changes nothing")
	_, err := defroute.New().Attach(t.Context(), driver.Run{}, spec(id))
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	s := spec(id, "10.1.0.1")
	s.Key.IfName = "net9"
	_, err = defroute.New().Attach(t.Context(), driver.Run{}, s)
	require.ErrorIs(t, err, core.ErrNotFound)
	require.NoError(t, defroute.New().Detach(t.Context(), driver.Run{}, s))
}

// withNIC makes the interface that the routes need, as the steps before do, so
// that the driver can pass the suite that all drivers pass.
type withNIC struct{ *defroute.Driver }

func (w withNIC) addr(s core.Spec) netip.Prefix {
	gw := s.DefaultRoute.Gateways[0]
	return netip.PrefixFrom(gw.Next(), gw.BitLen()-8)
}

func (w withNIC) Attach(ctx context.Context, r driver.Run, s core.Spec) (core.Link, error) {
	if err := drivertest.MakeNIC(ctx, s, w.addr(s)); err != nil {
		return core.Link{}, err
	}
	l, err := w.Driver.Attach(ctx, r, s)
	l.Addrs = []netip.Prefix{w.addr(s)}
	return l, err
}

func (w withNIC) Detach(ctx context.Context, r driver.Run, s core.Spec) error {
	return errors.Join(w.Driver.Detach(ctx, r, s), drivertest.RemoveNIC(s))
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(*testing.T) *drivertest.Machine {
		return &drivertest.Machine{
			Driver: withNIC{defroute.New()},
			Spec: func(n int, id core.Netns) core.Spec {
				s := spec(id, "10.1.0.1") // one family each: two interfaces cannot both have a default route
				if n%2 == 0 {
					s = spec(id, "fd00:1::1")
				}
				s.Key = core.Key{Container: fmt.Sprintf("c%d", n), IfName: fmt.Sprintf("eth%d", n)}
				return s
			},
			Inventory: func() []string { return nil },
		}
	})
}
