package uplink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// TestPick: a NIC is found by its place on the bus and its maker's address, under any name. A
// port that shares the place is not taken for it, and a place alone tells a NIC that has
// another name only where no other link has it.
func TestPick(t *testing.T) {
	t.Parallel()
	mac := func(n byte) core.MAC { return core.MAC{2, 0, 0, 0, 0, n} }
	link := func(name, bus string, permanent core.MAC) rtnl.Link {
		return rtnl.Link{Index: len(name) + int(name[len(name)-1]), Name: name, Bus: bus, Permanent: permanent, MAC: mac(9)}
	}
	const slot, other = "0000:03:00.0", "0000:04:00.0"
	for _, c := range []struct {
		what      string
		permanent core.MAC
		links     []rtnl.Link
		want      string // "" for none
	}{
		{"as it was", mac(2), []rtnl.Link{link("eth1", slot, mac(1)), link("eth2", slot, mac(2))}, "eth2"},
		{"another name", mac(2), []rtnl.Link{link("eth1", slot, mac(1)), link("lan0", slot, mac(2))}, "lan0"},
		{"a port beside it is left", mac(2), []rtnl.Link{link("eth1", slot, mac(1))}, ""},
		{"both ports have the other's name", mac(2), []rtnl.Link{link("eth2", slot, mac(1)), link("eth1", slot, mac(2))}, "eth1"},
		{"another card in its slot, with its name", mac(2), []rtnl.Link{link("eth2", slot, mac(7))}, "eth2"},
		{"no maker's address is known", nil, []rtnl.Link{link("lan0", slot, nil), link("eth1", other, nil)}, "lan0"},
		{"nor which of two it is", nil, []rtnl.Link{link("lan0", slot, nil), link("lan1", slot, nil)}, ""},
		{"the kernel tells no place any more", mac(2), []rtnl.Link{link("lan0", "", mac(2)), link("eth1", "", mac(1))}, "lan0"},
	} {
		got, err := pick(core.Uplink{NIC: "eth2", Port: "eth2", Bus: slot, Permanent: c.permanent, MAC: mac(9)}, c.links)
		if c.want == "" {
			require.ErrorIs(t, err, core.ErrNotFound, c.what)
			continue
		}
		require.NoError(t, err, c.what)
		require.Equal(t, c.want, got.Name, c.what)
	}
}
