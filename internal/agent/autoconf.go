package agent

import (
	"context"
	"errors"
	"maps"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/install/conf"
)

// confWriter keeps the runtime's configuration; nil where nobody asked for it.
func (d *Daemon) confWriter() *conf.Writer {
	o, file := d.opts, d.opts.File
	if o.CNIConf == ConfOff {
		return nil
	}
	c := conf.Config{
		Dir: o.ConfDir, Master: o.CNIMaster, Ready: d.ready, Log: d.log,
		Options: conf.Options{
			CNIVersion: file.CNIVersion, Force: file.ForceCNIVersion, KeepName: file.OverrideNetworkName,
			Capabilities: maps.Clone(file.Capabilities),
		},
	}
	if o.ConfigFile != "" {
		c.Dir, c.MasterDir = file.CNIConfigDir, file.AutoconfigDir
	}
	if o.CNIConf != ConfAuto {
		c.File = o.CNIConf
	}
	if o.Socket != cni.DefaultSocket {
		c.Options.Socket = o.Socket
	}
	return conf.New(c)
}

// ready is nil when an ADD of a pod without wishes works. A node whose default
// network is somebody else's may have no switch.
func (d *Daemon) ready(ctx context.Context) error {
	if d.opts.foreign() {
		return d.engine.ReadyWithoutSwitch(ctx)
	}
	return errors.Join(d.engine.Ready(ctx), d.inOrder())
}

// readyz is ready, that runtimes know of us, that a controller of ours gives
// addresses, and that the API server takes what we write of pods: they are served
// without, and nobody else learns of it.
func (d *Daemon) readyz(ctx context.Context) error {
	err := d.ready(ctx)
	if d.conf != nil {
		err = errors.Join(err, d.conf.Status())
	}
	if d.machine != nil {
		err = errors.Join(err, d.carried())
	}
	if api := d.api(); api != nil {
		err = errors.Join(err, api.Writable())
	}
	return err
}
