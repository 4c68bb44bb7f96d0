package kubenet

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// Attached implements netplugin.Collector.
func (p *Plugin) Attached() []netplugin.Pod { return p.store.Pods() }

// Collect frees addresses and devices of sandboxes that nobody knows, also those
// that kubelet's plugin has left here, and puts right what others did to the
// bridge and the rules.
func (p *Plugin) Collect(ctx context.Context, live map[string]bool) error {
	known := p.store.Known(live)
	if p.settings.Hairpin == netplugin.PromiscuousBridge { // its rules cannot be read back: they are written anew
		p.making.Lock()
		p.rules = nil
		p.making.Unlock()
	}
	return errors.Join(p.freeAddresses(ctx, known), p.shaper.Keep(known), p.apply(ctx), p.ports.Audit(ctx))
}

// freeAddresses goes by host-local's files, which say whose an address is. The
// network's folder is this plugin's alone.
func (p *Plugin) freeAddresses(ctx context.Context, known map[string]bool) error {
	conf, err := p.network(p.store.CIDRs())
	if err != nil || len(p.store.CIDRs()) == 0 {
		return err
	}
	holders, err := p.ipam.Holders(ctx, p.conf.DataDir, Name)
	if err != nil {
		return err
	}
	var errs []error
	for id := range holders {
		if !known[id] {
			p.conf.Log.Info("address of a lost sandbox is free again", "sandbox", id)
			errs = append(errs, p.bridge.Del(ctx, p.call(store.Record{Pod: netplugin.Pod{Sandbox: id}, Conf: conf})))
		}
	}
	return errors.Join(errs...)
}
