package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

const usual = `{"cniVersion":"1.1.0","name":"net","type":"bridge","isGateway":true,"mtu":1400,` + both + `,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}`

// result is what the tests look for in an answer.
type result struct {
	Interfaces []struct{ Name, Mac, Sandbox string }
	IPs        []struct{ Address netip.Prefix }
}

func parse(t testing.TB, out json.RawMessage) (r result) {
	t.Helper()
	require.NoError(t, json.Unmarshal(out, &r))
	return r
}

func TestCheckFindsEveryDifference(t *testing.T) {
	for _, c := range []struct {
		name   string
		conf   string
		tamper func(n *node, p *pod, port string)
		says   string
	}{
		{"bridge gone", usual, func(n *node, _ *pod, _ string) { n.ip(n.host, "link", "del", "cni0") }, "bridge cni0 is missing"},
		{"bridge down", usual, func(n *node, _ *pod, _ string) { n.ip(n.host, "link", "set", "cni0", "down") }, "bridge cni0 is down"},
		{"another link of its name", usual, func(n *node, _ *pod, _ string) {
			n.ip(n.host, "link", "del", "cni0")
			n.ip(n.host, "link", "add", "cni0", "type", "veth")
		}, "cni0 is no bridge"},
		{"MAC of the bridge", usual, func(n *node, _ *pod, _ string) {
			n.ip(n.host, "link", "set", "cni0", "address", "02:00:00:00:00:99")
		}, "MAC of cni0 is 02:00:00:00:00:99"},
		{"gateway gone", usual, func(n *node, _ *pod, _ string) { n.ip(n.host, "addr", "del", "10.20.0.1/24", "dev", "cni0") }, "bridge cni0 has not the address 10.20.0.1/24"},
		{"IPv6 gateway gone", usual, func(n *node, _ *pod, _ string) { n.ip(n.host, "addr", "del", "fd00:20::1/64", "dev", "cni0") }, "bridge cni0 has not the address fd00:20::1/64"},
		{"no forwarding", usual, func(n *node, _ *pod, _ string) { n.set("net/ipv4/ip_forward", "0") }, "ip_forward is 0"},
		{"no IPv6 forwarding", usual, func(n *node, _ *pod, _ string) { n.set("net/ipv6/conf/all/forwarding", "0") }, "forwarding is 0"},
		{"not promiscuous", `{"cniVersion":"1.1.0","name":"net","type":"bridge","promiscMode":true,` + v4 + `}}`,
			func(n *node, _ *pod, _ string) { n.ip(n.host, "link", "set", "cni0", "promisc", "off") }, "is not promiscuous"},
		{"port taken off", usual, func(n *node, _ *pod, port string) { n.ip(n.host, "link", "set", port, "nomaster") }, "is no port of cni0"},
		{"port of another bridge", usual, func(n *node, _ *pod, port string) {
			n.ip(n.host, "link", "add", "br7", "type", "bridge")
			n.ip(n.host, "link", "set", port, "master", "br7")
		}, "is no port of cni0"},
		{"port down", usual, func(n *node, _ *pod, port string) { n.ip(n.host, "link", "set", port, "down") }, "is down"},
		{"port renamed", usual, func(n *node, _ *pod, port string) { n.ip(n.host, "link", "set", port, "name", "other") }, "is other, which was not made"},
		{"port's MAC", usual, func(n *node, _ *pod, port string) { n.ip(n.host, "link", "set", port, "address", "02:00:00:00:00:98") }, "is 02:00:00:00:00:98"},
		{"port's MTU", usual, func(n *node, _ *pod, port string) { n.ip(n.host, "link", "set", port, "mtu", "1399") }, "has MTU 1399, was 1400"},
		{"hairpin on", usual, func(n *node, _ *pod, port string) {
			inside.Run(n, n.host, "bridge", "link", "set", "dev", port, "hairpin", "on")
		}, "has hairpin mode true, was false"},
		{"hairpin off", `{"cniVersion":"1.1.0","name":"net","type":"bridge","hairpinMode":true,` + v4 + `}}`,
			func(n *node, _ *pod, port string) {
				inside.Run(n, n.host, "bridge", "link", "set", "dev", port, "hairpin", "off")
			}, "has hairpin mode false, was true"},
		{"isolation off", `{"cniVersion":"1.1.0","name":"net","type":"bridge","portIsolation":true,` + v4 + `}}`,
			func(n *node, _ *pod, port string) {
				inside.Run(n, n.host, "bridge", "link", "set", "dev", port, "isolated", "off")
			}, "has isolation false, was true"},
		{"pod's interface gone", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "link", "del", "eth0") }, "interface eth0 is missing in the pod"},
		{"pod's interface down", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "link", "set", "eth0", "down") }, "interface eth0 is down"},
		{"pod's MAC", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "link", "set", "eth0", "address", "02:00:00:00:00:97") }, "MAC of eth0 is 02:00:00:00:00:97"},
		{"another kind of interface", usual, func(n *node, p *pod, _ string) {
			n.ip(p.Handle, "link", "del", "eth0")
			n.ip(p.Handle, "link", "add", "eth0", "type", "bridge")
		}, "has no partner on the host"},
		{"address gone", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "addr", "del", "10.20.0.2/24", "dev", "eth0") }, "address 10.20.0.2/24 is missing"},
		{"IPv6 address gone", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "addr", "del", "fd00:20::2/64", "dev", "eth0") }, "address fd00:20::2/64 is missing"},
		{"route gone", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "route", "del", "default") }, "route 0.0.0.0/0 via 10.20.0.1 is missing"},
		{"route elsewhere", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "route", "replace", "default", "via", "10.20.0.77") }, "route 0.0.0.0/0 via 10.20.0.1 is missing"},
		{"IPv6 route gone", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "-6", "route", "del", "default") }, "route ::/0 via fd00:20::1 is missing"},
		{"foreign address", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "addr", "add", "10.20.0.77/24", "dev", "eth0") }, "address 10.20.0.77/24 is there, and nobody gave it"},
		{"foreign IPv6 address", usual, func(n *node, p *pod, _ string) { n.ip(p.Handle, "addr", "add", "fd00:20::77/64", "dev", "eth0") }, "address fd00:20::77/64 is there"},
		{"address given back", usual, func(n *node, _ *pod, _ string) {
			require.NoError(n, os.Remove(n.data+"/net/10.20.0.2"))
			require.NoError(n, os.Remove(n.data+"/net/fd00:20::2"))
		}, "Failed to find"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			a := attachment{pod: n.pod("c1"), conf: c.conf}
			out := n.mustAdd(a)
			require.NoError(t, n.check(a, out))
			c.tamper(n, a.pod, parse(t, out).Interfaces[1].Name)
			err := n.check(a, out)
			require.Error(t, err)
			require.Contains(t, err.Error(), c.says)
			if c.says != "Failed to find" {
				require.Equal(t, core.CodeDrift, core.CodeOf(err))
			}
			require.NoError(t, n.del(a, out))
			require.NoError(t, n.del(a, out), "again")
			require.Empty(t, n.held())
		})
	}
}

