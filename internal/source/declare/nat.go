package declare

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// maxNATRules is how many there may be in a Subnet.
const maxNATRules = 1000

// natRules reads which packets that leave get the node's address. A rule is of one
// family: what it says of the other is not clear.
func (r *subnetReader) natRules() {
	if n := len(r.spec.NatOutgoingPolicy); n > maxNATRules {
		r.refuse("natOutgoingPolicyRules", "are %d; %d may be", n, maxNATRules)
		return
	}
	for n, rule := range r.spec.NatOutgoingPolicy {
		path := fmt.Sprintf("natOutgoingPolicyRules[%d]", n)
		out := core.NATRule{
			Src:  r.networks(path+".match.srcIPs", rule.Match.SrcIPs),
			Dst:  r.networks(path+".match.dstIPs", rule.Match.DstIPs),
			Keep: rule.Action == v1.NATForward,
		}
		all := slices.Concat(out.Src, out.Dst)
		switch {
		case rule.Action != v1.NATForward && rule.Action != v1.NATTranslate:
			r.refuse(path+".action", "%q is neither %s nor %s", rule.Action, v1.NATTranslate, v1.NATForward)
		case slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Addr().Is4() != all[0].Addr().Is4() }):
			r.refuse(path+".match", "srcIPs and dstIPs are of both families; make a rule for each")
		default:
			r.out.NATRules = append(r.out.NATRules, out)
		}
	}
}

// networks reads addresses and networks with commas between.
func (r *subnetReader) networks(path, text string) (out []netip.Prefix) {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for _, one := range strings.Split(text, ",") {
		one = strings.TrimSpace(one)
		p, err := netip.ParsePrefix(one)
		if a, errA := netip.ParseAddr(one); errA == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || p.Addr().Is4In6() {
			r.refuse(path, "%q is neither an address nor a network in CIDR form", one)
			continue
		}
		out = append(out, p.Masked())
	}
	return out
}
