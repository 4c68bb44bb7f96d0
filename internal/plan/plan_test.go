package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ipam"
)

var (
	testKey = core.Key{Container: "532bed4f476d3e2a63f14907bfe9ddd5d89278eb75a3340901f5d8acdabbd46a", IfName: "eth0"}
	testPod = core.Pod{Namespace: "default", Name: "p"}
	testNS  = core.Netns{Path: "/run/netns/x", Cookie: 7, BootID: "b"}
	testMAC = core.MAC{2, 0, 0, 0, 0, 1}
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func dualSubnet() core.Subnet {
	return core.Subnet{
		Name: "dual", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16"), netip.MustParsePrefix("fd00::/64")},
		Gateways: addrs("10.16.0.1", "fd00::1"),
	}
}

func smallSubnet() core.Subnet {
	return core.Subnet{Name: "small", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/24")}, Gateways: addrs("10.20.0.1"), MTU: 1300}
}

func nicWant(ifName string, n *core.NIC) core.Want {
	return core.Want{Network: "n-" + ifName, IfName: ifName, Default: ifName == "eth0", Steps: []core.Step{{NIC: n}}}
}

func execWant(ifName string, types ...string) core.Want {
	w := core.Want{Network: "x-" + ifName, IfName: ifName, CNIVersion: "0.4.0"}
	for _, t := range types {
		w.Steps = append(w.Steps, core.Step{Exec: &core.Exec{Type: t, Conf: json.RawMessage(`{}`), Path: []string{"/opt/cni/bin"}}})
	}
	return w
}

// lease answers the requests of wants with the given addresses, one list per NIC.
func lease(wants []core.Want, ips ...[]netip.Addr) []core.Lease {
	var out []core.Lease
	for i, r := range Leases(wants, testKey, testPod) {
		out = append(out, core.Lease{Subnet: r.Subnet.Name, Owner: r.Owner, IPs: ips[i], MAC: testMAC})
	}
	return out
}

func planned(t *testing.T, wants []core.Want, leases []core.Lease) []core.Spec {
	t.Helper()
	specs, err := Plan(wants, leases, testPod, testKey, testNS, Node{MTU: 1400, BinDirs: []string{"/mine"}})
	require.NoError(t, err)
	return specs
}

func routes(s core.Spec) string {
	out := []string{}
	for _, r := range s.NIC.Routes {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s>%s", r.Dst, r.GW), ">invalid IP"))
	}
	return strings.Join(out, " ")
}

func TestOneNIC(t *testing.T) {
	wants := []core.Want{nicWant("eth0", &core.NIC{
		Provider: "ovn", Subnet: dualSubnet(), Type: "veth-pair", IfaceID: "p.default", DefaultRoute: true,
		Settings: core.Settings{
			VLAN: 7, Tuning: core.Tuning{QoS: core.QoS{IngressMbps: 3}, Mirror: true},
			PodSide: core.PodSide{
				DNS:    core.DNS{Domain: "d"},
				Routes: []core.Route{{Dst: netip.MustParsePrefix("10.0.0.0/8"), GW: netip.MustParseAddr("10.16.0.9")}, {Dst: netip.MustParsePrefix("172.16.0.0/12")}},
			},
		},
	})}
	wants[0].CNIVersion = "0.3.1"
	specs := planned(t, wants, lease(wants, addrs("10.16.0.5", "fd00::5")))
	require.Equal(t, []core.Spec{{
		Key: testKey, Driver: "ovs", Network: "n-eth0", Default: true, Pod: testPod, Netns: testNS,
		CNIVersion: "0.3.1",
		NIC: &core.NICSpec{
			Subnet: "dual", IfaceID: "p.default", Bandwidth: &core.QoS{},
			Addrs:    []netip.Prefix{netip.MustParsePrefix("10.16.0.5/16"), netip.MustParsePrefix("fd00::5/64")},
			Gateways: addrs("10.16.0.1", "fd00::1"),
			Settings: core.Settings{
				VLAN: 7, Tuning: core.Tuning{QoS: core.QoS{IngressMbps: 3}, Mirror: true},
				PodSide: core.PodSide{
					MAC: testMAC, MTU: 1400, DNS: core.DNS{Domain: "d"},
					Routes: []core.Route{
						{Dst: netip.MustParsePrefix("10.0.0.0/8"), GW: netip.MustParseAddr("10.16.0.9")}, {Dst: netip.MustParsePrefix("172.16.0.0/12")},
						{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.16.0.1")},
						{Dst: netip.MustParsePrefix("::/0"), GW: netip.MustParseAddr("fd00::1")},
					},
				},
			},
			OVS: &core.OVSPort{HostIf: "532bed4f476d_h", Type: "veth-pair"},
		},
	}}, specs)
}

// TestInternalPort: on the kernel's datapath it is a veth pair.
func TestInternalPort(t *testing.T) {
	for kernel, want := range map[bool]string{false: "internal-port", true: "veth-pair"} {
		wants := []core.Want{nicWant("eth0", &core.NIC{Subnet: dualSubnet(), Type: "internal-port"})}
		specs, err := Plan(wants, lease(wants, addrs("10.16.0.5")), testPod, testKey, testNS, Node{MTU: 1400, KernelDatapath: kernel})
		require.NoError(t, err)
		require.Equal(t, want, specs[0].OVS().Type)
	}
}

func TestMTUOrder(t *testing.T) {
	for _, c := range []struct{ nic, subnet, want int }{{0, 0, 1400}, {0, 1300, 1300}, {1200, 1300, 1200}} {
		s := dualSubnet()
		s.MTU = c.subnet
		wants := []core.Want{nicWant("eth0", &core.NIC{Subnet: s, Settings: core.Settings{PodSide: core.PodSide{MTU: c.nic}}})}
		require.Equal(t, c.want, planned(t, wants, lease(wants, addrs("10.16.0.5")))[0].NIC.MTU)
	}
}

func TestDefaultRoutes(t *testing.T) {
	both := func(gateways ...string) []core.Want {
		w := []core.Want{
			nicWant("eth0", &core.NIC{Subnet: dualSubnet(), DefaultRoute: true}),
			nicWant("net1", &core.NIC{Subnet: smallSubnet()}),
		}
		w[1].Gateways = addrs(gateways...)
		return w
	}
	t.Run("a further NIC has none", func(t *testing.T) {
		w := both()
		s := planned(t, w, lease(w, addrs("10.16.0.5", "fd00::5"), addrs("10.20.0.5")))
		require.Equal(t, "0.0.0.0/0>10.16.0.1 ::/0>fd00::1", routes(s[0]))
		require.Empty(t, routes(s[1]))
		require.Equal(t, addrs("10.20.0.1"), s[1].NIC.Gateways)
	})
	t.Run("one that asks takes its family only", func(t *testing.T) {
		w := both("10.20.0.254")
		s := planned(t, w, lease(w, addrs("10.16.0.5", "fd00::5"), addrs("10.20.0.5")))
		require.Len(t, s, 2)
		require.Equal(t, "::/0>fd00::1", routes(s[0]))
		require.Equal(t, "0.0.0.0/0>10.20.0.254", routes(s[1]))
	})
	t.Run("several gateways of a family are left to defroute, as one route", func(t *testing.T) {
		w := both("10.20.0.254", "10.20.0.253")
		s := planned(t, w, lease(w, addrs("10.16.0.5", "fd00::5"), addrs("10.20.0.5")))
		require.Len(t, s, 3)
		require.Empty(t, routes(s[1]))
		require.Equal(t, "defroute", s[2].Driver)
		require.Equal(t, "net1", s[2].Key.IfName)
		require.Equal(t, addrs("10.20.0.254", "10.20.0.253"), s[2].DefaultRoute.Gateways)
	})
	t.Run("a written default route wins", func(t *testing.T) {
		w := both()
		w[0].Steps[0].NIC.Routes = []core.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.16.0.9")}}
		s := planned(t, w, lease(w, addrs("10.16.0.5", "fd00::5"), addrs("10.20.0.5")))
		require.Equal(t, "0.0.0.0/0>10.16.0.9 ::/0>fd00::1", routes(s[0]))
	})
	t.Run("one family leased, one default route", func(t *testing.T) {
		w := both()
		s := planned(t, w, lease(w, addrs("fd00::5"), addrs("10.20.0.5")))
		require.Equal(t, "::/0>fd00::1", routes(s[0]))
	})
	t.Run("foreign plugins are put right after all chains", func(t *testing.T) {
		w := []core.Want{nicWant("eth0", &core.NIC{Subnet: dualSubnet(), DefaultRoute: true}), execWant("net1", "bridge", "tuning"), execWant("net2", "macvlan")}
		w[1].Gateways = addrs("192.168.0.1")
		s := planned(t, w, lease(w, addrs("10.16.0.5", "fd00::5")))
		require.Equal(t, "ovs/eth0 exec/net1 exec/net1 exec/net2 defroute/net1", drivers(s))
		require.Equal(t, "::/0>fd00::1", routes(s[0]))
		require.Equal(t, "x-net1", s[4].Network)
		require.Equal(t, testNS, s[4].Netns)
	})
	t.Run("our NIC that asks among foreign ones is confirmed at the end", func(t *testing.T) {
		w := []core.Want{execWant("eth0", "bridge"), nicWant("net1", &core.NIC{Subnet: smallSubnet()})}
		w[1].Gateways = addrs("10.20.0.1")
		s := planned(t, w, lease(w, addrs("10.20.0.5")))
		require.Equal(t, "exec/eth0 ovs/net1 defroute/net1", drivers(s))
		require.Equal(t, "0.0.0.0/0>10.20.0.1", routes(s[1]))
	})
}

func drivers(specs []core.Spec) string {
	var out []string
	for _, s := range specs {
		out = append(out, s.Driver+"/"+s.Key.IfName)
	}
	return strings.Join(out, " ")
}

func TestExecSpec(t *testing.T) {
	w := []core.Want{execWant("eth0", "bridge")}
	s := planned(t, w, nil)[0]
	require.Equal(t, []string{"/mine", "/opt/cni/bin"}, s.Exec.Path)
	require.Equal(t, []string{"/opt/cni/bin"}, w[0].Steps[0].Exec.Path, "the Want is left as it was")
	require.Equal(t, core.KindDelegate, s.Kind())
}

func TestLeasesStandInStepOrder(t *testing.T) {
	wants := []core.Want{
		nicWant("eth0", &core.NIC{Subnet: dualSubnet(), IPs: addrs("10.16.0.5"), Settings: core.Settings{PodSide: core.PodSide{MAC: testMAC}}}), execWant("net1", "bridge"),
		nicWant("net2", &core.NIC{Subnet: smallSubnet()}),
	}
	owner := func(ifName string) core.Owner {
		return core.Owner{Key: core.Key{Container: testKey.Container, IfName: ifName}, Pod: testPod}
	}
	require.Equal(t, []ipam.Request{
		{Subnet: dualSubnet(), IPs: addrs("10.16.0.5"), MAC: testMAC, Owner: owner("eth0")},
		{Subnet: smallSubnet(), Owner: owner("net2")},
	}, Leases(wants, testKey, testPod))
}

func TestLeasesThatDoNotFit(t *testing.T) {
	wants := []core.Want{nicWant("eth0", &core.NIC{Subnet: dualSubnet()}), nicWant("net1", &core.NIC{Subnet: smallSubnet()})}
	good := lease(wants, addrs("10.16.0.5"), addrs("10.20.0.5"))
	foreign := lease(wants, addrs("10.99.0.5"), addrs("10.20.0.5"))
	for name, leases := range map[string][]core.Lease{
		"none": nil, "one too few": good[:1], "in the wrong order": {good[1], good[0]}, "one too many": append(good[:2:2], good[0]),
		"an address of another subnet": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			specs, err := Plan(wants, leases, testPod, testKey, testNS, Node{MTU: 1400})
			require.Error(t, err)
			require.Empty(t, specs)
		})
	}
}

func TestHostIf(t *testing.T) {
	long := testKey.Container
	for _, c := range []struct{ id, ifName, want string }{
		{long, "eth0", "532bed4f476d_h"},
		{long, "net1", "532bed4f_net1_h"},
		{long, "n", "532bed4f476_n_h"},
		{"abc", "eth0", "abc_h"},
		{"abc", "net1", "abc_net1_h"},
		{"abc", "net12345", "abc_net12345_h"},
	} {
		require.Equal(t, c.want, HostIf(core.Key{Container: c.id, IfName: c.ifName}))
	}
	hashed := HostIf(core.Key{Container: long, IfName: "net10"})
	require.Regexp(t, `^[0-9a-v]{13}_h$`, hashed)
	require.NotEqual(t, hashed, HostIf(core.Key{Container: long, IfName: "net11"}))
	require.NotEqual(t, HostIf(core.Key{Container: "ab_net1", IfName: "eth0"}), HostIf(core.Key{Container: "ab", IfName: "net1"}))
}

// TestHostIfProperties: for any two keys of containers whose first 8 characters
// differ, and for all interfaces of one container, the names differ; every name
// is valid for the kernel and at most 15 bytes.
func TestHostIfProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	const idChars, ifChars = "0123456789abcdef_.-", "abcxyz0129_.-"
	text := func(chars string, least, most int) string {
		b := make([]byte, least+rnd.IntN(most-least+1))
		for i := range b {
			b[i] = chars[rnd.IntN(len(chars))]
		}
		return string(b)
	}
	owner := map[string]core.Key{}
	prefixes := map[string]string{}
	for range 3000 {
		id := "a" + text(idChars, 1, 63)
		start := id[:min(len(id), 8)]
		if other, ok := prefixes[start]; ok && other != id {
			continue
		}
		prefixes[start] = id
		for _, ifName := range []string{"eth0", "net1", "net2", "net10", text(ifChars, 1, 15), text(ifChars, 1, 15)} {
			key := core.Key{Container: id, IfName: ifName}
			name := HostIf(key)
			require.LessOrEqual(t, len(name), 15)
			require.NotContains(t, name, "/")
			require.Equal(t, name, HostIf(key))
			if other, ok := owner[name]; ok {
				require.Equal(t, other, key, "both are %s", name)
			}
			owner[name] = key
		}
	}
}
