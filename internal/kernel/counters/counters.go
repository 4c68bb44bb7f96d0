// Package counters reads what network devices and virtual functions of cards have
// counted. It changes nothing, and knows no pod.
package counters

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Traffic is what one side has received, sent and dropped since the device was made.
type Traffic struct {
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
}

// Turned is the same as the other end of a pair of devices counts it.
func (t Traffic) Turned() Traffic {
	return Traffic{t.TxPackets, t.RxPackets, t.TxBytes, t.RxBytes, t.TxDropped, t.RxDropped}
}

// Function is a virtual function of a card.
type Function struct {
	PF    string
	Index int
}

// Devices are those of one network namespace, by their names, with the virtual functions
// of its cards. A driver that does not count for its functions gives zeros.
type Devices struct {
	Links     map[string]Traffic
	Functions map[Function]Traffic
}

// Read asks a namespace once for all its devices; nil is the process' own.
func Read(ns *netns.Handle) (Devices, error) {
	out := Devices{Links: map[string]Traffic{}, Functions: map[Function]Traffic{}}
	read := func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("counters: %w", err)
		}
		defer h.Close()
		all, err := h.LinkList()
		if err != nil {
			return fmt.Errorf("counters: %w", err)
		}
		for _, l := range all {
			out.add(l.Attrs())
		}
		return nil
	}
	if ns == nil {
		return out, read()
	}
	return out, ns.Do(read)
}

func (d Devices) add(a *netlink.LinkAttrs) {
	if s := a.Statistics; s != nil {
		d.Links[a.Name] = Traffic{s.RxPackets, s.TxPackets, s.RxBytes, s.TxBytes, s.RxDropped, s.TxDropped}
	}
	for _, f := range a.Vfs {
		d.Functions[Function{a.Name, f.ID}] = Traffic{f.RxPackets, f.TxPackets, f.RxBytes, f.TxBytes, f.RxDropped, f.TxDropped}
	}
}
