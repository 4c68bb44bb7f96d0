package declared

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Running is what an interface of a running pod has.
type Running struct {
	Network string // as Want.Network
	IPs     []netip.Addr
	MAC     string
	PF      string // the physical function of its VF, "" where it has none or that is not known
}

// Restart are the fields, with their values, that are declared otherwise than a running pod
// has them and that change with a new pod only: its network, addresses, MAC, and the
// physical function. have is nil where the pod has no such interface.
func (s *Settings) Restart(have *Running) (out []string) {
	if have == nil {
		return []string{"interface " + s.Name}
	}
	differs := map[string]bool{
		Network: strings.Contains(s.Network, "/") && s.Network != have.Network,
		IPs:     slices.ContainsFunc(s.IPs, func(text string) bool { return !hasAddr(have.IPs, text) }),
		MAC:     s.MAC != "" && !sameMAC(s.MAC, have.MAC),
		PF:      s.SRIOV != nil && len(s.SRIOV.PF) > 0 && have.PF != "" && !slices.Contains(s.SRIOV.PF, have.PF),
	}
	for _, f := range fields {
		if differs[f.name] {
			out = append(out, f.name+" "+f.text(&s.Interface)+" of interface "+s.Name)
		}
	}
	return out
}

func hasAddr(have []netip.Addr, text string) bool {
	a, err := parseAddr(text)
	return err == nil && slices.Contains(have, a)
}

func sameMAC(a, b string) bool {
	x, err := annotation.ParseMAC(a)
	y, err2 := annotation.ParseMAC(b)
	return err == nil && err2 == nil && slices.Equal(x, y)
}
