//go:build vm

package e2e

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// flow is datagrams from one pod to another, and how many arrived.
type flow struct {
	out net.Conn
	got atomic.Int64
	err error
}

// startFlow makes a flow that ends with the test.
func startFlow(t *testing.T, from, to *testbed.Pod, addr, port string) *flow {
	t.Helper()
	var in net.PacketConn
	require.NoError(t, relay.InNetns(to.NetnsPath(), func() (err error) {
		in, err = net.ListenPacket("udp", net.JoinHostPort(addr, port))
		return err
	}))
	t.Cleanup(func() { _ = in.Close() })
	out, err := relay.Dial(t.Context(), from.NetnsPath(), "udp", net.JoinHostPort(addr, port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = out.Close() })
	f := &flow{out: out}
	go func() {
		buf := make([]byte, 2048)
		for {
			if _, _, err := in.ReadFrom(buf); err != nil {
				return // closed
			}
			f.got.Add(1)
		}
	}()
	return f
}

// send offers n datagrams, each of which fills a frame of the pod network.
func (f *flow) send(n int) {
	data := make([]byte, 1350)
	for range n {
		_, err := f.out.Write(data)
		f.err = errors.Join(f.err, err)
	}
}

// open sends until the way is known to neighbours and switch: what is sent
// before may be lost. Few enough not to touch the burst.
func (f *flow) open(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if f.send(1); f.got.Load() < 5 {
			return "no datagram arrives"
		}
		return ""
	})
}

// requireRates compares what arrives at each rate. All flows have the same time, so the
// ratios do not depend on how fast the machine is: a burst too is 0.8 s of a flow's own
// rate. What a rate holds back shows where the machine has more to offer than the rate: a
// busy one gets three tries.
func requireRates(t *testing.T, one, four, free *flow) {
	t.Helper()
	for _, f := range []*flow{one, four, free} {
		f.open(t)
	}
	for try := 1; ; try++ {
		atOne, atFour, atFree := measure(t, one, four, free)
		// A busy machine may be late to fill the higher rate, and never exceeds it.
		require.Greater(t, atFour/atOne, 2.0)
		require.Less(t, atFour/atOne, 4.8)
		if atFree/atFour > 1.5 {
			return
		}
		require.Less(t, try, 3, "a rate holds back")
	}
}

// measure has every flow send as much as it can until the slowest, of 1 Mbit/s, has
// brought enough, and tells what arrived of each until that moment, in datagrams. Each
// has its own sender, for a shaped one is held back.
func measure(t *testing.T, one, four, free *flow) (atOne, atFour, atFree float64) {
	t.Helper()
	const enough = 500 // datagrams of 11 kbit
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var senders sync.WaitGroup
	for _, f := range []*flow{one, four, free} {
		f.got.Store(0)
		senders.Go(func() {
			for ctx.Err() == nil {
				f.send(1)
			}
		})
	}
	for one.got.Load() < enough {
		require.NoError(t, ctx.Err(), "%d datagrams at 1 Mbit/s", one.got.Load())
		time.Sleep(time.Millisecond)
	}
	atOne, atFour, atFree = float64(one.got.Load()), float64(four.got.Load()), float64(free.got.Load())
	cancel()
	senders.Wait()
	t.Logf("datagrams: %.0f at 1 Mbit/s, %.0f at 4 Mbit/s, %.0f without a rate", atOne, atFour, atFree)
	require.NoError(t, errors.Join(one.err, four.err, free.err))
	return atOne, atFour, atFree
}

// rated makes pods without a rate, with 1 and with 4 Mbit/s.
func rated(n *testbed.Node, prefix, key string) (pods map[string]*testbed.Pod, addrs map[string]string) {
	notes := map[string]string{"free": "", "one": "1", "four": "4"}
	pods, addrs = map[string]*testbed.Pod{}, map[string]string{}
	for name, rate := range notes {
		note := map[string]string{}
		if rate != "" {
			note[key] = rate
		}
		n.WriteObjects(prefix+name+".yaml", podObject("default/"+prefix+name, note))
		p, a := attached(n, prefix+name)
		pods[name], addrs[name] = p, a[0]
	}
	return pods, addrs
}

// TestKernelPolicesPods: egress_rate bounds what a pod sends, and nothing says
// otherwise. Not parallel: the VM must be able to offer more than the rates.
func TestKernelPolicesPods(t *testing.T) {
	n := startNode(t, nil)
	hub, at := attached(n, "hub")
	pods, _ := rated(n, "p", "ovn.kubernetes.io/egress_rate")
	flows := map[string]*flow{}
	for i, name := range []string{"one", "four", "free"} {
		flows[name] = startFlow(t, pods[name], hub, at[0], []string{"7001", "7004", "7000"}[i])
	}
	requireRates(t, flows["one"], flows["four"], flows["free"])
	filter := n.Run("tc", "filter", "show", "dev", hostIf(pods["one"], "eth0"), "ingress")
	require.Contains(t, filter, "rate 1Mbit", "policed by the kernel")
	require.Equal(t, "ok", examine(t, n, 0)["rate from pods (police)"].Verdict)
	described := n.Fairlead("describe", "pod", "default/pone")
	require.Contains(t, described, "from the pod 1 Mbit/s")
	require.NotContains(t, described+n.Fairlead("get", "pods", "-o", "wide"), "enforced")
	require.False(t, attachment(t, n, "default/pone").Interfaces[0].EgressUnenforced)
}

// TestKernelShapesPods: ingress_rate bounds what reaches a pod.
func TestKernelShapesPods(t *testing.T) {
	n := startNode(t, nil)
	hub, _ := attached(n, "hub")
	pods, addrs := rated(n, "s", "ovn.kubernetes.io/ingress_rate")
	flows := map[string]*flow{}
	for _, name := range []string{"one", "four", "free"} {
		flows[name] = startFlow(t, hub, pods[name], addrs[name], "7000")
	}
	requireRates(t, flows["one"], flows["four"], flows["free"])
	require.Equal(t, "linux-htb", column(n, "QoS", column(n, "Port", hostIf(pods["one"], "eth0"), "qos"), "type"))
}
