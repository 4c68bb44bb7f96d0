package resolve

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// defaultConfDir is Multus' (multinet.md, Configuration).
const defaultConfDir = "/etc/cni/multus/net.d"

// confDirs are where networks are looked up by their name, the first first.
func (r *resolution) confDirs() []string {
	if r.conf.ConfDir != "" {
		return []string{r.conf.ConfDir}
	}
	dirs := []string{defaultConfDir}
	if r.in.ConfDir != "" && r.in.ConfDir != defaultConfDir {
		dirs = append(dirs, r.in.ConfDir)
	}
	return dirs
}

// relative is a file's name in Input.Files, which is the machine's root.
func relative(file string) string {
	if file = strings.TrimPrefix(path.Clean(file), "/"); file == "" {
		return "."
	}
	return file
}

// confNames lists the names of a directory's configuration files, in order.
func (r *resolution) confNames(dir string, suffixes ...string) ([]string, error) {
	if r.in.Files == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(r.in.Files, relative(dir))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		for _, suffix := range suffixes {
			if path.Ext(e.Name()) == suffix && !e.IsDir() {
				out = append(out, e.Name())
			}
		}
	}
	return out, nil
}

// readConf reads one configuration file, without the plugins of its folder.
func (r *resolution) readConf(file string) (cniconf.File, error) {
	data, err := fs.ReadFile(r.in.Files, relative(file))
	if err != nil {
		return cniconf.File{}, core.WithCode(core.CodeIO, file, err)
	}
	f, err := cniconf.ParseFile(path.Base(file), data)
	return f, core.WithCode(core.CodeConfig, file, err)
}

// complete adds the plugins that stand in the network's folder beside its file.
// One of them that is wrong is an error: half a chain is another network.
func (r *resolution) complete(dir string, f cniconf.File) (core.Chain, error) {
	c := f.Chain
	if f.Folder {
		if err := r.appendFolder(&c, path.Join(dir, c.Name)); err != nil {
			return c, err
		}
	}
	if len(c.Plugins) == 0 {
		return c, core.Errorf(core.CodeConfig, "network %s: neither its file nor %s has a plugin", c.Name, path.Join(dir, c.Name))
	}
	return c, nil
}

// appendFolder adds the plugins of a folder's files, by name (libcni v1.3:
// *.conf). Without the folder there are none.
func (r *resolution) appendFolder(c *core.Chain, folder string) error {
	names, err := r.confNames(folder, ".conf")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return core.WithCode(core.CodeIO, "plugins of network "+c.Name, err)
	}
	for _, name := range names {
		file := path.Join(folder, name)
		data, err := fs.ReadFile(r.in.Files, relative(file))
		if err != nil {
			return core.WithCode(core.CodeIO, file, err)
		}
		if err := cniconf.Append(c, data); err != nil {
			return core.WithCode(core.CodeConfig, file, err)
		}
	}
	return nil
}

// byName finds the network called name in the configuration directories;
// core.ErrNotFound.
func (r *resolution) byName(name string) (core.Chain, error) {
	for _, dir := range r.confDirs() {
		f, ok, err := r.inDir(dir, name)
		if err != nil {
			return core.Chain{}, err
		}
		if ok {
			return r.complete(dir, f)
		}
	}
	return core.Chain{}, fmt.Errorf("no file in %s has the name %q: %w", strings.Join(r.confDirs(), " or "), name, core.ErrNotFound)
}

// inDir finds the network in one directory. A list beats a single configuration
// whatever the order of the files; among equals the first wins. Files that
// cannot be read or understood are not ours to judge here: they are skipped.
func (r *resolution) inDir(dir, name string) (best cniconf.File, found bool, err error) {
	names, err := r.confNames(dir, ".conf", ".conflist", ".json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return best, false, core.WithCode(core.CodeIO, "configuration directory "+dir, err)
	}
	for _, file := range names {
		f, err := r.readConf(path.Join(dir, file))
		if errors.Is(err, cniconf.ErrNested) {
			continue // the configuration that is calling
		}
		if err != nil {
			r.in.Log.Warn("network configuration file skipped", "file", path.Join(dir, file), "err", err)
			continue
		}
		if f.Chain.Name == name && (!found || (best.Chain.Single && !f.Chain.Single)) {
			best, found = f, true
		}
	}
	return best, found, nil
}

// byPath reads the network of a file, or of a directory's first file. A
// directory may hold the configuration that is calling: files that would nest
// us in ourselves do not count.
func (r *resolution) byPath(place string) (core.Chain, error) {
	if r.in.Files == nil {
		return core.Chain{}, core.Errorf(core.CodeConfig, "%s cannot be read here", place)
	}
	info, err := fs.Stat(r.in.Files, relative(place))
	if errors.Is(err, fs.ErrNotExist) {
		return core.Chain{}, &core.Error{Code: core.CodeTryAgain, Msg: place + " does not exist",
			Details: "the default network has not written its configuration yet, or the path is wrong", Err: core.ErrNotFound}
	}
	if err != nil {
		return core.Chain{}, core.WithCode(core.CodeIO, place, err)
	}
	if !info.IsDir() {
		f, err := r.readConf(place)
		if err != nil {
			return core.Chain{}, err
		}
		return r.complete(path.Dir(place), f)
	}
	return r.firstOf(place)
}

func (r *resolution) firstOf(dir string) (core.Chain, error) {
	names, err := r.confNames(dir, ".conf", ".conflist", ".json")
	if err != nil {
		return core.Chain{}, core.WithCode(core.CodeIO, dir, err)
	}
	for _, name := range names {
		f, err := r.readConf(path.Join(dir, name))
		if errors.Is(err, cniconf.ErrNested) {
			continue
		}
		if err != nil {
			return core.Chain{}, err
		}
		return r.complete(dir, f)
	}
	return core.Chain{}, &core.Error{Code: core.CodeTryAgain, Msg: dir + " holds no network configuration",
		Details: "the default network has not written its configuration yet, or the path is wrong", Err: core.ErrNotFound}
}
