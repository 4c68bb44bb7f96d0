package vfpolicy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

// two are cards of four functions each, on NUMA nodes 0 and 1.
func two() []PF {
	out := []PF{{Name: "ens1f0", PCI: "0000:01:00.0", LinkType: "ether", Up: true, Mbps: 10_000}, {Name: "ens1f1", PCI: "0000:02:00.0", LinkType: "ether", Up: true, Mbps: 10_000}}
	for c := range out {
		for n := range 4 {
			out[c].Functions = append(out[c].Functions, Function{
				PCI: fmt.Sprintf("0000:%02d:10.%d", c+1, n), PF: out[c].Name, Index: n, Driver: "igbvf", Vendor: "8086", Device: "10ca", NUMA: c, Netdev: "eth0",
			})
		}
	}
	return out
}

func policy(name string, spec v1alpha1.NodeVFPolicySpec) Policy {
	spec.Resource = "fairlead.io/" + name
	return Policy{Name: name, Spec: spec}
}

// names are a resource's functions.
func names(p Plan, resource string) (out []string) {
	for _, r := range p.Resources {
		for _, f := range r.Functions {
			if r.Name == "fairlead.io/"+resource {
				out = append(out, fmt.Sprintf("%s/%d", f.PF, f.Index))
			}
		}
	}
	return out
}

// TestSelectors: each list is a condition, and selectors are alternatives.
func TestSelectors(t *testing.T) {
	cards := two()
	cards[1].Functions[3].Driver, cards[1].Functions[2].RDMA, cards[1].LinkType = "vfio-pci", true, "infiniband"
	for want, s := range map[string]v1alpha1.NodeVFPolicySpec{
		"[ens1f0/0 ens1f0/1 ens1f0/2 ens1f0/3]": {PF: []string{"ens1f0"}},
		"[ens1f0/0 ens1f0/2 ens1f0/3 ens1f1/1]": {PF: []string{"ens1f0#0,2-3", "ens1f1#1"}},
		"[ens1f0/1 ens1f1/0]":                   {Selectors: []v1alpha1.VFSelector{{PCIAddresses: []string{"0000:01:10.1"}}, {RootDevices: []string{"0000:02:00.0#0"}}}},
		"[ens1f1/3]":                            {Selectors: []v1alpha1.VFSelector{{Drivers: []string{"vfio-pci"}}}},
		"[ens1f1/2]":                            {IDMode: "pci", Selectors: []v1alpha1.VFSelector{{IsRDMA: true, Vendors: []string{"8086"}}}},
		"[ens1f0/2]":                            {Selectors: []v1alpha1.VFSelector{{PFNames: []string{"ens1f0#2", "ens1f1"}, Vendors: []string{"8086"}, Devices: []string{"10CA"}, LinkTypes: []string{"ether"}}}},
		"[]":                                    {Selectors: []v1alpha1.VFSelector{{Vendors: []string{"15b3"}}}},
		"[ens1f0/3]":                            {PF: []string{"ens1f0"}, Selectors: []v1alpha1.VFSelector{{PFNames: []string{"ens1f0#3", "ens1f1#3"}}}},
	} {
		require.Equal(t, want, fmt.Sprint(names(Assign([]Policy{policy("db", s)}, cards), "db")))
	}
}