func (n *node) set(path, value string) {
	n.Helper()
	netnstest.Do(n, n.host, func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0) })
}

func TestCheckOfTheFinalResult(t *testing.T) {
	n := newNode(t)
	a := attachment{pod: n.pod("c1"), conf: usual}
	var doc map[string]any
	require.NoError(t, json.Unmarshal(n.mustAdd(a), &doc))
	in := doc["interfaces"].([]any)[2].(map[string]any)
	in["mtu"] = 1300 // as `tuning` behind us would have set
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	require.ErrorContains(t, n.check(a, out), "MTU of eth0 is 1400, was 1300")
	n.ip(a.pod.Handle, "link", "set", "eth0", "mtu", "1300")
	require.NoError(t, n.check(a, out))
	require.Error(t, n.check(a, nil), "without prevResult")
}

// Twenty at once, of which one makes the bridge and one gives it its address.
func TestManyAtOnce(t *testing.T) {
	const many = 20
	n := newNode(t)
	var list []attachment
	for i := range many {
		list = append(list, attachment{pod: n.pod(fmt.Sprintf("c%d", i)), conf: usual})
	}
	results, errs := make([]json.RawMessage, many), make([]error, many)
	each := func(do func(i int)) {
		var wg sync.WaitGroup
		for i := range list {
			wg.Go(func() { do(i) })
		}
		wg.Wait()
	}
	each(func(i int) { results[i], errs[i] = n.add(list[i]) })
	addrs, bridges := map[netip.Prefix]bool{}, map[string]bool{}
	for i := range list {
		require.NoError(t, errs[i])
		r := parse(t, results[i])
		bridges[r.Interfaces[0].Mac] = true
		for _, ip := range r.IPs {
			addrs[ip.Address] = true
		}
	}
	require.Len(t, addrs, 2*many)
	require.Len(t, bridges, 1, "the bridge's MAC is the same in all answers")
	each(func(i int) { errs[i] = n.check(list[i], results[i]) })
	for _, err := range errs {
		require.NoError(t, err)
	}
	inside.Run(n, list[0].pod.Handle, "ping", "-c1", "-w30", parse(t, results[many-1]).IPs[0].Address.Addr().String())
	each(func(i int) { errs[i] = n.del(list[i], results[i]) })
	for i, err := range errs {
		require.NoError(t, err)
		require.NotContains(t, n.links(list[i].pod.Handle), "eth0")
	}
	n.bare("cni0")
	require.Contains(t, n.ip(n.host, "addr", "show", "cni0"), "10.20.0.1/24", "the bridge stays as it is")
}

