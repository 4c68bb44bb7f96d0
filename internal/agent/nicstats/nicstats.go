// Package nicstats tells what the network interfaces of this node's pods have counted: of
// ports of the switch by their devices on the node, of virtual functions by their card, of
// others in the pod's namespace. It keeps nothing between two questions.
package nicstats

import (
	"log/slog"
	"strings"

	"github.com/fairlead/fairlead/internal/agent/metrics"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/counters"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

// Reader asks the kernel for the interfaces that the journal has.
type Reader struct {
	Heads func() []journal.Head
	Log   *slog.Logger
}

// Of is the question for metrics, nil where nobody wants to know.
func Of(on bool, r Reader) func() []metrics.NIC {
	if !on {
		return nil
	}
	return r.Read
}

// Read gives the counters of all interfaces of pods. What cannot be read is left out: no
// series is no statement.
func (r Reader) Read() (out []metrics.NIC) {
	host, err := counters.Read(nil)
	if err != nil {
		r.Log.Warn("counters of pods' interfaces not read", "err", err)
		return nil
	}
	for _, h := range r.Heads() {
		if h.Phase != core.Added || h.Orphan || h.Pod.IsZero() {
			continue
		}
		inside := opened(h.Netns)
		for _, n := range h.Statuses {
			t, ok := find(host, inside, core.Key{Container: h.Key.Container, IfName: n.Interface}, n)
			if n.Interface == "" || !ok {
				continue
			}
			out = append(out, metrics.NIC{Namespace: h.Pod.Namespace, Pod: h.Pod.Name, Interface: n.Interface, Address: strings.Join(n.IPs, ","), Traffic: t})
		}
	}
	return out
}

// opened reads a pod's namespace when it is first asked; one that is gone has no devices.
func opened(n core.Netns) func() map[string]counters.Traffic {
	var links map[string]counters.Traffic
	return func() map[string]counters.Traffic {
		if links != nil {
			return links
		}
		links = map[string]counters.Traffic{}
		h, err := netns.Verify(n)
		if err != nil {
			return links
		}
		defer func() { _ = h.Close() }()
		if d, err := counters.Read(h); err == nil {
			links = d.Links
		}
		return links
	}
}

// find is what an interface has counted, from the pod's side.
func find(host counters.Devices, inside func() map[string]counters.Traffic, key core.Key, n core.Net) (counters.Traffic, bool) {
	if t, ok := host.Links[core.HostIf(key)]; ok {
		return t.Turned(), true
	}
	if v, err := sriov.At("").VF(n.PCI()); err == nil {
		// A driver that does not count for its functions gives zeros: the device in the
		// pod's namespace, where there is one, tells more.
		if t := host.Functions[counters.Function{PF: v.PF, Index: v.Index}]; t != (counters.Traffic{}) {
			return t, true
		}
	}
	t, ok := inside()[n.Interface]
	return t, ok
}
