package networks

import (
	"reflect"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
)

// Shown is the object of a Subnet that none declares. Its gateway is the first address.
func Shown(net logical.Subnet) *v1.Subnet {
	o := &v1.Subnet{Spec: v1.SubnetSpec{
		CIDRBlock: logical.Join(net.CIDRs), Provider: net.Provider, Vpc: net.Vpc, Default: net.Default, NatOutgoing: net.NATOutgoing,
	}}
	o.Name = net.Name
	o.Show()
	return o
}

// Differ are the names whose Subnets are not the same in both.
func Differ(a, b map[string]*logical.Subnet) (out []string) {
	for name := range a {
		if _, both := b[name]; !both || !reflect.DeepEqual(a[name], b[name]) {
			out = append(out, name)
		}
	}
	for name := range b {
		if _, both := a[name]; !both {
			out = append(out, name)
		}
	}
	return out
}
