package declare

import (
	"fmt"
	"net/netip"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// Access is who reaches the pods of a Subnet. Only OVN carries it out.
type Access struct {
	// Private keeps out whoever is not of the Subnet, of Allow or a node; what
	// the Subnet's pods begin passes to the same alone.
	Private bool
	Allow   []netip.Prefix
	Rules   []Rule
	// EastWest lets the Subnet's pods reach each other whatever Rules say.
	EastWest bool
}

// Rule is one of a Subnet's acls, in OVN's match language.
type Rule struct {
	Direction string // v1.FromPort, v1.ToPort
	Priority  int    // 0 to 32767, the highest counts
	Match     string
	Action    string // as ovn-nb(5) has them
}

// NeedsOVN are the faults of a Subnet where there is no OVN: it would be a
// promise that nobody keeps.
func NeedsOVN(spec v1.SubnetSpec) (out []Fault) {
	const cure = "leave it out, or attach this node to a cluster with OVN"
	if spec.Private {
		out = append(out, Fault{"spec.private", "cannot be enforced without OVN: " + cure})
	}
	if len(spec.Acls) > 0 {
		out = append(out, Fault{"spec.acls", "cannot be enforced without OVN: " + cure})
	}
	if spec.Vpc != "" && spec.Vpc != v1.DefaultVpc {
		out = append(out, Fault{"spec.vpc", fmt.Sprintf("%q would not be kept apart without OVN: %s", spec.Vpc, cure)})
	}
	return out
}

// access reads who reaches the pods, and whether OVN carries them to Services.
func (r *subnetReader) access() {
	r.out.NoServices = r.spec.EnableLb != nil && !*r.spec.EnableLb
	r.out.Access = Access{Private: r.spec.Private, EastWest: r.spec.AllowEWTraffic}
	for n, text := range r.spec.AllowSubnets {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			r.refuse(fmt.Sprintf("allowSubnets[%d]", n), "%q is not a network in CIDR form", text)
			continue
		}
		r.out.Access.Allow = append(r.out.Access.Allow, p.Masked())
	}
	for n, a := range r.spec.Acls {
		r.rule(fmt.Sprintf("acls[%d]", n), a)
	}
}

func (r *subnetReader) rule(path string, a v1.ACL) {
	out := Rule{Direction: a.Direction, Priority: a.Priority, Match: strings.TrimSpace(a.Match), Action: a.Action}
	switch {
	case out.Direction != v1.FromPort && out.Direction != v1.ToPort:
		r.refuse(path+".direction", "%q is neither %s nor %s", a.Direction, v1.FromPort, v1.ToPort)
	case out.Priority < 0 || out.Priority > 32767:
		r.refuse(path+".priority", "%d is not from 0 to 32767", a.Priority)
	case out.Match == "":
		r.refuse(path+".match", "is missing")
	case out.Action == "":
		r.refuse(path+".action", "is missing")
	default:
		r.out.Access.Rules = append(r.out.Access.Rules, out)
	}
}
