package resolve

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// agree checks what only all networks together can get wrong.
func agree(wants []core.Want, nets []network) error {
	if c := defaultroute.Settle(wants); c != nil {
		which := "the same family"
		if c.All {
			which = "all families"
		}
		return annotation.Refused(core.CodeConflict, nets[c.At].field()+".default-route", fmt.Sprint(wants[c.At].Gateways),
			"is asked for, but %s asks for the default route of %s", nets[c.By].field(), which)
	}
	return twice(wants)
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
