package agent

import (
	"context"
	"net/netip"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/agent/probes"
	"github.com/fairlead/fairlead/internal/core"
)

// newProbes makes what leads probes to pods in Vpcs of their own, nil where nobody asked
// for it, or there are none.
func (d *Daemon) newProbes() *probes.Keeper {
	if !d.opts.Filter.Probes || !d.opts.OVN || d.machine != nil {
		return nil
	}
	return probes.New(probes.Config{
		Records: d.journal, Subnets: d.objects.Subnets, Taken: d.reached, Changed: d.move, Log: d.log.With("part", "probes"),
		Ports: func(ctx context.Context, p core.Pod) ([]uint16, error) { return probes.Ports(ctx, d.login, p) },
		Warn: func(p core.Pod, reason, note string) {
			if api := d.api(); api != nil {
				api.Warn(p, reason, note)
			}
		},
	})
}

// probed counts the connections of probes, nil where there are none.
func (d *Daemon) probed() func() (led, refused uint64) {
	if d.probes == nil {
		return nil
	}
	return d.probes.Counts
}

// reached are networks to which the node has a way of its own, as far as they are known.
func (d *Daemon) reached() (out []netip.Prefix) {
	subnets, _ := d.objects.Subnets(context.Background()) //nolint:forbidigo // from memory
	for _, s := range subnets {
		if s.Vpc == "" || s.Vpc == v1.DefaultVpc {
			out = append(out, s.CIDRs...)
		}
	}
	j, _ := d.join()
	own, _ := d.gateway.Own()
	for _, p := range j.Addrs {
		out = append(out, p.Masked())
	}
	for _, a := range append(own, j.Nodes...) {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return append(out, d.opts.Chassis.Services()...)
}
