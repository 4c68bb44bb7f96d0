package record

import (
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
)

// Beside fits new specs in beside those that are there: an interface name of
// theirs is refused, they keep their logical ports and the default route, so that
// nothing of theirs goes with the new ones.
func Beside(specs, there []core.Spec) error {
	for _, s := range there {
		for i := range specs {
			if mine := &specs[i]; s.Key == mine.Key {
				return core.Errorf(core.CodeConflict, "interface %s is already attached to network %s", s.Key.IfName, s.Network)
			} else if s.Kind() == core.KindNIC && mine.Kind() == core.KindNIC {
				yield(mine, s)
			}
		}
	}
	return nil
}

// yield leaves a NIC that is there what two NICs of a pod cannot both have.
func yield(mine *core.Spec, there core.Spec) {
	n := mine.ChangeNIC()
	if n.IfaceID == there.NIC.IfaceID {
		n.IfaceID += "." + mine.Key.IfName
	}
	n.Routes = defaultroute.Beside(n.Routes, there.NIC.Routes)
}
