package share

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func held(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

const whole = "10.16.0.0/16"

// TestOf: what a node may do with a Subnet, by what the Node objects say and
// what it holds.
func TestOf(t *testing.T) {
	s := core.Subnet{Name: "s", CIDRs: prefixes(whole)}
	block := s
	block.NodeBlock = true
	dual := core.Subnet{Name: "s", CIDRs: prefixes(whole, "fd00::/48"), NodeBlock: true}
	none := Node{Claims: Claims{}}
	claims := func(parts ...string) Node { return Node{Claims: Claims{"s": prefixes(parts...)}} }
	mine, theirs := "10.16.1.0/24", "10.16.2.0/24"
	for _, c := range []struct {
		name      string
		subnet    core.Subnet
		nodes     map[string]Node
		blocks    []netip.Prefix
		held      []netip.Addr
		unclaimed bool
		within    []netip.Prefix
		want      []netip.Prefix
		refused   string
		conflict  bool
	}{
		{name: "alone", subnet: s, nodes: map[string]Node{"a": none}, unclaimed: true, want: prefixes(whole)},
		{name: "alone, claimed", subnet: s, nodes: map[string]Node{"a": claims(whole)}, want: prefixes(whole)},
		{name: "not registered", subnet: s, nodes: map[string]Node{"b": none}, refused: "no Node of this name"},
		{name: "none registered", subnet: s, nodes: map[string]Node{}, refused: "no Node of this name"},
		{name: "two, nobody gives", subnet: s, nodes: map[string]Node{"a": none, "b": none}, refused: "the cluster has 2 nodes"},
		{name: "two, it holds", subnet: s, nodes: map[string]Node{"a": none, "b": none}, held: held("10.16.0.2"), unclaimed: true, want: prefixes(whole)},
		{name: "two, it gives", subnet: s, nodes: map[string]Node{"a": claims(whole), "b": none}, want: prefixes(whole)},
		{name: "two, the other gives", subnet: s, nodes: map[string]Node{"a": none, "b": claims(whole)}, refused: "node b gives them"},
		{name: "both hold", subnet: s, nodes: map[string]Node{"a": claims(whole), "b": claims(whole)}, held: held("10.16.0.2"), want: prefixes(whole), refused: "node b holds", conflict: true},
		{name: "both claim, it holds none: it withdraws", subnet: s, nodes: map[string]Node{"a": claims(whole), "b": claims(whole)}, refused: "node b holds", conflict: true},
		{name: "another's claims cannot be read", subnet: s, nodes: map[string]Node{"a": claims(whole), "b": {Fault: errors.New("x")}}, refused: "node b holds", conflict: true},
		{name: "another Subnet", subnet: s, nodes: map[string]Node{"a": claims(whole), "b": {Claims: Claims{"t": prefixes(whole)}}}, want: prefixes(whole)},
		{name: "block", subnet: block, nodes: map[string]Node{"a": none, "b": claims(theirs)}, blocks: prefixes(mine), unclaimed: true, within: prefixes(mine), want: prefixes(mine)},
		{name: "block, claimed", subnet: block, nodes: map[string]Node{"a": claims(mine), "b": claims(theirs)}, blocks: prefixes(mine), within: prefixes(mine), want: prefixes(mine)},
		{name: "block elsewhere", subnet: block, nodes: map[string]Node{"a": none}, blocks: prefixes("10.244.1.0/24"), refused: "has no block inside cidrBlock 10.16.0.0/16"},
		{name: "no block yet", subnet: block, nodes: map[string]Node{"a": none}, refused: "has no block inside"},
		{name: "block of another", subnet: block, nodes: map[string]Node{"a": none, "b": claims(mine)}, blocks: prefixes(mine), refused: "node b gives them", within: prefixes(mine)},
		{name: "block, the other has strays in it", subnet: block, nodes: map[string]Node{"a": none, "b": claims(theirs, whole)}, blocks: prefixes(mine), refused: "node b gives them", within: prefixes(mine)},
		{name: "block, it has strays", subnet: block, nodes: map[string]Node{"a": claims(mine), "b": claims(theirs)}, blocks: prefixes(mine), held: held("10.16.2.9", "10.16.1.4"),
			unclaimed: true, within: prefixes(mine), want: prefixes(mine, whole)},
		{name: "two families", subnet: dual, nodes: map[string]Node{"a": none, "b": none}, blocks: prefixes(mine, "fd00:0:0:7::/64"), unclaimed: true,
			within: prefixes(mine, "fd00:0:0:7::/64"), want: prefixes(mine, "fd00:0:0:7::/64")},
		{name: "two families, one block", subnet: dual, nodes: map[string]Node{"a": none}, blocks: prefixes(mine), refused: "inside cidrBlock fd00::/48"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := View{Self: "a", Nodes: c.nodes, Blocks: c.blocks}.Of(c.subnet, c.held, true)
			require.Equal(t, []any{c.unclaimed, c.within, c.want, c.conflict}, []any{a.Unclaimed, a.Within, a.Want, a.Conflict})
			if c.refused == "" {
				require.NoError(t, a.Refused)
				return
			}
			require.ErrorContains(t, a.Refused, c.refused)
		})
	}
	t.Run("unasked", func(t *testing.T) {
		require.Empty(t, View{Self: "a", Nodes: map[string]Node{"a": none}}.Of(s, nil, false).Want)
	})
	t.Run("a controller gives", func(t *testing.T) {
		v := View{Self: "a", Nodes: map[string]Node{"a": none, "b": claims(whole)}, OVN: true}
		require.Equal(t, Answer{}, v.Of(s, nil, true))
		require.Equal(t, Answer{Held: true, Want: prefixes("10.16.0.2/32", "fd00::2/128")}, v.Of(s, held("fd00::2", "10.16.0.2"), true))
	})
	t.Run("unknown", func(t *testing.T) {
		err := View{Self: "a", Unknown: errors.New("forbidden")}.Of(s, held("10.16.0.2"), true).Refused
		require.ErrorContains(t, err, "forbidden")
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	})
}

