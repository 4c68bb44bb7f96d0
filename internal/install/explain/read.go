package explain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// file is one entry of the folder as libcni, which all runtimes use, reads it.
type file struct {
	name    string
	ignored string // why it is no configuration, "" if it is one
	dir     bool
	list    *libcni.NetworkConfigList // nil with err
	version string                    // cniVersion as it stands there; the list's is the newest of cniVersions
	folder  bool                      // a list that may have plugins in a folder of its name
	err     error
	line    int // of err, 0 if it has none
}

// extensions are those of configurations, for all runtimes.
var extensions = []string{".conf", ".conflist", ".json"}

var (
	errEmpty  = errors.New("the file is empty")
	errNoType = errors.New("no `type`: a list of plugins belongs into a .conflist")
)

// readDir reads a folder, by name. One that is not there is empty.
func readDir(dir string) ([]file, error) {
	entries, err := os.ReadDir(dir) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files := make([]file, 0, len(entries))
	for _, e := range entries {
		f := file{name: e.Name(), dir: e.IsDir(), ignored: ignored(e)}
		if f.ignored == "" {
			f.read(filepath.Join(dir, f.name))
		}
		files = append(files, f)
	}
	return files, nil
}

// asReadBy gives the list the version that a runtime sees which takes no newer one
// than this: it does not know the key cniVersions, which came with CNI 1.1.
func (f file) asReadBy(newest string) {
	if f.list != nil && beyond(f.list.CNIVersion, newest) {
		f.list.CNIVersion = f.version
	}
}

// beyond tells that a version is newer than the newest that a runtime takes.
func beyond(v, newest string) bool {
	if newest == "" {
		return false
	}
	newer, err := version.GreaterThan(v, newest)
	return err == nil && newer
}

// ignored is why no runtime takes an entry for a configuration, "" if all do.
func ignored(e fs.DirEntry) string {
	switch {
	case e.IsDir():
		return "a folder: no runtime looks into it for configurations"
	case !slices.Contains(extensions, filepath.Ext(e.Name())):
		return "it does not end in .conf, .conflist or .json"
	}
	return ""
}

// hidden tells the files that Fairlead takes for none, unlike the others: they
// are what editors and half-written copies leave.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// Candidates are the files of a folder that Fairlead takes for configurations,
// by their names' bytes, unread.
func Candidates(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if ignored(e) == "" && !hidden(e.Name()) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// Read is a configuration as all runtimes read it, with a plugin at least; the
// error is why none can.
func Read(path string) (*libcni.NetworkConfigList, error) {
	var f file
	f.read(path)
	return f.list, f.err
}

// ValidName is libcni's rule of names, which it applies at each ADD and DEL: by a
// network without a valid one no pod is attached, nor detached.
func ValidName(list *libcni.NetworkConfigList) error {
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return err
	}
	return nil
}

// Types are the plugins that the configurations of a folder run, by their types.
// One that cannot be read runs none, whichever the runtime.
func Types(dir string) (types []string, err error) {
	files, err := readDir(dir)
	for _, f := range files {
		if f.list == nil {
			continue
		}
		for _, p := range f.list.Plugins {
			types = append(types, p.Network.Type)
		}
	}
	return types, err
}

// read parses a configuration as the runtimes do: a .conflist is a list, all
// else a single plugin, which becomes one.
func (f *file) read(path string) {
	content, err := hostfile.Read(path, hostfile.Limit)
	if err != nil {
		f.err = err
		return
	}
	if len(bytes.TrimSpace(content)) == 0 {
		f.err, f.line = errEmpty, 1
		return
	}
	var whole any
	if err := json.Unmarshal(content, &whole); err != nil {
		f.line = lineOf(content, err)
		f.err = fmt.Errorf("line %d: not JSON: %w", f.line, err)
		return
	}
	if top, ok := whole.(map[string]any); ok {
		f.version, _ = top["cniVersion"].(string)
	}
	if filepath.Ext(path) == ".conflist" {
		f.list, f.err = libcni.NetworkConfFromFile(path)
		f.folder = f.err == nil && !f.list.LoadOnlyInlinedPlugins
		return
	}
	f.list, f.err = single(content)
	if f.err != nil {
		if f.line = lineOf(content, f.err); f.line > 0 {
			f.err = fmt.Errorf("line %d: %w", f.line, f.err)
		}
	}
}

// single reads one plugin's configuration.
func single(content []byte) (*libcni.NetworkConfigList, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(content, &head); err == nil && head.Type == "" {
		return nil, errNoType
	}
	conf, err := libcni.NetworkPluginConfFromBytes(content)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf) //nolint:staticcheck // the one way to read what nodes still have
}

// lineOf is the line at which JSON is wrong, 0 if the error does not tell.
func lineOf(content []byte, err error) int {
	offset := int64(-1)
	if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
		offset = e.Offset
	}
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		offset = e.Offset
	}
	if offset < 0 {
		return 0
	}
	// A file that ends too early ends on its last line with something on it.
	content = bytes.TrimSpace(content[:min(offset, int64(len(content)))])
	return 1 + bytes.Count(content, []byte("\n"))
}
