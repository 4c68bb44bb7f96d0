package ipset

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestWatchOfCounts: more members, or a set more, are a change as fewer are; what the first
// look finds is none.
func TestWatchOfCounts(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	looks := []map[string]uint32{{"ovn40subnets": 2}, {"ovn40subnets": 2}, {"ovn40subnets": 3}, {"ovn40subnets": 3, "ovn40other": 0}, {"ovn40subnets": 3}, {"ovn40subnets": 1}, {}}
	var told []int
	at := 0
	watch(ctx, time.Millisecond, func(string) { told = append(told, at) }, func() (map[string]uint32, error) {
		at++
		if at == len(looks) {
			stop()
		}
		return looks[min(at, len(looks))-1], nil
	})
	require.Equal(t, []int{3, 4, 5, 6, 7}, told)
}

// TestWatchGoesOn: a look that fails is a doubt, told once, and what went meanwhile is
// seen when looks succeed again.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var told []int     // the looks after which somebody was told ...
	var names []string // ... and of which sets
	looks, away := 0, errors.New("no descriptor")
	watch(ctx, time.Millisecond, func(name string) { told, names = append(told, looks), append(names, name) }, func() (map[string]uint32, error) {
		looks++
		switch looks {
		case 1, 2:
			return map[string]uint32{"ovn40subnets": 2}, nil
		case 3, 4:
			return nil, away
		case 5:
			return map[string]uint32{"ovn40subnets": 1}, nil
		}
		stop()
		return map[string]uint32{"ovn40subnets": 1}, nil
	})
	require.Equal(t, []int{3, 5}, told)
	require.Equal(t, []string{"", "ovn40subnets"}, names)
}

// TestHeader: a header that is cut says nothing of its set, not that it is empty.
func TestHeader(t *testing.T) {
	t.Parallel()
	name := nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated("flt")).Serialize()
	said := func(inner []byte) (string, uint32, error) {
		return header(append(append(make([]byte, nl.SizeofNfgenmsg), name...), nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, inner).Serialize()...))
	}
	count := nl.NewRtAttr(nl.IPSET_ATTR_ELEMENTS|unix.NLA_F_NET_BYTEORDER, []byte{0, 0, 1, 2}).Serialize()
	set, members, err := said(count)
	require.NoError(t, err)
	require.Equal(t, "flt", set)
	require.EqualValues(t, 258, members)
	_, _, err = said(count[:6])
	require.EqualError(t, err, "parse reply: truncated attribute")
	_, _, err = header([]byte{0, 0})
	require.EqualError(t, err, "message is cut")
}
