package kubenet_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// TestPodsOfANode: two families, pods reach each other and the gateway, and are
// masqueraded towards the world and nobody else.
func TestPodsOfANode(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	require.ErrorContains(t, b.m.Status(t.Context()), "pod CIDR")
	p := b.sandbox("early")
	require.ErrorContains(t, b.m.SetUpPod(t.Context(), p.Pod), "pod CIDR")
	b.told(cidrs)
	require.NoError(t, b.m.Status(t.Context()))

	one, two := b.setUp(p), b.run("two")
	require.Equal(t, "10.244.7.2", one.v4)
	require.Equal(t, "fd00:244:7::2", one.v6)
	require.Equal(t, "early sees 10.244.7.3", b.ask(two.Handle, "tcp", one.v4, 80))
	require.Equal(t, "early sees fd00:244:7::3", b.ask(two.Handle, "tcp", one.v6, 80))
	require.Equal(t, "two sees 10.244.7.1", b.ask(b.host, "tcp", two.v4, 80))

	inside.Serve(t, b.world, "world", 90)
	require.Equal(t, "world sees "+node4, b.ask(one.Handle, "tcp", world4, 90))
	require.Equal(t, "world sees "+node6, b.ask(one.Handle, "tcp", world6, 90))
	require.Equal(t, "world sees "+node4, b.ask(one.Handle, "udp", world4, 90))

	require.Contains(t, b.sh(one.Handle, "ip link show eth0"), "mtu 1400", "the least of the node's links")
	require.Contains(t, b.sh(one.Handle, "ip link show lo"), "UP")
	require.Contains(t, b.sh(b.host, "ip link show cbr0"), "mtu 1400")
	require.NoError(t, b.m.CheckPod(t.Context(), one.Pod))
	b.sh(one.Handle, "ip addr del 10.244.7.2/24 dev eth0")
	require.ErrorContains(t, b.m.CheckPod(t.Context(), one.Pod), "10.244.7.2")
	b.tearDown(one, two, one)
	b.clean()
}

// TestPodCIDR: the first one of a process's life counts, its successor goes on
// with it, and another one may come then.
func TestPodCIDR(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.told("10.244.7.0/24")
	b.told("10.99.0.0/16")
	require.Error(t, b.m.SetPodCIDR(t.Context(), "10.1.0.0/16,10.2.0.0/16"), "two of a family")
	one, two, three := b.sandbox("one"), b.sandbox("two"), b.sandbox("three")
	require.Equal(t, "10.244.7.2", b.up(one))

	b.restart()
	require.NoError(t, b.m.Status(t.Context()), "kubelet tells it only once")
	require.Equal(t, "10.244.7.3", b.up(two))
	b.told("10.99.0.0/16")
	require.Equal(t, "10.99.0.2", b.up(three))
	b.tearDown(one, two, three)
	b.clean()
}

// TestOnlyIPv6: a node whose pod CIDR is of that family.
func TestOnlyIPv6(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.told("fd00:244:7::/64")
	one, two := b.sandbox("one", tcp(8080, 80)), b.sandbox("two")
	require.Equal(t, "fd00:244:7::2", b.up(one))
	require.Equal(t, "fd00:244:7::3", b.up(two))
	inside.Serve(t, one.Handle, "one", 80)
	require.Equal(t, "one sees fd00:244:7::3", b.ask(two.Handle, "tcp", "fd00:244:7::2", 80))
	require.Equal(t, "one sees "+world6, b.ask(b.world, "tcp", node6, 8080))
	b.tearDown(one, two)
	b.clean()
}

// TestStatusSaysWhatIsInTheWay, and a pod is not begun meanwhile.
func TestStatusSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.sh(b.host, "ip link add cbr0 type veth peer name far")
	require.ErrorContains(t, b.m.SetPodCIDR(t.Context(), cidrs), "no bridge")
	require.ErrorContains(t, b.m.Status(t.Context()), "there is a link cbr0 already that is no bridge")
	p := b.sandbox("one")
	require.ErrorContains(t, b.m.SetUpPod(t.Context(), p.Pod), "cbr0")
	b.sh(b.host, "ip link del cbr0")
	require.NoError(t, b.m.Status(t.Context()), "it tries again")
	require.Contains(t, b.sh(b.host, "nft list tables"), "inet fairlead-kubenet")
	for range 2 {
		require.NoError(t, b.m.SetUpPod(t.Context(), p.Pod))
		b.tearDown(p)
		b.sh(b.host, "ip link del cbr0") // somebody removes it under a node without pods
	}
	b.clean()
}

