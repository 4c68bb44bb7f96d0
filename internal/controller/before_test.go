package controller_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// runs declares a pod that an agent has served without a controller: kubelet tells its
// addresses, the agent the rest.
func (w *world) runs(name, ips, status string) {
	p := declared(name, "uid-"+name, v1.AnnStatus, status)
	for text := range strings.SplitSeq(ips, ",") {
		p.IPs = append(p.IPs, netip.MustParseAddr(text))
	}
	w.set(podKey(name), p)
}

// TestPodsOfBefore: pods that ran before there was a controller keep their addresses
// and MACs, and nobody else gets them; what cannot be kept is an event.
func TestPodsOfBefore(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24,fd00:20::/120", Default: true})
	w.runs("old", "10.20.0.2,fd00:20::2", `[{"name":"fairlead","interface":"eth0","ips":["10.20.0.9"],"mac":"02:00:00:00:00:09","default":true}]`)
	w.runs("off", "10.99.0.2", `[{"name":"fairlead","interface":"eth0","ips":["10.99.0.2"],"mac":"02:00:00:00:00:0a"}]`)
	w.runs("mute", "10.20.0.90,fd00:20::90", `no list`)
	w.pod("forged", "uid-forged", v1.AnnStatus, `[{"interface":"eth0","ips":["10.20.0.77","fd00:20::77"],"mac":"02:00:00:00:00:77"}]`)
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, "uid-"+name)
	}
	lead(t, "one", w, db)

	require.Equal(t, "10.20.0.2,fd00:20::2", w.ip(t, "old"), "kubelet's word counts")
	require.Equal(t, "02:00:00:00:00:09", w.notes("old")["ovn.kubernetes.io/mac_address"])
	require.Equal(t, `["02:00:00:00:00:09 10.20.0.2 fd00:20::2"]`, db.Get("Logical_Switch_Port", "old.ns", "addresses"))
	for _, name := range []string{"a", "b", "c", "forged", "off", "mute"} {
		require.NotEqual(t, "10.20.0.2,fd00:20::2", w.ip(t, name), name)
	}
	require.NotEqual(t, "10.20.0.77,fd00:20::77", w.ip(t, "forged"), "it does not run")
	says := func(name, has string) {
		want := "AddressDiffers: the pod runs with " + has + ", and is to have " + w.ip(t, name) + ": delete it, so that it is made again"
		require.Eventually(t, func() bool { return slices.Contains(w.warned(podKey(name)), want) }, patience, tick, "%s: %v", name, w.warned(podKey(name)))
	}
	says("off", "10.99.0.2")
	says("mute", "10.20.0.90,fd00:20::90")
	require.NotContains(t, strings.Join(w.warned(podKey("old")), "\n"), "AddressDiffers")
}

// TestInterfacesOfBefore: the addresses of a pod's further interfaces are those that
// its agent told, also where another plugin makes the interface.
func TestInterfacesOfBefore(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.elsewhere("10.77.0.0/29")
	w.runs("old", "10.20.0.2", `[{"interface":"eth0","ips":["10.20.0.2"],"mac":"02:00:00:00:00:09"},{"interface":"net1","ips":["10.77.0.3"],"mac":"02:00:00:00:00:0b"}]`)
	p, _ := lister[object.Pod]{w, object.KindPod}.Get("ns", "old")
	p.Annotations[networks] = "uplink"
	w.set(podKey("old"), p)
	w.pod("a", "1", networks, "uplink")
	w.pod("b", "2", networks, "uplink")
	lead(t, "one", w, db)
	require.Equal(t, "10.77.0.3", w.given(t, "old"))
	require.Equal(t, "10.20.0.2", w.ip(t, "old"))
	require.NotEqual(t, "10.77.0.3", w.given(t, "a"))
	require.NotEqual(t, "10.77.0.3", w.given(t, "b"))
	require.Equal(t, "old uid-old", w.claims()["uplink.10.77.0.3"])
}
