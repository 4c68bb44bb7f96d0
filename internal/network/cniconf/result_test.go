package cniconf

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
)

const netns = "/run/netns/pod"

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }

// eth0 is a dual-stack NIC of our own with both default routes.
func eth0() core.Link {
	return core.Link{
		HostIf: "0123_h", IfName: "eth0",
		Addrs:    []netip.Prefix{pfx("10.16.0.2/16"), pfx("fd00:10::2/64")},
		Gateways: []netip.Addr{ip("10.16.0.1"), ip("fd00:10::1")},
		PodSide: core.PodSide{
			MAC: core.MAC{2, 0, 0, 0, 0, 1}, MTU: 1400, DNS: core.DNS{Nameservers: []string{"10.96.0.10"}},
			Routes: []core.Route{
				{Dst: pfx("0.0.0.0/0"), GW: ip("10.16.0.1")},
				{Dst: pfx("::/0"), GW: ip("fd00:10::1")},
				{Dst: pfx("192.168.0.0/24")},
			},
		},
	}
}

const bridgeResult = `{"cniVersion":"0.3.1","interfaces":[{"name":"cni0","mac":"02:00:00:00:00:03"},
 {"name":"net1","mac":"02:00:00:00:00:02","sandbox":"/run/netns/pod"}],
 "ips":[{"version":"4","interface":1,"address":"10.88.0.5/16","gateway":"10.88.0.1"}],
 "routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.88.0.7"}],"dns":{}}`

// TestWithMTU: nothing but the MTU of that interface changes.
func TestWithMTU(t *testing.T) {
	const result = `{"cniVersion":"%s","interfaces":[{"name":"eth0","mtu":9},{"name":"eth0","sandbox":"/s","mtu":%d,"own":1}],"ips":[],"more":{"a":1}}`
	was := json.RawMessage(fmt.Sprintf(result, "1.1.0", 1400))
	now, err := WithMTU(was, "eth0", 1300)
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprintf(result, "1.1.0", 1300), string(now))
	for _, same := range []json.RawMessage{now, json.RawMessage(bridgeResult), json.RawMessage(`{"cniVersion":"1.1.0"}`)} {
		got, err := WithMTU(same, "eth0", 1300)
		require.NoError(t, err)
		require.Equal(t, same, got)
	}
	_, err = WithMTU(json.RawMessage(`{`), "eth0", 1)
	require.Equal(t, core.CodeDecode, core.CodeOf(err))
}

func TestResultInEveryVersion(t *testing.T) {
	v3 := `{"cniVersion":"%s","interfaces":[{"name":"0123_h"},{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/pod"}],
	 "ips":[{"version":"4","interface":1,"address":"10.16.0.2/16","gateway":"10.16.0.1"},
	        {"version":"6","interface":1,"address":"fd00:10::2/64","gateway":"fd00:10::1"}],
	 "routes":[{"dst":"0.0.0.0/0","gw":"10.16.0.1"},{"dst":"::/0","gw":"fd00:10::1"},{"dst":"192.168.0.0/24"}],
	 "dns":{"nameservers":["10.96.0.10"]}}`
	v2 := `{"cniVersion":"%s","ip4":{"ip":"10.16.0.2/16","gateway":"10.16.0.1",
	  "routes":[{"dst":"0.0.0.0/0","gw":"10.16.0.1"},{"dst":"192.168.0.0/24"}]},
	 "ip6":{"ip":"fd00:10::2/64","gateway":"fd00:10::1","routes":[{"dst":"::/0","gw":"fd00:10::1"}]},
	 "dns":{"nameservers":["10.96.0.10"]}}`
	v1 := `{"cniVersion":"%s","interfaces":[{"name":"0123_h"},{"name":"eth0","mac":"02:00:00:00:00:01",%s"sandbox":"/run/netns/pod"}],
	 "ips":[{"interface":1,"address":"10.16.0.2/16","gateway":"10.16.0.1"},
	        {"interface":1,"address":"fd00:10::2/64","gateway":"fd00:10::1"}],
	 "routes":[{"dst":"0.0.0.0/0","gw":"10.16.0.1"},{"dst":"::/0","gw":"fd00:10::1"},{"dst":"192.168.0.0/24"}],
	 "dns":{"nameservers":["10.96.0.10"]}}`
	want := map[string]string{
		"0.1.0": fmt.Sprintf(v2, "0.1.0"), "0.2.0": fmt.Sprintf(v2, "0.2.0"),
		"0.3.0": fmt.Sprintf(v3, "0.3.0"), "0.3.1": fmt.Sprintf(v3, "0.3.1"), "0.4.0": fmt.Sprintf(v3, "0.4.0"),
		"1.0.0": fmt.Sprintf(v1, "1.0.0", ""), "1.1.0": fmt.Sprintf(v1, "1.1.0", `"mtu":1400,`),
	}
	require.Len(t, Supported(), len(want))
	for _, v := range Supported() {
		got, err := Result([]core.Link{eth0()}, netns, v)
		require.NoError(t, err)
		require.JSONEq(t, want[v], string(got), v)
	}
}

