package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// TestVlanConflict: of two Vlans with one id of one provider network the later is in
// conflict, until the other goes; each names its Subnets.
func TestVlanConflict(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	vlan := func(name string, age int, spec v1.VlanSpec) {
		w.set(object.Key{Kind: object.KindVlan, Name: name}, &v1.Vlan{ObjectMeta: metav1.ObjectMeta{
			Name: name, Generation: 3, CreationTimestamp: metav1.NewTime(time.Unix(1e9-int64(age), 0)),
		}, Spec: spec})
	}
	says := func(name, want string) {
		t.Helper()
		got := ""
		require.Eventually(t, func() bool {
			o, ok := lister[*v1.Vlan]{w, object.KindVlan}.Get("", name)
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
	o, _ := lister[*v1.Vlan]{w, object.KindVlan}.Get("", "old")
	require.Equal(t, []string{"under"}, o.Status.Subnets)
	w.set(object.Key{Kind: object.KindVlan, Name: "old"}, nil)
	says("new", "Conflict False ")
}

// TestNamespacesOfAVpc: pods of a Vpc's namespaces come to its default Subnet, and to
// no other while there is none; kube-system stays where it is. The Vpc's status names
// its Subnets.
func TestNamespacesOfAVpc(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	red := object.Key{Kind: object.KindVpc, Name: "red"}
	vpc := func(spec v1.VpcSpec) {
		w.set(red, &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "uid-red"}, Spec: spec})
	}
	is := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			o, _ := lister[*v1.Vpc]{w, object.KindVpc}.Get("", "red")
			i := slices.IndexFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionReady })
			return i >= 0 && fmt.Sprintf("%s %s %v %t %s", o.Status.Conditions[i].Status, o.Status.DefaultLogicalSwitch, o.Status.Subnets, o.Status.Standby, o.Status.Conditions[i].Message) == want
		}, patience, tick, want)
	}
	subnetOf := func(name string) string {
		t.Helper()
		w.ip(t, name)
		return w.notes(name)["ovn.kubernetes.io/logical_switch"]
	}
	w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	vpc(v1.VpcSpec{Namespaces: []string{"ns", "kube-system"}})
	lead(t, "one", w, db)
	is("False  [] true spec.namespaces: pods of namespace ns have no Subnet: name one of this Vpc in spec.defaultSubnet, or the namespace in a Subnet's")
	w.pod("a", "1")
	require.Eventually(t, func() bool { return len(w.warned(podKey("a"))) == 1 }, patience, tick)
	require.Contains(t, w.warned(podKey("a"))[0], "ValidatePodNetworkFailed: namespace ns is Vpc red's, which has no Subnet for its pods: ")
	w.pod("chosen", "2", "ovn.kubernetes.io/logical_switch", "web")
	require.Equal(t, "web", subnetOf("chosen"), "who names a Subnet has it")
	system := object.Key{Kind: object.KindPod, Namespace: "kube-system", Name: "dns"}
	w.set(system, object.Pod{Pod: core.Pod{Namespace: "kube-system", Name: "dns", UID: "9"}})
	require.Eventually(t, func() bool {
		p, _ := lister[object.Pod]{w, object.KindPod}.Get("kube-system", "dns")
		return p.Annotations["ovn.kubernetes.io/logical_switch"] == "web"
	}, patience, tick)

	w.subnet("r1", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Vpc: "red", Default: true})
	require.Equal(t, "r1", subnetOf("a"), "it comes by itself")
	is("True r1 [r1] true ")
	w.subnet("r2", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24", Vpc: "red", Namespaces: []string{"ns"}})
	w.pod("b", "3")
	require.Equal(t, "r2", subnetOf("b"), "a Subnet that names the namespace comes before the default one")
	w.subnet("r3", v1.SubnetSpec{CIDRBlock: "10.22.0.0/24", Vpc: "red"})
	vpc(v1.VpcSpec{Namespaces: []string{"ns"}, DefaultSubnet: "r3"})
	is("True r3 [r1 r2 r3] true ")
	w.pod("c", "4")
	require.Equal(t, "r3", subnetOf("c"), "and after the one that the Vpc names")
	vpc(v1.VpcSpec{Namespaces: []string{"ns"}, DefaultSubnet: "web"})
	is("False r1 [r1 r2 r3] true spec.defaultSubnet: Subnet web is not there, is of another Vpc or provider, or its condition says why it is not in force")
	require.Equal(t, "r1", subnetOf("a"), "whoever has an address keeps it")
}