// inUse is refused to a second pod.
const inUse = `{"cniVersion":"1.0.0","name":"net","type":"bridge","enabledad":true,"ipam":{"type":"static","addresses":[{"address":"fd00:20::9/64","gateway":"fd00:20::1"}]}}`

// Whatever fails, nothing is left but the bridge.
func TestFailedAddLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		conf    string
		prepare func(n *node, p *pod)
		says    string
	}{
		{"IPAM refuses", usual, func(n *node, _ *pod) { n.refuse = core.Errorf(11, "no address now: %w", errRefused) }, "no address now"},
		{"the interface is taken", usual, func(n *node, p *pod) { n.ip(p.Handle, "link", "add", "eth0", "type", "bridge") }, `interface "eth0" in the pod`},
		{"a route that leads nowhere", `{"cniVersion":"1.0.0","name":"net","type":"bridge","ipam":{"type":"static","addresses":[{"address":"10.20.0.9/24"}],"routes":[{"dst":"192.0.2.0/24","gw":"10.99.0.1"}]}}`,
			func(*node, *pod) {}, "add route 192.0.2.0/24"},
		{"another address on the bridge", usual, func(n *node, _ *pod) {
			n.ip(n.host, "link", "add", "cni0", "type", "bridge")
			n.ip(n.host, "addr", "add", "10.99.0.1/24", "dev", "cni0")
		}, "has the address 10.99.0.1/24 and shall have 10.20.0.1/24"},
		{"IPv6 address in use", inUse, func(n *node, _ *pod) { n.mustAdd(attachment{pod: n.pod("other"), conf: inUse}) },
			"address fd00:20::9/64 is in use by another host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			a := attachment{pod: n.pod("c1"), conf: c.conf}
			c.prepare(n, a.pod)
			before, host := n.links(a.pod.Handle), n.links(n.host)
			_, err := n.add(a)
			require.ErrorContains(t, err, c.says)
			if n.refuse != nil {
				require.Equal(t, uint(11), core.CodeOf(err), "the IPAM plugin's own code")
				require.ErrorIs(t, err, errRefused)
			}
			require.Equal(t, before, n.links(a.pod.Handle))
			require.ElementsMatch(t, append(slices.DeleteFunc(host, func(l string) bool { return l == "cni0" }), "cni0"), n.links(n.host))
			require.Empty(t, n.held())
		})
	}
}

func TestCallerGoesAway(t *testing.T) {
	n := newNode(t)
	a := attachment{pod: n.pod("c1"), conf: usual}
	ctx, stop := context.WithCancel(t.Context())
	call := n.call(a, n.conf(a.conf))
	ask := call.IPAM
	call.IPAM = func(ctx context.Context, op core.Op) (json.RawMessage, error) {
		if op == core.Add {
			stop()
		}
		out, err := ask(ctx, op)
		if op == core.Add {
			require.NoError(t, err)
			err = ctx.Err()
		} else {
			require.NoError(t, ctx.Err(), "whoever cleans up has his time")
		}
		return out, err
	}
	_, err := n.plugin.Add(ctx, call)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.Empty(t, n.links(a.pod.Handle))
	n.bare("cni0")
}

// TestMACOfTheFirst: of two networks on a bridge that begin at once each gives
// it an address; the pods of the first know its MAC when the second does.
func TestMACOfTheFirst(t *testing.T) {
	n := newNode(t)
	first := attachment{pod: n.pod("c1"), conf: network("1.0.0", `"isGateway":true,`+v4+`}`)}
	second := attachment{pod: n.pod("c2"), conf: `{"cniVersion":"1.0.0","name":"six","type":"bridge","isGateway":true,"ipam":{"type":"static","addresses":[{"address":"fd00:6::2/64","gateway":"fd00:6::1"}]}}`}
	var known json.RawMessage
	call := n.call(second, second.conf)
	ask := call.IPAM
	call.IPAM = func(ctx context.Context, op core.Op) (json.RawMessage, error) {
		if op == core.Add { // after the second has looked at the bridge
			known = n.mustAdd(first)
		}
		return ask(ctx, op)
	}
	got, err := n.plugin.Add(t.Context(), call)
	require.NoError(t, err)
	require.NoError(t, n.check(first, known))
	require.NoError(t, n.check(second, got))
}