func TestResultNamesAGatewayOnlyWithItsDefaultRoute(t *testing.T) {
	l := eth0()
	l.Routes = l.Routes[2:]
	got, err := Result([]core.Link{l}, netns, "1.1.0")
	require.NoError(t, err)
	require.NotContains(t, string(got), "gateway")
	require.Contains(t, string(got), "192.168.0.0/24")
}

func TestResultRefuses(t *testing.T) {
	_, err := Result([]core.Link{eth0()}, netns, "9.0.0")
	require.Equal(t, core.CodeVersion, core.CodeOf(err))
	l := eth0()
	l.Addrs = nil // 0.2.0 cannot say "no address"
	_, err = Result([]core.Link{l}, netns, "0.2.0")
	require.Equal(t, core.CodeVersion, core.CodeOf(err))
	_, err = Result([]core.Link{{CNIResult: json.RawMessage(`{"cniVersion":"1.0.0","interfaces":3}`)}}, netns, "1.1.0")
	require.Equal(t, core.CodeDecode, core.CodeOf(err))
}

func TestResultOfAChainIsTheLastPluginsAnswer(t *testing.T) {
	prev, err := Result([]core.Link{eth0()}, netns, "0.3.1")
	require.NoError(t, err)
	got, err := Result([]core.Link{eth0(), {IfName: "eth0", CNIResult: prev}}, netns, "1.0.0")
	require.NoError(t, err)
	want, err := Result([]core.Link{eth0()}, netns, "1.0.0")
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}

