package exec

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// GC has a plugin free what belongs to none of the live attachments of its
// network. Plugins before CNI 1.1 know no GC, and a network may refuse it.
func (d *Driver) GC(ctx context.Context, r driver.Run, call core.Exec, live []core.Key) error {
	if !cniconf.HasGC(call.CNIVersion) || call.DisableGC {
		return nil
	}
	conf, err := cniconf.WithValid(call.Conf, live)
	if err != nil {
		return err
	}
	call.Conf = conf
	c := invocation{run: r, exec: call, command: core.GC}
	_, err = d.call(ctx, c)
	return errors.Join(err, d.tidy(ctx, c))
}

// Status asks a plugin whether it can serve ADD. Where its CNI version has no
// STATUS it must at least be there.
func (d *Driver) Status(ctx context.Context, r driver.Run, call core.Exec) error {
	if !cniconf.HasGC(call.CNIVersion) {
		if d.inside(call.Type, call.Path, call.Conf, false) != nil {
			return nil
		}
		_, err := find(call.Type, call.Path)
		return err
	}
	_, err := d.call(ctx, invocation{run: r, exec: call, command: core.Status})
	return err
}

// Kept implements driver.Lister, of the IPAM plugins that the agent has itself.
func (d *Driver) Kept(calls []core.Exec) (kept []driver.Kept, failed []error) {
	of := map[string][]core.Exec{}
	for _, call := range calls {
		if kind, err := cniconf.IPAMType(call.Conf); err == nil {
			of[kind] = append(of[kind], call)
		}
	}
	for kind, calls := range of {
		if p, ok := d.plugins[kind].(driver.Keeper); ok {
			k, f := p.Kept(calls)
			kept, failed = append(kept, k...), append(failed, f...)
		}
	}
	return kept, failed
}

// hostLocal is the IPAM plugin whose folder both ways have in common.
const hostLocal = "host-local"

// tidy has our own host-local look at the folder that a program's used for DEL or
// GC: the program passes over files that say nothing, and never frees them.
func (d *Driver) tidy(ctx context.Context, c invocation) error {
	if kind, err := cniconf.IPAMType(c.exec.Conf); err != nil || kind != hostLocal || d.inside(c.exec.Type, c.exec.Path, c.exec.Conf, c.command == core.GC) != nil {
		return nil //nolint:nilerr // who reads the configuration otherwise has other files
	}
	p := d.inside(hostLocal, c.exec.Path, c.exec.Conf, true)
	if p == nil {
		return nil
	}
	call := driver.PluginCall{Conf: c.exec.Conf, Key: c.key, Args: c.exec.Args, Time: c.run.Time}
	if may, ok := p.(driver.PluginProver); ok && may.Prove(call) != nil {
		return nil //nolint:nilerr // a plugin that says it by words of its own, as Calico's does, had it do nothing by these
	}
	_, err := c.perform(ctx, p, call)
	return err
}