// TestMasqueradeOff: with a whole family exempt, packets keep their source; a
// family that nobody spoke of keeps it too.
func TestMasqueradeOff(t *testing.T) {
	t.Parallel()
	s := defaults
	s.NonMasquerade = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	b := newBed(t, s)
	b.told(cidrs)
	one := b.run("one")
	inside.Serve(t, b.world, "world", 90)
	b.sh(b.world, "ip route add 10.244.7.0/24 via "+node4, "ip route add fd00:244:7::/64 via "+node6)
	require.Equal(t, "world sees "+one.v4, b.ask(one.Handle, "tcp", world4, 90))
	require.Equal(t, "world sees "+one.v6, b.ask(one.Handle, "tcp", world6, 90))
	require.NotContains(t, b.sh(b.host, "nft list ruleset"), "masquerade-ip")
}

// TestHostPorts in all hairpin modes: from outside, the node, its loopback,
// another pod, and the pod itself where the mode says so. They outlive the
// process.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	for _, mode := range []netplugin.Hairpin{netplugin.HairpinVeth, netplugin.PromiscuousBridge} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := defaults
			s.Hairpin = mode
			b := newBed(t, s)
			b.told(cidrs)
			web, other := b.run("web", tcp(8080, 80), udp(5353, 80)), b.run("other")
			answers := func() {
				t.Helper()
				require.Equal(t, "web sees "+world4, b.ask(b.world, "tcp", node4, 8080))
				require.Equal(t, "web sees "+world6, b.ask(b.world, "tcp", node6, 8080))
				require.Equal(t, "web sees "+world4, b.ask(b.world, "udp", node4, 5353))
				require.Contains(t, b.ask(b.host, "tcp", node4, 8080), "web sees")
				require.Contains(t, b.ask(b.host, "tcp", "127.0.0.1", 8080), "web sees")
				require.Contains(t, b.ask(other.Handle, "tcp", node4, 8080), "web sees")
				if mode == netplugin.HairpinVeth { // of the other one see PromiscuousBridge
					require.Contains(t, b.ask(web.Handle, "tcp", node4, 8080), "web sees", "the pod itself")
				}
			}
			answers()
			flags := b.sh(b.host, "ip -d link show master cbr0", "ip -d link show cbr0")
			rules := b.sh(b.host, "nft list tables")
			if mode == netplugin.HairpinVeth {
				require.Contains(t, flags, "hairpin on")
				require.NotContains(t, rules, "bridge fairlead-kubenet")
			} else {
				require.Contains(t, flags, "PROMISC")
				require.NotContains(t, flags, "hairpin on")
				require.Contains(t, b.sh(b.host, "nft list table bridge fairlead-kubenet"), "ip saddr 10.244.7.0/24 drop")
			}
			b.restart()
			answers()
			require.NoError(t, b.m.CheckPod(t.Context(), web.Pod))
			b.sh(b.host, "nft flush ruleset")
			require.NoError(t, b.m.Collect(t.Context(), b.live), "it puts right what others did")
			answers()

			again := b.sandbox("again", tcp(8080, 80))
			require.ErrorContains(t, b.m.SetUpPod(t.Context(), again.Pod), "default/web")
			b.tearDown(again)
			b.tearDown(web)
			require.Empty(t, b.ask(b.host, "tcp", node4, 8080))
			b.tearDown(other)
			b.clean()
		})
	}
}

// TestUDPConnectionsFollowThePort: what the kernel remembers of a port without a
// pod, or with an earlier one, leads nowhere else.
func TestUDPConnectionsFollowThePort(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.told(cidrs)
	c := b.socket(b.world, node4, 5353)
	_, err := c.Write([]byte("?")) // before there is anybody: the kernel notes the node itself
	require.NoError(t, err)
	one := b.run("one", udp(5353, 80))
	require.Equal(t, "one sees "+world4, b.until(c, "one"))
	b.tearDown(one)
	two := b.run("two", udp(5353, 80))
	require.Equal(t, "two sees "+world4, b.until(c, "two"))
	b.tearDown(two)
	b.clean()
}

