package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
)

// TestVlanConflict: of two Vlans with one id of one provider network the later is in
// conflict, until the other goes; each names its Subnets.
func TestVlanConflict(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	vlan := func(name string, age int, spec v1.VlanSpec) {
		w.set(controller.Key{Kind: controller.KindVlan, Name: name}, &v1.Vlan{ObjectMeta: metav1.ObjectMeta{
			Name: name, Generation: 3, CreationTimestamp: metav1.NewTime(time.Unix(1e9-int64(age), 0)),
		}, Spec: spec})
	}
	says := func(name, want string) {
		t.Helper()
		got := ""
		require.Eventually(t, func() bool {
			o, ok := lister[*v1.Vlan]{w, controller.KindVlan}.Get("", name)
			if !ok || len(o.Status.Conditions) != 1 {
				return false
			}
			c := o.Status.Conditions[0]
			require.Equal(t, o.Status.Conflict, c.Status == "True")
			require.EqualValues(t, 3, c.ObservedGeneration)
			got = c.Type + " " + c.Status + " " + c.Message
			return got == want
		}, patience, tick, "Vlan %s: wanted %q, have %q", name, want, &got)
	}
	vlan("old", 9, v1.VlanSpec{ID: 100, Provider: "net"})
	vlan("new", 1, v1.VlanSpec{OldID: 100, OldProvider: "net"})
	vlan("other", 0, v1.VlanSpec{ID: 100, Provider: "far"})
	vlan("none", 0, v1.VlanSpec{ID: 100})
	vlan("none2", 0, v1.VlanSpec{ID: 100})
	w.subnet("under", v1.SubnetSpec{CIDRBlock: "10.33.0.0/24", Vlan: "old"})
	lead(t, "one", w, db)
	says("new", "Conflict True spec.id: Vlan old has id 100 of provider network net already")
	for _, name := range []string{"old", "other", "none", "none2"} {
		says(name, "Conflict False ")
	}
	o, _ := lister[*v1.Vlan]{w, controller.KindVlan}.Get("", "old")
	require.Equal(t, []string{"under"}, o.Status.Subnets)
	w.set(controller.Key{Kind: controller.KindVlan, Name: "old"}, nil)
	says("new", "Conflict False ")
}
