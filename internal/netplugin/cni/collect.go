package cni

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/internal/netplugin"
)

// Attached implements netplugin.Collector.
func (p *Plugin) Attached() []netplugin.Pod { return p.store.Pods() }

// Collect runs GC for each network that pods are attached by, and for the one in
// force: what their plugins keep for others than these nobody will ask back. A
// live sandbox counts also without a record: that may have been lost. Networks
// before CNI 1.1 have no GC; of them libcni's own attachments are looked after.
func (p *Plugin) Collect(ctx context.Context, live map[string]bool) error {
	ctx, stop := context.WithTimeout(ctx, netplugin.CallLimit)
	defer stop()
	valid := []types.GCAttachment{} // not null: that would be no list
	for _, id := range slices.Sorted(maps.Keys(p.store.Known(live))) {
		valid = append(valid, types.GCAttachment{ContainerID: id, IfName: netplugin.IfName})
	}
	var errs []error
	for _, list := range p.networks(ctx) {
		if err := p.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
			errs = append(errs, fmt.Errorf("network %s: GC: %w", list.Name, err))
		}
	}
	return errors.Join(errs...)
}

// networks are those of the records and the one in force, each name once: GC
// goes by it.
func (p *Plugin) networks(ctx context.Context) []*libcni.NetworkConfigList {
	var out []*libcni.NetworkConfigList
	if net, err := p.current(ctx); err == nil {
		out = append(out, net.list)
	}
	for _, r := range p.store.All() {
		list, err := libcni.NetworkConfFromBytes(r.Conf)
		if err == nil && !slices.ContainsFunc(out, func(o *libcni.NetworkConfigList) bool { return o.Name == list.Name }) {
			out = append(out, list)
		}
	}
	return out
}
