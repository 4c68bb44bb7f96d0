package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/confdir"
)

// input is what resolve needs of a request. What it reads of the machine are
// network configurations, and only those that a NAD or the conf asks for.
func (e *Engine) input(req core.Request) resolve.Input {
	req.Conf = e.conf(req)
	return resolve.Input{Request: req, Files: hostfile.Machine(), ConfDir: e.ConfDir, Devices: e.Devices, PFOf: e.PFOf, Declared: e.Declared, NodePorts: e.NodePorts, OVN: e.OVN, Alone: e.Alone, Rank: e.IPAM.Full, Inside: e.inside, Log: e.Log}
}

// inside tells that the agent carries out a plugin's call itself, where it is searched as plan
// has it.
func (e *Engine) inside(x core.Exec) bool {
	x.Path = slices.Concat(e.Node.BinDirs, x.Path)
	return e.Drivers.Inside(core.Spec{Driver: core.DriverExec, Exec: &x})
}

// conf is a request's configuration with what the agent's file lays over it.
func (e *Engine) conf(req core.Request) core.Conf {
	c := e.Daemon.Over(req.Conf)
	c.CNIDir = cmp.Or(c.CNIDir, multusDir)
	return c
}

// runtimeChains are the networks of the runtime's configuration directory.
func (e *Engine) runtimeChains() []core.Chain {
	return confdir.Reader{Files: hostfile.Machine()}.All(e.ConfDir)
}

// confExecs are the foreign plugins of the networks that the conf gives to
// every pod, and the drivers of our own NICs among them: GC and STATUS
// have no pod. They are answered from what is known: an API server that is away
// must not keep a runtime from either. What could be told comes with the error
// about the rest.
func (e *Engine) confExecs(ctx context.Context, req core.Request) (out []core.Exec, drivers []string, err error) {
	chains, drivers, err := resolve.Chains(ctx, resolve.FromMemory{Source: e.Source}, e.input(req))
	errs := []error{err}
	for _, chain := range chains {
		for _, p := range chain.Plugins {
			if p.Own() {
				continue
			}
			conf, err := cniconf.PluginConf(chain, p, cniconf.Inject{})
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out = append(out, core.Exec{
				Type: p.Type, CNIVersion: chain.CNIVersion, Conf: conf, Network: chain.Name,
				Path: e.binPath(req), DisableGC: chain.DisableGC,
			})
		}
	}
	return out, drivers, errors.Join(errs...)
}

// binPath is where foreign plugins are searched, in plan's order.
func (e *Engine) binPath(req core.Request) []string {
	path := slices.Clone(e.Node.BinDirs)
	if dir := e.conf(req).BinDir; dir != "" {
		path = append(path, dir)
	}
	return append(path, req.Path...)
}
