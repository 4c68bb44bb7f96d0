package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Generation is a number of ns (nil: the current namespace) that the kernel raises with each
// change of nftables there, by whomever and of whichever table, those of iptables-nft among
// them. What was read is so still while the number is the same.
func Generation(ns *netns.Handle) (uint32, error) {
	id, err := generation(ns)
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	return id, nil
}

func generation(ns *netns.Handle) (id uint32, err error) {
	cfg := &netlink.Config{}
	if ns != nil {
		cfg.NetNS = ns.Fd()
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, nfgenmsg),
	})
	if err != nil {
		return 0, err
	}
	for _, m := range answers {
		if len(m.Data) < nfgenmsg {
			continue
		}
		attrs, err := netlink.UnmarshalAttributes(m.Data[nfgenmsg:])
		if err != nil {
			return 0, err
		}
		for _, a := range attrs {
			if a.Type == unix.NFTA_GEN_ID && len(a.Data) == 4 {
				return binary.BigEndian.Uint32(a.Data), nil
			}
		}
	}
	return 0, errors.New("no answer")
}

// Reading is what was read of nftables in a generation. Its zero value is of none.
type Reading[T any] struct {
	of    uint32 // 0: none; the kernel skips it
	value T
}

// Get gives what read gives, and does not call it where nothing was changed since it was
// called last. What is given must not be altered.
func (r *Reading[T]) Get(ns *netns.Handle, read func() (T, error)) (T, error) {
	before, err := Generation(ns)
	if err == nil && before != 0 && before == r.of {
		return r.value, nil
	}
	*r = Reading[T]{}
	value, errRead := read()
	if errRead != nil {
		return value, errRead
	}
	if after, errAfter := Generation(ns); err == nil && errAfter == nil && before == after { // it is of one moment
		*r = Reading[T]{of: after, value: value}
	}
	return value, nil
}