// TestWhoseFunction: the priority decides, then the age; whoever loses is told.
func TestWhoseFunction(t *testing.T) {
	older, first := time.Unix(1, 0), 5
	a := policy("a", v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0"}})
	a.Created = time.Unix(2, 0)
	b := policy("b", v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0#0-1"}})
	b.Created = older
	p := Assign([]Policy{a, b}, two())
	require.Equal(t, []string{"ens1f0/0", "ens1f0/1"}, names(p, "b"))
	require.Equal(t, []string{"ens1f0/2", "ens1f0/3"}, names(p, "a"))
	require.Equal(t, []string{"virtual function 0 of ens1f0 is b's", "virtual function 1 of ens1f0 is b's"}, p.Lost["a"])
	require.Empty(t, p.Lost["b"])
	a.Spec.Priority = &first
	p = Assign([]Policy{a, b}, two())
	require.Len(t, names(p, "a"), 4)
	require.Len(t, p.Lost["b"], 2)

	// Two of one resource put theirs together, if kubelet calls them alike.
	b.Spec.Resource = a.Spec.Resource
	require.Empty(t, Assign([]Policy{a, b}, two()).Lost)
	b.Spec.IDMode, b.Spec.PF = "pci", []string{"ens1f1"}
	p = Assign([]Policy{a, b}, two())
	require.Len(t, names(p, "a"), 4)
	require.Contains(t, p.Amiss["b"][0], "the other idMode")
}

// TestNumbers: what policies say of physical functions, and who counts.
func TestNumbers(t *testing.T) {
	three, four := 3, 4
	a := policy("a", v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0#0", "ens9"}, NumVFs: &three, MTU: 9000})
	b := policy("b", v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0#1"}, NumVFs: &four})
	p := Assign([]Policy{a, b}, two())
	require.Equal(t, 3, p.VFs["ens1f0"].Is)
	require.Equal(t, 9000, p.MTUs["ens1f0"].Is)
	require.Equal(t, []string{"there is no physical function ens9 here"}, p.Amiss["a"])
	require.Equal(t, []string{"numVFs of ens1f0 is 3, by a, which counts more"}, p.Amiss["b"])
}

// TestChoose: NUMA node, PFs, the fuller card and the budget decide.
func TestChoose(t *testing.T) {
	p := Assign([]Policy{policy("db", v1alpha1.NodeVFPolicySpec{PF: []string{"ens1f0", "ens1f1"}})}, two())
	r := p.Resources[0]
	var ids []string
	for _, place := range r.Places() {
		ids = append(ids, place.ID)
	}
	require.Equal(t, []string{"n0-0", "n0-1", "n0-2", "n0-3", "n1-0", "n1-1", "n1-2", "n1-3"}, ids)
	at := func(free []Function, w Wish, left map[string]int) string {
		f, err := r.Choose(free, w, left)
		if err != nil {
			return core.ReasonOf(err)
		}
		return fmt.Sprintf("%s/%d", f.PF, f.Index)
	}
	on1 := Place{ID: "n1-0", NUMA: 1}
	require.Equal(t, "ens1f1/0", at(r.Functions, Wish{Place: on1}, nil))
	require.Equal(t, "ens1f0/0", at(r.Functions, Wish{Place: on1, PFs: []string{"ens1f0"}}, nil))
	require.Equal(t, core.ReasonNoVFMatches, at(r.Functions, Wish{Place: on1, PFs: []string{"ens9"}}, nil))
	require.Equal(t, core.ReasonNoVFMatches, at(nil, Wish{Place: on1}, nil))
	require.Equal(t, "ens1f0/1", at(r.Functions[1:4], Wish{Place: on1}, nil), "another node's rather than none")
	require.Equal(t, "ens1f0/0", at(r.Functions, Wish{Place: on1, MinMbps: 1000}, map[string]int{"ens1f1": 999, "ens1f0": 1000}))
	require.Equal(t, core.ReasonMinRate, at(r.Functions, Wish{Place: on1, MinMbps: 1000}, map[string]int{"ens1f1": 0, "ens1f0": 999}))
	require.Equal(t, "ens1f1/0", at(r.Functions, Wish{Place: on1, MinMbps: 1000}, nil), "nobody set a budget")
}

// TestPrefer: as many as fit on one NUMA node, and on one PF of it.
func TestPrefer(t *testing.T) {
	where := func(id string) (int, string) { return int(id[1] - '0'), id[2:3] }
	require.Equal(t, []string{"n1a", "n1b"}, Prefer([]string{"n0a", "n1a", "n1b"}, nil, 2, where))
	require.Equal(t, []string{"n0a", "n1a"}, Prefer([]string{"n0a", "n1a"}, []string{"n0a"}, 2, where))
	require.Equal(t, []string{"n0b1", "n0b2"}, Prefer([]string{"n0a", "n0b1", "n0b2", "n1a"}, nil, 2, where))
	require.Equal(t, []string{"n0a"}, Prefer([]string{"n0a"}, nil, 5, where))
}

// TestReadList: the usual device plugin's file, in both forms of its selectors; what
// nobody here carries out is refused.
func TestReadList(t *testing.T) {
	all, err := ReadList([]byte(`{"resourceList":[
		{"resourceName":"netdev","selectors":{"vendors":["8086"],"pfNames":["ens1f0#0-1"],"needVhostNet":true}},
		{"resourceName":"dpdk","resourcePrefix":"vendor.example","deviceType":"netDevice","excludeTopology":true,"selectors":[{"drivers":["vfio-pci"]},{"rootDevices":["0000:02:00.0"]}]}]}`))
	require.NoError(t, err)
	require.Equal(t, "intel.com/netdev", all[0].Spec.Resource)
	require.True(t, all[0].Spec.NeedVhostNet && all[0].Spec.ExternallyManaged && !all[0].Slot())
	require.True(t, all[1].Spec.ExcludeTopology)
	p := Assign(all, two())
	require.Len(t, p.Resources[0].Functions, 2)
	require.Len(t, p.Resources[1].Functions, 4)
	for _, bad := range []string{
		``, `{"resourceLists":[]}`, `{"resourceList":[{"resourceName":"a","deviceType":"accelerator","selectors":{"vendors":["8086"]}}]}`,
		`{"resourceList":[{"resourceName":"a"}]}`, `{"resourceList":[{"resourceName":"a","selectors":{"ddpProfiles":["x"]}}]}`,
		`{"resourceList":[{"resourceName":"a","selectors":{"vendors":["intel"]}}]}`, `{"resourceList":[{"resourceName":"a/b/c","selectors":{"vendors":["8086"]}}]}`,
	} {
		_, err := ReadList([]byte(bad))
		require.Equal(t, core.CodeConfig, core.CodeOf(err), "%s: %v", bad, err)
	}
}

// TestMeans: all labels of a nodeSelector.
func TestMeans(t *testing.T) {
	p := policy("db", v1alpha1.NodeVFPolicySpec{NodeSelector: map[string]string{"a": "1", "b": ""}})
	require.True(t, p.Means(map[string]string{"a": "1", "b": "", "c": "2"}))
	require.False(t, p.Means(map[string]string{"a": "1"}))
	require.True(t, policy("db", v1alpha1.NodeVFPolicySpec{}).Means(nil))
}
