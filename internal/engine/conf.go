package engine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
)

// input is what resolve needs of a request. What it reads of the machine are
// network configurations, and only those that a NAD or the conf asks for.
func (e *Engine) input(req core.Request) resolve.Input {
	req.Conf = e.conf(req)
	return resolve.Input{Request: req, Files: os.DirFS("/"), ConfDir: e.ConfDir, Devices: e.Devices, Log: e.Log}
}

// conf is a request's configuration with what the agent's file lays over it.
func (e *Engine) conf(req core.Request) core.Conf {
	c := e.Daemon.Over(req.Conf)
	c.CNIDir = cmp.Or(c.CNIDir, multusDir)
	return c
}

// readChains are the networks of a CNI configuration directory, by file name;
// files that are none are left out.
func readChains(dir string) []core.Chain {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []core.Chain
	for _, entry := range entries {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue
		}
		if f, err := cniconf.ParseFile(entry.Name(), data); err == nil {
			out = append(out, f.Chain)
		}
	}
	return out
}

// confExecs are the foreign plugins of the networks that the conf gives to
// every pod, and whether an interface of our own is among them: GC and STATUS
// have no pod. What could be told comes with the error about the rest.
func (e *Engine) confExecs(ctx context.Context, req core.Request) (out []core.Exec, own bool, err error) {
	chains, own, err := resolve.Chains(ctx, e.Source, e.input(req))
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
	return out, own, errors.Join(errs...)
}

// binPath is where foreign plugins are searched, in plan's order.
func (e *Engine) binPath(req core.Request) []string {
	path := slices.Clone(e.Node.BinDirs)
	if dir := e.conf(req).BinDir; dir != "" {
		path = append(path, dir)
	}
	return append(path, req.Path...)
}
