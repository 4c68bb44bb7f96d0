package local

import (
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/declare"
)

// subnet is a Subnet before its Vlan is looked up.
type subnet struct {
	declare.Subnet
	// lines of the fields that other objects can contradict
	lines map[string]int
}

func makeSubnet(t *tree, i id) (any, []*fault) {
	var s v1.Subnet
	if faults := t.decode(&s); faults != nil {
		return nil, faults
	}
	out := subnet{lines: map[string]int{}}
	for _, path := range []string{"spec.cidrBlock", "spec.default", "spec.vlan"} {
		out.lines[path] = t.LineOf(path)
	}
	var faults []declare.Fault
	out.Subnet, faults = declare.ReadSubnet(i.name, s.Spec)
	return out, t.place(faults)
}

func makeVlan(t *tree, _ id) (any, []*fault) {
	var v v1.Vlan
	if faults := t.decode(&v); faults != nil {
		return nil, faults
	}
	vid, faults := declare.ReadVlan(v.Spec)
	return vid, t.place(faults)
}

// place finds the lines of faults.
func (t *tree) place(faults []declare.Fault) []*fault {
	var out []*fault
	for _, f := range faults {
		out = append(out, faultf(t.LineOf(f.Path), "%s", f))
	}
	return out
}
