package bridge_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

const (
	v4   = `"ipam":{"type":"host-local","dataDir":"DATA","ranges":[[{"subnet":"10.20.0.0/24"}]]`
	both = `"ipam":{"type":"host-local","dataDir":"DATA","ranges":[[{"subnet":"10.20.0.0/24"}],[{"subnet":"fd00:20::/64"}]]`
)

func network(version, keys string) string {
	if version != "" {
		version = `"cniVersion":"` + version + `",`
	}
	return `{` + version + `"name":"net","type":"bridge",` + keys + `}`
}

// likeUpstream are configurations that both carry out.
var likeUpstream = []struct {
	name string
	conf string
	args string
	// unchecked: upstream's CHECK fails without an IPAM plugin, and looks for
	// routes in table main only.
	unchecked bool
}{
	{name: "gateway", conf: network("1.1.0", `"isGateway":true,`+v4+`,"routes":[{"dst":"0.0.0.0/0"}]}`)},
	{name: "no gateway", conf: network("1.0.0", `"bridge":"br9",`+v4+`}`)},
	{name: "default gateway", conf: network("1.0.0", `"isDefaultGateway":true,`+v4+`}`)},
	{name: "dual stack", conf: network("1.1.0", `"isGateway":true,`+both+`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`)},
	{name: "dual stack, default gateway, DAD", conf: network("1.0.0", `"isDefaultGateway":true,"enabledad":true,`+both+`}`)},
	{name: "IPv6 alone", conf: network("0.4.0", `"isGateway":true,"ipam":{"type":"host-local","dataDir":"DATA","ranges":[[{"subnet":"fd00:20::/64"}]]}`)},
	{name: "mtu, hairpin, isolation", conf: network("1.1.0", `"isGateway":true,"mtu":1400,"hairpinMode":true,"portIsolation":true,`+v4+`}`)},
	{name: "promiscuous", conf: network("1.1.0", `"isGateway":true,"promiscMode":true,`+v4+`}`)},
	{name: "0.4.0", conf: network("0.4.0", `"isGateway":true,`+v4+`,"routes":[{"dst":"0.0.0.0/0"}]}`)},
	{name: "0.3.1", conf: network("0.3.1", `"isGateway":true,`+v4+`,"routes":[{"dst":"0.0.0.0/0"}]}`)},
	{name: "0.2.0", conf: network("0.2.0", `"isGateway":true,`+both+`,"routes":[{"dst":"0.0.0.0/0"}]}`)},
	{name: "no version", conf: network("", `"isGateway":true,`+v4+`}`)},
	{name: "mac of CNI_ARGS", conf: network("1.0.0", v4+`}`), args: "IgnoreUnknown=1;K8S_POD_NAME=p;MAC=02:00:00:00:00:07"},
	{name: "mac of args", conf: network("1.0.0", `"args":{"cni":{"mac":"02:00:00:00:00:07"}},`+v4+`}`), args: "IgnoreUnknown=1;MAC=02:00:00:00:00:09"},
	{name: "mac of runtimeConfig", conf: network("1.0.0",
		`"capabilities":{"mac":true},"runtimeConfig":{"mac":"02:00:00:00:00:07","portMappings":[]},"args":{"cni":{"mac":"02:00:00:00:00:08"}},`+v4+`}`)},
	{name: "DNS of the network", conf: network("1.0.0", `"dns":{"nameservers":["192.0.2.1"],"search":["x.test"]},`+v4+`}`)},
	{name: "DNS of the IPAM plugin, static", conf: network("1.0.0", `"isGateway":true,"ipam":{"type":"static",
"addresses":[{"address":"10.20.0.9/24","gateway":"10.20.0.254"},{"address":"fd00:20::9/64","gateway":"fd00:20::fe"}],
"routes":[{"dst":"192.0.2.0/24","gw":"10.20.0.7"},{"dst":"198.51.100.0/24","priority":77},
{"dst":"fd00:99::/64"}],"dns":{"nameservers":["192.0.2.2"]}}`)},
	{name: "a route on the link", conf: network("1.0.0", `"ipam":{"type":"static","addresses":[{"address":"10.20.0.9/24"}],"routes":[{"dst":"192.0.2.0/24"},{"dst":"10.77.0.0/16","scope":253}]}`)},
	{name: "a route in a table", conf: network("1.0.0", `"ipam":{"type":"static","addresses":[{"address":"10.20.0.9/24"}],
"routes":[{"dst":"203.0.113.0/24","gw":"10.20.0.1","table":500}]}`), unchecked: true},
	{name: "without addresses", conf: network("1.0.0", `"bridge":"br9","mtu":1300,"ipam":{}`), unchecked: true},
	{name: "without addresses, untouched inside", conf: network("1.0.0", `"disableContainerInterface":true`), unchecked: true},
	{name: "keys of no effect", conf: network("1.0.0", `"isGateway":true,"preserveDefaultVlan":true,"ipMasq":false,"ipMasqBackend":"nftables","vlan":0,"macspoofchk":false,"deviceID":"0000:01:00.0","pciBusID":"0000:01:00.0",`+v4+`}`)},
}

