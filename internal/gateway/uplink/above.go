package uplink

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// hearing is what the kernel hears of a NIC that is deaf otherwise.
type hearing struct {
	nic   int // its index
	vlans []nft.Tag
}

// vlans are the VLAN links above a NIC, by id: they stay there with all that they have. The
// kernel has their frames before its datapath has, and hears them beside one in user space.
// So such a VLAN is the node's and not the pods': clash says that somebody wants it to be
// theirs too, or a link that is not there.
func (m *mover) vlans(nic rtnl.Link) (above []rtnl.Link, clash, err error) {
	links, err := m.c.Links()
	if err != nil {
		return nil, nil, err
	}
	for _, l := range links {
		if l.Lower == nic.Index && l.VLAN != 0 {
			above = append(above, l)
		}
	}
	slices.SortFunc(above, func(a, b rtnl.Link) int { return cmp.Compare(a.VLAN, b.VLAN) })
	for _, l := range above {
		if slices.Contains(m.trunks, l.VLAN) {
			clash = errors.Join(clash, fmt.Errorf("VLAN %d of %s is %s's, and the node's: pods cannot have it too: %w", l.VLAN, nic.Name, l.Name, core.ErrExists))
		}
	}
	for _, name := range m.above {
		if !slices.Contains(names(above), name) {
			clash = errors.Join(clash, fmt.Errorf("%s is no VLAN link above %s: %w", name, nic.Name, core.ErrNotFound))
		}
	}
	return above, clash, nil
}

// trunk are the VLANs of a NIC's port: those of the network that no link above has.
func (m *mover) trunk(above []rtnl.Link) []int {
	if m.trunks == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(m.trunks), func(id int) bool { return slices.Contains(ids(above), id) })
}

func names(links []rtnl.Link) (out []string) {
	for _, l := range links {
		out = append(out, l.Name)
	}
	return out
}

func tags(links []rtnl.Link) (out []nft.Tag) {
	for _, l := range links {
		out = append(out, nft.Tag{Protocol: l.VLANProtocol, ID: l.VLAN})
	}
	return out
}

func ids(links []rtnl.Link) (out []int) {
	for _, l := range links {
		out = append(out, l.VLAN)
	}
	return out
}
