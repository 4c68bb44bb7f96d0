package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// TestShownSubnets: what no object declares has one that shows it, made again when
// somebody deletes it, and another when it is another; it declares nothing under the next
// leader. Who changes it declares the Subnet.
func TestShownSubnets(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.pod("a", "1")
	first := leadWith(t, "one", w, db, "100.64.0.0/16")
	shows := func(name, cidr string, shown bool) (o *v1.Subnet) {
		t.Helper()
		require.Eventually(t, func() bool {
			is, there := lister[*v1.Subnet]{w, subnetKey("").Kind}.Get("", name)
			o = is
			return there && o.Spec.CIDRBlock == cidr && v1.Shown(o.Annotations, o.Spec) == shown
		}, patience, tick, "%s %s", name, cidr)
		return o
	}
	shows("join", "100.64.0.0/16", true)
	pods := shows("ovn-default", "10.16.0.0/16", true)
	require.True(t, pods.Spec.Default && pods.Spec.NatOutgoing)
	require.Equal(t, "10.16.0.2", w.ip(t, "a"))
	w.counts(t, "ovn-default", "1", "10.16.0.2", "65532", "10.16.0.3-10.16.255.254")
	w.set(subnetKey("ovn-default"), nil)
	again := shows("ovn-default", "10.16.0.0/16", true)
	require.NotEqual(t, pods.UID, again.UID)
	w.counts(t, "ovn-default", "1", "10.16.0.2", "65532", "10.16.0.3-10.16.255.254")

	// Flags say another network.
	first.stop()
	second := leadWith(t, "two", w, db, "100.65.0.0/16")
	join := shows("join", "100.65.0.0/16", true)
	second.rests(t)
	require.Equal(t, "100.65.0.1/16", db.Get("Logical_Router_Port", "ovn-cluster-join", "networks")[2:15])

	// Somebody changes it.
	mine := join.DeepCopy()
	mine.Spec.CIDRBlock = "100.66.0.0/16"
	w.set(subnetKey("join"), mine)
	second.rests(t)
	second.stop()
	third := leadWith(t, "three", w, db, "100.67.0.0/16")
	third.rests(t)
	require.Equal(t, join.UID, shows("join", "100.66.0.0/16", false).UID)
	require.Equal(t, "100.66.0.1/16", db.Get("Logical_Router_Port", "ovn-cluster-join", "networks")[2:15])

	// A Subnet that is the default one has the built-in one go.
	w.set(podKey("a"), nil)
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	require.Eventually(t, func() bool {
		_, there := lister[*v1.Subnet]{w, subnetKey("").Kind}.Get("", "ovn-default")
		return !there
	}, patience, tick)
}
