package engine

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
)

// input is what resolve needs of a request; reading the configuration
// directory is the only I/O, and only NADs without spec.config ask for it.
func (e *Engine) input(req core.Request) resolve.Input {
	if req.Conf.ConfDir == "" {
		req.Conf.ConfDir = e.ConfDir
	}
	return resolve.Input{Request: req, ReadConf: readConf, Devices: e.Devices, Log: e.Log}
}

// readConf reads the files of a CNI configuration directory, by name.
func readConf(dir string) ([]resolve.ConfFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []resolve.ConfFile
	for _, entry := range entries {
		switch filepath.Ext(entry.Name()) {
		case ".conf", ".conflist", ".json":
			data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			out = append(out, resolve.ConfFile{Name: entry.Name(), Data: data, Err: err})
		}
	}
	return out, nil
}

// confExecs are the foreign plugins that the conf itself names. GC and STATUS
// have no pod, so there is nothing to resolve; a plugin whose configuration
// cannot be made was refused at ADD already.
func (e *Engine) confExecs(req core.Request) []core.Exec {
	var out []core.Exec
	for _, chain := range req.Conf.Delegates {
		for _, p := range chain.Plugins {
			if p.Own() {
				continue
			}
			conf, err := cniconf.PluginConf(chain, p, cniconf.Inject{})
			if err != nil {
				continue
			}
			out = append(out, core.Exec{
				Type: p.Type, CNIVersion: chain.CNIVersion, Conf: conf, Network: chain.Name,
				Path: e.binPath(req), DisableGC: chain.DisableGC,
			})
		}
	}
	return out
}

// binPath is where foreign plugins are searched, in plan's order.
func (e *Engine) binPath(req core.Request) []string {
	path := slices.Clone(e.Node.BinDirs)
	if req.Conf.BinDir != "" {
		path = append(path, req.Conf.BinDir)
	}
	return append(path, req.Path...)
}
