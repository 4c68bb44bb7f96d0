package ovn

import (
	"reflect"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// clone copies a row in depth.
func clone[T any](r *T) *T {
	c := *r
	deepen(reflect.ValueOf(&c).Elem())
	return &c
}

func cloneInto[T any](r *T, m model.Model) {
	*m.(*T) = *clone(r) //nolint:forcetypeassert // libovsdb pairs rows of one table
}

// deepen replaces what a struct's fields share with another by copies.
func deepen(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.Slice:
			if !f.IsNil() {
				f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, f.Len()), f))
			}
		case reflect.Map:
			if !f.IsNil() {
				m := reflect.MakeMapWithSize(f.Type(), f.Len())
				for k, e := range f.Seq2() {
					m.SetMapIndex(k, e)
				}
				f.Set(m)
			}
		case reflect.Pointer:
			if !f.IsNil() {
				p := reflect.New(f.Type().Elem())
				p.Elem().Set(f.Elem())
				f.Set(p)
			}
		}
	}
}

// CloneModel copies the row.
func (r *LogicalSwitch) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *LogicalSwitch) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *LogicalSwitchPort) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *LogicalSwitchPort) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *LogicalRouter) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *LogicalRouter) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *LogicalRouterPort) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *LogicalRouterPort) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *StaticRoute) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *StaticRoute) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *Policy) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *Policy) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *NAT) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *NAT) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *ACL) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *ACL) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *PortGroup) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *PortGroup) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *AddressSet) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *AddressSet) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *LoadBalancer) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *LoadBalancer) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *LoadBalancerGroup) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *LoadBalancerGroup) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *TemplateVars) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *TemplateVars) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *DHCPOptions) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *DHCPOptions) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *GatewayChassis) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *GatewayChassis) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *HAChassisGroup) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *HAChassisGroup) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *HAChassis) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *HAChassis) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *Meter) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *Meter) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *MeterBand) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *MeterBand) CloneModelInto(m model.Model) { cloneInto(r, m) }

// CloneModel copies the row.
func (r *nbGlobal) CloneModel() model.Model { return clone(r) }

// CloneModelInto copies the row into another.
func (r *nbGlobal) CloneModelInto(m model.Model) { cloneInto(r, m) }
