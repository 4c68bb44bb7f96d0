package netfilter_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// bed is a node that forwards between a pod and a world with two addresses of each
// family, which knows a way back to the pod.
type bed struct {
	t                *testing.T
	node, pod, world *netns.Handle
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, node: netnstest.New(t), pod: netnstest.New(t), world: netnstest.New(t)}
	c, err := rtnl.Open(b.node)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for name, peer := range map[string]*netns.Handle{"ovn0": b.pod, "out0": b.world} {
		_, err := c.EnsureVeth(rtnl.Veth{Name: name, Peer: peer, PeerName: "eth0"})
		require.NoError(t, err)
	}
	sh(t, b.node, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1; ip link set ovn0 up; ip link set out0 up; "+
		"ip addr add 10.16.0.1/16 dev ovn0; ip addr add fd00:10:16::1/112 dev ovn0 nodad; ip addr add 192.0.2.1/24 dev out0; ip addr add 2001:db8::1/64 dev out0 nodad")
	sh(t, b.pod, "ip link set eth0 up; ip addr add 10.16.0.5/16 dev eth0; ip addr add fd00:10:16::5/112 dev eth0 nodad; ip route add default via 10.16.0.1; ip route add default via fd00:10:16::1")
	sh(t, b.world, "ip link set eth0 up; for a in 2 3; do ip addr add 192.0.2.$a/24 dev eth0; ip addr add 2001:db8::$a/64 dev eth0 nodad; done; "+
		"ip route add 10.16.0.0/16 via 192.0.2.1; ip route add fd00:10:16::/112 via 2001:db8::1")
	inside.Serve(t, b.world, "world", 8080, "192.0.2.2", "192.0.2.3", "2001:db8::2", "2001:db8::3")
	return b
}

// input is one Subnet, the pod's.
func input(nat bool, list ...core.NATRule) rules.Input {
	in := sample()
	in.Nodes, in.Others = prefixes("100.64.0.0/16", "fd00:100:64::/112"), nil
	in.Subnets = []rules.Subnet{{Name: "web", CIDRs: prefixes("10.16.0.0/16", "fd00:10:16::/112"), NAT: nat, Rules: list}}
	return in
}

// as is an input whose Subnet leaves as such addresses of the node.
func as(in rules.Input, list ...string) rules.Input {
	in.Subnets[0].As = addrs(list...)
	return in
}

// sees proves as whom the world sees the pod that asks an address.
func (b *bed) sees(addr, as, why string) {
	b.t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		require.Equal(b.t, "world sees "+as, inside.Query(b.pod, inside.Peer{Network: network, Host: addr, Port: 8080, Limit: 20 * time.Second}), "%s %s: %s", network, addr, why)
	}
}

var (
	alias     = [2]string{"192.0.2.9", "2001:db8::9"}
	renderers = []netfilter.Mode{netfilter.IPTables, netfilter.NFTables}
	pod       = [2]string{"10.16.0.5", "fd00:10:16::5"}
	host      = [2]string{"192.0.2.1", "2001:db8::1"}
)

