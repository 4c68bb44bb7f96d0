package exec

import (
	"context"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// GC has a plugin free what belongs to none of the live attachments of its
// network. Plugins before CNI 1.1 know no GC, and a network may refuse it.
func (d *Driver) GC(ctx context.Context, call core.Exec, live []core.Key) error {
	if !cniconf.HasGC(call.CNIVersion) || call.DisableGC {
		return nil
	}
	conf, err := cniconf.WithValid(call.Conf, live)
	if err != nil {
		return err
	}
	call.Conf = conf
	_, err = d.call(ctx, invocation{exec: call, command: core.GC})
	return err
}

// Status asks a plugin whether it can serve ADD. Where its CNI version has no
// STATUS it must at least be there.
func (d *Driver) Status(ctx context.Context, call core.Exec) error {
	if !cniconf.HasGC(call.CNIVersion) {
		if d.inside(call.Type, call.Path, call.Conf, false) != nil {
			return nil
		}
		_, err := find(call.Type, call.Path)
		return err
	}
	_, err := d.call(ctx, invocation{exec: call, command: core.Status})
	return err
}
