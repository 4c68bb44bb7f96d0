// Package confdir finds networks in CNI configuration files: by name in a
// directory, or by path. It knows the rules of files, folders and their order,
// and nothing of pods; files come as an fs.FS, so that it is as pure as that is.
//
// Sources: CNI spec 1.1 and libcni v1.3 (loadOnlyInlinedPlugins); spec/multinet.md
// "Configuration" and "Annotations".
package confdir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// suffixes are those of network configurations.
var suffixes = []string{".conf", ".conflist", ".json"}

// Reader reads the configuration files of a machine.
type Reader struct {
	Files fs.FS        // the machine's root; nil: there are no files
	Dirs  []string     // where networks are looked up by name, the first first
	Log   *slog.Logger // hears of files that were skipped
}

// All are the networks of a directory, by file name, without the plugins of
// their folders, the runtime's own included; files that are none are left out.
func (r Reader) All(dir string) []core.Chain {
	names, err := r.confNames(dir, suffixes...)
	if err != nil {
		return nil
	}
	var out []core.Chain
	for _, name := range names {
		if f, err := r.readConf(path.Join(dir, name)); err == nil || errors.Is(err, cniconf.ErrNested) {
			out = append(out, f.Chain)
		}
	}
	return out
}

// IsDir tells whether a path is a directory.
func (r Reader) IsDir(place string) bool {
	info, err := fs.Stat(r.Files, relative(place))
	return err == nil && info.IsDir()
}

// relative is a file's name in Input.Files, which is the machine's root.
func relative(file string) string {
	if file = strings.TrimPrefix(path.Clean(file), "/"); file == "" {
		return "."
	}
	return file
}

// confNames lists the names of a directory's files with one of the suffixes, in
// order.
func (r Reader) confNames(dir string, suffixes ...string) ([]string, error) {
	if r.Files == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(r.Files, relative(dir))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if slices.Contains(suffixes, path.Ext(e.Name())) && !e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// readConf reads one configuration file, without the plugins of its folder.
func (r Reader) readConf(file string) (cniconf.File, error) {
	data, err := fs.ReadFile(r.Files, relative(file))
	if err != nil {
		return cniconf.File{}, core.WithCode(core.CodeIO, file, err)
	}
	f, err := cniconf.ParseFile(path.Base(file), data)
	return f, core.WithCode(core.CodeConfig, file, err)
}

// complete adds the plugins that stand in the network's folder beside its file.
// One of them that is wrong is an error: half a chain is another network.
func (r Reader) complete(dir string, f cniconf.File) (core.Chain, error) {
	c := f.Chain
	if f.Folder {
		if err := r.AppendFolder(&c, path.Join(dir, c.Name)); err != nil {
			return c, err
		}
	}
	if len(c.Plugins) == 0 {
		return c, core.Errorf(core.CodeConfig, "network %s: neither its file nor %s has a plugin", c.Name, path.Join(dir, c.Name))
	}
	return c, nil
}

// AppendFolder adds the plugins of a folder's files, by name (libcni v1.3:
// *.conf). Without the folder there are none.
func (r Reader) AppendFolder(c *core.Chain, folder string) error {
	names, err := r.confNames(folder, ".conf")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return core.WithCode(core.CodeIO, "plugins of network "+c.Name, err)
	}
	for _, name := range names {
		file := path.Join(folder, name)
		data, err := fs.ReadFile(r.Files, relative(file))
		if err != nil {
			return core.WithCode(core.CodeIO, file, err)
		}
		if err := cniconf.Append(c, data); err != nil {
			return core.WithCode(core.CodeConfig, file, err)
		}
	}
	return nil
}

// ByName finds the network called name in the configuration directories;
// core.ErrNotFound.
func (r Reader) ByName(name string) (core.Chain, error) {
	for _, dir := range r.Dirs {
		f, ok, err := r.inDir(dir, name)
		if err != nil {
			return core.Chain{}, err
		}
		if ok {
			return r.complete(dir, f)
		}
	}
	return core.Chain{}, fmt.Errorf("no file in %s has the name %q: %w", strings.Join(r.Dirs, " or "), name, core.ErrNotFound)
}

// inDir finds the network in one directory. A list beats a single configuration
// whatever the order of the files; among equals the first wins. Files that
// cannot be read or understood are not ours to judge here: they are skipped.
func (r Reader) inDir(dir, name string) (best cniconf.File, found bool, err error) {
	names, err := r.confNames(dir, suffixes...)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return best, false, core.WithCode(core.CodeIO, "configuration directory "+dir, err)
	}
	for _, file := range names {
		f, err := r.readConf(path.Join(dir, file))
		if errors.Is(err, cniconf.ErrNested) {
			continue // the configuration that is calling
		}
		if err != nil {
			r.Log.Warn("network configuration file skipped", "file", path.Join(dir, file), "err", err)
			continue
		}
		if f.Chain.Name == name && (!found || (best.Chain.Single && !f.Chain.Single)) {
			best, found = f, true
		}
	}
	return best, found, nil
}

// ByPath reads the network of a file, or of a directory's first file. A
// directory may hold the configuration that is calling: files that would nest
// us in ourselves do not count.
func (r Reader) ByPath(place string) (core.Chain, error) {
	if r.Files == nil {
		return core.Chain{}, core.Errorf(core.CodeConfig, "%s cannot be read here", place)
	}
	info, err := fs.Stat(r.Files, relative(place))
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

func (r Reader) firstOf(dir string) (core.Chain, error) {
	names, err := r.confNames(dir, suffixes...)
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
