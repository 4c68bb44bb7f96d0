package gateway

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/match"
	"github.com/fairlead/fairlead/internal/ovn"
)

// terms are those of a share's match.
var terms = regexp.MustCompile(`ip6\.src\[0\.\.2\] == (\d) && ip6\.dst\[0\.\.2\] == \{([^}]*)\}`)

// TestShare: each packet is in one share, and shares are equal.
func TestShare(t *testing.T) {
	t.Parallel()
	for n := 2; n <= ends*ends; n++ {
		seen, sizes := map[string]int{}, []int{}
		for i := range n {
			text, size := share("ip6", i, n), 0
			require.Empty(t, match.Fault(text))
			for _, m := range terms.FindAllStringSubmatch(text, -1) {
				for dst := range strings.SplitSeq(m[2], ", ") {
					seen[m[1]+" "+dst]++
					size++
				}
			}
			sizes = append(sizes, size)
		}
		require.Len(t, seen, ends*ends, n)
		for at, times := range seen {
			require.Equal(t, 1, times, "%s of %d", at, n)
		}
		require.LessOrEqual(t, slices.Max(sizes)-slices.Min(sizes), 1, n)
	}
}

// TestParts: with ECMP what leaves by one gateway is the same whoever else dies and comes
// back; what a bad one had all good ones share. Without it there is one part.
func TestParts(t *testing.T) {
	t.Parallel()
	c := netip.MustParsePrefix("10.18.0.0/16")
	var homes []Node
	for _, i := range []byte{3, 1, 2} {
		homes = append(homes, Node{Name: fmt.Sprintf("n%d", i), IPs: []netip.Addr{netip.AddrFrom4([4]byte{100, 64, 0, i})}})
	}
	homes = append(homes, Node{Name: "six", IPs: []netip.Addr{netip.MustParseAddr("fd00:100:64::9")}})
	names := func(p part) (out string) {
		for _, n := range p.to {
			out += n.Name
		}
		return out
	}
	whole := leave{via: homes, homes: homes}.parts(c)
	require.Len(t, whole, 3)
	for i, p := range whole {
		require.Equal(t, fmt.Sprintf("n%d", i+1), names(p))
		require.Empty(t, match.Fault(p.match))
	}
	without := func(bad ...string) []part {
		return leave{via: slices.DeleteFunc(slices.Clone(homes), func(n Node) bool { return slices.Contains(bad, n.Name) }), homes: homes}.parts(c)
	}
	less := without("n2")
	require.Equal(t, []part{whole[0], whole[2]}, []part{less[0], less[2]})
	require.Equal(t, "n1n3", names(less[1]))
	require.Equal(t, []string{whole[1].key, whole[1].match}, []string{less[1].key, less[1].match})
	for i, p := range without("n1", "n2") {
		require.Equal(t, "n3", names(p), i)
	}
	all := "ip4.src == 10.18.0.0/16"
	require.Equal(t, []part{{all, all, nil}}, without("n1", "n2", "n3"), "of this family there is none")
	require.Equal(t, []part{{all, all, homes[1:2]}}, leave{via: homes[1:2]}.parts(c))
	require.Equal(t, []part{{all, all, homes[1:2]}}, leave{via: homes[1:2], homes: homes[1:2]}.parts(c))
}

// TestActiveOfSeveral: a Subnet whose parts leave by several gateways has no active one.
func TestActiveOfSeveral(t *testing.T) {
	t.Parallel()
	by := func(node, ip string) ovn.Policy {
		return ovn.Policy{Nexthops: []string{ip}, ExternalIDs: map[string]string{node: ip}}
	}
	seen := Seen{Routes: func(string) (map[string]ovn.Policy, error) {
		return map[string]ovn.Policy{
			"subnet/shared/29000/a": by("n1", "100.64.0.2"), "subnet/shared/29000/b": by("n2", "100.64.0.3"), "subnet/shared/29000/c": by("n1", "100.64.0.2"),
			"subnet/web/29000/a": by("n1", "100.64.0.2"), "subnet/web/29000/b": by("n1", "fd00::2"),
		}, nil
	}}
	require.Equal(t, map[string]string{"shared": "", "web": "n1"}, seen.active())
}
