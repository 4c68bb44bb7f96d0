package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	chainPolicy = ChainPrefix + "NAT-POLICY"
	chainSubnet = "NAT-PSUBNET-" // and the end of the Subnet's UID
	nameLength  = 64             // of a Subnet's name in comments, of which nft's have 128 characters at most
	idLength    = 12             // hex digits of ids in names, of which iptables' have 28 characters at most
)

// ruled tells that rules say which of the Subnet's packets are translated.
func (s Subnet) ruled() bool { return s.NAT && len(s.Rules) > 0 }

// tail is the end of the Subnet's UID, by which Kube-OVN names its chain; where it has
// none, as without a cluster, a short name for its own.
func (s Subnet) tail() string {
	if len(s.UID) < idLength {
		return id(s.Name)
	}
	return s.UID[len(s.UID)-idLength:]
}

// id is a short name for what a text says.
func id(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:idLength]
}

// policies make the Subnets' own rules, and are those that have them asked and do what
// they say. Such a rule marks: the first that matches has decided, and later ones do not
// match what is decided.
func (c *computation) policies() []Rule {
	var lead []Rule
	for _, s := range c.Subnets {
		var inside []Rule
		for i, r := range s.Rules {
			if s.ruled() && c.about(r) {
				inside = append(inside, c.policy(fmt.Sprintf("%s/%d", s.Name, i), r, c.as(s)))
			}
		}
		if len(inside) == 0 {
			continue
		}
		chain := chainSubnet + s.tail()
		for _, p := range s.CIDRs {
			if p.Addr().Is6() == c.v6 {
				lead = append(lead, Rule{Src: p.Masked(), Comment: "natPolicySubnet-" + s.Name[:min(len(s.Name), nameLength)], Do: jump(ChainPrefix + chain), Does: "the rules of Subnet " + s.Name})
			}
		}
		c.chain(NAT, chain, "", inside)
	}
	if len(lead) == 0 {
		return nil
	}
	c.chain(NAT, "NAT-POLICY", "", lead)
	return []Rule{
		{Sets: []Match{c.in("src", setPolicy), c.notIn("dst", setSubnets)}, Do: jump(chainPolicy), Does: "natOutgoingPolicyRules: Subnets' own rules decide"}, // h
		{Mark: Mark{Value: markHide, Mask: every}, Do: jump(chainMasquerade), Does: "what they translate gets the node's address"},                            // i
		{Mark: Mark{Value: markKeep, Mask: every}, Do: Action{Verb: Return}, Does: "what they forward keeps the pod's"},                                       // j
	}
}

// about tells that a rule is about the family.
func (c *computation) about(r core.NATRule) bool {
	for _, list := range [][]netip.Prefix{r.Src, r.Dst} {
		if len(list) > 0 && list[0].Addr().Is6() != c.v6 {
			return false
		}
	}
	return true
}

// policy is one rule of a Subnet, with the sets that it needs. Where the Subnet has an
// address as which its pods leave, what is translated is so at once.
func (c *computation) policy(key string, r core.NATRule, as netip.Addr) Rule {
	out := Rule{Mark: Mark{Value: decided, Mask: decidedBits, Not: true}, Do: mark(markHide, every), Does: "action nat of " + key}
	switch {
	case r.Keep:
		out.Do, out.Does = mark(markKeep, every), "action forward of "+key
	case as.IsValid():
		out.Do = Action{Verb: SNAT, To: as}
	}
	for _, side := range []struct {
		dir string
		of  []netip.Prefix
	}{{"src", r.Src}, {"dst", r.Dst}} {
		if len(side.of) > 0 {
			name := setRule + id(key) + "-" + side.dir
			c.set(name, side.of).Does = side.dir + " of natOutgoingPolicyRules " + key
			out.Sets = append(out.Sets, c.in(side.dir, name))
		}
	}
	return out
}
