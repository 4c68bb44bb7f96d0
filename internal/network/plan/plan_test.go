package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
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

// port is a driver of NICs that are ports.
type port struct{}

func (port) Carry(s *core.Spec, n *core.NIC) error {
	if n.Type == "square" {
		return core.Errorf(core.CodeValue, "a port is round")
	}
	s.NIC.OVS = &core.OVSPort{HostIf: s.Key.IfName + "_h", Type: n.Type}
	return nil
}

func testNode() Node {
	return Node{MTU: 1400, BinDirs: []string{"/mine"}, Carriers: map[string]Carrier{core.DriverOVS: port{}}}
}

func nicWant(ifName string, n *core.NIC) core.Want {
	n.Driver = core.DriverOVS
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
	specs, err := Plan(wants, leases, testPod, testKey, testNS, testNode())
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
			OVS: &core.OVSPort{HostIf: "eth0_h", Type: "veth-pair"},
		},
	}}, specs)
}

// TestCarrierDecides: a NIC's driver completes its Spec, or refuses it; one that the
// node has not is the network's fault.
func TestCarrierDecides(t *testing.T) {
	wants := []core.Want{nicWant("eth0", &core.NIC{Subnet: dualSubnet(), Type: "square"})}
	leases := lease(wants, addrs("10.16.0.5"))
	_, err := Plan(wants, leases, testPod, testKey, testNS, testNode())
	require.ErrorContains(t, err, "a port is round")
	require.Equal(t, core.CodeValue, core.CodeOf(err))
	wants[0].Steps[0].NIC.Driver = "vf"
	_, err = Plan(wants, leases, testPod, testKey, testNS, testNode())
	require.ErrorContains(t, err, `"vf"`)
	require.Equal(t, core.CodeConfig, core.CodeOf(err))
	require.Equal(t, []string{"vf"}, Drivers(wants))
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
			specs, err := Plan(wants, leases, testPod, testKey, testNS, testNode())
			require.Error(t, err)
			require.Empty(t, specs)
		})
	}
}
