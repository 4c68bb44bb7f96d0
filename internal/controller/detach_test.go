package controller_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

const netStatus = "k8s.v1.cni.cncf.io/network-status"

// change rewrites a pod's annotations; "" removes one.
func (w *world) change(name string, notes ...string) {
	w.mu.Lock()
	defer w.unlock()
	p := w.objects[podKey(name)].(object.Pod)
	all := map[string]string{}
	maps.Copy(all, p.Annotations)
	p.Annotations = all
	for i := 0; i < len(notes); i += 2 {
		p.Annotations[notes[i]] = notes[i+1]
		if notes[i+1] == "" {
			delete(p.Annotations, notes[i])
		}
	}
	w.put(podKey(name), p)
}

// placed puts a pod on a node.
func (w *world) placed(name string) {
	w.mu.Lock()
	defer w.unlock()
	p := w.objects[podKey(name)].(object.Pod)
	p.Node = "n1"
	w.put(podKey(name), p)
}

// told are a pod's annotations of a network.
func (w *world) told(name, prefix string) (out []string) {
	for k, v := range w.notes(name) {
		if strings.HasPrefix(k, prefix) {
			out = append(out, k+"="+v)
		}
	}
	return out
}

// rests waits until a controller has done all that it can.
func (l *leader) rests(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { n, leads := l.Pending(); return leads && n == 0 }, patience, tick)
}

// TestDetached: the address of an interface that a running pod asks for no more, and
// that OVN does not carry, is the pod's until its node says that the interface is
// gone; then the pod is told of it no more, and who waits gets it. What the next
// leader finds of it is as safe.
func TestDetached(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.elsewhere("10.81.0.0/30")
	w.pod("a", "1", networks, "uplink")
	w.placed("a")
	l := lead(t, "one", w, db)
	const first = `{"name":"k8s","interface":"eth0","ips":["10.20.0.2"]}`
	require.Equal(t, "10.81.0.2", w.given(t, "a"))
	w.change("a", netStatus, `[`+first+`]`) // the agent has yet to attach it
	w.pod("b", "2", networks, "uplink")
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(w.warned(podKey("b")), " "), "Subnet uplink is full")
	}, patience, tick)
	its := map[string]string{"uplink.10.81.0.2": "a 1"}
	stays := func(l *leader, why string) {
		t.Helper()
		l.rests(t)
		require.Equal(t, its, w.claims(), why)
		require.Equal(t, "true", w.notes("a")[uplink+"allocated"], why)
		require.Empty(t, w.told("b", uplink), why)
	}
	w.change("a", networks, "")
	stays(l, "the agent may be about to attach it")
	w.change("a", netStatus, `[`+first+`,{"name":"ns/uplink","interface":"net1","ips":["10.81.0.2"]}]`)
	stays(l, "the agent has not detached it")
	w.change("a", uplink+"allocated", "") // by whoever may
	l.rests(t)
	require.Equal(t, its, w.claims(), "the node says that it is attached")
	w.change("a", uplink+"allocated", "true")
	l.stop()
	l = lead(t, "two", w, db)
	stays(l, "the agent has not detached it, and the leader is another")

	w.change("a", netStatus, `[`+first+`]`)
	require.Equal(t, "10.81.0.2", w.given(t, "b"))
	require.Empty(t, w.told("a", uplink))
	w.claimed(t, map[string]string{"uplink.10.81.0.2": "b 2"})
	w.noObject(t, "a.ns.uplink.ns")

	w.change("a", networks, "uplink")
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(w.warned(podKey("a")), " "), "Subnet uplink is full")
	},
		patience, tick, "what it had is no wish of its own: %v", w.warned(podKey("a")))
	require.Empty(t, w.told("a", uplink), "the agent would take it")
	w.change("b", networks, "") // on no node yet: nobody can have attached it
	require.Equal(t, "10.81.0.2", w.given(t, "a"))
	w.change("a", networks, "")
	w.set(podKey("a"), nil) // and its node is silent
	w.change("b", networks, "uplink")
	require.Equal(t, "10.81.0.2", w.given(t, "b"))
}

// TestDetachedFromOVN: an interface that OVN carries and that a running pod asks for
// no more has no row, and its annotations go before its address is another's: attached
// again it gets what is free.
func TestDetachedFromOVN(t *testing.T) {
	t.Parallel()
	const blue = "blue.ns.ovn.kubernetes.io/"
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.subnet("blue", v1.SubnetSpec{CIDRBlock: "10.82.0.0/29", Provider: "blue.ns.ovn"})
	w.set(object.Key{Kind: object.KindNAD, Namespace: "ns", Name: "blue"}, resolve.NAD{
		Namespace: "ns", Name: "blue", Config: `{"cniVersion":"1.0.0","type":"fairlead","provider":"blue.ns.ovn"}`,
	})
	w.pod("a", "1", networks, "blue")
	w.placed("a")
	l := lead(t, "one", w, db)
	has := func(pod string) string {
		t.Helper()
		require.Eventually(t, func() bool { return w.notes(pod)[blue+"routed"] == "true" }, patience, tick, "pod %s has no address: %v", pod, w.warned(podKey(pod)))
		return w.notes(pod)[blue+"ip_address"]
	}
	first := has("a")
	w.change("a", networks, "")
	require.Eventually(t, func() bool { return len(w.told("a", blue)) == 0 }, patience, tick, "%v", w.told("a", blue))
	w.counts(t, "blue", "0", "", "5", "10.82.0.2-10.82.0.6")
	require.NotContains(t, ports(db), "a.ns.blue.ns.ovn")
	w.pod("b", "2", blue+"ip_address", first, networks, "blue")
	require.Equal(t, first, has("b"))
	w.change("a", networks, "blue")
	require.NotEqual(t, first, has("a"))

	// What it asks for meanwhile stays.
	w.change("a", networks, "", blue+"ip_address", "10.82.0.6")
	require.Eventually(t, func() bool { return w.notes("a")[blue+"allocated"] == "" }, patience, tick)
	l.rests(t)
	require.Equal(t, []string{blue + "ip_address=10.82.0.6"}, w.told("a", blue))
	w.change("a", networks, "blue")
	require.Equal(t, "10.82.0.6", has("a"))
}