func TestLikeUpstream(t *testing.T) {
	for _, c := range likeUpstream {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newNode(t), newNode(t)
			a := attachment{pod: ours.pod("c1"), conf: c.conf, args: c.args}
			b := attachment{pod: theirs.pod("c1"), conf: c.conf, args: c.args}
			require.NoError(t, ours.plugin.Accepts(json.RawMessage(ours.conf(c.conf))))
			got := ours.mustAdd(a)
			want, err := theirs.program(core.Add, b, nil)
			require.NoError(t, err)
			same(t, canonical(sorted(t, want)), canonical(sorted(t, got)))
			same(t, theirs.state(b.pod), ours.state(a.pod))

			if !strings.Contains(c.name, "0.2.0") && !strings.Contains(c.name, "no version") && !strings.Contains(c.name, "0.3.1") {
				require.NoError(t, ours.check(a, got), "ours of ours")
				require.NoError(t, theirs.check(b, want), "ours of theirs")
				if !c.unchecked {
					_, err = ours.program(core.Check, a, got)
					require.NoError(t, err, "theirs of ours")
				}
			}
			_, err = ours.program(core.Del, a, got)
			require.NoError(t, err, "theirs of ours")
			require.NoError(t, ours.del(a, got), "nothing left to remove")
			require.NoError(t, theirs.del(b, want), "ours of theirs")
			_, err = theirs.program(core.Del, b, want)
			require.NoError(t, err, "nothing left to remove")
			name := "cni0"
			if strings.Contains(c.conf, "br9") {
				name = "br9"
			}
			ours.bare(name)
			theirs.bare(name)
			require.Empty(t, ours.links(a.pod.Handle))
		})
	}
}

// The second pod finds the bridge as the other side left it.
func TestBothOnOneBridge(t *testing.T) {
	n := newNode(t)
	conf := network("1.0.0", `"isGateway":true,`+both+`,"routes":[{"dst":"0.0.0.0/0"}]}`)
	a, b, c := attachment{pod: n.pod("a"), conf: conf}, attachment{pod: n.pod("b"), conf: conf}, attachment{pod: n.pod("c"), conf: conf}
	ra := n.mustAdd(a)
	rb, err := n.program(core.Add, b, nil)
	require.NoError(t, err)
	rc := n.mustAdd(c)
	for _, check := range []error{n.check(a, ra), n.check(b, rb), n.check(c, rc)} {
		require.NoError(t, check)
	}
	for at, r := range map[*attachment]json.RawMessage{&a: ra, &b: rb, &c: rc} {
		_, err := n.program(core.Check, *at, r)
		require.NoError(t, err)
	}
	for _, to := range []string{"10.20.0.1", "10.20.0.3", "10.20.0.4", "fd00:20::1", "fd00:20::3"} {
		inside.Run(n, a.pod.Handle, "ping", "-c1", "-w30", to)
	}
}

func TestRefusedAsUpstreamDoes(t *testing.T) {
	for _, c := range []struct{ name, conf, args string }{
		{"ipam without interface", network("1.0.0", `"disableContainerInterface":true,`+v4+`}`), ""},
		{"hairpin and promiscuous", network("1.0.0", `"hairpinMode":true,"promiscMode":true,`+v4+`}`), ""},
		{"bad MAC", network("1.0.0", `"runtimeConfig":{"mac":"zz"},`+v4+`}`), ""},
		{"unknown argument", network("1.0.0", v4+`}`), "FOO=bar"},
		{"no pair", network("1.0.0", v4+`}`), "FOO"},
		{"IPAM gives none", network("1.0.0", `"ipam":{"type":"static"}`), ""},
		{"default route twice", network("1.0.0", `"isDefaultGateway":true,`+v4+`,"routes":[{"dst":"0.0.0.0/0"}]}`), ""},
		{"bits behind a route's length", network("1.0.0", `"ipam":{"type":"static","addresses":[{"address":"10.20.0.9/24"}],"routes":[{"dst":"10.1.2.3/8"}]}`), ""},
		{"no network", network("1.0.0", `"ipam":{"type":"host-local","dataDir":"DATA"}`), ""},
		{"the bridge is none", network("1.0.0", `"bridge":"lo",`+v4+`}`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newNode(t), newNode(t)
			a := attachment{pod: ours.pod("c1"), conf: c.conf, args: c.args}
			_, want := theirs.program(core.Add, attachment{pod: theirs.pod("c1"), conf: c.conf, args: c.args}, nil)
			require.Error(t, want)
			_, err := ours.add(a)
			require.Error(t, err)
			t.Logf("theirs: %v", want)
			t.Logf("ours:   %v", err)
			drivertest.RequireCode(t, want, err)
			require.Empty(t, ours.links(a.pod.Handle))
			require.Empty(t, ours.held())
			for _, l := range ours.links(ours.host) {
				require.NotContains(t, l, "veth")
			}
		})
	}
}

func TestAccepts(t *testing.T) {
	n := newNode(t)
	for keys, ok := range map[string]bool{
		`"ipMasq":true`:                         false,
		`"ipMasq":false`:                        true,
		`"vlan":5`:                              false,
		`"vlanTrunk":[{"id":7}]`:                false,
		`"vlanTrunk":[]`:                        false,
		`"vlanTrunk":null`:                      true,
		`"macspoofchk":true`:                    false,
		`"isgateway":true`:                      false, // Go's reader would take it
		`"somethingNew":1`:                      false,
		`"mtu":"1400"`:                          false,
		`"mtu":1400`:                            true,
		`"cni.dev/valid-attachments":[]`:        true,
		`"runtimeConfig":{"portMappings":[{}]}`: true,
		`"args":{"cni":{"ips":["10.0.0.1"]}}`:   true,
		`"ipam":{"type":"dhcp","x":1}`:          true,
	} {
		err := n.plugin.Accepts(json.RawMessage(network("1.1.0", keys)))
		require.Equal(t, ok, err == nil, "%s: %v", keys, err)
	}
	require.Error(t, n.plugin.Accepts(json.RawMessage(network("9.0.0", `"mtu":1`))))
	require.Error(t, n.plugin.Accepts(json.RawMessage(`[]`)))
}
