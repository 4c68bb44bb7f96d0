package local

import (
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// subnet is a Subnet before its Vlan is looked up.
type subnet struct {
	*declare.Subnet
	// lines of the fields that other objects can contradict
	lines map[string]int
}

func makeSubnet(o *folder.Object) (any, []*folder.Fault) {
	var s v1.Subnet
	if faults := decode(o, &s); faults != nil {
		return nil, faults
	}
	out, faults := readSubnet(o, s)
	return out, place(o, append(faults, declare.NeedsOVN(s.Spec)...))
}

// readSubnet is a Subnet by itself.
func readSubnet(o *folder.Object, s v1.Subnet) (out subnet, faults []declare.Fault) {
	out.lines = map[string]int{}
	for _, path := range []string{"spec.cidrBlock", "spec.default", "spec.vlan"} {
		out.lines[path] = o.LineOf(path)
	}
	says, faults := declare.ReadSubnet(o.ID.Name, s.Spec)
	out.Subnet = &says
	return out, append(faults, declare.ReadNotes(&says.Subnet, s.Annotations)...)
}

// vlan is a Vlan with its id.
type vlan struct {
	v1.Vlan
	says declare.Vlan
}

func makeVlan(o *folder.Object) (any, []*folder.Fault) {
	var v v1.Vlan
	if faults := decode(o, &v); faults != nil {
		return nil, faults
	}
	says, faults := declare.ReadVlan(v.Spec)
	v.Name = o.ID.Name
	return vlan{v, says}, place(o, faults)
}

// place finds the lines of faults.
func place(o *folder.Object, faults []declare.Fault) []*folder.Fault {
	var out []*folder.Fault
	for _, f := range faults {
		out = append(out, o.Faultf(f.Path, "%s", f))
	}
	return out
}