func TestResultIsSettledByADefaultRouteElsewhere(t *testing.T) {
	moved := core.Link{IfName: "net1", PodSide: core.PodSide{Routes: []core.Route{{Dst: pfx("0.0.0.0/0"), GW: ip("10.88.0.9")}}}}
	got, err := Result([]core.Link{eth0(), moved}, netns, "1.0.0")
	require.NoError(t, err)
	require.NotContains(t, string(got), `"10.16.0.1"`)
	require.Contains(t, string(got), `"fd00:10::1"`, "the other family stays")

	got, err = Result([]core.Link{{IfName: "net1", CNIResult: json.RawMessage(bridgeResult)}, moved}, netns, "1.0.0")
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0","interfaces":[{"name":"cni0","mac":"02:00:00:00:00:03"},
	 {"name":"net1","mac":"02:00:00:00:00:02","sandbox":"/run/netns/pod"}],
	 "ips":[{"interface":1,"address":"10.88.0.5/16","gateway":"10.88.0.9"}],
	 "routes":[{"dst":"10.9.0.0/16","gw":"10.88.0.7"},{"dst":"0.0.0.0/0","gw":"10.88.0.9"}]}`, string(got))
}

func TestFinalResultHasNoMovedDefaultRoute(t *testing.T) {
	elsewhere := core.Link{IfName: "net2", PodSide: core.PodSide{Routes: []core.Route{{Dst: pfx("0.0.0.0/0"), GW: ip("10.20.0.1")}}}}
	here := core.Link{IfName: "net1", PodSide: core.PodSide{Routes: []core.Route{
		{Dst: pfx("0.0.0.0/0"), GW: ip("10.88.0.8")}, {Dst: pfx("0.0.0.0/0"), GW: ip("10.88.0.9")},
	}}}
	for _, moved := range []core.Link{elsewhere, here} {
		got, err := Final([]core.Link{{IfName: "net1", CNIResult: json.RawMessage(bridgeResult)}, moved}, netns, "1.0.0")
		require.NoError(t, err)
		require.JSONEq(t, `{"cniVersion":"1.0.0","interfaces":[{"name":"cni0","mac":"02:00:00:00:00:03"},
		 {"name":"net1","mac":"02:00:00:00:00:02","sandbox":"/run/netns/pod"}],
		 "ips":[{"interface":1,"address":"10.88.0.5/16","gateway":"10.88.0.1"}],
		 "routes":[{"dst":"10.9.0.0/16","gw":"10.88.0.7"}]}`, string(got))
	}
}

func TestLinkFromResult(t *testing.T) {
	l, err := LinkFromResult([]byte(bridgeResult), "net1")
	require.NoError(t, err)
	require.Equal(t, core.Link{
		IfName:   "net1",
		Addrs:    []netip.Prefix{pfx("10.88.0.5/16")},
		Gateways: []netip.Addr{ip("10.88.0.1")},
		PodSide: core.PodSide{
			MAC:    core.MAC{2, 0, 0, 0, 0, 2},
			Routes: []core.Route{{Dst: pfx("0.0.0.0/0"), GW: ip("10.88.0.1")}, {Dst: pfx("10.9.0.0/16"), GW: ip("10.88.0.7")}},
		},
		CNIResult: json.RawMessage(bridgeResult),
	}, l)

	l, err = LinkFromResult([]byte(`{"ip4":{"ip":"10.1.1.1/24","gateway":"10.1.1.254"}}`), "eth0")
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{pfx("10.1.1.1/24")}, l.Addrs)

	for _, none := range []string{`{"cniVersion":"1.0.0"}`, `{}`, `{"cniVersion":"1.0.0","interfaces":[{"name":"x"}]}`} {
		_, err = LinkFromResult([]byte(none), "net1")
		require.ErrorIs(t, err, core.ErrNotFound, none)
	}
}

func TestBadResultsAreRefused(t *testing.T) {
	for _, bad := range []string{
		``, `null`, `[]`, `"x"`, `{`, `{"cniVersion":3}`, `{"cniVersion":"5.0.0"}`,
		`{"cniVersion":"1.0.0","interfaces":[null]}`,
		`{"cniVersion":"1.0.0","ips":[null]}`,
		`{"cniVersion":"0.4.0","routes":[null]}`,
		`{"cniVersion":"0.3.1","Interfaces":[null]}`,
		`{"cniVersion":"1.0.0","ips":[{}]}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1"}]}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8","interface":3}]}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"::ffff:10.0.0.1/120"}]}`,
		`{"cniVersion":"1.0.0","routes":[{}]}`,
		`{"cniVersion":"1.0.0","interfaces":[{"name":"a","mac":"zz"}]}`,
		`{"ip4":{}}`,
	} {
		_, err := Convert([]byte(bad), "1.1.0")
		require.Equal(t, core.CodeDecode, core.CodeOf(err), bad)
		_, err = LinkFromResult([]byte(bad), "eth0")
		require.Equal(t, core.CodeDecode, core.CodeOf(err), bad)
	}
}

func TestPluginResultHasTheVersionOfItsConfiguration(t *testing.T) {
	for _, out := range []string{
		`{"interfaces":[{"name":"eth0","sandbox":"s"}]}`,
		`{"cniVersion":"","interfaces":[{"name":"eth0","sandbox":"s"}]}`,
		`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"s","mtu":9000}]}`,
	} {
		got, err := PluginResult([]byte(out), "0.4.0")
		require.NoError(t, err)
		var head struct{ CNIVersion string }
		require.NoError(t, json.Unmarshal(got, &head))
		require.Equal(t, "0.4.0", head.CNIVersion)
		l, err := LinkFromResult(got, "eth0")
		require.NoError(t, err)
		require.Equal(t, "eth0", l.IfName)
	}
	_, err := PluginResult([]byte(`[]`), "0.4.0")
	require.Equal(t, core.CodeDecode, core.CodeOf(err))
}

func TestStatusHasAnEntryPerNetwork(t *testing.T) {
	ns := core.Netns{Path: netns}
	spec := func(driver, network, ifName string, def bool) core.Spec {
		return core.Spec{Driver: driver, Network: network, Key: core.Key{Container: "c", IfName: ifName}, Default: def, Netns: ns}
	}
	prev, err := Result([]core.Link{eth0()}, netns, "0.3.1")
	require.NoError(t, err)
	specs := []core.Spec{
		spec("ovs", "ovn-default", "eth0", true), spec("exec", "ovn-default", "eth0", true), // with portmap
		spec("exec", "default/br", "net1", false), spec("defroute", "default/br", "net1", false),
		spec("exec", "default/none", "net2", false),
	}
	links := []core.Link{
		eth0(), {IfName: "eth0", CNIResult: prev},
		{IfName: "net1", CNIResult: json.RawMessage(bridgeResult)},
		{IfName: "net1", PodSide: core.PodSide{Routes: []core.Route{{Dst: pfx("0.0.0.0/0"), GW: ip("10.88.0.9")}}}},
		{IfName: "net2", CNIResult: json.RawMessage(`{"cniVersion":"1.0.0"}`)},
	}
	require.Equal(t, []core.Net{
		{
			Name: "ovn-default", Interface: "eth0", IPs: []string{"10.16.0.2", "fd00:10::2"}, MAC: "02:00:00:00:00:01", MTU: 1400,
			Default: true, Gateway: []string{"fd00:10::1"}, DNS: core.DNS{Nameservers: []string{"10.96.0.10"}},
		},
		{
			Name: "default/br", Interface: "net1", IPs: []string{"10.88.0.5"}, MAC: "02:00:00:00:00:02",
			Gateway: []string{"10.88.0.9"}, DefaultRoute: []string{"10.88.0.9"},
		},
		{Name: "default/none"},
	}, Status(specs, links))
	require.Len(t, Status(specs, links[:2]), 1, "unfinished specs have no entry")

	old := Status([]core.Spec{spec("exec", "default/old", "net1", false)},
		[]core.Link{{IfName: "net1", CNIResult: json.RawMessage(`{"ip4":{"ip":"10.1.1.1/24"}}`)}})
	require.Equal(t, []core.Net{{Name: "default/old", Interface: "net1", IPs: []string{"10.1.1.1"}}}, old)
}

func TestErrorJSON(t *testing.T) {
	inner := &core.Error{Code: 102, Msg: "bad ip", Details: "why"}
	require.JSONEq(t, `{"cniVersion":"0.3.1","code":102,"msg":"bad ip","details":"why"}`, string(ErrorJSON("0.3.1", inner, "")))
	require.JSONEq(t, `{"code":102,"msg":"bad ip","details":"net1: bad ip: why"}`,
		string(ErrorJSON("", fmt.Errorf("net1: %w", inner), "")))
	require.JSONEq(t, `{"code":103,"msg":"pool p: no free address"}`,
		string(ErrorJSON("", fmt.Errorf("pool p: %w", core.ErrExhausted), "")))
	inner.Details = "`fairlead doctor` says"
	require.Contains(t, string(ErrorJSON("", inner, "kubectl exec p -- fairlead")), "`kubectl exec p -- fairlead doctor` says")
}

func TestKubeOVNResponse(t *testing.T) {
	got, err := KubeOVNResponse([]core.Link{eth0()})
	require.NoError(t, err)
	require.Equal(t, cni.KubeOVNResponse{
		IPs: []cni.KubeOVNIP{
			{Protocol: "IPv4", IP: "10.16.0.2", CIDR: "10.16.0.0/16", Gateway: "10.16.0.1"},
			{Protocol: "IPv6", IP: "fd00:10::2", CIDR: "fd00:10::/64", Gateway: "fd00:10::1"},
		},
		Protocol: "Dual", IPAddress: "10.16.0.2,fd00:10::2", CIDR: "10.16.0.0/16,fd00:10::/64", Gateway: "10.16.0.1,fd00:10::1",
		MacAddress: "02:00:00:00:00:01", Mtu: 1400, PodNicName: "eth0",
		Routes: []cni.KubeOVNRoute{
			{Destination: "0.0.0.0/0", Gateway: "10.16.0.1"}, {Destination: "::/0", Gateway: "fd00:10::1"}, {Destination: "192.168.0.0/24"},
		},
		DNS: cni.KubeOVNDNS{Nameservers: []string{"10.96.0.10"}},
	}, got)
}

func FuzzDelegateResult(f *testing.F) {
	f.Add([]byte(bridgeResult))
	f.Add([]byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"s"}],"ips":[{"address":"fd00::1/64","interface":0}]}`))
	f.Add([]byte(`{"cniVersion":"0.4.0","ips":[null],"routes":[{"dst":"0.0.0.0/0"}]}`))
	f.Add([]byte(`{"ip4":{"ip":"10.1.1.1/24","routes":[{"dst":"0.0.0.0/0"}]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		l, err := LinkFromResult(in, "eth0")
		if err != nil {
			return
		}
		for _, p := range l.Addrs {
			if !p.IsValid() {
				t.Fatalf("an invalid address was accepted: %s", in)
			}
		}
		for _, v := range Supported() {
			out, err := Result([]core.Link{l}, netns, v)
			refusedWell(t, err)
			if err != nil {
				continue
			}
			if _, err := Convert(out, "1.1.0"); err != nil {
				t.Fatalf("our own %s result is refused: %v: %s", v, err, out)
			}
		}
		Status([]core.Spec{{Network: "n", Key: core.Key{IfName: "eth0"}}}, []core.Link{l})
	})
}