// TestPackets: who the world sees, by both renderers, in both families.
func TestPackets(t *testing.T) {
	t.Parallel()
	keep := func(dst string) core.NATRule { return core.NATRule{Dst: prefixes(dst), Keep: true} }
	hide := func(dst string) core.NATRule { return core.NATRule{Dst: prefixes(dst)} }
	all := "0.0.0.0/0"
	for _, mode := range renderers {
		b := newBed(t)
		sh(t, b.node, "ip addr add 192.0.2.9/24 dev out0; ip addr add 2001:db8::9/64 dev out0 nodad preferred_lft 0")
		f := netfilter.New(netfilter.Config{Host: b.node, Mode: mode, Table: table})
		for _, c := range []struct {
			why        string
			in         rules.Input
			two, three [2]string // as whom by each family: at ...2, at ...3
		}{
			{"no NAT", input(false), pod, pod},
			{"NAT", input(true), host, host},
			{"forward", input(true, keep("192.0.2.3/32"), keep("2001:db8::3/128")), host, pod},
			{"one family's rule is none of the other's", input(true, keep("192.0.2.3/32")), host, [2]string{pod[0], host[1]}},
			{"the first counts", input(true, hide("192.0.2.3/32"), keep(all), hide("192.0.2.2/32")), [2]string{pod[0], host[1]}, host},
			{"the other way round", input(true, keep(all), hide("192.0.2.3/32")), [2]string{pod[0], host[1]}, [2]string{pod[0], host[1]}},
			{"by source", input(true, core.NATRule{Src: prefixes("10.16.0.5/32"), Keep: true}, core.NATRule{Src: prefixes("fd00:10:16::6/128"), Keep: true}), [2]string{pod[0], host[1]}, [2]string{pod[0], host[1]}},
			{"all", input(true, core.NATRule{Keep: true}), pod, pod},
			{"rules without NAT say nothing", input(false, hide(all)), pod, pod},
			{"as an address of the gateway node", as(input(true), alias[:]...), alias, alias},
			{"of one family", as(input(true), alias[0]), [2]string{alias[0], host[1]}, [2]string{alias[0], host[1]}},
			{"what rules translate is so as that address", as(input(true, hide("192.0.2.3/32"), keep(all)), alias[:]...), [2]string{pod[0], alias[1]}, alias},
			{"no NAT, no address", as(input(false), alias[:]...), pod, pod},
		} {
			require.NoError(t, f.Apply(t.Context(), c.in), c.why)
			require.NoError(t, f.Check(t.Context(), c.in), "%s: %s", mode, c.why)
			for i, net := range []string{"192.0.2.", "2001:db8::"} {
				b.sees(net+"2", c.two[i], fmt.Sprintf("%s: %s", mode, c.why))
				b.sees(net+"3", c.three[i], fmt.Sprintf("%s: %s", mode, c.why))
			}
		}
		counted, err := f.Traffic(t.Context(), input(false, hide(all)))
		require.NoError(t, err)
		require.Len(t, counted, 4)
		for _, one := range counted {
			require.Positive(t, one.Packets, "%s: %+v", mode, one)
			require.Greater(t, one.Bytes, one.Packets, "%s: %+v", mode, one)
		}
	}
}

// TestThousandRules: as many rules as a Subnet may have, which overlap, are taken by both
// renderers, and the first of them counts.
func TestThousandRules(t *testing.T) {
	t.Parallel()
	list := []core.NATRule{{Dst: prefixes("192.0.2.2/32")}, {Dst: prefixes("192.0.2.0/24"), Keep: true}}
	for i := range 998 {
		list = append(list, core.NATRule{Src: prefixes("10.16.0.0/16"), Dst: prefixes(fmt.Sprintf("198.%d.%d.0/24", 18+i>>8, i&255), "192.0.2.0/24"), Keep: i%2 == 0})
	}
	for _, mode := range renderers {
		b := newBed(t)
		f := netfilter.New(netfilter.Config{Host: b.node, Mode: mode, Table: table})
		for range 2 {
			require.NoError(t, f.Apply(t.Context(), input(true, list...)))
			require.NoError(t, f.Check(t.Context(), input(true, list...)), mode)
			b.sees("192.0.2.2", host[0], "the first rule")
			b.sees("192.0.2.3", pod[0], "the second rule")
		}
	}
}

// TestOnlyLocal: to a NodePort with externalTrafficPolicy Local a client comes as itself
// where pods answer by their own node, and as the node where they do so by a gateway: with
// the marks of kube-proxy's IPVS mode and without them, as other modes have it.
func TestOnlyLocal(t *testing.T) {
	t.Parallel()
	for _, mode := range renderers {
		b := newBed(t)
		inside.Serve(t, b.pod, "pod", 8080, pod[0], pod[1])
		sh(t, b.node, `for p in tcp udp; do iptables -t nat -A PREROUTING -p $p --dport 30080 -j DNAT --to 10.16.0.5:8080
			ip6tables -t nat -A PREROUTING -p $p --dport 30080 -j DNAT --to [fd00:10:16::5]:8080; done`)
		f := netfilter.New(netfilter.Config{Host: b.node, Mode: mode, Table: table})
		for _, marked := range []bool{false, true} {
			if marked {
				sh(t, b.node, `for s in KUBE KUBE-6; do for p in TCP UDP; do ipset create $s-NODE-PORT-LOCAL-$p bitmap:port range 0-65535; ipset add $s-NODE-PORT-LOCAL-$p 30080; done; done`)
			}
			for _, centralized := range []bool{false, true} {
				in := input(true)
				in.Subnets[0].Centralized = centralized
				require.NoError(t, f.Apply(t.Context(), in))
				require.NoError(t, f.Check(t.Context(), in), mode)
				for i, to := range host {
					as := sh(t, b.world, "ip -o route get "+to+" | sed 's/.* src \\([^ ]*\\).*/\\1/'")
					if centralized {
						as = []string{"10.16.0.1", "fd00:10:16::1"}[i]
					}
					for _, network := range []string{"tcp", "udp"} {
						got := inside.Query(b.world, inside.Peer{Network: network, Host: to, Port: 30080, Limit: 20 * time.Second})
						require.Equal(t, "pod sees "+strings.TrimSpace(as), got, "%s %s, centralized %t, marked %t", mode, network, centralized, marked)
					}
				}
			}
		}
	}
}

