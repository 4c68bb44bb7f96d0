package ipset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Watch calls changed for each set of those that own tells that came, went, or holds more or fewer
// members than when it was looked at last, until ctx ends; and without a name when a look
// fails, once until one does not: whoever looks then sees why. The kernel has no news of sets: each
// look asks for their headers, in one exchange over netlink. These do not tell of a member
// that took another one's place between two looks. Our own changes are told too: whoever is
// called compares before he writes.
func Watch(ctx context.Context, ns *netns.Handle, every time.Duration, own func(name string) bool, changed func(name string)) error {
	cfg := &netlink.Config{}
	if ns != nil {
		cfg.NetNS = ns.Fd()
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, cfg)
	if err != nil {
		return fmt.Errorf("watch ipsets: %w", err)
	}
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	watch(ctx, every, changed, func() (now map[string]uint32, err error) {
		if conn == nil {
			if conn, err = netlink.Dial(unix.NETLINK_NETFILTER, cfg); err != nil {
				return nil, err
			}
		}
		if now, err = headers(conn, own); err != nil { // the rest of an answer may be in it
			_ = conn.Close()
			conn = nil
		}
		return now, err
	})
	return nil
}

// watch compares what looks give until ctx ends.
func watch(ctx context.Context, every time.Duration, changed func(name string), look func() (map[string]uint32, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last map[string]uint32
	for failing := false; ; {
		now, err := look()
		if err != nil && !failing {
			changed("")
		}
		if failing = err != nil; !failing {
			if last != nil { // to compare with
				for _, name := range others(last, now) {
					changed(name)
				}
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// others are the sets that came, went, or have another number of members.
func others(last, now map[string]uint32) (out []string) {
	for name, n := range now {
		if had, was := last[name]; !was || had != n {
			out = append(out, name)
		}
	}
	for name := range last {
		if _, is := now[name]; !is {
			out = append(out, name)
		}
	}
	return out
}

// flagHeaders has the kernel leave members out (IPSET_FLAG_LIST_HEADER).
const flagHeaders = 1 << 2

// nfgenmsg is the length of the header before a message's attributes, in bytes.
const nfgenmsg = 4

// headers are how many members sets hold, by their names.
func headers(conn *netlink.Conn, own func(string) bool) (map[string]uint32, error) {
	e := netlink.NewAttributeEncoder()
	e.Uint8(nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	e.ByteOrder = binary.BigEndian
	e.Uint32(nl.IPSET_ATTR_FLAGS|netlink.NetByteOrder, flagHeaders)
	attrs, err := e.Encode()
	if err != nil {
		return nil, err
	}
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_IPSET<<8 | nl.IPSET_CMD_LIST, Flags: netlink.Request | netlink.Dump},
		Data:   append(make([]byte, nfgenmsg), attrs...),
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) { // a kernel without sets
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]uint32{}
	for _, m := range answers {
		if name, n, err := header(m); err == nil && own(name) {
			out[name] = n
		}
	}
	return out, nil
}

// header reads the name of a set and how many members it holds.
func header(m netlink.Message) (name string, members uint32, err error) {
	if len(m.Data) < nfgenmsg {
		return "", 0, errors.New("message is cut")
	}
	d, err := netlink.NewAttributeDecoder(m.Data[nfgenmsg:])
	if err != nil {
		return "", 0, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case nl.IPSET_ATTR_SETNAME:
			name = d.String()
		case nl.IPSET_ATTR_DATA:
			d.Nested(func(in *netlink.AttributeDecoder) error {
				for in.Next() {
					if in.Type() == nl.IPSET_ATTR_ELEMENTS {
						members = in.Uint32()
					}
				}
				return nil
			})
		}
	}
	return name, members, d.Err()
}
