package ipset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// Watch calls changed for each set of those that own tells that came, went, or holds more or fewer
// members than when it was looked at last, until ctx ends; and without a name when a look
// fails, once until one does not: whoever looks then sees why. The kernel has no news of sets: each
// look asks for their headers, in one exchange over netlink. These do not tell of a member
// that took another one's place between two looks. Our own changes are told too: whoever is
// called compares before he writes.
func Watch(ctx context.Context, ns *netns.Handle, every time.Duration, own func(name string) bool, changed func(name string)) error {
	socket, err := dial(ns)
	if err != nil {
		return err
	}
	defer func() {
		if socket != nil {
			_ = socket.Close()
		}
	}()
	watch(ctx, every, changed, func() (now map[string]uint32, err error) {
		if socket == nil {
			if socket, err = dial(ns); err != nil {
				return nil, err
			}
		}
		if now, err = headers(socket, own); err != nil {
			_ = socket.Close()
			socket = nil
		}
		return now, err
	})
	return nil
}

func dial(ns *netns.Handle) (s *nlsock.Socket, err error) {
	err = ns.Do(func() (err error) {
		s, err = nlsock.Open(unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch ipsets: %w", err)
	}
	return s, nil
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

// list asks for sets, and answers with one.
const list = unix.NFNL_SUBSYS_IPSET<<8 | nl.IPSET_CMD_LIST

// headers are how many members sets hold, by their names.
func headers(socket *nlsock.Socket, own func(string) bool) (map[string]uint32, error) {
	r := &nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: list, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP}}
	r.AddData(&nl.Nfgenmsg{})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, flagHeaders)))
	answers, err := socket.Ask(r, list)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) { // a kernel without sets
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]uint32{}
	for _, answer := range answers {
		if name, n, err := header(answer); err == nil && own(name) {
			out[name] = n
		}
	}
	return out, nil
}

// header reads the name of a set and how many members it holds.
func header(answer []byte) (name string, members uint32, err error) {
	if len(answer) < nl.SizeofNfgenmsg {
		return "", 0, errors.New("message is cut")
	}
	var inner error
	err = nlsock.Attrs(answer[nl.SizeofNfgenmsg:], func(kind uint16, v []byte) {
		switch kind {
		case nl.IPSET_ATTR_SETNAME:
			name = unix.ByteSliceToString(v)
		case nl.IPSET_ATTR_DATA:
			inner = nlsock.Attrs(v, func(kind uint16, v []byte) {
				if kind == nl.IPSET_ATTR_ELEMENTS && len(v) == 4 {
					members = binary.BigEndian.Uint32(v)
				}
			})
		}
	})
	return name, members, errors.Join(err, inner)
}