// TestKnownToIPVS: where kube-proxy's IPVS mode serves, a Service answers pods that come by
// the node's port, and refuses who comes elsewhere unmarked; a node whose pods come by other
// ports refuses nobody.
func TestKnownToIPVS(t *testing.T) {
	t.Parallel()
	service := [2]string{"10.96.0.10", "fd00:10:96::10"}
	for _, mode := range renderers {
		b := newBed(t)
		sh(t, b.node, `ip link set lo up; ip addr add 10.96.0.10/32 dev lo; ip addr add fd00:10:96::10/128 dev lo nodad
			ipset create KUBE-CLUSTER-IP hash:ip,port; ipset add KUBE-CLUSTER-IP 10.96.0.10,tcp:8080
			ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6; ipset add KUBE-6-CLUSTER-IP fd00:10:96::10,tcp:8080`)
		sh(t, b.world, "ip route add 10.96.0.0/12 via 192.0.2.1; ip route add fd00:10:96::/112 via 2001:db8::1")
		inside.Serve(t, b.node, "ipvs", 8080, service[:]...)
		f := netfilter.New(netfilter.Config{Host: b.node, Mode: mode, Table: table})
		for _, join := range []string{"ovn0", ""} {
			in := input(true)
			in.Join, in.Services = join, prefixes("10.96.0.0/12", "fd00:10:96::/112")
			require.NoError(t, f.Apply(t.Context(), in))
			require.NoError(t, f.Check(t.Context(), in), mode)
			for i, to := range service {
				ask := func(from *netns.Handle) string {
					return inside.Query(from, inside.Peer{Network: "tcp", Host: to, Port: 8080, Limit: 20 * time.Second})
				}
				require.Equal(t, "ipvs sees "+pod[i], ask(b.pod), "%s %s, by %q", mode, to, join)
				if join == "" {
					require.Contains(t, ask(b.world), "ipvs sees ", "%s %s", mode, to)
				} else {
					require.NotContains(t, ask(b.world), "ipvs sees ", "%s %s", mode, to)
				}
			}
		}
	}
}

// TestClamp: first packets that leave by the device ask for segments of the size that
// the flag says, or of what its MTU allows.
func TestClamp(t *testing.T) {
	t.Parallel()
	for _, mode := range renderers {
		b := newBed(t)
		sh(t, b.node, "ip link set out0 mtu 1400")
		f := netfilter.New(netfilter.Config{Host: b.node, Mode: mode, Table: table})
		for size, says := range map[int][2]string{1200: {"mss 1200", "mss 1200"}, 0: {"mss 1360", "mss 1340"}} {
			in := input(true)
			in.Clamp = &rules.Clamp{Device: "out0", Size: size}
			require.NoError(t, f.Apply(t.Context(), in))
			require.NoError(t, f.Check(t.Context(), in))
			for i, addr := range []string{"192.0.2.2", "2001:db8::2"} {
				heard := make(chan string, 1)
				go func() {
					var out []byte
					_ = b.world.Do(func() (err error) {
						syn := "dst host " + addr + " and " + []string{"tcp[13]", "ip6[53]"}[i] + " & 2 != 0"
						out, err = exec.CommandContext(t.Context(), "timeout", "30", "tcpdump", "-nn", "-c", "1", "-i", "eth0", syn).Output()
						return err
					})
					heard <- string(out)
				}()
				got := ""
				for got == "" { // tcpdump takes its time to listen
					inside.Query(b.pod, inside.Peer{Network: "tcp", Host: addr, Port: 8080, Limit: time.Second})
					select {
					case got = <-heard:
						require.Contains(t, got, says[i], "%s %d", mode, size)
					default:
					}
				}
			}
		}
	}
}

