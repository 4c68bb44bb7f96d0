// Package qdisc gives idempotent verbs over traffic control: what delays and loses the
// packets of a class of a link. It opens a socket for each question, for few links are
// asked about. The classes are somebody else's.
package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// kindNetem is the qdisc that delays and loses packets (tc-netem(8)).
const kindNetem = "netem"

// Attributes of netem that the library does not know, in nanoseconds; of Linux 4.16
// and later (pkt_sched.h).
const (
	netemLatency64 = 10
	netemJitter64  = 11
)

// Netem is a qdisc of that kind. The zero value stands for none.
type Netem struct {
	Latency, Jitter time.Duration
	Limit           int // packets that it holds, those that wait for their rate included
	Loss            int // percent
}

// Of is the netem of a class of a link in ns (nil: the current namespace); the class 1:1
// is 0x1_0001. The zero value if there is none of this kind, or no such class.
func Of(ns *netns.Handle, index int, class uint32) (n Netem, err error) {
	msgs, err := exchange(ns, message(unix.RTM_GETQDISC, unix.NLM_F_ECHO, index, class))
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return n, err
	}
	for _, b := range msgs { // of a class' own queue the kernel tells nothing
		if len(b) >= nl.SizeofTcMsg {
			n, err = parse(b[nl.SizeofTcMsg:])
		}
	}
	return n, err
}

// Set makes the qdisc of a class what n says, in the place of any other. The zero value
// leaves the class the queue that it has by itself. There is an error for a class that
// does not exist, and on a kernel without sch_netem.
func Set(ns *netns.Handle, index int, class uint32, n Netem) error {
	if n == (Netem{}) {
		if have, err := Of(ns, index, class); err != nil || have == n {
			return err
		}
		_, err := exchange(ns, message(unix.RTM_DELQDISC, 0, index, class))
		return err
	}
	m := message(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, class)
	m.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kindNetem)))
	m.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, n.options()))
	_, err := exchange(ns, m)
	return err
}

func message(kind, flags, index int, class uint32) *nl.NetlinkRequest {
	m := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	m.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index), Parent: class}) //nolint:gosec // the kernel's own number
	return m
}

func exchange(ns *netns.Handle, m *nl.NetlinkRequest) (msgs [][]byte, err error) {
	err = ns.Do(func() (err error) {
		msgs, err = m.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("netem: %w", err)
	}
	return msgs, nil
}

// parse reads what follows the struct tcmsg.
func parse(b []byte) (n Netem, err error) {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return n, fmt.Errorf("netem: parse reply: %w", err)
	}
	kind := ""
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_KIND:
			kind = unix.ByteSliceToString(a.Value)
		case nl.TCA_OPTIONS:
			n = parseNetem(a.Value)
		}
	}
	if kind != kindNetem {
		return Netem{}, nil
	}
	return n, nil
}

// options is a struct tc_netem_qopt, which has times in ticks, and the attributes that
// have them in nanoseconds.
func (n Netem) options() []byte {
	fixed := nl.TcNetemQopt{Limit: uint32(n.Limit), Loss: uint32(uint64(n.Loss) * math.MaxUint32 / 100)} //nolint:gosec // the caller's bounds
	out := append([]byte{}, fixed.Serialize()...)
	for _, a := range []struct {
		kind int
		time time.Duration
	}{{netemLatency64, n.Latency}, {netemJitter64, n.Jitter}} {
		out = append(out, nl.NewRtAttr(a.kind, binary.NativeEndian.AppendUint64(nil, uint64(a.time))).Serialize()...) //nolint:gosec // never negative
	}
	return out
}

func parseNetem(b []byte) (n Netem) {
	if len(b) < nl.SizeofTcNetemQopt {
		return n
	}
	n.Limit = int(binary.NativeEndian.Uint32(b[4:]))
	n.Loss = int(math.Round(float64(binary.NativeEndian.Uint32(b[8:])) * 100 / math.MaxUint32))
	attrs, _ := nl.ParseRouteAttr(b[nl.SizeofTcNetemQopt:]) // the kernel made them
	for _, a := range attrs {
		if len(a.Value) < 8 {
			continue
		}
		d := time.Duration(binary.NativeEndian.Uint64(a.Value)) //nolint:gosec // an hour at most
		switch a.Attr.Type {
		case netemLatency64:
			n.Latency = d
		case netemJitter64:
			n.Jitter = d
		}
	}
	return n
}
