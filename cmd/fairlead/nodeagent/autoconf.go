package nodeagent

import (
	"context"
	"errors"
	"maps"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/autoconf"
	"github.com/fairlead/fairlead/internal/core"
)

// Values of --cni-conf beside a path.
const (
	confOff  = "off"
	confAuto = "auto"
)

// confOptions are the agent's flags about the runtime's configuration.
type confOptions struct {
	cniConf   string
	cniMaster string
}

func (o *confOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.cniConf, "cni-conf", confOff, "the runtime's configuration "+autoconf.Name+" in --conf-dir: auto (the agent writes and keeps it), FILE (it installs that one), or off")
	f.StringVar(&o.cniMaster, "cni-master", "", "with --cni-conf auto, the default network: none for Fairlead's own, auto for the first other configuration in --conf-dir, or the name of a file there")
}

// validate refuses flags that cannot work.
func (o *confOptions) validate() []error {
	var errs []error
	if o.cniConf != confOff && o.cniConf != confAuto && !filepath.IsAbs(o.cniConf) {
		errs = append(errs, usage.Errorf("--cni-conf %q is neither auto, off nor an absolute path", o.cniConf))
	}
	if o.cniMaster != "" && o.cniConf != confAuto {
		errs = append(errs, usage.Errorf("--cni-master goes with --cni-conf auto"))
	}
	if o.cniMaster != filepath.Base(o.cniMaster) && o.cniMaster != "" {
		errs = append(errs, usage.Errorf("--cni-master %q is a file's name, without its folder", o.cniMaster))
	}
	return errs
}

// confFromFile is what --config says of the runtime's configuration where the
// command line says nothing. A file without multusConfigFile has none written.
func (o *agentOptions) confFromFile(changed func(flag string) bool) {
	d := o.file
	if d.ConfigFile == "" || changed("cni-conf") {
		return
	}
	o.cniConf = d.ConfigFile
	if o.cniConf != confAuto || changed("cni-master") {
		return
	}
	if o.cniMaster = d.MasterCNI; o.cniMaster == "" && !o.networkInFile() {
		o.cniMaster = autoconf.Auto
	}
}

// networkInFile tells that --config itself says what the default network is.
func (o *agentOptions) networkInFile() bool {
	c := o.file.Over(core.Conf{})
	return c.ClusterNetwork != "" || len(c.Delegates) > 0
}

// foreign tells that the default network is somebody else's.
func (o *agentOptions) foreign() bool { return o.cniMaster != "" || o.networkInFile() }

// confWriter keeps the runtime's configuration; nil where nobody asked for it.
func (d *nodeDaemon) confWriter() *autoconf.Writer {
	o, file := d.opts, d.opts.file
	if o.cniConf == confOff {
		return nil
	}
	c := autoconf.Config{
		Dir: o.confDir, Master: o.cniMaster, Ready: d.ready, Log: d.log,
		Options: autoconf.Options{
			CNIVersion: file.CNIVersion, Force: file.ForceCNIVersion, KeepName: file.OverrideNetworkName,
			Capabilities: maps.Clone(file.Capabilities),
		},
	}
	if o.config != "" {
		c.Dir, c.MasterDir = file.CNIConfigDir, file.AutoconfigDir
	}
	if o.cniConf != confAuto {
		c.File = o.cniConf
	}
	if o.socket != cni.DefaultSocket {
		c.Options.Socket = o.socket
	}
	return autoconf.New(c)
}

// ready is nil when an ADD of a pod without wishes works. A node whose default
// network is somebody else's may have no switch.
func (d *nodeDaemon) ready(ctx context.Context) error {
	if d.opts.foreign() {
		return d.engine.ReadyWithoutSwitch(ctx)
	}
	return errors.Join(d.engine.Ready(ctx), d.inOrder())
}

// readyz is ready, that runtimes know of us, and that the API server takes what
// we write of pods: they are served without, and nobody else learns of it.
func (d *nodeDaemon) readyz(ctx context.Context) error {
	err := d.ready(ctx)
	if d.conf != nil {
		err = errors.Join(err, d.conf.Status())
	}
	if api := d.api(); api != nil {
		err = errors.Join(err, api.Writable())
	}
	return err
}