// proxied is a node with rules like kube-proxy's and others'.
func proxied(t *testing.T, backend string) *netns.Handle {
	t.Helper()
	ns := netnstest.New(t)
	for _, p := range []string{"iptables-", "ip6tables-"} {
		b := p + backend
		sh(t, ns, strings.ReplaceAll(`X -t nat -N KUBE-SERVICES; X -t nat -N KUBE-POSTROUTING; X -t nat -N KUBE-MARK-MASQ; X -t mangle -N KUBE-KUBELET-CANARY
			X -t nat -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
			X -t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
			X -t nat -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
			X -t nat -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
			X -t nat -A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
			X -A FORWARD -i lo -j DROP; X -A INPUT -p tcp -m tcp --dport 23 -j DROP`, "X", b))
	}
	sh(t, ns, "ipset create theirs hash:net; ipset add theirs 172.16.0.0/12")
	return ns
}

// foreign is all but what is ours.
func foreign(t *testing.T, ns *netns.Handle) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(everything(t, ns)) {
		if !strings.Contains(line, "OVN-") && !strings.Contains(line, "ovn40") && !strings.Contains(line, "ovn60") {
			out = append(out, line)
		}
	}
	return withoutEmpty(strings.Join(out, ""))
}

// TestTheirsStays: rules of others are the same before, with and after ours, in text and
// order, in the backend that the node uses; whatever somebody does to ours is undone.
func TestTheirsStays(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nft", "legacy"} {
		ns := proxied(t, backend)
		theirs := foreign(t, ns)
		f := netfilter.New(netfilter.Config{Host: ns, Table: table})
		in := input(true, core.NATRule{Dst: prefixes("192.0.2.0/24"), Keep: true})
		apply := func(why string) string {
			t.Helper()
			require.NoError(t, f.Apply(t.Context(), in), why)
			require.NoError(t, f.Check(t.Context(), in), "%s %s", backend, why)
			require.Equal(t, theirs, foreign(t, ns), "%s %s", backend, why)
			return sh(t, ns, "iptables-"+backend+"-save -t nat | grep -v '^[#:]'")
		}
		was := apply("at first")
		require.Less(t, strings.Index(was, "-j OVN-PREROUTING"), strings.Index(was, "-j KUBE-SERVICES"))
		for _, harm := range []string{
			"X -t nat -F OVN-POSTROUTING", "X -t nat -D POSTROUTING 1", "X -t nat -I OVN-POSTROUTING -j ACCEPT",
			"X -t nat -D OVN-POSTROUTING 2", "X -D FORWARD -m comment --comment 'kube-ovn forward rules' -j OVN-FORWARD; X -F OVN-FORWARD; X -X OVN-FORWARD",
			"ipset flush ovn40subnets-nat", "ipset flush", "X -t nat -A POSTROUTING -j OVN-POSTROUTING",
			"X -t nat -N OVN-OLD; X -t nat -A OVN-OLD -j ACCEPT; X -t nat -A POSTROUTING -s 10.0.0.0/8 -j OVN-OLD", "ipset create ovn40natpr-0123456789ab-src hash:net",
			"X -t nat -D PREROUTING -m comment --comment 'kube-ovn prerouting rules' -j OVN-PREROUTING; X -t nat -A PREROUTING -m comment --comment 'kube-ovn prerouting rules' -j OVN-PREROUTING",
		} {
			sh(t, ns, strings.ReplaceAll(harm, "X", "iptables-"+backend)+"; ipset -exist add theirs 172.16.0.0/12")
			require.ErrorIs(t, f.Check(t.Context(), in), core.ErrDrift, "%s %s", backend, harm)
			require.Equal(t, was, apply(harm))
		}
		// What stands above ours is its owner's, and no difference of ours.
		sh(t, ns, strings.ReplaceAll("X -t nat -I POSTROUTING -s 172.16.0.0/12 -j MASQUERADE; X -I FORWARD -i lo -j DROP", "X", "iptables-"+backend))
		theirs = foreign(t, ns)
		require.NoError(t, f.Check(t.Context(), in))
		apply("theirs is above")
		// Who flushes a table takes others' rules along, which are theirs to bring back.
		sh(t, ns, "iptables-"+backend+" -t nat -F")
		theirs = foreign(t, ns)
		require.Contains(t, apply("all of nat is flushed"), "-j OVN-POSTROUTING")
		in.Subnets[0].NAT = false
		apply("without NAT")
		in = rules.Input{}
		apply("the end")
		require.NotContains(t, everything(t, ns), "OVN-")
	}
}