func TestClaims(t *testing.T) {
	c := Claims{"s": prefixes(whole, "fd00::/64")}
	got, err := ParseClaims(c.String())
	require.NoError(t, err)
	require.Equal(t, c, got)
	require.Empty(t, Claims{}.String())
	for _, bad := range []string{"x", `{"s": "10.0.0.0/8"}`, `{"s": ["10.0.0.300/8"]}`} {
		_, err := ParseClaims(bad)
		require.ErrorContains(t, err, Annotation, bad)
	}
}

// TestHolds: single addresses are what a node holds, networks what it gives addresses of.
func TestHolds(t *testing.T) {
	holds, gives := Claims{"held": prefixes("10.16.0.2/32", "fd00::2/128"), "given": prefixes(whole), "both": prefixes(whole, "10.17.0.2/32")}.Holds()
	require.Equal(t, map[string][]netip.Addr{"held": held("10.16.0.2", "fd00::2")}, holds)
	require.Equal(t, []string{"both", "given"}, gives)
}

func TestOthers(t *testing.T) {
	nodes := map[string]Node{"own": {IPs: "192.0.2.1"}, "b": {IPs: "192.0.2.3,fd00::3"}, "a": {IPs: "192.0.2.2,x"}, "new": {}}
	require.Equal(t, held("192.0.2.2", "192.0.2.3", "fd00::3"), View{Self: "own", Nodes: nodes}.Others())
	require.Equal(t, held("192.0.2.1"), View{Self: "own", Nodes: nodes}.Own())
	require.Equal(t, Node{Claims: Claims{}, IPs: "192.0.2.1"}, ReadNode(map[string]string{"fairlead.io/node-ips": "192.0.2.1"}))
}

func TestSummarize(t *testing.T) {
	_, any := Summarize(nil)
	require.False(t, any)
	no := errors.New("no")
	for _, c := range []struct {
		answers map[string]Answer
		want    Summary
	}{
		{map[string]Answer{"a": {}, "b": {}}, Summary{"True", "Given", "addresses of Subnet a, b"}},
		{map[string]Answer{"a": {}, "b": {Refused: no}}, Summary{"False", "Refused", "no"}},
		{map[string]Answer{"a": {Refused: no, Conflict: true}, "b": {Refused: no}}, Summary{"False", "Conflict", "no; no"}},
	} {
		got, any := Summarize(c.answers)
		require.True(t, any)
		require.Equal(t, c.want, got)
	}
}
