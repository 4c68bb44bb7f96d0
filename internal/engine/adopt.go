package engine

import (
	"context"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Adopt rebuilds records after the journal was lost, from specs that the
// fabric read back from OVSDB and the kernel. Attachments whose namespace lives
// go on as if nothing had happened; the others are removed by Recover. The name
// of the runtime's network is lost with the journal: GC by network passes these
// records over, and Collect still finds them when their namespace is gone.
func (e *Engine) Adopt(ctx context.Context, specs []core.Spec) {
	byContainer := map[string]*core.Record{}
	for _, s := range specs {
		rec := byContainer[s.Key.Container]
		if rec == nil {
			rec = &core.Record{Key: s.Key, Pod: s.Pod, Created: time.Now().UTC()}
			byContainer[s.Key.Container] = rec
		}
		e.adoptSpec(rec, s)
	}
	for _, rec := range byContainer {
		rec.Begun = len(rec.Specs)
		if err := e.Journal.Begin(ctx, *rec); err != nil {
			e.Log.Error("attachment not adopted", "container", rec.Key.Container, "err", err)
			continue
		}
		e.Log.Info("attachment adopted from OVSDB", "container", rec.Key.Container, "pod", rec.Pod.String(), "phase", string(rec.Phase))
	}
}

func (e *Engine) adoptSpec(rec *core.Record, s core.Spec) {
	rec.Phase = core.Deleting
	if now, err := netns.Identify(s.Netns.Path); err == nil {
		now.BootID = e.BootID
		s.Netns, rec.Phase, rec.Delivered = now, core.Added, true
	}
	if s.Key.IfName == "eth0" {
		rec.Key, s.Default = s.Key, true
	}
	rec.Netns = s.Netns
	rec.Specs = append(rec.Specs, s)
	rec.Links = append(rec.Links, core.Link{
		HostIf: s.HostIf, IfName: s.Key.IfName, MAC: s.MAC, MTU: s.MTU, Addrs: s.Addrs, Gateways: s.Gateways, Routes: s.Routes,
	})
	if s.Subnet == "" {
		return
	}
	var ips []netip.Addr
	for _, a := range s.Addrs {
		ips = append(ips, a.Addr())
	}
	rec.Leases = append(rec.Leases, core.Lease{
		Subnet: s.Subnet, Owner: core.Owner{Key: s.Key, Pod: s.Pod}, IPs: ips, MAC: s.MAC,
	})
}