// TestAnotherBackend: where the node goes from one backend to the other, ours follow.
func TestAnotherBackend(t *testing.T) {
	t.Parallel()
	ns := proxied(t, "legacy")
	f := netfilter.New(netfilter.Config{Host: ns, Table: table})
	require.NoError(t, f.Apply(t.Context(), sample()))
	require.Contains(t, sh(t, ns, "iptables-legacy-save"), "OVN-MASQUERADE")
	require.NotContains(t, sh(t, ns, "iptables-nft-save"), "OVN-MASQUERADE")
	sh(t, ns, `for p in iptables ip6tables; do $p-legacy -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES; $p-legacy -t nat -D POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
		for c in KUBE-SERVICES KUBE-POSTROUTING KUBE-MARK-MASQ; do $p-legacy -t nat -F $c; $p-legacy -t nat -X $c; $p-nft -t nat -N $c; done; $p-legacy -t mangle -X KUBE-KUBELET-CANARY; done`)
	require.ErrorIs(t, f.Check(t.Context(), sample()), core.ErrDrift)
	require.NoError(t, f.Apply(t.Context(), sample()))
	require.NoError(t, f.Check(t.Context(), sample()))
	require.NotContains(t, sh(t, ns, "iptables-legacy-save; ip6tables-legacy-save"), "OVN-")
	require.Contains(t, sh(t, ns, "iptables-nft-save"), "OVN-MASQUERADE")
}

// TestAnotherRenderer leaves nothing of the former one.
func TestAnotherRenderer(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	with := func(mode netfilter.Mode) *netfilter.Filter {
		return netfilter.New(netfilter.Config{Host: ns, Mode: mode, Table: table})
	}
	require.NoError(t, with(netfilter.IPTables).Apply(t.Context(), sample()))
	require.NoError(t, with(netfilter.NFTables).Apply(t.Context(), sample()))
	require.NotContains(t, everything(t, ns), "OVN-")
	require.Empty(t, sh(t, ns, "ipset save"))

	alone := sample()
	alone.Join = ""
	require.NoError(t, with(netfilter.Auto).Apply(t.Context(), alone))
	require.Empty(t, sh(t, ns, "ipset save"), "a node without OVN has nftables")
	require.Contains(t, sh(t, ns, "nft list tables"), table)
}

// TestBesideKubeOVN: on a node without OVN of ours Kube-OVN's rules and sets are its own,
// whether there is something to do for us or not.
func TestBesideKubeOVN(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	sh(t, ns, `ipset create ovn40subnets hash:net; ipset add ovn40subnets 10.99.0.0/16; ipset create ovn40subnets-nat hash:net
		iptables -t nat -N OVN-POSTROUTING; iptables -t nat -A POSTROUTING -m comment --comment "kube-ovn postrouting rules" -j OVN-POSTROUTING
		iptables -t nat -A OVN-POSTROUTING -m set --match-set ovn40subnets-nat src -m set ! --match-set ovn40subnets dst -j MASQUERADE`)
	before := sh(t, ns, "iptables-save | grep -v '^[#:]'; ipset save")
	alone := sample()
	alone.Join = ""
	for _, mode := range []netfilter.Mode{netfilter.Auto, netfilter.NFTables, netfilter.IPTables} {
		f := netfilter.New(netfilter.Config{Host: ns, Mode: mode, Table: table})
		inputs := []rules.Input{alone, {}}
		if mode == netfilter.IPTables {
			inputs = inputs[1:] // the other would take over what is there, as it was asked to
		}
		for _, in := range inputs {
			require.NoError(t, f.Apply(t.Context(), in), mode)
			require.NoError(t, f.Check(t.Context(), in), mode)
			require.Equal(t, before, sh(t, ns, "iptables-save | grep -v '^[#:]'; ipset save"), mode)
		}
	}
}
