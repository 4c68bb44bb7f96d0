package resolve

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve/annotation"
)

// agree checks what only all networks together can get wrong, and tells the
// networks that lose the default route.
func agree(wants []core.Want, nets []network) error {
	owner := map[bool]int{} // by family (true = IPv4): who claims the default route
	if err := oneTaker(wants, nets); err != nil {
		return err
	}
	for i := range wants {
		claims := map[bool]bool{}
		for _, gw := range wants[i].Gateways {
			claims[gw.Is4()] = true
		}
		for _, v4 := range []bool{true, false} {
			if !claims[v4] {
				continue
			}
			if other, ok := owner[v4]; ok {
				return annotation.Refused(core.CodeConflict, nets[i].field()+".default-route", fmt.Sprint(wants[i].Gateways),
					"is asked for, but %s asks for the default route of the same family", nets[other].field())
			}
			owner[v4] = i
		}
	}
	for i := range wants {
		for _, by := range owner {
			wants[i].NoDefault = wants[i].NoDefault || by != i
		}
	}
	return twice(wants)
}

// oneTaker refuses a second network beside one that takes the default route of
// whatever families it turns out to have.
func oneTaker(wants []core.Want, nets []network) error {
	taker := slices.IndexFunc(wants, func(w core.Want) bool { return w.TakesDefault })
	for i, w := range wants {
		if taker >= 0 && i != taker && (w.TakesDefault || len(w.Gateways) > 0) {
			return annotation.Refused(core.CodeConflict, nets[i].field()+".default-route", fmt.Sprint(w.Gateways),
				"is asked for, but %s asks for the default route of all families", nets[taker].field())
		}
		wants[i].NoDefault = taker >= 0 && i != taker
	}
	return nil
}

// twice refuses one address or MAC on two NICs of the pod in one subnet, the
// usual way to go wrong with a NAD that is attached twice.
func twice(wants []core.Want) error {
	seen := map[string]string{}
	for _, w := range wants {
		for _, s := range w.Steps {
			if s.Kind() != core.KindNIC {
				continue
			}
			for _, what := range identities(s.NIC) {
				if other, ok := seen[what]; ok {
					return core.Errorf(core.CodeConflict, "%s is asked for by both %s and %s", what, other, w.IfName)
				}
				seen[what] = w.IfName
			}
		}
	}
	return nil
}

func identities(n *core.NIC) []string {
	var out []string
	for _, ip := range n.IPs {
		out = append(out, "ip_address "+ip.String()+" of subnet "+n.Subnet.Name)
	}
	if n.MAC != nil {
		out = append(out, "mac_address "+n.MAC.String()+" of subnet "+n.Subnet.Name)
	}
	return out
}