func TestForceAddress(t *testing.T) {
	n := newNode(t)
	n.ip(n.host, "link", "add", "cni0", "type", "bridge")
	for _, addr := range []string{"10.99.0.1/24", "fd00:20::77/64", "fd00:99::1/64"} {
		n.ip(n.host, "addr", "add", addr, "dev", "cni0")
	}
	a := attachment{pod: n.pod("c1"), conf: strings.Replace(usual, `"mtu"`, `"forceAddress":true,"mtu"`, 1)}
	require.NoError(t, n.check(a, n.mustAdd(a)))
	got := n.ip(n.host, "addr", "show", "cni0")
	for addr, there := range map[string]bool{"10.99.0.1": false, "10.20.0.1": true, "fd00:20::77": false, "fd00:20::1": true, "fd00:99::1": true} {
		require.Equal(t, there, strings.Contains(got, addr+"/"), "%s: %s", addr, got)
	}
}

func TestTwoAddressesOfThePod(t *testing.T) {
	n := newNode(t)
	a := attachment{pod: n.pod("c1"), conf: usual}
	n.mustAdd(a)
	_, err := n.add(a)
	require.ErrorContains(t, err, "eth0", "a second ADD finds the name taken")
	require.ErrorIs(t, err, core.ErrExists)
	require.Len(t, n.links(a.pod.Handle), 1, "the first one's is left alone")
}

// A namespace that is gone, or that its path does not lead to any more, has
// nothing to remove; the address goes.
func TestDelWithoutNamespace(t *testing.T) {
	for name, change := range map[string]func(n *node, a *attachment){
		"no path":   func(_ *node, a *attachment) { a.pod.id = core.Netns{} },
		"path gone": func(n *node, a *attachment) { netnstest.Unbind(n, a.pod.id.Path) },
		"another one": func(n *node, a *attachment) {
			netnstest.Unbind(n, a.pod.id.Path)
			other := netnstest.New(n)
			n.ip(other, "link", "add", "eth0", "type", "bridge")
			netnstest.Rebind(n, other, a.pod.id.Path)
			n.Cleanup(func() { require.Contains(n, n.ip(other, "link"), "eth0", "a stranger's") })
		},
		"an earlier boot": func(_ *node, a *attachment) { a.pod.id.BootID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			a := attachment{pod: n.pod("c1"), conf: usual}
			out := n.mustAdd(a)
			change(n, &a)
			require.NoError(t, n.del(a, out))
			require.Empty(t, n.held())
		})
	}
}

// Of the host's namespace nothing is touched.
func TestNotTheHost(t *testing.T) {
	n := newNode(t)
	p := n.pod("c1")
	id, err := netns.Identify(netnstest.Bind(t, n.host))
	require.NoError(t, err)
	p.id = id
	a := attachment{pod: p, conf: usual}
	_, err = n.add(a)
	require.Equal(t, core.CodeNetns, core.CodeOf(err))
	n.ip(n.host, "link", "add", "eth0", "type", "bridge")
	require.Equal(t, core.CodeNetns, core.CodeOf(n.del(a, nil)))
	require.Equal(t, []string{"eth0"}, n.links(n.host))
}

// A DEL that was cut between the ends of the pair is completed by the next; so
// is one whose tombstone the reaper has not taken.
func TestHalfDeleted(t *testing.T) {
	n := newNode(t)
	a := attachment{pod: n.pod("c1"), conf: usual}
	out := n.mustAdd(a)
	n.ip(n.host, "link", "set", parse(t, out).Interfaces[1].Name, "down")
	require.NoError(t, n.del(a, out))
	require.NotContains(t, n.links(a.pod.Handle), "eth0", "the name is free at once")
	second := n.mustAdd(a)
	require.NoError(t, n.check(a, second))
	require.NoError(t, n.del(a, second))
	n.bare("cni0")
}

func TestGCAndStatusAskTheIPAMPlugin(t *testing.T) {
	n := newNode(t)
	a := attachment{pod: n.pod("c1"), conf: usual}
	call := n.call(a, n.conf(usual))
	require.NoError(t, n.plugin.Status(t.Context(), call))
	require.NoError(t, n.plugin.GC(t.Context(), call))
	require.Equal(t, []core.Op{core.Status, core.GC}, n.asked)
	l2 := n.call(a, network("1.1.0", `"bridge":"br9"`))
	require.NoError(t, n.plugin.Status(t.Context(), l2))
	require.NoError(t, n.plugin.Del(t.Context(), l2))
	require.Error(t, n.plugin.Status(t.Context(), n.call(a, network("1.1.0", `"hairpinMode":true,"promiscMode":true`))))
	require.Len(t, n.asked, 2)
}