// TestRates: values as tc tells them, for the direction to the pod at its port,
// for the other one at a device of its own, and nothing left at the end.
func TestRates(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.told(cidrs)
	p := b.sandbox("slow")
	p.Annotations["kubernetes.io/ingress-bandwidth"] = "10M"
	p.Annotations["kubernetes.io/egress-bandwidth"] = "5M"
	p = b.setUp(p)
	bad := b.sandbox("bad")
	bad.Annotations["kubernetes.io/ingress-bandwidth"] = "10"
	require.ErrorContains(t, b.m.SetUpPod(t.Context(), bad.Pod), "between 1k and 1P")
	got := b.sh(b.host, "tc qdisc show")
	require.Regexp(t, `qdisc tbf 1: dev veth\w+ root .*rate 10Mbit burst`, got)
	require.Regexp(t, `qdisc ingress ffff: dev veth\w+`, got)
	require.Regexp(t, `qdisc tbf 1: dev flifb\w+ root .*rate 5Mbit burst`, got)
	require.Contains(t, b.sh(b.host, "for i in $(ip -o link | grep -o 'veth[0-9a-f]*'); do tc filter show dev $i ingress; done"), "Egress Redirect to device flifb")
	free := b.run("free")
	// 2 MB at 10 Mbit/s take 1.6 s, and at 5 Mbit/s 3.2 s, the burst apart: never
	// less, however fast the machine is.
	require.Greater(t, b.transfer(free, p, 2_000_000), 1200*time.Millisecond, "to the pod")
	require.Greater(t, b.transfer(p, free, 2_000_000), 2500*time.Millisecond, "from the pod")
	b.restart()
	require.Contains(t, b.sh(b.host, "tc qdisc show"), "rate 10Mbit")
	b.tearDown(p, bad, free)
	b.clean()
}

// TestAProcessForgetsNothing: pods of an earlier process are torn down by their
// records; also when their namespaces are gone, their records are damaged, or
// nobody asks for it.
func TestAProcessForgetsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.told(cidrs)
	var pods []pod
	for i := range 4 {
		p := b.sandbox(fmt.Sprint("pod", i), tcp(8000+int32(i), 80))
		p.Annotations["kubernetes.io/egress-bandwidth"] = "5M"
		pods = append(pods, b.setUp(p))
	}
	require.NoError(t, os.WriteFile(filepath.Join(b.state, "pods", pods[2].Sandbox), []byte("{"), 0o600))
	b.restart()
	v4, _ := b.addresses(pods[2])
	require.Equal(t, pods[2].v4, v4, "read from the kernel")
	b.tearDown(pods[0])
	delete(b.paths, pods[1].Sandbox) // its namespace is gone, as far as the host knows
	b.tearDown(pods[1])
	b.tearDown(pods[2])
	delete(b.paths, pods[3].Sandbox)
	require.NoError(t, b.m.Collect(t.Context(), b.live))
	b.clean()
}

// TestAddressesOfOthers: what kubelet's plugin forgot, or a record that was
// lost, is given back when its sandbox is gone, and not before.
func TestAddressesOfOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.told("10.244.7.0/24")
	lease := func(ip, owner string) string {
		path := filepath.Join(b.data, "kubenet", ip)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(owner), 0o600))
		return path
	}
	old, live := lease("10.244.7.2", "deadbeef"), lease("10.244.7.3", "cafe\r\neth0")
	b.paths["cafe"] = "/somewhere"
	require.NoError(t, b.m.Collect(t.Context(), b.live))
	require.NoFileExists(t, old)
	require.FileExists(t, live)
}

// TestManyAtOnce: pods come and go beside each other, one operation each.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, defaults)
	b.told(cidrs)
	const many = 24
	var pods []pod
	for i := range many {
		pods = append(pods, b.sandbox(fmt.Sprint("pod", i), tcp(9000+int32(i), 80)))
	}
	each := func(do func(context.Context, netplugin.Pod) error) {
		t.Helper()
		errs := make([]error, many)
		var wg sync.WaitGroup
		for i, p := range pods {
			wg.Go(func() { errs[i] = do(t.Context(), p.Pod) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	each(b.m.SetUpPod)
	seen := map[string]bool{}
	for _, p := range pods {
		v4, _ := b.addresses(p)
		require.False(t, seen[v4], "%s was given twice", v4)
		seen[v4] = true
	}
	each(b.m.TearDownPod)
	b.clean()
}
